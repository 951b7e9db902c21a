-- What connectors bring by themselves: how far each account was looked at, and whose an event is.

alter table events add column owner_id text not null default ''; -- whose account it is of; empty: for all

create table sources (
  account_id text not null,         -- of connections
  source text not null,             -- review, message: its events are <connector>-<source>
  tenant_id text not null,
  seen text not null default '',    -- JSON, as the source wrote it; empty: it was never looked at
  next_at double precision not null,-- when to look next; while somebody looks, until when that may take
  failures integer not null default 0, -- in a row
  told integer not null default 0,  -- 1: its owner knows that it does not work
  primary key (account_id, source)
);
create index sources_tenant on sources (tenant_id);
