-- How safely a commit of this connection reaches the disk.

-- name: store_durability [sqlite]
pragma synchronous

-- name: store_durability [postgres]
show synchronous_commit
