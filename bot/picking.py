"""Picks the model a start works with: the one that is set, else the one the person already has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.settings import Settings
from engine.models.base import KeyRejected
from engine.models.catalogue import Catalogue
from engine.models.local import choose

__all__ = ["Picked", "load_catalogue", "pick"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """A model, and one sentence that says why it was taken."""

    model: str
    why: str

    @property
    def practice(self) -> bool:
        """True when it is no AI."""
        return self.model.startswith("practice:")


def load_catalogue(settings: Settings) -> Catalogue:
    """Return what is known about models: ours, the person's file over it, then their gateways."""
    return Catalogue.load(settings.catalogue, settings.gateways)


async def pick(settings: Settings, environ: Mapping[str, str], catalogue: Catalogue) -> Picked:
    """Return the model to work with.

    Raises UnknownModel when the one that is set, or a fallback, names nothing, and KeyRejected
    when its key is missing.
    """
    for fallback in settings.fallbacks:
        catalogue.entry(fallback)
    if not settings.model:
        model, why = await choose(environ, catalogue)
        return Picked(model=model, why=why)
    provider = catalogue.entry(settings.model).provider
    if provider.key and not any(environ.get(name, "").strip() for name in provider.key):
        raise KeyRejected(
            f"The model {settings.model} needs a key, and there is none.",
            f"Set {' or '.join(provider.key)}, or set another model.",
        )
    return Picked(model=settings.model, why="It is the one that is set.")
