"""What the model is sent: built for each call from the log, which is never changed for it.

Nothing is summarised. What outgrows the window is left out of the view in steps: above 85 % of the
window it is cut to 60 %, oldest tool results first (each with a handle to read it back), the open
turn's last, then whole oldest turns as one line. The border is recorded per model as an event;
between two such events the part that was sent before is sent again byte for byte.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.canonical import loads
from engine.events import Event, Kind
from engine.models import content
from engine.models.base import ContextTooLong, Message
from engine.models.catalogue import Entry
from engine.store.base import Store, Tx
from engine.tools.base import Offer

__all__ = ["Border", "Histories", "History", "View", "build"]

CUT_ABOVE = 0.85  # of the window
CUT_TO = 0.60

#: Sessions whose messages are kept in memory; the log has them all.
HISTORIES_KEPT = 256
#: Estimated tokens kept in memory over all sessions (about 4 bytes each).
TOKENS_KEPT = 16_000_000

_HANDLE = "[left out to save room; read it back with read_artifact(id='call:{call}')]"
_EARLIER = "<nod-note>{n} earlier messages of this session are left out here.</nod-note>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """What the view leaves out for one model: everything older than these log places."""

    results: int = 0
    turns: int = 0


@dataclass(slots=True)
class _Line:
    seq: int
    turn: int
    message: Message
    tokens: int


@dataclass(slots=True)
class History:
    """The messages of one session's log, kept between model calls. Only ever grows."""

    session: str
    seq: int = 0
    tokens: int = 0
    lines: list[_Line] = field(default_factory=list)
    #: The messages that hold a file.
    files: list[Message] = field(default_factory=list)
    borders: dict[str, Border] = field(default_factory=dict)
    #: Per model: how many lines of ended turns are fitted, under which border, and the result.
    fitted: dict[str, tuple[int, Border, list[Message]]] = field(default_factory=dict)

    def extend(self, facts: Iterable[Event]) -> None:
        """Take in facts; those it has already are passed over."""
        for fact in facts:
            if fact.seq > self.seq:
                self.add(fact.seq, fact.turn, fact.kind, fact.call, fact.body)

    def add(
        self, seq: int, turn: int, kind: str, call: str | None, body: Mapping[str, Any]
    ) -> None:
        """Take in one fact that comes after all others."""
        self.seq = seq
        if kind == Kind.ELIDED:
            self.borders[body["model"]] = Border(results=body["results"], turns=body["turns"])
            return
        message = _message(kind, call, body)
        if message is None:
            return
        tokens = content.estimate(message)
        self.tokens += tokens
        if _has_file(message):
            self.files.append(message)
        self.lines.append(_Line(seq, turn, message, tokens))

    def join(self, later: History) -> None:
        """Take in what another history has, all of which comes after this one's."""
        self.seq = later.seq
        self.tokens += later.tokens
        self.lines += later.lines
        self.files += later.files
        self.borders.update(later.borders)


class Histories:
    """The histories of the sessions advanced lately, the oldest dropped first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, History] = OrderedDict()

    async def load(self, store: Store, session: str, seq: int) -> History:
        """Return the session's history up to log place `seq`, reading what is missing."""
        history = self._kept.get(session)
        if history is None:
            history = self._kept[session] = History(session)
            self._trim()
        self._kept.move_to_end(session)
        if history.seq < seq:
            history.join(await store.read(lambda tx: _read(tx, session, history.seq)))
            history.seq = max(history.seq, seq)
        return history

    def forget(self, session: str) -> None:
        """Drop what is kept of a session."""
        self._kept.pop(session, None)

    def _trim(self) -> None:
        total = sum(history.tokens for history in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > HISTORIES_KEPT or total > TOKENS_KEPT):
            total -= self._kept.popitem(last=False)[1].tokens


def _read(tx: Tx, session: str, seq: int) -> History:
    """Return what the log has after place `seq`. Off the event loop: it may be much."""
    found = History(session, seq=seq)
    for row in tx.all("log_messages", session=session, seq=seq):
        found.add(row["seq"], row["turn"], row["kind"], row["call_id"], loads(row["body"]))
    return found


def _has_file(message: Message) -> bool:
    parts = message.get("content")
    return isinstance(parts, list) and any(part.get("type") == "file" for part in parts)


