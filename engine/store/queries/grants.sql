-- name: grant_add
insert into grants (id, tenant_id, session_id, principal_id, thing, body, created_at)
values (:id, :tenant, null, :by, :thing, :body, :now)

-- name: grants_of
select body from grants where tenant_id = :tenant and thing = :thing and revoked_at is null
order by created_at, id

-- name: grants_revoke
update grants set revoked_at = :now
where tenant_id = :tenant and thing = :thing and revoked_at is null
