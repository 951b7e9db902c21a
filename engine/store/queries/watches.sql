-- name: watch_add
insert into subscriptions (id, tenant_id, session_id, owner_id, source, filter, words, batch,
                           status, created_at)
values (:id, :tenant, :session, :owner, :source, :filter, :words, :batch, 'active', :now)

-- name: watch_get
select * from subscriptions where id = :id

-- name: watch_list
select * from subscriptions where tenant_id = :tenant order by created_at, id

-- name: watch_on
select id from subscriptions
where tenant_id = :tenant and source = :source and status = 'active' limit 1

-- Not where the connector that it comes from was switched off; of an account, only its owner's.
-- name: watches_on
select * from subscriptions
where tenant_id = :tenant and source = :source and status = 'active'
  and (:owner = '' or owner_id = :owner)
  and not exists (
    select 1 from gates g join sessions s on s.id = subscriptions.session_id
    where g.tenant_id = :tenant and g.connector = :connector
      and (g.scope = 'persona:' || s.persona or g.scope = 'person:' || s.owner_id
           or g.scope = 'channel:' || s.home
           or g.scope || '/' = substr('channel:' || s.home, 1, length(g.scope) + 1)))
order by id

-- A window that is open keeps its end. Who changes this row first goes first.
-- name: watch_opens
update subscriptions set due = coalesce(due, :due) where id = :id and status = 'active'
returning due

-- name: watch_missed
update subscriptions set missed = missed + 1 where id = :id

-- name: watch_take
update subscriptions set due = null
where id = :id and status = 'active' and due <= :now
returning *

-- name: watch_later
update subscriptions set due = :due where id = :id

-- name: watch_told
update subscriptions set missed = 0 where id = :id

-- name: watch_switch
update subscriptions set status = :status, due = null, missed = 0 where id = :id

-- name: watch_remove
delete from subscriptions where id = :id

-- Of the latest turns only: a watch may have had a great many.
-- name: watch_turns
select at from (
  select id, at from mailbox where session_id = :session and kind = 'wake'
  order by id desc limit :limit) as latest
where at > :since order by id

-- name: watches_due
select id from subscriptions
where tenant_id = :tenant and status = 'active' and due <= :now order by due, id limit :limit

-- name: watched_count
select count(*) as n from watched where subscription_id = :watch

-- name: watched_add
insert into watched (tenant_id, session_id, subscription_id, at, body)
values (:tenant, :session, :watch, :now, :body)

-- name: watched_of
select * from watched where subscription_id = :watch order by id

-- name: watched_clear
delete from watched where subscription_id = :watch
