"""Prompts as platform-neutral cards, the tokens of their buttons, and what a press means.

A card holds one row for each prompt that was asked at once. A row shows the exact target, the risk,
what would happen and which outside text is in play; once decided, it shows only the decision.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Any

from bot.choices import RULE_DAYS, Choice, choices
from bot.markup import code, cut, fenced, plain, visible
from bot.outbound.deciding import decision
from engine.errors import PromptError, SettingsError
from engine.inbox import DAY, Prompt

__all__ = [
    "ALL",
    "LOOKS",
    "Button",
    "Card",
    "Choice",
    "Press",
    "Row",
    "answer_of",
    "answer_to",
    "card_of",
    "choices",
    "decision",
    "full_text",
    "looked_into",
    "mark_of",
    "mark_of_all",
    "name_of",
    "read_token",
    "says",
    "text_answer",
    "text_of",
    "token",
    "token_key",
]

#: Bytes of a button's value: the least any platform allows (Telegram, callback_data).
TOKEN_BYTES = 64
_MAC, _MARK = 16, 8  # bytes

#: Characters and lines of a preview on a card; `full_text` has the rest.
PREVIEW, PREVIEW_LINES = 1_500, 40

#: What the button for a whole card answers, and what buttons that answer nothing show.
ALL = "all"
LOOKS = {"why": "Why do you ask?", "full": "Show everything"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """One answer a person can give with one press."""

    label: str
    #: The key that presses it in a terminal.
    key: str
    #: What it answers: a kind of answer, or `o<n>` for the n-th option of a question.
    answer: str
    token: str
    #: yes, no or plain: how it is coloured.
    style: str = "plain"
    #: What the press asks for before it counts: '', 'reason' (may be empty), 'arguments' of a call,
    #: or 'answer' to what was asked.
    asks: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One prompt on a card."""

    prompt: str
    title: str
    #: (label, value) lines, values in Markdown.
    facts: tuple[tuple[str, str], ...] = ()
    #: What would happen, in Markdown; cut to fit.
    preview: str = ""
    buttons: tuple[Button, ...] = ()
    #: Buttons that answer nothing: who presses one is shown more, privately.
    looks: tuple[Button, ...] = ()
    #: "Approved by @ana, 09:02"; empty: still open.
    decided: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a person is asked, as one message."""

    id: str
    title: str
    rows: tuple[Row, ...]
    #: Buttons for all open rows together; none unless each row shows all there is to it.
    buttons: tuple[Button, ...] = ()

    @property
    def open(self) -> bool:
        """True while a row waits for an answer."""
        return any(not row.decided for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """What a button's token says; its signature was checked."""

    prompt: str
    answer: str
    #: The beginning of the argument hash the button was made for; compare with `mark_of`.
    mark: bytes


_TITLES = {
    "approval": "Nod asks for your nod",
    "question": "Nod has a question",
    "plan": "Nod proposes a plan",
    "grant": "Nod asks for a right",
    "access": "Somebody new wants to talk to Nod",
    "outcome": "Did this happen?",
    "connect": "Nod needs a connection",
    "notice": "Something needs your attention",
}

#: Facts that a decided row still shows.
_KEPT = ("To", "When", "Reports to")

_RISKS = {
    "read": "reads only",
    "write_local": "changes files",
    "exec": "runs a program",
    "external": "other people will see it",
    "control": "changes this session only",
}


def card_of(
    prompts: Sequence[Prompt],
    place: str,
    key: bytes,
    name: Callable[[str], str],
    zone: tzinfo,
) -> Card:
    """Return the card of prompts that were asked together.

    Args:
        prompts: at least one, in the order they were asked.
        place: thread_target where it is shown. A text that waits for a nod to be posted there is
            left out, since showing it would be posting it.
        key: signs the buttons; see `token_key`.
        name: principal id -> the name to show.
        zone: in which times are written.
    """
    first = prompts[0]
    alone = first.payload.get("title") if len(prompts) == 1 else None
    title = str(alone or _TITLES[first.kind])
    rows = tuple(_row(prompt, place, key, name, zone) for prompt in prompts)
    card = str(first.payload.get("card") or first.id)
    return Card(id=card, title=plain(title), rows=rows, buttons=_for_all(prompts, place, key))


