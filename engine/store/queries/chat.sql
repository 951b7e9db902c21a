-- name: mail_seen
select id from mailbox where tenant_id = :tenant and event_key = :key

-- An event that enters no session (a press, a command, a text answer) still counts as seen.
-- name: mail_noted
insert into mailbox (tenant_id, session_id, kind, event_key, thread_target, principal_id, body, at,
                     entered_seq)
values (:tenant, :session, :kind, :key, :target, :by, '{}', :now, 0)
on conflict (tenant_id, event_key) do nothing

-- Messages of somebody unknown wait without a session, under their identity.
-- name: mail_unrouted
select id, thread_target from mailbox
where tenant_id = :tenant and session_id is null and principal_id = :waiting
  and entered_seq is null order by id

-- name: mail_route
update mailbox set session_id = :session, principal_id = :by where id = :id and session_id is null

-- name: delivery_shown
insert into deliveries (id, tenant_id, session_id, kind, subject, destination, part, payload,
                        status, ref, shown, created_at, updated_at)
values (:id, :tenant, :session, 'show', :subject, :destination, 1, '{}', 'sent', :ref, :shown,
        :now, :now)
on conflict (tenant_id, subject, destination, part) do update set
  status = 'sent', ref = excluded.ref, shown = excluded.shown, updated_at = excluded.updated_at

-- A message that shows a subject is drawn anew, whichever of several it is.
-- name: delivery_drawn
update deliveries set status = 'sent', shown = :shown, updated_at = :now
where tenant_id = :tenant and subject = :subject and destination = :destination and ref = :ref

-- name: delivery_by_ref
select subject from deliveries
where tenant_id = :tenant and ref = :ref and subject like 'prompt:%' order by created_at, subject

-- name: deliveries_of_call
select id from deliveries where session_id = :session and kind = 'act' and subject like :prefix

-- name: prompts_of_turn
select * from prompts where session_id = :session and turn = :turn order by created_at, id

-- name: prompts_closed
select * from prompts where session_id = :session and entered_seq = :seq order by created_at, id

-- Prompts that no log tells of: nothing but this query brings their card to anyone.
-- A budget's card is told of by its session's log, and shown with it.
-- name: prompts_unshown
select * from prompts p
where p.tenant_id = :tenant and p.status = 'pending' and p.kind in ('grant', 'access', 'notice')
  and p.subject not like 'budget:%'
  and not exists (select 1 from deliveries d
                  where d.tenant_id = p.tenant_id and d.subject = 'prompt:' || p.id)
  and (p.created_at, p.id) > (:after_at, :after)
order by p.created_at, p.id limit :limit

-- A further message that shows the same subject: its ref is all that is known of it.
-- name: delivery_ref_add
insert into deliveries (id, tenant_id, session_id, kind, subject, destination, part, payload,
                        status, ref, created_at, updated_at)
values (:id, :tenant, :session, 'show', :subject, :destination, :part, '{}', 'sent', :ref,
        :now, :now)
on conflict (tenant_id, subject, destination, part) do nothing

-- What waits where a person reads it: cards of the sessions at home there, and session-less ones.
-- name: prompts_at
select p.* from prompts p left join sessions s on s.id = p.session_id
where p.tenant_id = :tenant and p.status = 'pending'
  and (s.home = :target or (p.session_id is null and (
    :target = :place
    or exists (select 1 from deliveries d where d.tenant_id = p.tenant_id
               and d.subject = 'prompt:' || p.id and d.destination = :target))))
order by p.created_at, p.id limit :limit

-- Cards of no session, decided after they were last drawn.
-- name: prompts_stale
select p.id, p.resolved_at, d.id as delivery, d.destination, d.ref, d.shown from prompts p
join deliveries d on d.tenant_id = p.tenant_id and d.subject = 'prompt:' || p.id
where p.session_id is null and p.tenant_id = :tenant and p.status = 'resolved'
  and d.ref is not null and d.updated_at <= p.resolved_at
  and (p.resolved_at, d.id) > (:after_at, :after)
order by p.resolved_at, d.id limit :limit

-- name: mail_of_event
select * from mailbox where tenant_id = :tenant and event_key = :key

-- name: mail_rewrite
update mailbox set body = :body where id = :id and entered_seq is null

-- What was said in a session after a message of its mailbox.
-- name: mail_after
select id from mailbox
where session_id = :session and id > :id and kind in ('message', 'fire', 'wake', 'retry') limit 1

-- The threads of a surface, with the time of the last message each was taken from.
-- name: threads_owned
select t.thread_target, t.session_id, coalesce(
    (select max(m.at) from mailbox m where m.session_id = t.session_id and m.kind = 'message'),
    t.created_at) as last_at
from threads t where t.tenant_id = :tenant and t.thread_target like :prefix
order by t.created_at

-- name: notice_open
select id from prompts
where tenant_id = :tenant and kind = 'notice' and status = 'pending' and subject like :prefix
limit 1

-- name: grant_open
select id from prompts
where tenant_id = :tenant and kind = 'grant' and status = 'pending' and subject like :prefix
limit 1

-- name: prompts_waiting
select count(*) as n from prompts where tenant_id = :tenant and status = 'pending'

-- The session that speaks in this message. What one sent to others is no conversation with it: who
-- answers there would write to somebody else's session, and its answer would go elsewhere.
-- name: session_of_ref
select d.session_id from deliveries d join sessions s on s.id = d.session_id
where d.tenant_id = :tenant and d.ref = :ref and (d.kind = 'show' or d.destination = s.home)
order by d.updated_at desc limit 1

-- name: session_before
select id from sessions
where tenant_id = :tenant and home = :home and id <> :current and origin = 'person'
order by updated_at desc, id desc limit 1

-- A person's own session below a channel: one at work first, then the latest.
-- name: session_near
select t.session_id from threads t join sessions s on s.id = t.session_id
where t.tenant_id = :tenant and t.thread_target like :prefix and s.owner_id = :owner
order by case when s.turn_seq = 0 then 1 else 0 end, s.updated_at desc, s.id desc limit 1

-- name: mail_of_others
select id from mailbox
where session_id = :session and principal_id <> :by
  and kind in ('message', 'note', 'answer', 'stop', 'hop', 'unknown')
limit 1

-- name: mail_latest
select body from mailbox where session_id = :session and kind = 'message'
order by id desc limit :limit

-- Events that fail each time they come.
-- name: held_try
insert into held (tenant_id, event_key, event, tries, status, at)
values (:tenant, :key, :event, 1, 'failing', :now)
on conflict (tenant_id, event_key) do update set tries = held.tries + 1, at = excluded.at

-- name: held_get
select * from held where tenant_id = :tenant and event_key = :key

-- name: held_keep
update held set status = 'held' where tenant_id = :tenant and event_key = :key

-- One more failure holds it again.
-- name: held_release
update held set status = 'again', tries = 2 where tenant_id = :tenant and event_key = :key

-- name: held_again
select event_key, event from held where tenant_id = :tenant and status = 'again' order by at

-- name: held_drop
delete from held where tenant_id = :tenant and event_key = :key

-- name: mail_by
select id from mailbox
where tenant_id = :tenant and principal_id = :by and session_id is null limit 1

-- name: thread_bound
select created_at from threads where tenant_id = :tenant and thread_target = :target
