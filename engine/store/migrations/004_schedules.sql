-- Schedules that come once, when a run ended, and rules that belong to a schedule.

alter table schedules add column once_at double precision; -- when it comes once; cron is '' then
alter table fires add column ended_at double precision;
create index rules_schedule on rules (schedule_id) where schedule_id is not null;
create index usage_session on usage (session_id);
