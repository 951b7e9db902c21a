-- What chat platforms need: where a person reads private messages, and events that always crash.

alter table identities add column dm text not null default '';
alter table identities add column dm_at double precision not null default 0;

create table held (
  tenant_id text not null,
  event_key text not null,          -- the platform's event id, as in the mailbox
  event text not null,              -- JSON: the event, whole
  tries integer not null,
  status text not null,             -- failing, held, again
  at double precision not null,
  primary key (tenant_id, event_key)
);
