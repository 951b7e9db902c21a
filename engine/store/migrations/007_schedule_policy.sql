-- What holds for the runs of a schedule, and what the clock looks after in a run.

alter table schedules add column deadline double precision; -- seconds at work; null: no limit
alter table schedules add column retries integer not null default 0;
alter table schedules add column quiet text not null default ''; -- 22:00-07:00; empty: none
alter table schedules add column held_from double precision; -- the due time that quiet hours hold
-- fires.status is also queued (waits for the run before) or retrying (waits for its next try)
alter table fires add column cause text not null default 'schedule'; -- schedule, catch-up, manual
alter table fires add column tries integer not null default 0; -- after the first
alter table fires add column worked double precision not null default 0; -- seconds at work
alter table fires add column work_since double precision; -- a worker has it; null: nobody
alter table fires add column look_at double precision; -- when the clock looks at it next
create index fires_look on fires (tenant_id, look_at) where look_at is not null;
drop index fires_at_work;
create index fires_at_work on fires (schedule_id) where status in ('started', 'retrying');
create index fires_queued on fires (schedule_id, due) where status = 'queued';
drop index schedules_due; -- the planner would rather take another that begins with the tenant
create index schedules_due on schedules (tenant_id, next_at) where enabled = 1;