def _for_all(prompts: Sequence[Prompt], place: str, key: bytes) -> tuple[Button, ...]:
    """Return "Approve all", when several rows wait and nothing about any of them is hidden."""
    waiting = [prompt for prompt in prompts if prompt.status == "pending"]
    if len(waiting) < 2 or not all(_harmless(prompt, place) for prompt in waiting):
        return ()
    made = _signed(mark_of_all(waiting), waiting[0].id, ALL, key)
    return (Button(label="Approve all", key="A", answer=ALL, token=made, style="yes"),)


def _harmless(prompt: Prompt, place: str) -> bool:
    payload = prompt.payload
    shown = str(payload.get("preview") or "")
    if not shown and payload.get("arguments") is not None:
        shown = _json(payload["arguments"])
    whole = not cut(shown, PREVIEW, PREVIEW_LINES)[1] and place not in payload.get("target", ())
    plainly = payload.get("risk") != "exec" and not payload.get("taint")
    return prompt.kind == "approval" and "once" in prompt.options and plainly and whole


def _row(prompt: Prompt, place: str, key: bytes, name: Callable[[str], str], zone: tzinfo) -> Row:
    title = visible(_subject(prompt))
    if prompt.status != "pending":
        facts = tuple(fact for fact in _facts(prompt) if fact[0] in _KEPT)
        decided = decision(prompt, name, zone)
        return Row(prompt=prompt.id, title=title, facts=facts, decided=decided)
    return Row(
        prompt=prompt.id,
        title=title,
        facts=_facts(prompt),
        preview=_preview(prompt, place),
        buttons=_buttons(prompt, key),
        looks=_looks(prompt, key),
    )


def _subject(prompt: Prompt) -> str:
    named = prompt.kind in ("approval", "outcome") and prompt.payload.get("tool")
    if any(prompt.payload.get(each) for each in ("schedule", "budget", "unclear")):
        named = prompt.payload["title"]
    return str(named or _TITLES[prompt.kind])


def _facts(prompt: Prompt) -> tuple[tuple[str, str], ...]:
    payload = prompt.payload
    facts = [(label, plain(value)) for label, value in payload.get("facts", ())]
    if payload.get("target"):
        facts.append(("To", ", ".join(code(str(each)) for each in payload["target"])))
    if payload.get("risk"):
        facts.append(("Risk", _RISKS.get(payload["risk"], visible(str(payload["risk"])))))
    if payload.get("reason") and prompt.kind != "outcome":
        facts.append(("Why it asks", plain(str(payload["reason"]))))
    if prompt.kind == "connect":
        facts.append(("Why it asks", plain(str(payload.get("why", "")))))
    if prompt.needs > 1:
        facts.append(("Needs", f"{prompt.needs} people"))
    if payload.get("taint"):
        outside = ", ".join(code(str(each)) for each in payload["taint"])
        facts.append(("Outside text in play", outside))
    return tuple(facts)


def _preview(prompt: Prompt, place: str) -> str:
    payload = prompt.payload
    if prompt.kind == "question":
        return "\n\n".join(_question(each) for each in payload["questions"])
    if prompt.kind == "plan":
        steps = [f"{n}. {plain(str(s))}" for n, s in enumerate(payload.get("steps") or (), 1)]
        text = "\n".join([plain(str(payload["plan"])), *([""] if steps else []), *steps])
        return _shortened(prompt, text)
    if place in payload.get("target", ()):
        return f"The text is not shown in the place it would go to. See it: `/inbox {prompt.id}`"
    text = str(payload.get("preview") or payload.get("text") or "")
    if not text and payload.get("arguments") is not None:
        text = _json(payload["arguments"])
    return _shortened(prompt, text, fence=not payload.get("text"))


def _shortened(prompt: Prompt, text: str, fence: bool = False) -> str:
    kept, left = cut(text, PREVIEW, PREVIEW_LINES)
    shown = fenced(kept) if fence and kept else plain(kept)
    return f"{shown}\n… {left:,} more characters: `/inbox {prompt.id}`" if left else shown


def _question(question: Mapping[str, Any]) -> str:
    options = []
    for number, option in enumerate(question.get("options") or (), 1):
        told = f": {plain(option['description'])}" if option.get("description") else ""
        hint = " (recommended)" if option.get("recommended") else ""
        options.append(f"{number}. {plain(option['label'])}{hint}{told}")
    notes = ["several may be chosen"] if question.get("multi") else []
    notes += ["your own words are welcome"] if question.get("allow_text") and options else []
    note = f" ({'; '.join(notes)})" if notes else ""
    return "\n".join([plain(question["question"]) + note, *options])


