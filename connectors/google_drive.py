"""Google Drive: search, folders, reading and exporting files.

Our own declarations of API v3: Google's client library is synchronous and untyped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.base import Api, Connector, Identity, Limits, Result, Risk, was_saved
from connectors.google import following, oauth
from engine.errors import ToolError

__all__ = ["CONNECTOR"]

CONNECTOR = drive = Connector(
    name="google_drive",
    title="Google Drive",
    about="Search, list, read and export files.",
    base="https://www.googleapis.com/drive/v3",
    docs="https://developers.google.com/workspace/drive/api/reference/rest/v3",
    auth=(oauth("drive.readonly"),),
    # An export is at most 10 MB (docs: files.export); a download is cut off at this.
    limits=Limits(per_minute=300, body_bytes=50_000_000, seconds=120.0),
)

PAGE = 100
_KEPT = ("id", "name", "mimeType", "modifiedTime", "size", "webViewLink")
_FIELDS = f"nextPageToken, files({', '.join(_KEPT)})"

#: What Google's own kinds are read as, and what they may be exported to (docs: export formats).
_AS_TEXT = {
    "document": "text/markdown",
    "spreadsheet": "text/csv",
    "presentation": "text/plain",
}
_EXPORTS = {
    "pdf": "application/pdf",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "csv": "text/csv",
    "txt": "text/plain",
    "md": "text/markdown",
}
_GOOGLE = "application/vnd.google-apps."


@drive.check
async def check(api: Api) -> Identity:
    """See whose the files are."""
    user = (await api.get("/about", query={"fields": "user"}))["user"]
    return Identity(label=user["emailAddress"], text=f"Signed in as {user['emailAddress']}.")


async def _files(api: Api, wanted: str, limit: int, order: str = "") -> Result:
    asked = {"q": f"{wanted} and trashed = false", "fields": _FIELDS, "orderBy": order}
    asked |= {"pageSize": str(min(limit, PAGE))}
    # Files of shared drives are found, too (docs: implement shared drive support).
    shared = {"supportsAllDrives": True, "includeItemsFromAllDrives": True}
    pages = api.pages(
        "/files", query={**asked, **shared}, items="files", paging=following, most=limit
    )
    return api.result([{n: each[n] for n in _KEPT if n in each} async for each in pages], "files")


def _quoted(text: str) -> str:
    """Return the text as a string of Drive's query language (docs: search query terms)."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@drive.tool(risk=Risk.READ)
async def search(api: Api, words: str, limit: int = 20) -> Result:
    """Search files by their name and text.

    Args:
        words: Words that must be in it.
        limit: How many, at most.
    """
    word = _quoted(words)
    return await _files(api, f"(fullText contains {word} or name contains {word})", limit)


@drive.tool(risk=Risk.READ)
async def list_folder(api: Api, folder_id: str = "root", limit: int = 100) -> Result:
    """List a folder, folders first.

    Args:
        folder_id: From a search; root is the person's own top folder.
        limit: How many, at most.
    """
    return await _files(api, f"{_quoted(folder_id)} in parents", limit, "folder,name")


async def _about(api: Api, file_id: str) -> Mapping[str, Any]:
    query = {"fields": ", ".join(_KEPT), "supportsAllDrives": True}
    found: Mapping[str, Any] = await api.get("/files/{id}", query=query, id=file_id)
    return found


@drive.tool(risk=Risk.READ)
async def read(api: Api, file_id: str) -> Result:
    """Read the text of a file: a document, a sheet as CSV, slides, or a file that is text.

    Args:
        file_id: From a search.
    """
    about = await _about(api, file_id)
    kind = about["mimeType"]
    if kind.startswith(_GOOGLE):
        form = _AS_TEXT.get(kind.removeprefix(_GOOGLE))
        if form is None:
            raise ToolError(f"{about['name']} has no text ({kind}).", "Look into what it holds.")
        path, query = "/files/{id}/export", {"mimeType": form}
    else:
        if not (kind.startswith("text/") or kind in ("application/json", "application/xml")):
            raise ToolError(f"{about['name']} is no text ({kind}).", "Export it to a file.")
        path, query = "/files/{id}", {"alt": "media"}
    reply = await api.ask("GET", path, query=query, headers={"Accept": "*/*"}, id=file_id)
    return api.result(reply.body.decode("utf-8", "replace"), about["name"])


@drive.tool(risk=Risk.WRITE_LOCAL, paths={"path": "write"}, look_up=was_saved, timeout=130.0)
async def export(api: Api, file_id: str, path: str) -> Result:
    """Save a file as a new file here; the ending of the path says as what.

    Args:
        file_id: From a search.
        path: Where to; Google's own kinds go to .pdf .docx .xlsx .pptx .csv .txt or .md.
    """
    about = await _about(api, file_id)
    if not about["mimeType"].startswith(_GOOGLE):
        return await api.download("/files/{id}", path, query={"alt": "media"}, id=file_id)
    form = _EXPORTS.get(path.rpartition(".")[2].lower())
    if form is None:
        raise ToolError(
            f"{path} does not say as what.", f"End it with one of {', '.join(_EXPORTS)}."
        )
    return await api.download("/files/{id}/export", path, query={"mimeType": form}, id=file_id)
