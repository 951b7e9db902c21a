-- Indexes for what is asked at every message, answer or look of the presenter, so that none of it
-- grows with the history.

-- Made anew after the others: of two that fit, SQLite takes the one made last.
drop index mailbox_waiting;
create index mailbox_waiting on mailbox (session_id, id) where entered_seq is null;
create index mailbox_strangers on mailbox (tenant_id, principal_id) where session_id is null;

create index deliveries_ref on deliveries (tenant_id, ref) where ref is not null;
drop index deliveries_open;
create index deliveries_open on deliveries (tenant_id, created_at)
  where kind = 'show' and status = 'open' and payload <> '{}';

drop index sessions_unpresented;
create index sessions_unpresented on sessions (tenant_id, id) where seq > presented;

create index prompts_waiting on prompts (session_id) where status = 'pending';
create index prompts_decided on prompts (tenant_id, resolved_at)
  where session_id is null and status = 'resolved';

-- No query asks for it: a session with an open call has an open turn.
drop index calls_open;

create index fires_at_work on fires (schedule_id) where status = 'started';
