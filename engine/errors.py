"""The errors a person can meet, as one tree; each says what was wrong and what to do next.

NodError
├── SettingsError         a setting is missing, unknown or malformed
├── TargetError           a thread_target does not parse
├── StoreError
│   ├── StoreBusy         another process holds the store
│   ├── StoreDamaged      the file is no database, or fails its own check
│   ├── StoreFull         the disk is full; nothing acknowledged was lost
│   ├── SchemaTooNew      written by a newer Nod
│   ├── Conflict          a row with this unique key is there already (never shown)
│   └── Fenced            this worker no longer owns the session (never shown)
├── SessionError          no such session, or it cannot do that now
├── PromptError           no such prompt, already decided, not yours, or another hash
├── ToolError             a tool refused; its text goes to the model
│   └── NeedsConnection   a service refused the credentials; a person must connect it
├── ScheduleError         a cron line, zone or time that cannot be
│   └── Unclear           a time that is not surely understood; nothing was guessed
├── VaultError            secrets cannot be read or kept
└── ModelError            see engine/models/base.py
"""

from __future__ import annotations


class NodError(Exception):
    """Base of all errors meant for a person: one sentence, then the next step.

    Args:
        what: what was wrong, one full sentence.
        fix: what to do next, one full sentence; empty when nothing can be done.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what if not fix else f"{what} {fix}")
        self.what = what
        self.fix = fix


class SettingsError(NodError):
    """A setting is missing, unknown or malformed."""


class TargetError(NodError):
    """A thread_target does not parse."""


class StoreError(NodError):
    """The store cannot do what was asked."""


class StoreBusy(StoreError):
    """Another process holds the store."""


class StoreDamaged(StoreError):
    """The database file is damaged or is no database."""


class StoreFull(StoreError):
    """The disk is full; nothing that was acknowledged is lost."""


class SchemaTooNew(StoreError):
    """The store was written by a newer Nod."""


class Conflict(StoreError):
    """A row with this unique key is there already."""


class Fenced(StoreError):
    """This worker no longer owns the session; it must stop at once."""


class SessionError(NodError):
    """No such session, or it cannot do that now."""


class PromptError(NodError):
    """No such prompt, already decided, not yours to answer, or bound to other arguments."""


class ToolError(NodError):
    """A tool refused; the text is the tool result the model reads."""

    #: Names the outside text its words hold, as a result's `taint` does; empty: none.
    taint: str = ""


class NeedsConnection(ToolError):
    """A service refused the credentials and did nothing; the call can go on once it is connected.

    Args:
        connector: the connector's name, such as "github".
        account: the label of the account that was meant; empty: the person has none.
        why: one full sentence for the person.
        person: principal whose connection it is; empty: the session's owner.
        title: what people call the connector; empty: its name.
    """

    def __init__(
        self, connector: str, account: str, why: str, person: str = "", title: str = ""
    ) -> None:
        super().__init__(why, f"Connect it: /connect {connector}")
        self.connector = connector
        self.account = account
        self.why = why
        self.person = person
        self.title = title or connector


class ScheduleError(NodError):
    """A cron line, a time zone or a time that cannot be."""


class Unclear(ScheduleError):
    """A time that is not surely understood; nothing was guessed."""


class VaultError(NodError):
    """Secrets cannot be read or kept; what is there is left as it is."""
