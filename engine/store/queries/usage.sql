-- name: usage_add
insert into usage (id, tenant_id, session_id, principal_id, turn, iteration, purpose, model,
                   input_tokens, output_tokens, cache_read, cache_write, cost, at)
values (:id, :tenant, :session, :principal, :turn, :iteration, :purpose, :model,
        :input, :output, :cache_read, :cache_write, :cost, :at)

-- name: usage_by_day [sqlite]
select cast((at + :offset) / 86400 as integer) as key, count(*) as calls,
    sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens,
    sum(cache_read) as cache_read, coalesce(sum(cost), 0) as cost,
    count(*) - count(cost) as unpriced
from usage where tenant_id = :tenant and at >= :since and at < :until
group by 1 order by 1;

-- name: usage_by_day [postgres]
select cast(floor((at + :offset) / 86400) as bigint) as key, count(*) as calls,
    sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens,
    sum(cache_read) as cache_read, coalesce(sum(cost), 0) as cost,
    count(*) - count(cost) as unpriced
from usage where tenant_id = :tenant and at >= :since and at < :until
group by 1 order by 1;

-- name: usage_by_model
select model as key, count(*) as calls,
    sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens,
    sum(cache_read) as cache_read, coalesce(sum(cost), 0) as cost,
    count(*) - count(cost) as unpriced
from usage where tenant_id = :tenant and at >= :since and at < :until
group by model order by 6 desc, 1;

-- name: usage_of_turn
select coalesce(sum(cost), 0) as cost, count(*) as calls, count(*) - count(cost) as unpriced
from usage where session_id = :session and turn = :turn and iteration <= :iteration;
