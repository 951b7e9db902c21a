-- name: session_add
insert into sessions (id, tenant_id, home, title, persona, owner_id, origin, home_open, model, mode,
                      roots, created_at, updated_at)
values (:id, :tenant, :home, :title, :persona, :owner, :origin, :home_open, :model, :mode,
        :roots, :now, :now)

-- name: session_get
select * from sessions where id = :id

-- name: session_list
select * from sessions where tenant_id = :tenant order by updated_at desc limit :limit

-- name: session_rename
update sessions set title = :title where id = :id and title = ''

-- name: thread_bind
insert into threads (tenant_id, thread_target, session_id, created_at)
values (:tenant, :target, :session, :now)
on conflict (tenant_id, thread_target)
do update set session_id = excluded.session_id, created_at = excluded.created_at

-- name: thread_get
select session_id from threads where tenant_id = :tenant and thread_target = :target

-- name: thread_list
select t.thread_target, t.session_id, s.owner_id from threads t join sessions s on s.id = t.session_id
where t.tenant_id = :tenant and t.thread_target like :prefix order by t.created_at

-- name: mail_add
insert into mailbox (tenant_id, session_id, kind, event_key, thread_target, principal_id, body, at)
values (:tenant, :session, :kind, :key, :target, :by, :body, :now)
on conflict (tenant_id, event_key) do nothing

-- name: mail_waiting
select id, kind, principal_id, body, at from mailbox
where session_id = :session and entered_seq is null order by id

-- name: mail_count
select count(*) as n from mailbox where session_id = :session and entered_seq is null

-- name: mail_entered
update mailbox set entered_seq = :seq where id = :id

-- Anything that may move a session raises `wanted` in its own transaction.
-- name: session_want
update sessions set wanted = wanted + 1 where id = :id

-- name: session_stop
update sessions set wanted = wanted + 1, stop_mark = stop_mark + 1 where id = :id

-- name: session_take
update sessions set worker = :worker, epoch = epoch + 1, attempts = attempts + :counted
where id = :id and wanted > seen and (worker is null or worker = :worker or not exists (
  select 1 from leases l where l.tenant_id = sessions.tenant_id
    and l.name = 'worker:' || sessions.worker and l.until > :now))
returning *

-- The fence: a worker that lost the session changes no row, and stops at once.
-- name: session_advance
update sessions set seq = :seq, turn = :turn, turn_seq = :turn_seq, attempts = :attempts,
                    updated_at = :now
where id = :id and epoch = :epoch and worker = :worker
returning wanted, stop_mark,
  exists (select 1 from budgets b where b.tenant_id = sessions.tenant_id) as budgeted

-- name: session_release
update sessions set state = :state, worker = null, seen = :noted
where id = :id and epoch = :epoch and wanted = :noted

-- name: session_mode
update sessions set mode = :value where id = :id

-- name: session_model
update sessions set model = :value where id = :id

-- name: session_roots
update sessions set roots = :value where id = :id

-- name: session_custom
update sessions set custom = :value where id = :id

-- name: session_taint
update sessions set taint = :value where id = :id

-- A clean shutdown gives up what it holds and takes its attempt back.
-- name: worker_gives_up
update sessions set worker = null, attempts = 0 where worker = :worker

-- name: sessions_runnable
select id, attempts from sessions
where wanted > seen and (worker is null or not exists (
  select 1 from leases l where l.tenant_id = sessions.tenant_id
    and l.name = 'worker:' || sessions.worker and l.until > :now))
order by updated_at limit :limit

-- name: sessions_wanted
select id, wanted from sessions where worker = :worker and wanted > seen

-- name: lease_renew
insert into leases (tenant_id, name, holder, until) values (:tenant, :name, :holder, :until)
on conflict (tenant_id, name) do update set until = excluded.until
where leases.holder = excluded.holder or leases.until < :now

-- name: leases_workers
select name, holder, until from leases where tenant_id = :tenant and name like 'worker:%'

-- name: lease_drop
delete from leases where tenant_id = :tenant and name = :name

