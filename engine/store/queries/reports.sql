-- What the command line shows; each reads only.

-- name: report_usage
select model, purpose, count(*) as calls, sum(input_tokens) as input, sum(output_tokens) as output,
       sum(cache_read) as cache_read, sum(cost) as cost, count(*) - count(cost) as unpriced
from usage where tenant_id = :tenant and at >= :since
group by model, purpose order by model, purpose

-- name: report_session_find
select id from sessions where tenant_id = :tenant and id like :prefix order by id limit 2
