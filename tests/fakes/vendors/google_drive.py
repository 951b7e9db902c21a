"""Google Drive's API v3, as far as our connector uses it; developers.google.com.

A document, a text file and a picture. It refuses what the real one refuses: a query that is none,
unknown fields and parameters, an export of what is no Google document, a form it does not export.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any

from aiohttp import web

from tests.fakes.vendors.cases import Case
from tests.fakes.vendors.service import Refused, Service

__all__ = ["MANY", "READS", "Fake"]

READS = (
    Case(tool="google_drive_search", arguments={"words": "plan"}, gives="Bo's plan"),
    Case(tool="google_drive_list_folder", arguments={}, gives="Bo's plan"),
    Case(tool="google_drive_read", arguments={"file_id": "d1"}, gives="# The plan"),
    Case(tool="google_drive_read", arguments={"file_id": "t1"}, gives="plain words"),
)
ACTS = ()
MANY = Case(
    tool="google_drive_search", arguments={"words": "many", "limit": 10_000}, gives="file 9999"
)

_LIST = {
    "q",
    "fields",
    "orderBy",
    "pageSize",
    "pageToken",
    "supportsAllDrives",
    "includeItemsFromAllDrives",
}
_WHEN = "2026-03-01T08:00:00.000Z"
_STRING = r"'(?:[^'\\]|\\.)*'"
_TERM = rf"(?:fullText contains {_STRING}|name contains {_STRING}|{_STRING} in parents)"
_QUERY = re.compile(rf"(?:\({_TERM} or {_TERM}\)|{_TERM}) and trashed = false")


class Fake(Service):
    """The vendor, with three files."""

    unauthorized = MappingProxyType({"error": {"code": 401, "message": "Invalid Credentials"}})

    def routes(self) -> None:
        self.files = [
            _file("d1", "Bo's plan", "application/vnd.google-apps.document"),
            _file("t1", "words.txt", "text/plain"),
            _file("p1", "logo.png", "image/png"),
        ]
        self.on("GET", "/about", self._about)
        self.on("GET", "/files", self._list)
        self.on("GET", "/files/{id}", self._read)
        self.on("GET", "/files/{id}/export", self._export)

    async def _about(self, request: web.Request) -> Any:
        if "fields" not in request.query:
            raise _bad("The 'fields' parameter is required for this method.")
        return {"user": {"emailAddress": self.who(request)}}

    async def _list(self, request: web.Request) -> Any:
        query = request.query
        if unknown := set(query) - _LIST:
            raise _bad(f"Unknown name {unknown}")
        if not _QUERY.fullmatch(query["q"]):
            raise _bad("Invalid Value")
        size, first = int(query.get("pageSize", 100)), int(query.get("pageToken", 0))
        if not 1 <= size <= 1_000:
            raise _bad("Invalid value for pageSize")
        found = self.files
        if "'many'" in query["q"]:
            found = [_file(f"m{n}", f"file {n}", "text/plain") for n in range(10_000)]
        page: dict[str, Any] = {"files": found[first : first + size]}
        if len(found) > first + size:
            page["nextPageToken"] = str(first + size)
        return page

    async def _read(self, request: web.Request) -> Any:
        file = self._file(request)
        if request.query.get("alt") != "media":
            return file
        if file["mimeType"].startswith("application/vnd.google-apps."):
            raise Refused(403, _error(403, "Only files with binary content can be downloaded."))
        return web.Response(body=b"plain words", content_type=file["mimeType"])

    async def _export(self, request: web.Request) -> Any:
        file = self._file(request)
        if not file["mimeType"].startswith("application/vnd.google-apps."):
            raise Refused(403, _error(403, "Export only supports Docs Editors files."))
        form = request.query.get("mimeType", "")
        if form not in ("text/markdown", "text/plain", "application/pdf"):
            raise _bad("The requested conversion is not supported.")
        return web.Response(body=b"# The plan\n", content_type=form)

    def _file(self, request: web.Request) -> dict[str, Any]:
        for each in self.files:
            if each["id"] == request.match_info["id"]:
                return each
        raise Refused(404, _error(404, f"File not found: {request.match_info['id']}."))


def _file(id: str, name: str, kind: str) -> dict[str, Any]:
    link = f"https://drive.google.com/file/d/{id}"
    return {"id": id, "name": name, "mimeType": kind, "modifiedTime": _WHEN, "webViewLink": link}


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _bad(message: str) -> Refused:
    return Refused(400, _error(400, message))
