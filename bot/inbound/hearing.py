"""Turns a voice note into text: through aisuite's transcription, or with faster-whisper here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engine.errors import NodError

__all__ = ["Ear", "NotHeard"]

#: Seconds one note may take, and bytes of one (OpenAI, audio/transcriptions: 25 MB).
TIMEOUT, BYTES = 120.0, 25_000_000
#: Notes heard at once, those included that were given up and go on.
AT_ONCE = 4

#: The variable with a provider's key -> the model that is taken for it, in order.
_MODELS = {
    "OPENAI_API_KEY": "openai:gpt-4o-mini-transcribe",
    "DEEPGRAM_API_KEY": "deepgram:nova-3",
}
_LOCAL = "local:small"


class NotHeard(NodError):
    """A voice note could not be turned into text."""


class Ear:
    """Hears voice notes with the model that is set, else the first one there is a key for."""

    def __init__(self, secret: Callable[[str], str], model: str = "", base_url: str = "") -> None:
        """`secret` returns a key by the name of its variable; `base_url` is for OpenAI's API."""
        self._secret = secret
        self._model = model
        self._base_url = base_url
        #: The model that hears here, once it is loaded; one thread loads it, the others wait.
        self._local: Any = None
        self._loading = threading.Lock()
        self._free = asyncio.Semaphore(AT_ONCE)

    async def heard(self, path: Path) -> str:
        """Return what is said in the file; raises NotHeard with one sentence."""
        try:
            async with asyncio.timeout(TIMEOUT):
                text = await self._apart(path)
        except TimeoutError:
            raise NotHeard(f"it took longer than {TIMEOUT:.0f} s") from None
        if not text.strip():
            raise NotHeard("nothing was heard in it")
        return text.strip()

    async def _apart(self, path: Path) -> str:
        """Hear in a thread of its own: one that hangs keeps no other work, and no end, waiting."""
        await self._free.acquire()
        loop, heard = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def done(text: str, error: Exception | None) -> None:
            self._free.release()
            if heard.done():
                return
            if error is None:
                heard.set_result(text)
            else:
                heard.set_exception(error)

        def work() -> None:
            text = ""
            failure: Exception | None = None
            try:
                text = self._hear(path)
            except Exception as error:  # noqa: BLE001  # broad: it is raised where it is waited for
                failure = error
            with suppress(RuntimeError):  # Nod has ended meanwhile
                loop.call_soon_threadsafe(done, text, failure)

        threading.Thread(target=work, name="ear", daemon=True).start()
        return str(await heard)

    def _hear(self, path: Path) -> str:
        provider, _, model = self._chosen().partition(":")
        try:
            if path.stat().st_size > BYTES:
                raise NotHeard(f"it is over the limit of {BYTES // 1_000_000} MB")
            return self._here(path, model) if provider == "local" else self._asked(path)
        except NodError:
            raise
        except Exception as error:  # broad: providers raise what they like
            raise NotHeard(f"{provider} failed ({type(error).__name__})") from error

    def _chosen(self) -> str:
        """Return provider:model; raises NotHeard when there is none."""
        if self._model:
            return self._model
        for name, model in _MODELS.items():
            if self._secret(name):
                return model
        if find_spec("faster_whisper") is not None:
            return _LOCAL
        raise NotHeard(
            "no model that hears is set up (set OPENAI_API_KEY, or install nod-coworker[voice])"
        )

    def _asked(self, path: Path) -> str:
        aisuite = import_module("aisuite")  # slow to load, and most installations never need it
        chosen = self._chosen()
        heard = aisuite.Client(self._keys()).audio.transcriptions.create(
            model=chosen, file=str(path)
        )
        return str(heard.text)

    def _keys(self) -> Mapping[str, Mapping[str, str]]:
        keys: dict[str, dict[str, str]] = {}
        for name in _MODELS:
            key = self._secret(name)
            if key:
                keys[name.partition("_")[0].lower()] = {"api_key": key}
        if self._base_url and "openai" in keys:
            keys["openai"]["base_url"] = self._base_url
        return keys

    def _here(self, path: Path, model: str) -> str:
        with self._loading:
            if self._local is None:
                self._local = _loaded(model)
        segments, _ = self._local.transcribe(str(path))
        return " ".join(segment.text.strip() for segment in segments)


def _loaded(model: str) -> Any:
    """Load a model by its size or folder; the first time, its files come from huggingface.co."""
    try:
        return import_module("faster_whisper").WhisperModel(model, compute_type="int8")
    except ModuleNotFoundError as error:
        raise NotHeard("install nod-coworker[voice], or set OPENAI_API_KEY") from error
    except Exception as error:  # broad: files, hub and library each fail in ways of their own
        raise NotHeard(
            f"the model '{model}' is not here and could not be loaded ({type(error).__name__}); let"
            " this machine reach huggingface.co once, or set NOD_VOICE_MODEL to local: and the"
            " folder of a converted model, or set OPENAI_API_KEY"
        ) from error
