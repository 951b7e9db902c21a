-- name: schedule_add
insert into schedules (id, tenant_id, owner_id, title, cron, zone, instructions, home, report_to,
                       persona, model, catch_up, overlap, deadline, retries, quiet, enabled,
                       next_at, once_at, created_at, updated_at)
values (:id, :tenant, :owner, :title, :cron, :zone, :instructions, :home, :report_to,
        :persona, :model, :catch_up, :overlap, :deadline, :retries, :quiet, 1,
        :next, :once, :now, :now)

-- name: schedule_change
update schedules set title = :title, cron = :cron, zone = :zone, once_at = :once,
  instructions = :instructions, report_to = :report_to, catch_up = :catch_up,
  overlap = :overlap, deadline = :deadline, retries = :retries, quiet = :quiet,
  enabled = 1, next_at = :next, held_from = :held, updated_at = :now
where id = :id

-- name: schedule_renew_model
update schedules set model = :model where tenant_id = :tenant and model like :prefix

-- name: schedule_get
select * from schedules where id = :id

-- name: schedule_find
select * from schedules where tenant_id = :tenant and id like :prefix order by id limit 2

-- name: schedule_list
select * from schedules where tenant_id = :tenant order by created_at, id

-- Each with how its last run went.
-- name: schedules_told
select s.*, coalesce((select f.status from fires f where f.schedule_id = s.id
                      order by f.due desc limit 1), '') as outcome
from schedules s where s.tenant_id = :tenant order by s.created_at, s.id

-- name: schedule_remove
delete from schedules where id = :id

-- name: schedule_rules_revoke
update rules set revoked_at = :now where schedule_id = :id and revoked_at is null

-- name: schedule_enable
update schedules set enabled = :enabled, next_at = :next, held_from = null, updated_at = :now
where id = :id

-- The claim: only one of those who saw this due time changes the row.
-- name: schedule_claim
update schedules set next_at = :next, last_due = :due, held_from = null
where id = :id and next_at = :due and enabled = 1

-- Quiet hours hold what is due; the first of several due times is kept.
-- name: schedule_hold
update schedules set next_at = :until, held_from = coalesce(held_from, :due)
where id = :id and next_at = :due and enabled = 1

-- Whoever looks which run is at work, and which waits, does so alone: this holds the row.
-- name: schedule_lock
update schedules set updated_at = updated_at where id = :id

-- name: schedules_due
select id, next_at from schedules
where tenant_id = :tenant and enabled = 1 and next_at <= :now order by next_at, id limit :limit

-- name: fire_add
insert into fires (id, tenant_id, schedule_id, due, fired_at, status, cause, note, event_id)
values (:id, :tenant, :schedule, :due, :now, :status, :cause, :note, :event)
on conflict (schedule_id, due) do nothing

-- name: fires_by_event
select count(*) as n from fires
where schedule_id = :schedule and due > :since and cause = 'event' and status <> 'skipped'

-- name: fire_opened
update fires set session_id = :session, status = 'started', fired_at = :now, look_at = null
where id = :id

-- An end counts once: of what has ended nothing changes.
-- name: fire_ended
update fires set status = :status, note = :note, ended_at = :now, worked = :worked,
  work_since = null, look_at = null
where id = :id and status in ('started', 'retrying', 'queued')

-- name: fire_get
select * from fires where id = :id

-- The run that a session is, while it has not ended, with what holds for it.
-- name: fire_of_session
select f.*, coalesce(s.owner_id, '') as owner_id, coalesce(s.title, '') as title, s.zone,
  s.deadline, s.retries, s.quiet
from fires f left join schedules s on s.id = f.schedule_id
where f.session_id = :session and f.status in ('started', 'retrying')

-- name: fire_at_work
select * from fires
where schedule_id = :schedule and status in ('started', 'retrying') and session_id is not null
order by fired_at desc limit 1

-- The oldest that waits for the run before, and how many there are.
-- name: fire_queued
select f.*, (select count(*) from fires q where q.schedule_id = :schedule and q.status = 'queued')
  as n
from fires f where f.schedule_id = :schedule and f.status = 'queued' order by f.due limit 1

-- name: fires_unbegun
select * from fires where schedule_id = :schedule and status in ('queued', 'retrying')

-- name: fire_clocked
update fires set worked = :worked, work_since = :since, look_at = :look where id = :id

-- name: fire_look
update fires set look_at = :look where id = :id

-- A stop is on its way, and why.
-- name: fire_stopping
update fires set note = :note where id = :id

-- Only one of those who saw it due tends it.
-- name: fire_tend
update fires set look_at = null where id = :id and look_at = :due

-- name: fire_retrying
update fires set status = 'retrying', note = :note, look_at = :look where id = :id

-- name: fire_again
update fires set status = 'started', tries = :tries, note = ''
where id = :id and status = 'retrying'

-- name: fires_due
select id, look_at from fires
where tenant_id = :tenant and look_at <= :now order by look_at, id limit :limit

-- name: worker_alive
select 1 as alive from leases where tenant_id = :tenant and name = 'worker:' || :worker and until > :now

-- Each with where it was at work and what that cost; unpriced: calls whose price is unknown.
-- name: fires_of
select f.*, coalesce(s.home, '') as thread,
  (select sum(u.cost) from usage u where u.session_id = f.session_id) as cost,
  (select count(*) from usage u where u.session_id = f.session_id and u.cost is null) as unpriced
from fires f left join sessions s on s.id = f.session_id
where f.schedule_id = :schedule order by f.due desc limit :limit

-- name: wake_add
insert into wakes (id, tenant_id, session_id, due, note, status, event, event_id, created_at)
values (:id, :tenant, :session, :due, :note, 'waiting', :event, :event_id, :now)

-- name: wakes_in_a_row
select count(*) as n from wakes
where session_id = :session and due > coalesce(
  (select max(m.at) from mailbox m where m.session_id = :session and m.kind = 'message'), 0)

-- name: wake_get
select * from wakes where id = :id

-- name: wake_claim
update wakes set status = :status where id = :id and status = 'waiting'

-- name: wakes_due
select id from wakes
where tenant_id = :tenant and status = 'waiting' and due <= :now order by due, id limit :limit

-- The nearest due rows; a deadline and a reminder wait for different things.
-- name: alarm_next
select
  (select min(next_at) from schedules
   where tenant_id = :tenant and enabled = 1 and next_at > :after) as schedule,
  (select min(look_at) from fires
   where tenant_id = :tenant and look_at > :after) as run,
  (select min(due) from wakes
   where tenant_id = :tenant and status = 'waiting' and due > :after) as wake,
  (select min(due) from subscriptions
   where tenant_id = :tenant and status = 'active' and due > :after) as watch,
  (select min(at) from arrivals where tenant_id = :tenant and at > :after) as arrival,
  (select min(next_at) from digests
   where tenant_id = :tenant and next_at > :after) as digest,
  (select min(remind_at) from prompts where status = 'pending' and remind_at > :after) as remind,
  (select min(deadline) from prompts where status = 'pending' and deadline > :after) as deadline
