-- name: delivery_add
insert into deliveries (id, tenant_id, session_id, kind, subject, destination, part, payload,
                        status, attempted_at, created_at, updated_at)
values (:id, :tenant, :session, :kind, :subject, :destination, :part, :payload,
        :status, :attempted, :now, :now)
on conflict (tenant_id, subject, destination, part) do nothing

-- name: delivery_get
select * from deliveries
where tenant_id = :tenant and subject = :subject and destination = :destination and part = :part

-- name: deliveries_of
select * from deliveries where tenant_id = :tenant and subject = :subject
order by destination, part

-- name: delivery_sent
update deliveries set status = 'sent', ref = :ref, shown = :shown, updated_at = :now
where tenant_id = :tenant and subject = :subject and destination = :destination and part = :part

-- name: delivery_failed
update deliveries set status = 'failed', updated_at = :now
where tenant_id = :tenant and subject = :subject and destination = :destination and part = :part

-- name: deliveries_open
select * from deliveries
where tenant_id = :tenant and kind = 'show' and status = 'open' and payload <> '{}'
  and (created_at, id) > (:after_at, :after)
order by created_at, id limit :limit

-- name: session_presented
update sessions set presented = :seq where id = :id and presented < :seq

-- name: sessions_unpresented
select id from sessions where seq > presented and tenant_id = :tenant and id > :after
order by id limit :limit
