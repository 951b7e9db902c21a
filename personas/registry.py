"""Finds personas: those shipped here, and the person's own in `<data>/personas`, which win.

<name>/PERSONA.md                     who it is: see personas/manifest.py
<name>/prompts/<prompt>.md            prompts it comes with
<name>/skills/<skill>/SKILL.md        what it knows how to do
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from engine.errors import SettingsError
from engine.turn.prompt import Persona
from personas.manifest import Manifest, PromptFile, read_manifest, read_prompt

__all__ = ["DEFAULT", "Personas"]

#: The persona a session gets when nothing else is said, or when its own is gone.
DEFAULT = "cowork"


class Personas:
    """The personas there are, read once."""

    def __init__(self, found: Mapping[str, Manifest], folders: Mapping[str, Traversable]) -> None:
        self._found = dict(found)
        self._folders = dict(folders)

    @classmethod
    def load(cls, own: Path | None = None) -> Personas:
        """Read the built-in personas, and those in the folder `own` when it is there.

        Raises SettingsError that names the file and the fault; a broken persona is never left out
        in silence.
        """
        folders = _folders(resources.files("personas").joinpath("builtin"))
        if own is not None and own.is_dir():
            folders |= _folders(own)
        found = {
            name: read_manifest(name, _text(folder / "PERSONA.md"), str(folder / "PERSONA.md"))
            for name, folder in folders.items()
        }
        return cls(found, folders)

    def get(self, name: str) -> Persona:
        """Return the persona; an unknown name gives the default one."""
        return (self._found.get(name) or self._found[DEFAULT]).persona

    def require(self, name: str) -> Manifest:
        """Return the manifest; raises SettingsError when there is no such persona."""
        if name not in self._found:
            raise SettingsError(
                f"There is no persona '{name}'.", f"Personas are {', '.join(self.names())}."
            )
        return self._found[name]

    def names(self) -> list[str]:
        """Return the ids of all personas, sorted."""
        return sorted(self._found)

    def check_tools(self, known: Container[str], later: tuple[str, ...] = ()) -> None:
        """Raise SettingsError when a persona wants a tool that is not in `known`.

        What begins with one of `later` comes when something is connected, or never; so may what a
        name that ends in `*` stands for.
        """
        for name, manifest in self._found.items():
            for tool in manifest.persona.tools or ():
                if tool not in known and not tool.endswith("*") and not tool.startswith(later):
                    raise SettingsError(
                        f"The persona '{name}' wants the tool '{tool}', and there is none.",
                        f"Mend 'tools' in {self._folders[name] / 'PERSONA.md'}.",
                    )

    def prompt(self, persona: str, name: str) -> PromptFile:
        """Return a prompt the persona comes with; raises SettingsError when there is none."""
        self.require(persona)
        file = self._folders[persona] / "prompts" / f"{name}.md"
        if "/" in name or not file.is_file():
            raise SettingsError(f"The persona '{persona}' comes with no prompt '{name}'.")
        return read_prompt(_text(file), str(file))


def _folders(place: Traversable) -> dict[str, Traversable]:
    return {
        folder.name: folder
        for folder in sorted(place.iterdir(), key=lambda each: each.name)
        if folder.is_dir() and not folder.name.startswith((".", "_"))
    }


def _text(file: Traversable) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SettingsError(f"There is no {file}.", "Write it, or remove its folder.") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SettingsError(f"{file} cannot be read: {reason}.", "Mend or remove it.") from error
