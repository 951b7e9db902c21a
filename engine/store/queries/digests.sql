-- The daily digest: when it is due, and what it tells of.

-- name: digest_get
select * from digests where tenant_id = :tenant and principal_id = :principal

-- name: digest_put
insert into digests (tenant_id, principal_id, minute, zone, next_at, last_at)
values (:tenant, :principal, :minute, :zone, :next, :now)
on conflict (tenant_id, principal_id)
do update set minute = excluded.minute, zone = excluded.zone, next_at = excluded.next_at

-- name: digests_due
select * from digests where tenant_id = :tenant and next_at <= :now order by next_at limit :limit

-- name: digest_claim
update digests set next_at = :next, last_at = :now
where tenant_id = :tenant and principal_id = :principal and next_at = :due

-- Runs that began or ended since then; none waits for an answer for more than eight days.
-- name: digest_fires
select f.*, coalesce(s.title, '') as title,
  (select sum(u.cost) from usage u where u.session_id = f.session_id) as cost,
  (select count(*) from usage u where u.session_id = f.session_id and u.cost is null) as unpriced
from fires f left join schedules s on s.id = f.schedule_id
where f.tenant_id = :tenant and f.fired_at >= :since - 8 * 86400 and f.fired_at < :until
  and coalesce(f.ended_at, f.fired_at) >= :since
order by f.fired_at limit :limit

-- Turns that no schedule began.
-- name: digest_turns
select count(*) as turns, count(distinct session_id) as sessions from (
  select distinct u.session_id, u.turn from usage u
  where u.tenant_id = :tenant and u.at >= :since and u.at < :until
    and not exists (select 1 from fires f where f.session_id = u.session_id)) as turned

-- Of each session only the end of its log is looked at.
-- name: digest_errors
select l.session_id, l.body, l.at, s.home, s.title from sessions s
join log l on l.session_id = s.id and l.seq > s.seq - 2000
where s.tenant_id = :tenant and s.updated_at >= :since and l.kind = 'error'
  and l.at >= :since and l.at < :until
order by l.at limit :limit
