-- Budgets with what was spent of each, and the daily digest.

create table budgets (
  id text primary key,
  tenant_id text not null,
  scope text not null,              -- tenant, person, channel, schedule
  thing text not null,              -- principal, channel or schedule; empty for the tenant
  period text not null,             -- day, month, run
  unit text not null,               -- money (US dollars), tokens, calls
  soft double precision,            -- from here on a person is asked
  hard double precision,            -- from here on turns end
  zone text not null,               -- in which days and months are counted
  owner_id text not null,           -- the principal who set it
  created_at double precision not null,
  unique (tenant_id, scope, thing, period, unit)
);

-- One row for each budget and period: a sum that does not grow with the history.
create table spendings (
  tenant_id text not null,
  budget_id text not null,
  period text not null,             -- 2026-11-29, 2026-11, or the session of a run
  calls bigint not null,
  tokens bigint not null,
  cost double precision not null,
  unpriced bigint not null,         -- calls whose price is unknown
  extra double precision not null default 0, -- by how much the soft limit was extended
  at double precision not null,     -- when the period began to be counted
  primary key (budget_id, period)
);

alter table usage add column estimated integer not null default 0; -- 1: the provider told nothing

create table digests (
  tenant_id text not null,
  principal_id text not null,
  minute integer not null,          -- of the day, in the zone
  zone text not null,
  next_at double precision,         -- null: switched off
  last_at double precision not null, -- until when the last one told
  primary key (tenant_id, principal_id)
);
create index digests_due on digests (next_at) where next_at is not null;
create index fires_fired on fires (tenant_id, fired_at);
