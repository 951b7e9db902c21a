-- Accounts that people connected, where a connector is switched off, and connections under way.

create table connections (
  id text primary key,              -- its secret lies in the vault as connection.<id>
  tenant_id text not null,
  connector text not null,
  account text not null,            -- the label people and tools name it by: a login, an address
  principal_id text not null,       -- whose it is
  shared integer not null default 0,-- 1: everybody's sessions may use it
  scopes text not null default '',  -- separated by spaces
  status text not null,             -- ok, revoked
  created_at double precision not null,
  checked_at double precision not null,
  unique (tenant_id, connector, account, principal_id)
);

create table gates (
  tenant_id text not null,
  connector text not null,
  scope text not null,              -- persona:<name>, channel:<thread_target or its beginning>, person:<principal>
  by_id text not null,
  created_at double precision not null,
  primary key (tenant_id, connector, scope)
);

-- A link that was given to one person, to connect one thing once.
create table connecting (
  id text primary key,              -- SHA-256 of the link's secret part
  tenant_id text not null,
  connector text not null,
  principal_id text not null,
  place text not null,              -- thread_target to which the outcome is told
  state_hash text,                  -- SHA-256 of the state the vendor was sent; null: not begun
  browser_hash text,                -- SHA-256 of the cookie of the browser that began
  until double precision not null,
  used_at double precision
);
create unique index connecting_state on connecting (state_hash) where state_hash is not null;
create index connecting_until on connecting (until);
