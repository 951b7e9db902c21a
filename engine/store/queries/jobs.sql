-- name: job_add
insert into jobs (id, tenant_id, session_id, command, status, created_at, deadline)
values (:id, :tenant, :session, :command, 'running', :now, :deadline)
on conflict (id) do nothing

-- name: job_get
select * from jobs where id = :id

-- name: jobs_of
select * from jobs where session_id = :session order by created_at, id

-- name: jobs_running
select * from jobs where tenant_id = :tenant and ended_at is null order by created_at, id

-- name: job_end
update jobs set status = :status, exit_code = :exit_code, note = :note, ended_at = :now
where id = :id and ended_at is null

-- name: job_forget
delete from jobs where id = :id
