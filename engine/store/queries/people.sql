-- name: person_of
select p.id, p.role, p.name from identities i join principals p on p.id = i.principal_id
where i.tenant_id = :tenant and i.platform = :platform and i.external_id = :external

-- name: principal_get
select id, role, name from principals where tenant_id = :tenant and id = :id

-- name: principal_list
select id, role, name from principals where tenant_id = :tenant order by created_at, id

-- name: principal_add
insert into principals (id, tenant_id, name, role, created_at)
values (:id, :tenant, :name, :role, :now)
on conflict (id) do nothing

-- name: principal_role
update principals set role = :role where tenant_id = :tenant and id = :id

-- name: identity_add
insert into identities (tenant_id, platform, external_id, principal_id, created_at)
values (:tenant, :platform, :external, :principal, :now)
on conflict (tenant_id, platform, external_id) do nothing
