-- name: usage_add
insert into usage (id, tenant_id, session_id, principal_id, turn, iteration, purpose, model,
                   input_tokens, output_tokens, cache_read, cache_write, cost, estimated, at)
values (:id, :tenant, :session, :principal, :turn, :iteration, :purpose, :model,
        :input, :output, :cache_read, :cache_write, :cost, :estimated, :at)

-- Sums over a time; `person` narrows them to the sessions of one principal, empty: all.
-- name: usage_by_quarter [sqlite]
select cast(u.at / 900 as integer) as key, count(*) as calls, sum(u.input_tokens) as input_tokens,
    sum(u.output_tokens) as output_tokens, sum(u.cache_read) as cache_read,
    coalesce(sum(u.cost), 0) as cost, count(*) - count(u.cost) as unpriced,
    sum(u.estimated) as estimated
from usage u
where u.tenant_id = :tenant and u.at >= :since and u.at < :until
  and (:person = '' or u.principal_id = :person)
group by 1 order by 1

-- name: usage_by_quarter [postgres]
select cast(floor(u.at / 900) as bigint) as key, count(*) as calls, sum(u.input_tokens) as input_tokens,
    sum(u.output_tokens) as output_tokens, sum(u.cache_read) as cache_read,
    coalesce(sum(u.cost), 0) as cost, count(*) - count(u.cost) as unpriced,
    sum(u.estimated) as estimated
from usage u
where u.tenant_id = :tenant and u.at >= :since and u.at < :until
  and (:person = '' or u.principal_id = :person)
group by 1 order by 1

-- name: usage_by_model
select u.model as key, count(*) as calls, sum(u.input_tokens) as input_tokens,
    sum(u.output_tokens) as output_tokens, sum(u.cache_read) as cache_read,
    coalesce(sum(u.cost), 0) as cost, count(*) - count(u.cost) as unpriced,
    sum(u.estimated) as estimated
from usage u
where u.tenant_id = :tenant and u.at >= :since and u.at < :until
  and (:person = '' or u.principal_id = :person)
group by u.model order by 6 desc, 1

-- name: usage_by_schedule
select coalesce(s.title, f.schedule_id) as key, count(*) as calls, sum(u.input_tokens) as input_tokens,
    sum(u.output_tokens) as output_tokens, sum(u.cache_read) as cache_read,
    coalesce(sum(u.cost), 0) as cost, count(*) - count(u.cost) as unpriced,
    sum(u.estimated) as estimated
from usage u
join fires f on f.session_id = u.session_id
left join schedules s on s.id = f.schedule_id
where u.tenant_id = :tenant and u.at >= :since and u.at < :until
  and (:person = '' or u.principal_id = :person)
group by f.schedule_id, s.title order by 6 desc, 1

-- name: usage_by_person
select coalesce(p.name, u.principal_id) as key, count(*) as calls, sum(u.input_tokens) as input_tokens,
    sum(u.output_tokens) as output_tokens, sum(u.cache_read) as cache_read,
    coalesce(sum(u.cost), 0) as cost, count(*) - count(u.cost) as unpriced,
    sum(u.estimated) as estimated
from usage u
left join principals p on p.id = u.principal_id
where u.tenant_id = :tenant and u.at >= :since and u.at < :until
  and (:person = '' or u.principal_id = :person)
group by u.principal_id, p.name order by 6 desc, 1

-- name: usage_of_turn
select coalesce(sum(cost), 0) as cost, count(*) as calls, count(*) - count(cost) as unpriced
from usage where session_id = :session and turn = :turn and iteration <= :iteration;
