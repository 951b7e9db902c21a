-- name: audit_head
select n, hash from audit where chain = :chain order by n desc limit 1

-- name: audit_add
insert into audit (tenant_id, chain, n, at, kind, actor, surface, rule, subject, arguments_hash,
                   outcome, previous, hash)
values (:tenant, :chain, :n, :at, :kind, :actor, :surface, :rule, :subject, :arguments_hash,
        :outcome, :previous, :hash)

-- name: audit_chain
select * from audit where chain = :chain order by n

-- name: audit_chains
select distinct chain from audit where tenant_id = :tenant order by chain

-- name: audit_recent
select * from audit where tenant_id = :tenant order by at desc, chain, n desc limit :limit

-- On SQLite there is only one writer.
-- name: audit_lock [sqlite]
select :chain as chain

-- name: audit_lock [postgres]
select pg_advisory_xact_lock(hashtext(:chain))
