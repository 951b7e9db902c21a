-- Accounts of services, where they are switched off, and connections under way.

-- name: connection_put
insert into connections (id, tenant_id, connector, account, principal_id, shared, scopes, status,
                         created_at, checked_at)
values (:id, :tenant, :connector, :account, :principal, 0, :scopes, 'ok', :now, :now)
on conflict (tenant_id, connector, account, principal_id) do update
set scopes = excluded.scopes, status = 'ok', checked_at = excluded.checked_at

-- name: connection_get
select * from connections where id = :id

-- name: connection_named
select * from connections
where tenant_id = :tenant and connector = :connector and account = :account
  and principal_id = :principal

-- name: connections_listed
select * from connections where tenant_id = :tenant order by connector, created_at, id

-- name: connections_usable
select * from connections
where tenant_id = :tenant and (principal_id = :principal or shared = 1)
order by connector, status, case when principal_id = :principal then 0 else 1 end, created_at, id

-- name: connection_status
update connections set status = :status, checked_at = :now where id = :id

-- name: connection_share
update connections set shared = :shared where id = :id

-- name: connection_drop
delete from connections where id = :id

-- name: gate_shut
insert into gates (tenant_id, connector, scope, by_id, created_at)
values (:tenant, :connector, :scope, :by, :now)
on conflict (tenant_id, connector, scope) do nothing

-- name: gate_open
delete from gates where tenant_id = :tenant and connector = :connector and scope = :scope

-- name: gates_listed
select connector, scope from gates where tenant_id = :tenant order by connector, scope

-- name: lease_give_back
delete from leases where tenant_id = :tenant and name = :name and holder = :holder

-- name: connecting_add
insert into connecting (id, tenant_id, connector, principal_id, place, until)
values (:id, :tenant, :connector, :principal, :place, :until)

-- name: connecting_get
select * from connecting where id = :id

-- name: connecting_begun
update connecting set state_hash = :state, browser_hash = :browser, until = :until
where id = :id and used_at is null and until > :now

-- name: connecting_of_state
select * from connecting where state_hash = :state

-- Once: who changes this row goes on.
-- name: connecting_used
update connecting set used_at = :now where id = :id and used_at is null and until > :now

-- name: connecting_reopened
update connecting set used_at = null where id = :id

-- name: connecting_swept
delete from connecting where until < :before

-- name: connecting_live
select id from connecting where until > :now and used_at is null limit 1

-- What a new connection may answer.
-- name: prompts_to_connect
select * from prompts where tenant_id = :tenant and kind = 'connect' and status = 'pending'
order by created_at, id
