-- name: usage_add
insert into usage (id, tenant_id, session_id, principal_id, turn, iteration, purpose, model,
                   input_tokens, output_tokens, cache_read, cache_write, cost, at)
values (:id, :tenant, :session, :principal, :turn, :iteration, :purpose, :model,
        :input, :output, :cache_read, :cache_write, :cost, :at)
