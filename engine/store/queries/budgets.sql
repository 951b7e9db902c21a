-- Budgets, and what was spent of them.

-- name: budget_put
insert into budgets (id, tenant_id, scope, thing, period, unit, soft, hard, zone, owner_id, created_at)
values (:id, :tenant, :scope, :thing, :period, :unit, :soft, :hard, :zone, :owner, :now)
on conflict (tenant_id, scope, thing, period, unit)
do update set soft = excluded.soft, hard = excluded.hard, zone = excluded.zone,
              owner_id = excluded.owner_id

-- name: budget_of
select * from budgets where tenant_id = :tenant and scope = :scope and thing = :thing
  and period = :period and unit = :unit

-- name: budget_get
select * from budgets where id = :id

-- name: budget_find
select * from budgets where tenant_id = :tenant and id like :prefix limit 2

-- name: budget_list
select * from budgets where tenant_id = :tenant order by scope, thing, period, unit

-- Sessions at work look at what is new before their next call.
-- name: budget_stir
update sessions set wanted = wanted + 1 where tenant_id = :tenant and worker is not null
returning id

-- name: budget_remove
delete from budgets where id = :id

-- name: budget_limits
update budgets set soft = :soft, hard = :hard where id = :id

-- In one order, so that two workers lock the rows they share in the same order.
-- name: budgets_on
select * from budgets where tenant_id = :tenant and (
  scope = 'tenant'
  or (scope = 'person' and thing = :person)
  or (scope = 'channel' and thing = :channel)
  or (scope = 'schedule' and thing = (
    select f.schedule_id from fires f where f.session_id = :session limit 1)))
order by id

-- name: spending_add
insert into spendings (tenant_id, budget_id, period, calls, tokens, cost, unpriced, at)
values (:tenant, :budget, :period, :calls, :tokens, :cost, :unpriced, :now)
on conflict (budget_id, period)
do update set calls = spendings.calls + excluded.calls, tokens = spendings.tokens + excluded.tokens,
              cost = spendings.cost + excluded.cost,
              unpriced = spendings.unpriced + excluded.unpriced

-- name: spending_get
select * from spendings where budget_id = :budget and period = :period

-- name: spending_extend
update spendings set extra = :extra where budget_id = :budget and period = :period

-- name: spendings_drop
delete from spendings where budget_id = :budget

-- What was spent before the budget was there; asked once, when it is set.
-- name: spent_since
select count(*) as calls, coalesce(sum(u.input_tokens + u.output_tokens), 0) as tokens,
  coalesce(sum(u.cost), 0) as cost, count(*) - count(u.cost) as unpriced
from usage u
where u.tenant_id = :tenant and u.at >= :since and (
  :scope = 'tenant'
  or (:scope = 'person' and u.principal_id = :thing)
  or (:scope = 'channel' and exists (
    select 1 from sessions s where s.id = u.session_id
      and (s.home = :thing or s.home like :under)))
  or (:scope = 'schedule' and exists (
    select 1 from fires f where f.session_id = u.session_id and f.schedule_id = :thing)))

-- Open cards about one budget, by their sessions: two presses lock them in the same order.
-- name: budget_cards
select * from prompts
where tenant_id = :tenant and kind = 'grant' and status = 'pending' and subject like :prefix
order by session_id
