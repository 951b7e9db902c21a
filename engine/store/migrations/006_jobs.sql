-- Background jobs of a session's shell. How one stands is written in its folder; this is what was
-- last seen of it, and what holds the ceilings.

create table jobs (
  id text primary key,
  tenant_id text not null,
  session_id text not null,
  command text not null,
  status text not null,             -- running, exited, time, stopped, failed, lost
  exit_code integer,
  note text not null default '',    -- why it failed
  created_at double precision not null,
  deadline double precision not null, -- when its own time limit ends it
  ended_at double precision
);
create index jobs_session on jobs (session_id, created_at);
create index jobs_running on jobs (tenant_id) where ended_at is null;
