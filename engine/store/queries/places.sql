-- Where posts stand, and places that move.

-- name: place_of_post
select destination from deliveries where tenant_id = :tenant and ref = :ref
order by created_at limit 1

-- name: move_threads
update threads set thread_target = :new || substr(thread_target, length(:old) + 1)
where tenant_id = :tenant and (thread_target = :old or thread_target like :inside)
and not exists (
    select 1 from threads t
    where t.tenant_id = threads.tenant_id
    and t.thread_target = :new || substr(threads.thread_target, length(:old) + 1))

-- name: move_homes
update sessions set home = :new || substr(home, length(:old) + 1)
where tenant_id = :tenant and (home = :old or home like :inside)

-- name: move_mail
update mailbox set thread_target = :new || substr(thread_target, length(:old) + 1)
where tenant_id = :tenant and (thread_target = :old or thread_target like :inside)

-- name: move_deliveries
update deliveries set destination = :new || substr(destination, length(:old) + 1)
where tenant_id = :tenant and (destination = :old or destination like :inside)

-- name: move_schedule_homes
update schedules set home = :new || substr(home, length(:old) + 1)
where tenant_id = :tenant and (home = :old or home like :inside)

-- name: move_reports
update schedules set report_to = :new || substr(report_to, length(:old) + 1)
where tenant_id = :tenant and (report_to = :old or report_to like :inside)

-- name: rules_aimed
select id, target from rules where tenant_id = :tenant and target like :inside

-- name: rule_aim
update rules set target = :target where id = :id
