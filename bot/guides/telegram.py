"""`nod telegram`: what is still missing in the set-up of Telegram, asked of Telegram itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from bot.guides.showing import show

if TYPE_CHECKING:
    from telegram import User, WebhookInfo

    from bot.doctor import Finding
    from bot.settings import Settings
    from bot.surfaces.config import TelegramConfig

__all__ = ["examine", "telegram_app"]

#: Seconds the questions about one bot may take.
TIMEOUT = 20.0
#: Ports a webhook may have: https://core.telegram.org/bots/api#setwebhook
PORTS = (443, 80, 88, 8443)

telegram_app = typer.Typer(
    help="Check how Telegram is set up.", invoke_without_command=True, rich_markup_mode=None
)


@telegram_app.callback()
def check() -> None:
    """Check tokens, privacy mode and webhook with Telegram, and say what to change."""
    show("telegram", examine)


async def examine(settings: Settings, config: TelegramConfig | None) -> AsyncIterator[Finding]:
    """Look at the set-up of Telegram; asks Telegram about every token, and changes nothing."""
    from bot.doctor import Finding

    if config is None:
        steps = "Write /newbot to @BotFather, then: nod secrets set TELEGRAM_BOT_TOKEN"
        yield Finding(name="telegram", state="missing", text="no TELEGRAM_BOT_TOKEN", fix=steps)
        return
    for token in config.tokens:
        for finding in await _bot(settings, config, token):
            yield finding


async def _bot(settings: Settings, config: TelegramConfig, token: str) -> list[Finding]:
    """Return what there is to say of one token's bot."""
    from bot.doctor import Finding
    from bot.surfaces.base import SurfaceError
    from bot.surfaces.telegram_line import Line, id_of

    name = f"bot {id_of(token)}"
    line = Line(token, config.base_url)
    try:
        async with asyncio.timeout(TIMEOUT):
            me = await line.open()
            hook = await line.told(line.bot.get_webhook_info)
    except SurfaceError as error:
        return [Finding(name=name, state="missing", text=error.what, fix=error.fix)]
    except TimeoutError:
        text = f"Telegram did not answer within {TIMEOUT:.0f} s"
        return [Finding(name=name, state="missing", text=text, fix="Check the network.")]
    finally:
        await line.close()
    about = Finding(name=name, text=f"@{me.username} ({me.full_name})")
    return [about, _groups(me), _updates(settings, config, me, hook)]


def _groups(me: User) -> Finding:
    from bot.doctor import Finding

    if not me.can_join_groups:
        fix = "Write /setjoingroups to @BotFather to change that."
        return Finding(name="groups", state="note", text="it cannot join groups", fix=fix)
    if not me.can_read_all_group_messages:
        text = "privacy mode is on: in groups a plain mention does not reach it, only / and replies"
        fix = f"Write /setprivacy to @BotFather, choose @{me.username}, Disable; add it again."
        return Finding(name="groups", state="note", text=text, fix=fix)
    return Finding(name="groups", text="it hears mentions; what does not mention it is dropped")


def _updates(settings: Settings, config: TelegramConfig, me: User, hook: WebhookInfo) -> Finding:
    """Say how updates reach Nod, and whether anything is in the way."""
    from bot.doctor import Finding

    waiting = f"{hook.pending_update_count} waiting"
    if config.mode == "polling":
        if hook.url:
            text = f"a webhook is set ({urlsplit(hook.url).hostname}); {waiting}"
            fix = "Nothing to do if it is no longer used: Nod removes it when it starts."
            return Finding(name="updates", state="note", text=text, fix=fix)
        return Finding(name="updates", text=f"polling; {waiting}")
    address = urlsplit(settings.web.url)
    port = address.port or 443 if address.scheme == "https" else 0
    if port not in PORTS:
        fix = f"Set web.url to an https address with one of the ports {', '.join(map(str, PORTS))}."
        text = f"webhook, and Telegram does not call {settings.web.url}"
        text = text if settings.web.url else "webhook, and web.url is not set"
        return Finding(name="updates", state="missing", text=text, fix=fix)
    expected = f"{settings.web.url}/telegram/{me.id}"
    if hook.url and hook.url != expected:
        text = f"the webhook goes to {urlsplit(hook.url).hostname}; {waiting}"
        return Finding(name="updates", state="note", text=text, fix="Start Nod: it sets its own.")
    if hook.last_error_message:
        text = f"Telegram could not call the webhook: {hook.last_error_message}; {waiting}"
        fix = f"See that {expected} reaches this machine."
        return Finding(name="updates", state="missing", text=text, fix=fix)
    return Finding(name="updates", text=f"webhook at {expected}; {waiting}")