def _message(kind: str, call: str | None, body: Mapping[str, Any]) -> Message | None:
    """Return the canonical message a fact adds to the conversation, or None."""
    if kind in (Kind.MESSAGE, Kind.ASSISTANT_MESSAGE):
        message: Message = body["message"]
        return message
    if kind == Kind.TOOL_FINISHED:
        return {"role": "tool", "tool_call_id": call, "content": body["content"]}
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What to send, and the border that had to move for it, if one had."""

    messages: list[Message]
    border: Border | None = None


async def build(
    history: History,
    turn: int,
    entry: Entry,
    system: str,
    tools: Offer,
    documents: content.Documents,
) -> View:
    """Return what to send to the model of `entry` in `turn`.

    Raises ContextTooLong when even the shortest view does not fit.
    """
    border = history.borders.get(entry.id, Border())
    fixed = (len(system) + tools.size) // 4  # tokens, by the same rule as content.estimate
    room = entry.window - min(entry.max_output or entry.window // 8, entry.window // 4)
    moved = None
    if fixed + _total(history, border) > CUT_ABOVE * room:
        moved = border = _cut(history, turn, entry, border, CUT_TO * room - fixed)
        if fixed + _total(history, border) > room:
            raise ContextTooLong(
                f"This session no longer fits the window of {entry.id} ({entry.window} tokens).",
                "Go on in a new one with /new, or switch to a model with a larger window.",
            )
    if history.files:
        await documents.prepare(history.files, entry)
    messages = _fitted(history, turn, entry, border, documents)
    return View(messages=[{"role": "system", "content": system}, *messages], border=moved)


def _fitted(
    history: History, turn: int, entry: Entry, border: Border, documents: content.Documents
) -> list[Message]:
    """Fit ended turns once and keep the result; fit the open turn at every call."""
    lines = history.lines
    start = len(lines)
    while start and lines[start - 1].turn == turn:
        start -= 1
    count, under, kept = history.fitted.get(entry.id, (0, border, []))
    if under != border or count > start:
        count, kept = 0, []
    if count < start:
        ended = _lines(lines[count:start], border, first=count == 0, history=history)
        kept = kept + list(content.fit(ended, entry, documents, open_from=len(ended)))
        history.fitted[entry.id] = (start, border, kept)
    tail = _lines(lines[start:], border, first=start == 0, history=history)
    return kept + list(content.fit(tail, entry, documents, open_from=0))


def _lines(
    lines: Sequence[_Line], border: Border, *, first: bool, history: History
) -> list[Message]:
    """Return the messages of `lines` with what the border leaves out replaced."""
    out: list[Message] = []
    if first and border.turns:
        left = sum(1 for line in history.lines if line.seq < border.turns)
        out.append({"role": "user", "content": _EARLIER.format(n=left)})
    for line in lines:
        if line.seq < border.turns:
            continue
        if line.seq < border.results and line.message["role"] == "tool":
            call = line.message["tool_call_id"]
            out.append({**line.message, "content": _HANDLE.format(call=call)})
        else:
            out.append(line.message)
    return out


_HANDLE_TOKENS = 30


def _cost(line: _Line, border: Border) -> int:
    if line.seq < border.turns:
        return 0
    if line.seq < border.results and line.message["role"] == "tool":
        return min(line.tokens, _HANDLE_TOKENS)
    return line.tokens


def _total(history: History, border: Border) -> int:
    if border == Border():
        return history.tokens
    return sum(_cost(line, border) for line in history.lines)


def _cut(history: History, turn: int, entry: Entry, border: Border, goal: float) -> Border:
    """Return the border that brings the view to `goal` tokens, or as near as it gets."""
    total = float(_total(history, border))
    for line in history.lines:  # results of ended turns first, then the open turn's: log order
        if total <= goal:
            return border
        if line.message["role"] == "tool" and line.seq >= border.results:
            total -= line.tokens - min(line.tokens, _HANDLE_TOKENS)
            border = Border(results=line.seq + 1, turns=border.turns)
    starts: dict[int, int] = {}
    for line in history.lines:
        starts.setdefault(line.turn, line.seq)
    for number, begin in sorted(starts.items()):
        if total <= goal or number > turn:
            break
        if begin > border.turns:
            total -= sum(
                _cost(line, border) for line in history.lines if border.turns <= line.seq < begin
            )
            border = Border(results=max(border.results, begin), turns=begin)
    return border
