-- name: event_add
insert into events (id, tenant_id, name, event_key, source, payload, taint, owner_id, at)
values (:id, :tenant, :name, :key, :source, :payload, :taint, :owner, :now)
on conflict (tenant_id, name, event_key) do nothing

-- name: event_get
select * from events where id = :id

-- name: event_since
select * from events
where tenant_id = :tenant and name = :name and at >= :since and owner_id in ('', :owner)
order by at, id limit 1

-- Wakes that wait for it are due now; the clock delivers them.
-- Not where the connector that the event is of was switched off, nor in sessions of others than
-- the one whose account it is of.
-- name: wakes_come
update wakes set event_id = :id, due = :now
where tenant_id = :tenant and event = :event and status = 'waiting' and event_id = ''
  and (:owner = '' or exists (
    select 1 from sessions o where o.id = wakes.session_id and o.owner_id = :owner))
  and not exists (
    select 1 from gates g join sessions s on s.id = wakes.session_id
    where g.tenant_id = :tenant and g.connector = :connector
      and (g.scope = 'persona:' || s.persona or g.scope = 'person:' || s.owner_id
           or g.scope = 'channel:' || s.home
           or g.scope || '/' = substr('channel:' || s.home, 1, length(g.scope) + 1)))

-- Whether anything waits for an event that is only worth storing then.
-- name: event_awaited
select 1 as found from wakes
where tenant_id = :tenant and event = :event and status = 'waiting' and event_id = ''
union all
select 1 from subscriptions
where tenant_id = :tenant and source = 'event:' || :event and status = 'active'
union all
select 1 from schedules where tenant_id = :tenant and cron = '@event ' || :event and enabled = 1
limit 1

-- The wake or watch whose mail began a turn.
-- name: wake_of_turn
select m.body from mailbox m join log l on l.session_id = m.session_id and l.seq = m.entered_seq
where m.session_id = :session and m.kind = 'wake' and l.turn = :turn order by m.id limit 1

-- name: wake_again
update wakes set status = 'waiting', due = :due, tries = tries + 1
where id = :id and status = 'fired'

-- name: wake_failed
update wakes set status = 'failed', tries = tries + 1 where id = :id and status = 'fired'

-- name: wakes_waiting_in
select * from wakes where session_id = :session and status = 'waiting' order by due, id

-- name: wakes_waiting
select w.*, s.owner_id, s.title, s.home from wakes w join sessions s on s.id = w.session_id
where w.tenant_id = :tenant and w.status = 'waiting' and (:owner = '' or s.owner_id = :owner)
order by w.due, w.id limit :limit

-- name: wake_find
select w.*, s.owner_id, s.title, s.home from wakes w join sessions s on s.id = w.session_id
where w.tenant_id = :tenant and w.status = 'waiting' and w.id like :prefix order by w.id limit 2

-- name: hook_add
insert into hooks (id, tenant_id, name, owner_id, token_hash, secret, status, created_at)
values (:id, :tenant, :name, :owner, :hash, :secret, 'active', :now)

-- name: hook_get
select * from hooks where id = :id

-- name: hook_of_hash
select * from hooks where token_hash = :hash and status = 'active'

-- name: hooks_standing
select * from hooks where tenant_id = :tenant and status = 'active' order by created_at, id

-- name: hook_called
update hooks set calls = calls + 1, last_at = :now where id = :id and status = 'active'

-- name: hook_revoke
update hooks set status = 'revoked' where id = :id

-- As for wakes: not where the connector was switched off, and only its owner's.
-- name: arrivals_add
insert into arrivals (tenant_id, event_id, schedule_id, at)
select tenant_id, :event, id, :now from schedules
where tenant_id = :tenant and cron = :cron and enabled = 1 and (:owner = '' or owner_id = :owner)
  and not exists (
    select 1 from gates g
    where g.tenant_id = :tenant and g.connector = :connector
      and (g.scope = 'persona:' || schedules.persona or g.scope = 'person:' || schedules.owner_id
           or g.scope = 'channel:' || schedules.home
           or g.scope || '/' = substr('channel:' || schedules.home, 1, length(g.scope) + 1)))

-- name: arrival_add
insert into arrivals (tenant_id, event_id, schedule_id, at)
values (:tenant, :event, :schedule, :at)

-- name: arrivals_due
select event_id, schedule_id from arrivals
where tenant_id = :tenant and at <= :now order by at, event_id, schedule_id limit :limit

-- name: fire_at
select id from fires where schedule_id = :schedule and due = :due

-- name: arrival_take
delete from arrivals where event_id = :event and schedule_id = :schedule

-- name: turn_began
select at from log where session_id = :session and seq = :seq
