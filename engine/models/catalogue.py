"""Reads what is known about providers and models, ours and the person's, from data files."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any

from engine.errors import SettingsError
from engine.models.base import UnknownModel

__all__ = ["Catalogue", "Entry", "Price", "Provider"]

_ENV_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_PROVIDER_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens. None: charged like `input`."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """An endpoint and how it differs from the others of its protocol; see catalogue.toml."""

    name: str
    protocol: str = "openai"
    base_url: str
    #: Environment variables that may hold the key; empty: none is needed.
    key: tuple[str, ...] = ()
    default: str = ""
    aliases: tuple[str, ...] = ()
    max_tokens: str = "max_tokens"
    cache_key: bool = False
    call_ids: str = "any"
    alternate: bool = True
    user_after_tool: bool = True
    open_models: bool = False
    pdf: bool = False

    @property
    def base_url_variable(self) -> str:
        """The environment variable that overrides `base_url`."""
        return re.sub(r"\W", "_", self.name.upper()) + "_BASE_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is known about one model. The defaults are the cautious ones."""

    #: provider:model, the provider under its main name.
    id: str
    provider: Provider
    #: The model's name at its provider.
    model: str
    #: Tokens of prompt and answer together.
    window: int = 32_000
    #: Tokens of one answer; None: the provider's own limit.
    max_output: int | None = None
    vision: bool = False
    pdf: bool = False
    #: May be offered to make several calls at once.
    parallel: bool = False
    #: How reasoning is asked for: none, content, adaptive, budget, thoughts.
    reasoning: str = "none"
    #: Which of its own reasoning the model gets back: never, turn (the open one), all.
    reasoning_back: str = "never"
    price: Price | None = None
    #: False: no pattern matched, everything is a cautious guess.
    known: bool = False


_CHOICES = {
    "protocol": ("openai", "anthropic", "gemini", "practice"),
    "call_ids": ("any", "9"),
    "max_tokens": ("max_tokens", "max_completion_tokens"),
    "reasoning": ("none", "content", "adaptive", "budget", "thoughts"),
    "reasoning_back": ("never", "turn", "all"),
}
_KINDS: dict[str, type] = {
    **dict.fromkeys(("base_url", "default", *_CHOICES), str),
    **dict.fromkeys(("key", "aliases"), list),
    **dict.fromkeys(("cache_key", "alternate", "user_after_tool", "open_models"), bool),
    **dict.fromkeys(("vision", "pdf", "parallel"), bool),
    **dict.fromkeys(("window", "max_output"), int),
    "price": dict,
}
_PROVIDER_FIELDS = {f.name for f in fields(Provider)} - {"name"}
_ENTRY_FIELDS = {f.name for f in fields(Entry)} - {"id", "provider", "model", "known"}


