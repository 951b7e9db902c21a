-- Deleting a session. Usage and audit rows stay; a fire stays as the mark that it was once due.

-- No open turn: then no call is open either, nor the fate of an earlier one. The row of an answer
-- that had no words stays open and empty, that of an act whose fate nobody knows stays 'sending'.
-- name: retention_finished
select id from sessions s
where state = 'idle' and worker is null and turn_seq = 0 and wanted <= seen and seq <= presented
  and origin = :origin and updated_at < :before and id > :after
  and not exists (select 1 from mailbox m where m.session_id = s.id and m.entered_seq is null)
  and not exists (select 1 from prompts p where p.session_id = s.id and p.status = 'pending')
  and not exists (
    select 1 from deliveries d
    where d.session_id = s.id and d.kind = 'show' and d.status = 'open' and d.payload <> '{}')
  and not exists (select 1 from wakes w where w.session_id = s.id and w.status = 'waiting')
  and not exists (select 1 from subscriptions u where u.session_id = s.id)
  and not exists (select 1 from jobs j where j.session_id = s.id and j.ended_at is null)
order by id limit :limit

-- Whoever wants the session meanwhile has raised `wanted`, and it stays.
-- name: retention_claim
update sessions set updated_at = updated_at
where id = :session and worker is null and wanted <= seen and updated_at < :before

-- name: retention_session
select * from sessions where id = :session

-- name: retention_votes
delete from votes where prompt_id in (select id from prompts where session_id = :session)

-- A run that is deleted has not ended as one does: what waits for it is due, at any past moment.
-- name: retention_queue
update fires set look_at = 1
where status = 'queued' and look_at is null and schedule_id in (
  select schedule_id from fires where session_id = :session and status in ('started', 'retrying'))

-- name: retention_fires
update fires set session_id = null, note = '', work_since = null, look_at = null,
  status = case when status in ('started', 'retrying') then 'failed' else status end
where session_id = :session

-- name: retention_threads
delete from threads where session_id = :session

-- name: retention_log
delete from log where session_id = :session

-- name: retention_mailbox
delete from mailbox where session_id = :session

-- name: retention_calls
delete from calls where session_id = :session

-- name: retention_prompts
delete from prompts where session_id = :session

-- name: retention_deliveries
delete from deliveries where session_id = :session

-- name: retention_rules
delete from rules where session_id = :session

-- name: retention_wakes
delete from wakes where session_id = :session

-- name: retention_watched
delete from watched where session_id = :session

-- name: retention_subscriptions
delete from subscriptions where session_id = :session

-- name: retention_jobs
delete from jobs where session_id = :session

-- name: retention_artifacts
delete from artifacts where session_id = :session

-- name: retention_grants
delete from grants where session_id = :session

-- name: retention_sessions
delete from sessions where id = :session

-- What belongs to no session: events that entered none, lines of strangers who were not let in,
-- answered notices. A decision about a person stays: it is why they are not asked about again.
-- name: retention_loose_mail
delete from mailbox
where session_id is null and at < :before and not exists (
  select 1 from prompts p
  where p.tenant_id = mailbox.tenant_id and p.kind = 'access' and p.status = 'pending'
    and mailbox.principal_id = 'identity:' || p.subject)

-- name: retention_loose_events
delete from events
where at < :before
  and not exists (
    select 1 from wakes w
    where w.tenant_id = events.tenant_id and w.event = events.name and w.event_id = events.id
      and w.status = 'waiting')
  and not exists (select 1 from arrivals a where a.event_id = events.id)
  and not exists (select 1 from fires f where f.event_id = events.id and f.status = 'queued')

-- name: retention_loose_votes
delete from votes where prompt_id in (
  select id from prompts
  where session_id is null and kind = 'notice' and status = 'resolved' and resolved_at < :before)

-- name: retention_loose_prompts
delete from prompts
where session_id is null and kind = 'notice' and status = 'resolved' and resolved_at < :before

-- name: retention_loose_deliveries
delete from deliveries
where session_id = '' and status <> 'open' and updated_at < :before and not exists (
  select 1 from prompts p where p.status = 'pending' and deliveries.subject = 'prompt:' || p.id)

-- Due times whose run is gone or never began; a digest looks eight days back.
-- name: retention_loose_fires
delete from fires
where session_id is null and fired_at < :before - 8 * 86400
  and status in ('skipped', 'superseded', 'completed', 'failed')

-- The longest period of a budget is a month, and no run waits for longer.
-- name: retention_loose_spendings
delete from spendings where at < :before - 40 * 86400
