-- Named events and the hooks that bring them; wakes, watches and schedules that wait for them.

create table events (
  id text primary key,
  tenant_id text not null,
  name text not null,
  event_key text not null,          -- the source's own id of it: a second copy is a no-op
  source text not null,             -- hook:<id>, job:<id>, session:<id>, connector:<name>
  payload text not null,
  taint text not null default '',   -- label of the outside text it holds; empty: our own words
  at double precision not null,
  unique (tenant_id, name, event_key)
);
create index events_named on events (tenant_id, name, at);
create index events_age on events (at);

create table hooks (
  id text primary key,
  tenant_id text not null,
  name text not null,               -- of the event it fires
  owner_id text not null,
  token_hash text not null unique,  -- SHA-256 of the secret part of its path
  secret text not null default '',  -- name under which its signing key is kept; empty: unsigned
  status text not null,             -- active, revoked
  created_at double precision not null,
  calls bigint not null default 0,
  last_at double precision
);
create index hooks_tenant on hooks (tenant_id, created_at);

-- A wake waits for a time or, until that time, for an event.
alter table wakes add column event text not null default '';
alter table wakes add column event_id text not null default ''; -- the one that came
alter table wakes add column tries integer not null default 0;
alter table wakes add column created_at double precision not null default 0;
create index wakes_event on wakes (tenant_id, event) where status = 'waiting';
-- Made anew after the other: of two that fit, SQLite takes the one made last.
drop index wakes_due;
create index wakes_due on wakes (tenant_id, due) where status = 'waiting';

-- Schedules that an event which came is to start, and when.
create table arrivals (
  tenant_id text not null,
  event_id text not null,
  schedule_id text not null,
  at double precision not null,
  primary key (event_id, schedule_id)
);
create index arrivals_due on arrivals (tenant_id, at);
alter table fires add column event_id text not null default '';
create index schedules_event on schedules (tenant_id, cron);

-- A watch: what a channel or an event brings is handed to a session of its own.
alter table subscriptions add column owner_id text not null default '';
alter table subscriptions add column words text not null default '{}'; -- JSON: {any: [], all: []}
alter table subscriptions add column batch double precision not null default 30;
alter table subscriptions add column due double precision; -- when what waits is handed over
alter table subscriptions add column missed bigint not null default 0; -- left out since then
create index subscriptions_source on subscriptions (tenant_id, source) where status = 'active';
create index subscriptions_due on subscriptions (tenant_id, due) where status = 'active';

create table watched (
  id {identity},
  tenant_id text not null,
  session_id text not null,         -- of the watch
  subscription_id text not null,
  at double precision not null,
  body text not null                -- JSON: {who, text, where}
);
create index watched_subscription on watched (subscription_id, id);
create index watched_session on watched (session_id);