def _buttons(prompt: Prompt, key: bytes) -> tuple[Button, ...]:
    return tuple(
        Button(
            label=choice.label,
            key=choice.key,
            answer=answer,
            token=token(prompt, answer, key),
            style=choice.style,
            asks=choice.asks,
        )
        for answer, choice in choices(prompt).items()
    )


def _looks(prompt: Prompt, key: bytes) -> tuple[Button, ...]:
    offered = {"approval": ("why", "full"), "outcome": ("why", "full"), "plan": ("full",)}
    return tuple(
        Button(label=LOOKS[each], key=each[0], answer=each, token=token(prompt, each, key))
        for each in offered.get(prompt.kind, ())
    )


# -- text


def text_of(card: Card, keys: bool = True) -> str:
    """Return the card as Markdown, for surfaces without buttons; `keys` lists the answers."""
    parts = [f"**{card.title}**"]
    for number, row in enumerate(card.rows, 1):
        number_of = f"{number}. " if len(card.rows) > 1 else ""
        name = "" if row.title == card.title else f"**{row.title}** · "
        parts.append(_row_text(row, f"{number_of}{name}", keys))
    if keys and card.buttons:
        parts.append(" · ".join(f"[{each.key}] {each.label}" for each in card.buttons))
    return "\n\n".join(parts)


def _row_text(row: Row, name: str, keys: bool) -> str:
    head = f"{name}`{row.prompt}`"
    lines = [head, *(f"{label}: {value}" for label, value in row.facts)]
    if row.preview:
        lines.append(row.preview)
    if row.decided:
        lines.append(row.decided)
    elif keys and row.buttons:
        lines.append(" · ".join(f"[{each.key}] {each.label}" for each in row.buttons))
    return "\n".join(lines)


def full_text(prompt: Prompt) -> str:
    """Return everything the prompt holds, nothing cut."""
    payload = prompt.payload
    parts = [f"{_TITLES[prompt.kind]} · {prompt.id}", visible(_subject(prompt))]
    parts += [f"{label}: {value}" for label, value in _facts(prompt)]
    for name in ("text", "plan", "preview"):
        if payload.get(name):
            parts += [f"{name.capitalize()}:", plain(str(payload[name]))]
    if payload.get("steps"):
        parts += [f"{n}. {plain(str(step))}" for n, step in enumerate(payload["steps"], 1)]
    parts += [_question(each) for each in payload.get("questions", ())]
    if payload.get("arguments") is not None:
        parts += ["Arguments:", plain(_json(payload["arguments"]))]
    return "\n".join(parts)


def looked_into(prompt: Prompt, what: str) -> str:
    """Return what a button of LOOKS shows, in Markdown."""
    if what == "full":
        return full_text(prompt)
    payload = prompt.payload
    reason = plain(str(payload.get("reason") or "")).rstrip(".")
    lines = [f"{reason}." if reason else "It is asked each time."]
    lines += [f"{label}: {value}" for label, value in _facts(prompt) if label != "Why it asks"]
    return "\n".join(lines)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


# -- what a press or a line means


