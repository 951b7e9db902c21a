-- The tables of the spine. Times are seconds since the epoch, UTC. JSON is text on both backends.
-- tenant_id is in every table; ids that we mint are unique over all tenants.

create table sessions (
  id text primary key,
  tenant_id text not null,
  home text not null,               -- thread_target where text, progress and cards go
  title text not null default '',
  persona text not null,
  owner_id text not null,           -- the principal the session belongs to
  origin text not null,             -- 'person', 'schedule'
  home_open integer not null,       -- 1: a person opened the session in its home thread
  model text not null,
  mode text not null,
  roots text not null,              -- JSON: [{path, writable, own}]
  custom text not null default '{}',-- JSON: tool name -> allow, ask, refuse
  taint text not null default '[]', -- JSON: labels of outside text in the log
  state text not null default 'idle', -- idle, running, parked
  worker text,                      -- who advances it now; null: nobody
  epoch bigint not null default 0,
  wanted bigint not null default 0,
  seen bigint not null default 0,
  attempts integer not null default 0,
  stop_mark bigint not null default 0,
  seq bigint not null default 0,    -- last place in the log
  turn bigint not null default 0,   -- number of the last turn
  turn_seq bigint not null default 0, -- log place where the open turn starts; 0: none is open
  presented bigint not null default 0, -- the presenter's cursor in the log
  created_at double precision not null,
  updated_at double precision not null
);
create index sessions_runnable on sessions (id) where wanted > seen;
create index sessions_unpresented on sessions (id) where seq > presented;
create index sessions_tenant on sessions (tenant_id, updated_at);
create index sessions_worker on sessions (worker) where worker is not null;

create table threads (
  tenant_id text not null,
  thread_target text not null,
  session_id text not null,
  created_at double precision not null,
  primary key (tenant_id, thread_target)
);
create index threads_session on threads (session_id);

create table log (
  tenant_id text not null,
  session_id text not null,
  seq bigint not null,
  kind text not null,
  turn bigint not null,
  iteration integer not null,
  call_id text,
  at double precision not null,
  body text not null,
  primary key (session_id, seq)
);

create table mailbox (
  id {identity},
  tenant_id text not null,
  session_id text,                  -- null: waits on an access prompt
  kind text not null,               -- message, stop, retry, undo, switch, note, fire, wake
  event_key text not null,          -- the platform's event id: a second copy is a no-op
  thread_target text not null,
  principal_id text not null,
  body text not null,               -- JSON
  at double precision not null,
  entered_seq bigint,               -- log place it became; null: still waiting
  unique (tenant_id, event_key)
);
create index mailbox_waiting on mailbox (session_id, id) where entered_seq is null;
create index mailbox_session on mailbox (session_id);

create table calls (
  id text primary key,
  tenant_id text not null,
  session_id text not null,
  turn bigint not null,
  iteration integer not null,
  place integer not null,           -- order within the iteration
  name text not null,
  risk text not null,
  arguments_hash text not null,
  status text not null,
  attempt integer not null,
  worker text,
  act_by double precision,
  started_at double precision,
  finished_at double precision
);
create index calls_session on calls (session_id, turn);
create index calls_open on calls (session_id) where status in ('started', 'unknown');

create table prompts (
  id text primary key,
  tenant_id text not null,
  session_id text,
  kind text not null,               -- approval, question, plan, grant, access, outcome, connect, notice
  subject text not null,            -- unique for good by (tenant, kind, subject)
  call_id text,
  turn bigint not null,
  arguments_hash text not null default '',
  payload text not null,            -- JSON: everything the card shows, whole
  status text not null default 'pending', -- pending, resolved
  needs integer not null default 1, -- votes for a yes
  approvers text not null,          -- JSON: principal ids or roles who may answer
  created_at double precision not null,
  remind_at double precision,
  deadline double precision not null,
  answer text,                      -- JSON
  resolved_by text,
  resolved_on text,                 -- surface
  resolved_at double precision,
  entered_seq bigint,               -- log place where the owner took the answer in
  unique (tenant_id, kind, subject)
);
create index prompts_pending on prompts (tenant_id, created_at) where status = 'pending';
create index prompts_due on prompts (deadline) where status = 'pending';
create index prompts_remind on prompts (remind_at) where status = 'pending' and remind_at is not null;
create index prompts_session on prompts (session_id);
create index prompts_answered on prompts (session_id)
  where status = 'resolved' and entered_seq is null;

create table votes (
  tenant_id text not null,
  prompt_id text not null,
  principal_id text not null,
  answer text not null,
  arguments_hash text not null,
  surface text not null,
  at double precision not null,
  primary key (prompt_id, principal_id)
);

