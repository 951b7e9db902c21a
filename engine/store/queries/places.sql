-- Where posts stand, and places that move.

-- name: place_of_post
select destination from deliveries where tenant_id = :tenant and ref = :ref
order by created_at limit 1

-- name: move_threads
update threads
set thread_target = :new || replace(substr(thread_target, length(:old) + 1), :was, :becomes)
where tenant_id = :tenant and (thread_target = :old or thread_target like :inside)
and not exists (
    select 1 from threads t where t.tenant_id = threads.tenant_id and t.thread_target =
    :new || replace(substr(threads.thread_target, length(:old) + 1), :was, :becomes))

-- name: move_homes
update sessions set home = :new || replace(substr(home, length(:old) + 1), :was, :becomes)
where tenant_id = :tenant and (home = :old or home like :inside)

-- name: move_mail
update mailbox set thread_target = :new || replace(substr(thread_target, length(:old) + 1), :was, :becomes)
where tenant_id = :tenant and (thread_target = :old or thread_target like :inside)

-- name: move_deliveries
update deliveries set destination = :new || replace(substr(destination, length(:old) + 1), :was, :becomes)
where tenant_id = :tenant and (destination = :old or destination like :inside)

-- name: move_schedules
update schedules
set home = case when home = :old or home like :inside
    then :new || replace(substr(home, length(:old) + 1), :was, :becomes) else home end,
  report_to = case when report_to = :old or report_to like :inside
    then :new || replace(substr(report_to, length(:old) + 1), :was, :becomes) else report_to end
where tenant_id = :tenant
and (home = :old or home like :inside or report_to = :old or report_to like :inside)

-- name: move_watches
update subscriptions
set source = :new || replace(substr(source, length(:old) + 1), :was, :becomes)
where tenant_id = :tenant and (source = :old or source like :inside)

-- name: move_budgets
update budgets set thing = :new || replace(substr(thing, length(:old) + 1), :was, :becomes)
where tenant_id = :tenant and scope = 'channel' and (thing = :old or thing like :inside)
and not exists (
    select 1 from budgets b where b.tenant_id = budgets.tenant_id and b.scope = budgets.scope
    and b.period = budgets.period and b.unit = budgets.unit and b.thing =
    :new || replace(substr(budgets.thing, length(:old) + 1), :was, :becomes))

-- name: move_gates
update gates set scope = 'channel:' || :new ||
  replace(substr(scope, length('channel:' || :old) + 1), :was, :becomes)
where tenant_id = :tenant and (scope = 'channel:' || :old or scope like 'channel:' || :inside)
and not exists (
    select 1 from gates g where g.tenant_id = gates.tenant_id and g.connector = gates.connector
    and g.scope = 'channel:' || :new ||
    replace(substr(gates.scope, length('channel:' || :old) + 1), :was, :becomes))

-- name: move_connecting
update connecting set place = :new || replace(substr(place, length(:old) + 1), :was, :becomes)
where tenant_id = :tenant and (place = :old or place like :inside)

-- Whether a reply must mention Nod there.
-- name: move_switch
update settings set name = 'mention:' || :new
where tenant_id = :tenant and name = 'mention:' || :old and not exists (
    select 1 from settings s
    where s.tenant_id = settings.tenant_id and s.name = 'mention:' || :new)

-- A card that waits is shown anew: whoever posted it cannot edit it where it was left.
-- name: move_cards
update deliveries
set status = 'open', ref = null, shown = '', attempted_at = null,
  payload = '{"prompt":"' || substr(subject, 8) || '"}'
where tenant_id = :tenant and kind = 'show' and part = 1 and ref like :posts
and subject like 'prompt:%' and exists (
    select 1 from prompts p
    where p.id = substr(deliveries.subject, 8) and p.status = 'pending')

-- name: move_refs
update deliveries set ref = null where tenant_id = :tenant and kind = 'show' and ref like :posts

-- name: names_aimed
select name as id, value as text from settings
where tenant_id = :tenant and name like 'place:%' and value like :inside

-- name: name_aim
update settings set value = :text where tenant_id = :tenant and name = :id

-- An approval or outcome stands for the arguments whose hash it has.
-- name: prompts_aimed
select id, payload as text from prompts
where tenant_id = :tenant and status = 'pending' and kind not in ('approval', 'outcome')
and payload like :inside

-- name: prompt_aim
update prompts set payload = :text where tenant_id = :tenant and id = :id

-- name: held_aimed
select event_key as id, event as text from held where tenant_id = :tenant and event like :inside

-- name: held_aim
update held set event = :text where tenant_id = :tenant and event_key = :id

-- name: watched_aimed
select id, body as text from watched where tenant_id = :tenant and body like :inside

-- name: watched_aim
update watched set body = :text where tenant_id = :tenant and id = :id

-- name: rules_aimed
select id, target from rules where tenant_id = :tenant and target like :inside

-- name: rule_aim
update rules set target = :target where id = :id
