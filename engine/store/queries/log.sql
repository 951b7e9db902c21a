-- name: log_add
insert into log (tenant_id, session_id, seq, kind, turn, iteration, call_id, at, body)
values (:tenant, :session, :seq, :kind, :turn, :iteration, :call, :at, :body)

-- name: log_since
select session_id, seq, kind, turn, iteration, call_id, at, body from log
where session_id = :session and seq >= :seq order by seq

-- name: log_page
select session_id, seq, kind, turn, iteration, call_id, at, body from log
where session_id = :session and seq > :seq order by seq limit :limit

-- name: log_messages
select seq, kind, turn, call_id, body from log
where session_id = :session and seq > :seq
  and kind in ('message', 'assistant_message', 'tool_finished', 'elided')
order by seq

-- name: log_turn
select session_id, seq, kind, turn, iteration, call_id, at, body from log
where session_id = :session and turn = :turn order by seq

-- name: log_call_result
select body from log
where session_id = :session and call_id = :call and kind = 'tool_finished' order by seq limit 1

-- name: call_put
insert into calls (id, tenant_id, session_id, turn, iteration, place, name, risk, arguments_hash,
                   status, attempt, worker, act_by, started_at, finished_at)
values (:id, :tenant, :session, :turn, :iteration, :place, :name, :risk, :hash,
        :status, :attempt, :worker, :act_by, :started, :finished)
on conflict (id) do update set
  arguments_hash = excluded.arguments_hash, status = excluded.status, attempt = excluded.attempt,
  worker = excluded.worker, act_by = excluded.act_by, started_at = excluded.started_at,
  finished_at = excluded.finished_at

-- name: calls_of
select * from calls where session_id = :session order by turn, iteration, place
