-- What the command line shows; each reads only.

-- name: report_session_find
select id from sessions where tenant_id = :tenant and id like :prefix order by id limit 2

-- name: report_integrity [sqlite]
select quick_check as found from pragma_quick_check(1)

-- name: report_integrity [postgres]
select 'ok' as found
