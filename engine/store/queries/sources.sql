-- Sources of connectors: what is waited for, and how far each account was looked at.

-- The events somebody waits for, with the session or schedule in which that is.
-- name: sources_awaited
select w.event as name, s.owner_id, s.persona, s.home
from wakes w join sessions s on s.id = w.session_id
where w.tenant_id = :tenant and w.status = 'waiting' and w.event <> '' and w.event_id = ''
union
select substr(u.source, 7), u.owner_id, s.persona, s.home
from subscriptions u join sessions s on s.id = u.session_id
where u.tenant_id = :tenant and u.status = 'active' and substr(u.source, 1, 6) = 'event:'
union
select substr(cron, 8), owner_id, persona, home from schedules
where tenant_id = :tenant and enabled = 1 and substr(cron, 1, 7) = '@event '

-- name: sources_listed
select * from sources where tenant_id = :tenant

-- name: source_begin
insert into sources (account_id, source, tenant_id, next_at)
values (:account, :source, :tenant, :now)
on conflict (account_id, source) do nothing

-- Of several processes one looks: who changes this row. It has until then.
-- name: source_take
update sources set next_at = :until
where account_id = :account and source = :source and next_at <= :now
returning *

-- Not by one who took longer, nor after the account was disconnected.
-- name: source_keep
update sources set seen = :seen, next_at = :next, failures = :failures, told = :told
where account_id = :account and source = :source and next_at = :until

-- name: source_drop
delete from sources where account_id = :account and source = :source and next_at < :before

-- name: sources_forget
delete from sources where account_id = :account
