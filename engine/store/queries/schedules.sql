-- name: schedule_add
insert into schedules (id, tenant_id, owner_id, title, cron, zone, instructions, home, report_to,
                       persona, model, catch_up, overlap, enabled, next_at, once_at, created_at,
                       updated_at)
values (:id, :tenant, :owner, :title, :cron, :zone, :instructions, :home, :report_to,
        :persona, :model, :catch_up, :overlap, 1, :next, :once, :now, :now)

-- name: schedule_change
update schedules set title = :title, cron = :cron, zone = :zone, once_at = :once,
  instructions = :instructions, report_to = :report_to, enabled = 1, next_at = :next,
  updated_at = :now
where id = :id

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
update schedules set enabled = :enabled, next_at = :next, updated_at = :now where id = :id

-- The claim: only one of those who saw this due time changes the row.
-- name: schedule_claim
update schedules set next_at = :next, last_due = :due
where id = :id and next_at = :due and enabled = 1

-- name: schedules_due
select id, next_at from schedules
where tenant_id = :tenant and enabled = 1 and next_at <= :now order by next_at, id limit :limit

-- name: fire_add
insert into fires (id, tenant_id, schedule_id, due, fired_at, status, note)
values (:id, :tenant, :schedule, :due, :now, :status, :note)
on conflict (schedule_id, due) do nothing

-- name: fire_opened
update fires set session_id = :session where id = :id

-- name: fire_ended
update fires set status = :status, note = :note, ended_at = :now where id = :id and status = 'started'

-- name: fire_of_session
select f.*, coalesce(s.owner_id, '') as owner_id, coalesce(s.title, '') as title
from fires f left join schedules s on s.id = f.schedule_id
where f.session_id = :session and f.status = 'started'

-- name: fire_at_work
select * from fires where schedule_id = :schedule and status = 'started' and session_id is not null
order by fired_at desc limit 1

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
  (select min(due) from wakes
   where tenant_id = :tenant and status = 'waiting' and due > :after) as wake,
  (select min(remind_at) from prompts where status = 'pending' and remind_at > :after) as remind,
  (select min(deadline) from prompts where status = 'pending' and deadline > :after) as deadline
