"""The pages on which a person connects an account: plain HTML, without scripts.

Nothing on them is kept by a browser or a search engine, nothing that was typed is shown again, and
only this address is posted to. A page goes on to the service by a refresh, not by a redirect of the
form: some browsers hold a form's redirects to its own address, also those that follow at the
service's.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape

from aiohttp import web

from bot.connect.connecting import CALLBACK, Asked, Connecting
from bot.connect.keeping import Connected
from bot.connect.links import LINK, ConnectError
from bot.web.address import Web
from engine.errors import NodError

__all__ = ["Pages"]

_COOKIE = "nod_connect"

_STYLE = """
:root { color-scheme: light dark; }
body { font: 1.05rem/1.55 system-ui, sans-serif; margin: 0 auto; padding: 2rem 1.2rem;
       max-width: 36rem; color: #1a1a1a; background: #fff; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2rem; }
label { display: block; font-weight: 600; margin-top: 1rem; }
.hint { margin: .1rem 0 .3rem; color: #444; }
input { font: inherit; width: 100%; box-sizing: border-box; padding: .5rem;
        border: 1px solid #555; border-radius: .3rem; background: inherit; color: inherit; }
button, .go { font: inherit; font-weight: 600; display: inline-block; margin-top: 1.2rem;
        padding: .6rem 1.2rem; border: 0; border-radius: .3rem; background: #0b57d0; color: #fff;
        text-decoration: none; cursor: pointer; }
:focus-visible { outline: 3px solid #f5a300; outline-offset: 2px; }
.fault { border-left: .3rem solid #b3261e; padding: .2rem 1rem; }
@media (prefers-color-scheme: dark) {
  body { color: #ececec; background: #161616; } .hint { color: #bbb; }
  button, .go { background: #a8c7fa; color: #062e6f; } .fault { border-color: #f2b8b5; }
}
""".strip()

_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow",
}


class Pages:
    """Answers the requests of people who connect something."""

    def __init__(self, connecting: Connecting) -> None:
        self._connecting = connecting
        self._secure = False

    async def add_to(self, to: Web) -> None:
        """Add the routes; opens the server."""
        self._secure = to.public.startswith("https:")
        await to.add("GET", CALLBACK, self._back)
        await to.add("GET", "/connect/*", self._show)
        await to.add("POST", "/connect/*", self._posted)

    async def _show(self, request: web.Request) -> web.Response:
        try:
            asked = await self._connecting.asked(_token(request))
        except NodError as error:
            return _failed(error)
        return _page(f"Connect {asked.title}", _asking(asked))

    async def _posted(self, request: web.Request) -> web.Response:
        """Begin at the service, or take a filled form."""
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return _failed(ConnectError("This form was sent from another site."), 403)
        form = {name: str(value) for name, value in (await request.post()).items()}
        token = _token(request)
        try:
            if form.pop("way", "") == "key":
                return await self._filled(token, form)
            asked = await self._connecting.asked(token)
            url, cookie = await self._connecting.begin(token)
        except NodError as error:
            return _failed(error)
        response = _page(f"On to {asked.title}", _onward(asked, url), refresh=url)
        response.set_cookie(
            _COOKIE,
            cookie,
            max_age=int(LINK),
            path="/",  # whoever stands in front of Nod may serve it below a path of its own
            httponly=True,
            samesite="Lax",
            secure=self._secure,
        )
        return response

    async def _filled(self, token: str, form: dict[str, str]) -> web.Response:
        asked = await self._connecting.asked(token)
        try:
            done = await self._connecting.fill(token, form)
        except NodError as error:
            return _page(f"Connect {asked.title}", _asking(asked, str(error)), status=422)
        return _done(done)

    async def _back(self, request: web.Request) -> web.Response:
        """The service sent the browser back."""
        query = request.query
        try:
            done = await self._connecting.finish(
                query.get("state", ""),
                request.cookies.get(_COOKIE, ""),
                query.get("code", ""),
                query.get("error", ""),
            )
        except NodError as error:
            return _failed(error)
        response = _done(done)
        response.del_cookie(_COOKIE, path="/")
        return response


def _token(request: web.Request) -> str:
    return request.path.rpartition("/")[2]


def _page(title: str, body: str, *, status: int = 200, refresh: str = "") -> web.Response:
    on = f'<meta http-equiv="refresh" content="0;url={escape(refresh)}">\n' if refresh else ""
    text = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n{on}'
        f"<title>{escape(title)} · Nod</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}</main>\n</body>\n</html>\n"
    )
    return web.Response(text=text, status=status, content_type="text/html", headers=_HEADERS)


def _asking(asked: Asked, fault: str = "") -> str:
    title, person = escape(asked.title), escape(asked.person)
    parts = [
        f'<div class="fault" role="alert"><p>{escape(fault)}</p></div>\n' if fault else "",
        f"<p>{escape(asked.about)}</p>\n" if asked.about else "",
        f"<p>What you connect here is used by Nod for <strong>{person}</strong>, in sessions that "
        f"belong to {person}, and acts as the account you choose. If you are not {person}, close "
        "this page.</p>\n",
    ]
    if asked.oauth is not None:
        parts += _oauth_form(asked.oauth.scopes, title)
    elif asked.lacks and asked.key is None:
        parts.append(f'<div class="fault" role="alert"><p>{escape(asked.lacks)}</p></div>\n')
    if asked.key is not None:
        if asked.oauth is not None:
            parts.append("<h2>Or with a key</h2>\n")
        parts += _key_form(asked, title)
    return "".join(parts)


def _oauth_form(scopes: tuple[str, ...], title: str) -> list[str]:
    listed = "".join(f"<li><code>{escape(each)}</code></li>\n" for each in scopes)
    asks = f"<h2>What Nod asks {title} for</h2>\n<ul>\n{listed}</ul>\n" if scopes else ""
    return [
        asks,
        '<form method="post">\n<input type="hidden" name="way" value="oauth">\n',
        f'<button type="submit">Continue to {title}</button>\n</form>\n',
    ]


def _key_form(asked: Asked, title: str) -> list[str]:
    assert asked.key is not None, "a form has fields"
    parts = [
        '<form method="post" autocomplete="off">\n<input type="hidden" name="way" value="key">\n'
    ]
    for number, each in enumerate(asked.key.fields):
        at, kind = f"field-{number}", "password" if each.secret else "text"
        hint = f'<p class="hint" id="{at}-hint">{escape(each.hint)}</p>\n' if each.hint else ""
        told = f' aria-describedby="{at}-hint"' if each.hint else ""
        needed = "" if each.optional else " required"
        optional = " (may stay empty)" if each.optional else ""
        parts.append(
            f'<label for="{at}">{escape(each.title)}{optional}</label>\n{hint}'
            f'<input id="{at}" name="{escape(each.name)}" type="{kind}" autocomplete="off" '
            f'autocapitalize="none" spellcheck="false"{told}{needed}>\n'
        )
    return [*parts, f'<button type="submit">Connect {title}</button>\n</form>\n']


def _onward(asked: Asked, url: str) -> str:
    title = escape(asked.title)
    return (
        f"<p>{title} opens now and asks for your yes.</p>\n"
        f'<p><a class="go" href="{escape(url)}" rel="noreferrer">Continue to {title}</a></p>\n'
    )


def _done(done: Connected) -> web.Response:
    body = (
        f"<p><strong>{escape(done.account.label)}</strong> is connected. {escape(done.text)}</p>\n"
        "<p>You can close this page and go back to your chat: what waited for this goes on.</p>\n"
    )
    return _page(f"{done.title} is connected", body)


def _failed(error: NodError, status: int = 400) -> web.Response:
    body = f'<div class="fault" role="alert"><p>{escape(str(error))}</p></div>\n'
    return _page("This did not work", body, status=status)
