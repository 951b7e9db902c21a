-- name: prompt_add
insert into prompts (id, tenant_id, session_id, kind, subject, call_id, turn, arguments_hash,
                     payload, needs, approvers, created_at, remind_at, deadline)
values (:id, :tenant, :session, :kind, :subject, :call, :turn, :hash,
        :payload, :needs, :approvers, :now, :remind, :deadline)
on conflict (tenant_id, kind, subject) do nothing

-- name: prompt_by_subject
select * from prompts where tenant_id = :tenant and kind = :kind and subject = :subject

-- name: prompt_get
select * from prompts where id = :id

-- name: prompt_find
select * from prompts where tenant_id = :tenant and id like :prefix limit 2

-- name: prompts_pending
select * from prompts where tenant_id = :tenant and status = 'pending'
order by created_at limit :limit

-- name: prompts_pending_in
select * from prompts where session_id = :session and status = 'pending' order by created_at, id

-- name: prompt_resolve
update prompts set status = 'resolved', answer = :answer, resolved_by = :by, resolved_on = :surface,
                   resolved_at = :now
where id = :id and status = 'pending'

-- name: prompt_close
update prompts set status = 'resolved', answer = :answer, resolved_by = :by, resolved_on = '',
                   resolved_at = :now, entered_seq = :seq
where session_id = :session and status = 'pending' and kind <> 'notice'

-- name: prompt_close_turn
update prompts set status = 'resolved', answer = :answer, resolved_by = :by, resolved_on = '',
                   resolved_at = :now, entered_seq = :seq
where session_id = :session and status = 'pending' and kind <> 'notice' and turn = :turn

-- name: prompt_entered
update prompts set entered_seq = :seq where id = :id

-- name: replies_waiting
select id, kind, call_id, arguments_hash, needs, answer, resolved_by, resolved_on, resolved_at
from prompts where session_id = :session and status = 'resolved' and entered_seq is null
order by resolved_at, id

-- name: prompts_expired
select * from prompts where status = 'pending' and deadline <= :now order by deadline limit :limit

-- name: prompts_remind
select * from prompts where status = 'pending' and remind_at <= :now order by remind_at limit :limit

-- name: prompt_reminded
update prompts set remind_at = :at where id = :id

-- name: vote_add
insert into votes (tenant_id, prompt_id, principal_id, answer, arguments_hash, surface, at)
values (:tenant, :prompt, :by, :answer, :hash, :surface, :now)
on conflict (prompt_id, principal_id) do update set answer = excluded.answer,
  arguments_hash = excluded.arguments_hash, surface = excluded.surface, at = excluded.at

-- name: vote_people
select p.id, p.role, p.name from votes v join principals p on p.id = v.principal_id
where v.prompt_id = :prompt and v.arguments_hash = :hash

-- name: vote_count
select count(*) as n from votes where prompt_id = :prompt and arguments_hash = :hash