create table deliveries (
  id text primary key,
  tenant_id text not null,
  session_id text not null,
  kind text not null,               -- show, act
  subject text not null,
  destination text not null,        -- thread_target
  part integer not null default 1,
  payload text not null default '{}',
  status text not null,             -- open, sending, sent, failed
  ref text,                         -- the platform's message id
  shown text not null default '',   -- hash of what was last shown there
  attempted_at double precision,
  created_at double precision not null,
  updated_at double precision not null,
  unique (tenant_id, subject, destination, part)
);
create index deliveries_session on deliveries (session_id);
create index deliveries_open on deliveries (tenant_id, created_at) where status in ('open', 'sending');

create table rules (
  id text primary key,
  tenant_id text not null,
  session_id text,                  -- null: holds for the person everywhere
  schedule_id text,
  principal_id text not null,       -- whose rule it is
  tool text not null,
  target text not null,             -- JSON: the exact, sorted set of targets
  uses_left integer,                -- null: no limit
  expires_at double precision,
  made_under text not null default '[]', -- JSON: taint labels named when it was made
  created_at double precision not null,
  revoked_at double precision
);
create index rules_live on rules (tenant_id, tool) where revoked_at is null;
create index rules_session on rules (session_id);

create table schedules (
  id text primary key,
  tenant_id text not null,
  owner_id text not null,
  title text not null,
  cron text not null,
  zone text not null,
  instructions text not null,
  home text not null,
  report_to text not null default '',
  persona text not null,
  model text not null,
  catch_up text not null,           -- once, skip
  overlap text not null,            -- skip
  enabled integer not null,
  next_at double precision,
  last_due double precision,
  created_at double precision not null,
  updated_at double precision not null
);
create index schedules_due on schedules (next_at) where enabled = 1;

create table fires (
  id text primary key,
  tenant_id text not null,
  schedule_id text not null,
  due double precision not null,
  fired_at double precision not null,
  session_id text,
  status text not null,             -- started, skipped, superseded, completed, failed
  note text not null default '',
  unique (schedule_id, due)
);
create index fires_session on fires (session_id);

create table wakes (
  id text primary key,
  tenant_id text not null,
  session_id text not null,
  due double precision not null,
  note text not null,
  status text not null
);
create index wakes_due on wakes (due) where status = 'waiting';
create index wakes_session on wakes (session_id);

create table subscriptions (
  id text primary key,
  tenant_id text not null,
  session_id text not null,
  source text not null,
  filter text not null,
  status text not null,
  created_at double precision not null
);
create index subscriptions_session on subscriptions (session_id);

create table memories (
  id text primary key,
  tenant_id text not null,
  scope text not null,
  subject text not null,
  content text not null,
  created_at double precision not null,
  updated_at double precision not null
);

create table artifacts (
  id text primary key,
  tenant_id text not null,
  session_id text not null,
  call_id text,
  kind text not null,               -- file, spill, preimage
  name text not null,
  media_type text not null,
  path text not null,               -- relative to the data folder
  bytes bigint not null,
  digest text not null,
  taint text not null default '[]',
  created_at double precision not null
);
create index artifacts_session on artifacts (session_id);

create table usage (
  id text primary key,
  tenant_id text not null,
  session_id text not null,
  principal_id text not null,
  turn bigint not null,
  iteration integer not null,
  purpose text not null,            -- turn, closing
  model text not null,
  input_tokens bigint not null,
  output_tokens bigint not null,
  cache_read bigint not null,
  cache_write bigint not null,
  cost double precision,            -- US dollars; null: price unknown
  at double precision not null
);
create index usage_time on usage (tenant_id, at);

create table audit (
  tenant_id text not null,
  chain text not null,              -- session id, or 'tenant:<id>'
  n bigint not null,
  at double precision not null,
  kind text not null,               -- proposed, judged, asked, voted, decided, started, finished, …
  actor text not null,              -- principal, or 'nod', or 'clock'
  surface text not null default '',
  rule text not null default '',
  subject text not null default '', -- call or prompt id
  arguments_hash text not null default '',
  outcome text not null default '',
  previous text not null,
  hash text not null,
  primary key (chain, n)
);
create index audit_time on audit (tenant_id, at);

create table principals (
  id text primary key,
  tenant_id text not null,
  name text not null,
  role text not null,               -- guest, member, operator, owner
  created_at double precision not null
);

create table identities (
  tenant_id text not null,
  platform text not null,
  external_id text not null,
  principal_id text not null,
  created_at double precision not null,
  primary key (tenant_id, platform, external_id)
);

create table grants (
  id text primary key,
  tenant_id text not null,
  session_id text,
  principal_id text not null,
  thing text not null,
  body text not null,
  created_at double precision not null,
  revoked_at double precision
);
create index grants_session on grants (session_id);

create table leases (
  tenant_id text not null,
  name text not null,               -- worker:<id>, or surface:<platform>:<token hash>
  holder text not null,
  until double precision not null,
  primary key (tenant_id, name)
);

create table settings (
  tenant_id text not null,
  name text not null,
  value text not null,              -- JSON
  updated_at double precision not null,
  primary key (tenant_id, name)
);
