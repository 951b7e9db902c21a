"""Reads persona files: front matter between two `---` lines, then Markdown.

The front matter is a small, strict part of YAML, read without YAML's guesses (`no` stays a word):

    ---
    name: Cowork                  text, with or without quotes
    tools: [read, search]         a list in one line,
    tools:                        or one item a line
      - read
    ---                           # starts a comment
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import SettingsError
from engine.permissions.base import Mode
from engine.turn.prompt import Persona

__all__ = ["Document", "Manifest", "PromptFile", "read_manifest", "read_prompt", "split"]

_KEY = re.compile(r"([A-Za-z][\w-]*)\s*:(?:\s+(.*))?$")
_ITEM = re.compile(r"\s*-\s+(.+)$")
_COMMENT = re.compile(r"(?:^|\s+)#.*$")
#: What a persona is called in files, commands and the store.
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file with front matter: its fields, where each stands, and the Markdown below."""

    where: str
    fields: Mapping[str, str | tuple[str, ...]]
    #: Field -> line in the file, from 1.
    lines: Mapping[str, int]
    body: str

    def check(self, known: Mapping[str, type]) -> None:
        """Raise SettingsError for a field not in `known`, or of another kind than it says."""
        for name, value in self.fields.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                fix = f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(known)}."
                raise self.wrong(name, f"there is no field '{name}'", fix)
            if not isinstance(value, known[name]):
                word = "a list, for example [a, b]" if known[name] is tuple else "one text"
                raise self.wrong(name, f"'{name}' must be {word}", "Mend it.")

    def text(self, name: str) -> str:
        """Return a text field; empty when it is not there."""
        return str(self.fields.get(name, ""))

    def wrong(self, name: str, what: str, fix: str) -> SettingsError:
        """Return the error for a field, with its line."""
        return _wrong(self.where, self.lines.get(name), what, fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A PERSONA.md: what the engine needs, and what people are shown."""

    persona: Persona
    title: str
    tagline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFile:
    """A prompt kept as a file, with blanks to fill in."""

    title: str
    #: Names of its blanks, written `{name}` in the text.
    takes: tuple[str, ...]
    text: str

    def fill(self, **values: str) -> str:
        """Return the prompt with its blanks filled; raises SettingsError when one is missing."""
        missing = [name for name in self.takes if name not in values]
        if missing:
            raise SettingsError(f"The prompt '{self.title}' needs {', '.join(missing)}.")
        return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), self.text)


_MANIFEST = {"name": str, "tagline": str, "tools": tuple, "model": str, "mode": str}
_PROMPT = {"title": str, "takes": tuple}


def read_manifest(persona: str, text: str, where: str) -> Manifest:
    """Return the manifest of the persona with the id `persona`.

    Raises SettingsError that names `where`, the line and the fault: an unknown field, a mode that
    is none, no prompt.
    """
    if not _ID.fullmatch(persona):
        raise SettingsError(
            f"'{persona}' cannot be a persona's id.",
            "Use up to 64 lower-case letters, digits, - and _.",
        )
    document = split(text, where)
    document.check(_MANIFEST)
    mode = document.text("mode")
    if mode and mode not in tuple(Mode):
        fix = f"Choose one of {', '.join(Mode)}."
        raise document.wrong("mode", f"'mode' cannot be '{mode}'", fix)
    if not document.body:
        raise SettingsError(
            f"{where} has no prompt.", "Write below the second --- who the persona is."
        )
    tools: Any = document.fields.get("tools")
    return Manifest(
        persona=Persona(
            name=persona,
            prompt=document.body,
            tools=tools,
            model=document.text("model"),
            mode=mode,
        ),
        title=document.text("name") or persona,
        tagline=document.text("tagline"),
    )


def read_prompt(text: str, where: str) -> PromptFile:
    """Return a prompt file; raises SettingsError when its blanks and its fields do not agree."""
    document = split(text, where)
    document.check(_PROMPT)
    takes: Any = document.fields.get("takes", ())
    blanks = set(re.findall(r"\{(\w+)\}", document.body))
    if blanks != set(takes):
        odd = ", ".join(sorted(blanks ^ set(takes)))
        fix = "Name each blank once under 'takes' and write it as {name} in the text."
        raise document.wrong("takes", f"'takes' and the text do not agree on {odd}", fix)
    return PromptFile(title=document.text("title"), takes=takes, text=document.body)


def split(text: str, where: str) -> Document:
    """Read the front matter off `text`; a file without one is all body.

    Raises SettingsError for a line that is no field, a field given twice, or a missing end.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return Document(where=where, fields={}, lines={}, body="\n".join(lines).strip())
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise SettingsError(
            f"The front matter of {where} has no end.", "Close it with a line that says ---."
        )
    fields, places = _fields(lines[1:end], where)
    body = "\n".join(lines[end + 1 :]).strip()
    return Document(where=where, fields=fields, lines=places, body=body)


def _fields(
    lines: Sequence[str], where: str
) -> tuple[dict[str, str | tuple[str, ...]], dict[str, int]]:
    fields: dict[str, str | tuple[str, ...]] = {}
    places: dict[str, int] = {}
    last = ""  # the field whose items may follow
    for number, line in enumerate(lines, 2):
        if not _COMMENT.sub("", line).strip():
            continue
        item, key = _ITEM.match(line), _KEY.match(line)
        if item and last:
            fields[last] = (*_items(fields[last]), _plain(item[1], where, number))
        elif key is None:
            fix = "Write name: value, or - item below a name."
            raise _wrong(where, number, "this is no field", fix)
        elif key[1] in fields:
            raise _wrong(where, number, f"'{key[1]}' is here twice", "Remove one.")
        else:
            value = _value(key[2] or "", where, number)
            fields[key[1]], places[key[1]] = value, number
            last = key[1] if value == "" else ""
    return fields, places


def _items(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _value(text: str, where: str, number: int) -> str | tuple[str, ...]:
    bare = _COMMENT.sub("", text).strip()
    if not bare.startswith("["):
        return _plain(text, where, number)
    if not bare.endswith("]"):
        raise _wrong(where, number, "this list has no end", "Close it with ].")
    inner = bare[1:-1].strip()
    return tuple(_plain(part, where, number) for part in inner.split(",")) if inner else ()


def _plain(text: str, where: str, number: int) -> str:
    """Return one text: in quotes as it stands, else without its comment."""
    text = text.strip()
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        if end < 0 or _COMMENT.sub("", text[end + 1 :]).strip():
            raise _wrong(where, number, "these quotes do not end", "Close them.")
        return text[1:end]
    bare = _COMMENT.sub("", text).strip()
    if bare[:1] in ("{", "|", ">", "&", "*", "!"):
        raise _wrong(where, number, "this is YAML that is not read here", "Write plain text.")
    return bare


def _wrong(where: str, number: int | None, what: str, fix: str) -> SettingsError:
    line = f", line {number}" if number else ""
    return SettingsError(f"{where}{line}: {what}.", fix)