class Catalogue:
    """Providers by name, and models by pattern."""

    def __init__(
        self, providers: Mapping[str, Provider], patterns: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.providers = dict(providers)
        self._aliases = {a: p.name for p in providers.values() for a in p.aliases}
        self._patterns = sorted(patterns.items(), key=lambda item: _weight(item[0]))
        self._entries: dict[str, Entry] = {}

    @classmethod
    def load(
        cls, file: Path | None = None, gateways: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Catalogue:
        """Read our catalogue, the person's `file` over it, then `gateways` from the settings.

        A gateway is a table like [providers.NAME]; base_url is required, the protocol is openai.
        Raises SettingsError that names the file and the line or entry.
        """
        ours = resources.files("engine.models").joinpath("catalogue.toml")
        layers = [_parse(ours.read_text(encoding="utf-8"), "catalogue.toml")]
        if file is not None:
            layers.append(_parse(_read(file), str(file)))
        if gateways:
            layers.append(_Source("settings", "", {"providers": dict(gateways)}))
        providers: dict[str, Provider] = {}
        patterns: dict[str, dict[str, Any]] = {}
        for source in layers:
            for name, table in source.tables("providers").items():
                providers[name] = _provider(source, name, table, providers.get(name))
            for pattern, table in source.tables("models").items():
                checked = _model(source, pattern, table)
                patterns[pattern.lower()] = patterns.get(pattern.lower(), {}) | checked
        return cls(providers, patterns)

    def split(self, model: str) -> tuple[Provider, str]:
        """Return the provider and the model's name there; a bare id goes to openai.

        Raises UnknownModel for a prefix that is no provider, with the nearest names.
        """
        prefix, colon, name = model.strip().partition(":")
        if not colon:
            prefix, name = "openai", prefix
        provider = self.providers.get(self._aliases.get(prefix, prefix))
        if provider is None or not name:
            raise self._unknown(model, prefix, provider)
        return provider, name

    def entry(self, model: str) -> Entry:
        """Return what is known about `model`; raises UnknownModel like `split`."""
        found = self._entries.get(model)
        if found is None:
            found = self._look_up(*self.split(model))
            if len(self._entries) > 1000:  # ids come from people and files: keep it bounded
                self._entries.clear()
            self._entries[model] = found
        return found

    def _look_up(self, provider: Provider, name: str) -> Entry:
        full = f"{provider.name}:{name}"
        known: dict[str, Any] = {}
        for pattern, table in self._patterns:
            if fnmatchcase(full.lower(), pattern):
                known |= table
        entry = Entry(id=full, provider=provider, model=name, known=bool(known), **known)
        return replace(entry, pdf=entry.pdf and provider.pdf)

    def _unknown(self, model: str, prefix: str, provider: Provider | None) -> UnknownModel:
        if provider is not None:
            return UnknownModel(
                f"The model id {model!r} names no model.", f"Write {prefix}:<model>."
            )
        names = sorted(self.providers)
        near = difflib.get_close_matches(prefix, [*names, *self._aliases], n=3)
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        return UnknownModel(
            f"The model id {model!r} names no provider: {prefix!r} is unknown.",
            f"{hint}Providers are {', '.join(names)}; write provider:model.",
        )


@dataclass(frozen=True, slots=True)
class _Source:
    """One layer: where it comes from, its text (to find lines in), and its tables."""

    where: str
    text: str
    data: Mapping[str, Any]

    def tables(self, section: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the tables under `section`; everything there must be a table."""
        found = self.data.get(section, {})
        if not isinstance(found, Mapping):
            raise SettingsError(f"{self.where}: {section} must be tables.", f"Write [{section}.x].")
        for name, table in found.items():
            if not isinstance(table, Mapping):
                raise self.wrong(section, name, "is not a table", "Write its fields under it.")
        return found

    def wrong(self, section: str, name: str, what: str, fix: str) -> SettingsError:
        """Return the error for one entry, with its line when it can be found."""
        header = re.compile(rf"^[ \t]*\[{section}\.[\"']?{re.escape(name)}[\"']?\]", re.M)
        found = header.search(self.text)
        line = f", line {self.text.count(chr(10), 0, found.start()) + 1}" if found else ""
        return SettingsError(f"{self.where}{line}: [{section}.{name}] {what}.", fix)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SettingsError(
            f"The model catalogue {file} cannot be read: {reason}.", "Mend or remove it."
        ) from error


def _parse(text: str, where: str) -> _Source:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{where} is not valid TOML: {error}.", "Mend that line.") from error
    extra = sorted(set(data) - {"providers", "models"})
    if extra:
        raise SettingsError(
            f"{where}: unknown section [{extra[0]}].",
            'Only [providers.NAME] and [models."PATTERN"] belong here.',
        )
    return _Source(where, text, data)


def _provider(
    source: _Source, name: str, table: Mapping[str, Any], base: Provider | None
) -> Provider:
    if not _PROVIDER_NAME.fullmatch(name):
        raise source.wrong("providers", name, "is no name", "Use lower-case letters and digits.")
    values = _checked(source, "providers", name, table, _PROVIDER_FIELDS)
    for variable in values.get("key", ()):
        if not isinstance(variable, str) or not _ENV_NAME.fullmatch(variable):
            raise source.wrong(
                "providers",
                name,
                "has a key that is no name of an environment variable",
                "Name the variable there, for example MY_API_KEY, and put the key in it.",
            )
    for listed in ("key", "aliases"):
        if listed in values:
            values[listed] = tuple(values[listed])
    if base is not None:
        return replace(base, **values)
    if "base_url" not in values:
        raise source.wrong("providers", name, "has no base_url", "Say where requests go.")
    return Provider(name=name, **values)


def _model(source: _Source, pattern: str, table: Mapping[str, Any]) -> dict[str, Any]:
    values = _checked(source, "models", pattern, table, _ENTRY_FIELDS)
    for limit in ("window", "max_output"):
        if values.get(limit, 1) < 1:
            raise source.wrong("models", pattern, f"has {limit} below 1", "Give tokens, above 0.")
    if "price" in values:
        values["price"] = _price(source, pattern, values["price"])
    return values


def _price(source: _Source, pattern: str, table: Mapping[str, Any]) -> Price:
    known = {f.name for f in fields(Price)}
    good = all(
        key in known and isinstance(value, int | float) and not isinstance(value, bool)
        for key, value in table.items()
    )
    if not good or not {"input", "output"} <= set(table) or min(table.values()) < 0:
        raise source.wrong(
            "models",
            pattern,
            "has a malformed price",
            "Write { input = 1.0, output = 2.0 }, in US dollars per million tokens.",
        )
    return Price(**{key: float(value) for key, value in table.items()})


def _checked(
    source: _Source, section: str, name: str, table: Mapping[str, Any], known: set[str]
) -> dict[str, Any]:
    for field, value in table.items():
        if field not in known:
            near = difflib.get_close_matches(field, known, n=1)
            fix = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known))}."
            raise source.wrong(section, name, f"has an unknown field {field}", fix)
        kind = _KINDS[field]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            fix = f"Give a {_WORDS[kind]}."
            raise source.wrong(section, name, f"has a {field} of the wrong kind", fix)
        if field in _CHOICES and value not in _CHOICES[field]:
            fix = f"Choose one of {', '.join(_CHOICES[field])}."
            raise source.wrong(section, name, f"has an unknown {field}", fix)
    return dict(table)


_WORDS = {str: "text", list: "list", bool: "true or false", int: "whole number", dict: "table"}


def _weight(pattern: str) -> tuple[int, bool]:
    """Order patterns from general to specific: by how much they spell out, exact ids last."""
    return len(pattern.replace("*", "")), "*" not in pattern
