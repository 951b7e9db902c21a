-- name: artifact_add
insert into artifacts
  (id, tenant_id, session_id, call_id, kind, name, media_type, path, bytes, digest, taint, created_at)
values
  (:id, :tenant_id, :session_id, :call_id, :kind, :name, :media_type, :path, :bytes, :digest, :taint,
   :created_at)
on conflict (id) do nothing;

-- name: artifact_get
select id, session_id, call_id, kind, name, media_type, path, bytes, digest, taint, created_at
from artifacts
where id = :id;
