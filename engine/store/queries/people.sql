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

-- name: principal_named
update principals set name = :name where tenant_id = :tenant and id = :id and name = :nameless

-- name: principal_role
update principals set role = :role where tenant_id = :tenant and id = :id

-- name: identity_add
insert into identities (tenant_id, platform, external_id, principal_id, created_at)
values (:tenant, :platform, :external, :principal, :now)
on conflict (tenant_id, platform, external_id) do nothing

-- name: identity_join
update identities set principal_id = :principal
where tenant_id = :tenant and platform = :platform and external_id = :external

-- name: identity_dm
update identities set dm = :dm, dm_at = :now
where tenant_id = :tenant and platform = :platform and external_id = :external
  and (dm <> :dm or dm_at < :before)

-- Where a person reads private messages, the place they used last at the front.
-- name: person_dms
select dm from identities where tenant_id = :tenant and principal_id = :principal and dm <> ''
order by dm_at desc, platform

-- name: identities_on
select count(*) as n from identities
where tenant_id = :tenant and platform = :platform and principal_id = :principal

-- name: setting_get
select value from settings where tenant_id = :tenant and name = :name

-- name: setting_put
insert into settings (tenant_id, name, value, updated_at) values (:tenant, :name, :value, :now)
on conflict (tenant_id, name) do update set value = excluded.value, updated_at = excluded.updated_at

-- name: setting_drop
delete from settings where tenant_id = :tenant and name = :name

-- The time zones people have said are theirs.
-- name: zones_said
select value as zone from settings where tenant_id = :tenant and name like 'zone:%'
group by value order by count(*) desc, value