def answer_of(
    prompt: Prompt,
    answer: str,
    now: float,
    text: str = "",
    arguments: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the inbox's answer for a button's `answer`.

    Raises PromptError when it is an option the question does not have, or an edit without
    arguments.
    """
    if answer[:1] == "o" and answer[1:].isdigit():
        return text_answer(prompt, answer[1:])
    if answer == "deny":
        return {"kind": "deny", "reason": text.strip()}
    if answer == "always":
        return {"kind": "always", "uses": None, "expires_at": now + RULE_DAYS * DAY}
    if answer == "edit":
        if arguments is None:
            raise PromptError("An edit must carry the arguments.", "Send them as a JSON object.")
        return {"kind": "edit", "arguments": dict(arguments)}
    if answer == "answer":
        if arguments is None and not text.strip():
            raise PromptError("This takes words.", "Reply to the card with your answer.")
        if arguments is None:
            return text_answer(prompt, text.strip())
        return {"kind": "answer", "answers": dict(arguments)}
    if answer == "rule":
        if not prompt.payload["arguments"]["report_to"]:
            raise PromptError("This schedule reports only here.", "Confirm it without a rule.")
        return {"kind": "approve", "rule": True}
    if prompt.kind == "plan" and answer in ("approve", "auto"):
        return {"kind": "approve", "mode": "auto" if answer == "auto" else "interactive"}
    return dict(_MEANS.get(answer, {"kind": answer}))


#: What buttons answer whose name is not the kind of their answer.
_MEANS: Mapping[str, Mapping[str, Any]] = {"raise": {"kind": "approve", "raise": True}}


def text_answer(prompt: Prompt, text: str) -> dict[str, Any]:
    """Return what a line says to a prompt: the answer of a question, else a no and what to do.

    Numbers choose the options of a single question ("2", or "1, 3" where several may be chosen).
    """
    if prompt.kind != "question":
        return {"kind": "deny", "reason": text}
    first, *more = prompt.payload["questions"]
    said = text if more else answer_to(first, text)
    if more or not first.get("options") or said == text:
        return {"kind": "answer", "text": text}
    return {"kind": "answer", "answers": {name_of(first): said}}


def name_of(question: Mapping[str, Any]) -> str:
    """Return the name an answer to the question goes by."""
    return str(question.get("key") or question.get("header") or question["question"])


def answer_to(question: Mapping[str, Any], text: str) -> str | list[str]:
    """Return what a line says to one question: its words, or the options its numbers choose.

    Raises PromptError when there is no such option, or only one may be chosen.
    """
    options = question.get("options") or ()
    numbers = [part.strip() for part in text.split(",")]
    if not options or not all(part.isdecimal() for part in numbers):
        return text
    if not all(1 <= int(part) <= len(options) for part in numbers):
        raise PromptError(f"There is no option {text}.", f"Choose 1 to {len(options)}.")
    if len(numbers) > 1 and not question.get("multi"):
        raise PromptError("Only one option can be chosen.", "Send one number.")
    labels = [str(options[int(part) - 1]["label"]) for part in numbers]
    return labels if question.get("multi") else labels[0]


# -- tokens


def token(prompt: Prompt, answer: str, key: bytes) -> str:
    """Return the value of a button: opaque, signed, bound to the prompt and its argument hash.

    At most 64 bytes. Raises ValueError when prompt id and answer are too long for that.
    """
    return _signed(mark_of(prompt), prompt.id, answer, key)


def _signed(mark: bytes, prompt: str, answer: str, key: bytes) -> str:
    said = mark + f"{prompt}.{answer}".encode()
    made = base64.urlsafe_b64encode(_mac(key, said) + said).rstrip(b"=").decode()
    if len(made) > TOKEN_BYTES:
        raise ValueError(f"a token for {prompt}.{answer} would be longer than 64 bytes")
    return made


def read_token(value: str, key: bytes) -> Press:
    """Return what a button's value says; raises PromptError when we did not sign it."""
    try:
        raw = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
        mac, said = raw[:_MAC], raw[_MAC:]
        if not hmac.compare_digest(mac, _mac(key, said)):
            raise ValueError("wrong signature")
        prompt, _, answer = said[_MARK:].decode().rpartition(".")
    except (ValueError, binascii.Error) as error:
        raise PromptError("This button is not one of mine.", "See `/inbox`.") from error
    return Press(prompt=prompt, answer=answer, mark=said[:_MARK])


def says(value: str) -> str:
    """Return the answer a button's value stands for, unchecked: what to ask for before a press."""
    try:
        raw = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
        return raw[_MAC + _MARK :].decode().rpartition(".")[2]
    except ValueError:  # binascii.Error and UnicodeDecodeError are ones
        return ""


def mark_of(prompt: Prompt) -> bytes:
    """Return the beginning of the prompt's argument hash; zeros when it has none."""
    return bytes.fromhex(prompt.hash[: _MARK * 2]) if prompt.hash else bytes(_MARK)


def mark_of_all(prompts: Sequence[Prompt]) -> bytes:
    """Return the mark of several prompts together, in any order: each of them changes it."""
    said = "\0".join(sorted(f"{prompt.id} {prompt.hash}" for prompt in prompts))
    return hashlib.sha256(said.encode()).digest()[:_MARK]


def _mac(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, b"nod button\0" + said, "sha256")[:_MAC]


def token_key(data: Path) -> bytes:
    """Return the key that signs this installation's buttons; made at the first start, mode 0600.

    Blocking. Raises SettingsError when the file is there and is no key.
    """
    path = data / "button.key"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_bytes()
        if len(key) != 32:
            fix = "Move it away: a new one is made, and cards shown before need `nod approve`."
            raise SettingsError(f"{path} is not a key of 32 bytes.", fix) from None
        return key
    with os.fdopen(handle, "wb") as file:
        file.write(os.urandom(32))
        file.flush()
        os.fsync(file.fileno())
    return path.read_bytes()
