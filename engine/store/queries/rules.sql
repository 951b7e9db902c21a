-- name: rules_live
select id, tool, target from rules
where tenant_id = :tenant and revoked_at is null and principal_id = :principal
  and (session_id is null or session_id = :session)
  and (schedule_id is null
       or schedule_id in (select f.schedule_id from fires f where f.session_id = :session))
  and (expires_at is null or expires_at > :now)
  and (uses_left is null or uses_left > 0)
order by created_at, id

-- name: rule_add
insert into rules (id, tenant_id, session_id, schedule_id, principal_id, tool, target, uses_left,
                   expires_at, made_under, created_at)
values (:id, :tenant, :session, :schedule, :principal, :tool, :target, :uses, :expires_at,
        :made_under, :now)

-- name: rule_use
update rules set uses_left = uses_left - 1
where id = :id and revoked_at is null and (uses_left is null or uses_left > 0)

-- name: rule_revoke
update rules set revoked_at = :now
where tenant_id = :tenant and id = :id and revoked_at is null

-- What holds in the runs of a schedule only.
-- name: rules_of_schedule
select * from rules where schedule_id = :schedule and revoked_at is null order by created_at, id

-- name: rules_listed
select * from rules where tenant_id = :tenant order by created_at, id
