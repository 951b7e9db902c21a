"""Slack as a tool: files shared where others see them, and files saved here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from connectors.base import Api, Result, Risk, was_saved
from connectors.slack import CONNECTOR as slack
from connectors.slack import channel_id
from connectors.slack_acts import place, where
from engine.errors import ToolError
from engine.tools.places import failure, locate, read_whole

__all__: list[str] = []

#: Bytes of one file that is shared, and where Slack keeps files.
FILE, FILES = 50_000_000, "https://files.slack.com/"


async def _file_shown(api: Api, arguments: Mapping[str, Any]) -> str:
    lines = [f"{arguments['path']}, to {await where(api, arguments)}", arguments["comment"]]
    return "\n\n".join(each for each in lines if each)


@slack.tool(risk=Risk.EXTERNAL, target=place, paths={"path": "read"}, preview=_file_shown)
async def share_file(
    api: Api, channel: str, path: str, comment: str = "", thread: str = ""
) -> Result:
    """Share a file in a channel or thread.

    Args:
        channel: The channel's id.
        path: The file.
        comment: A line that goes with it.
        thread: The ts of the thread's first message.
    """
    real = locate(api.ctx, path)
    try:
        data = await asyncio.to_thread(read_whole, real, FILE)
    except OSError as error:
        raise failure(path, error) from error
    asked = {"filename": real.name, "length": len(data)}
    upload = await api.get("/files.getUploadURLExternal", query=asked)
    json: dict[str, Any] = {"files": [{"id": upload["file_id"], "title": real.name}]}
    json |= {"channel_id": channel_id(channel), "initial_comment": comment}
    if thread:
        json["thread_ts"] = thread
    # Until it is completed nobody sees what was uploaded.
    await api.upload(upload["upload_url"], data)
    done = await api.send("POST", "/files.completeUploadExternal", json=json)
    return api.result({"file": done["files"][0]["id"]}, channel)


@slack.tool(risk=Risk.WRITE_LOCAL, paths={"path": "write"}, look_up=was_saved)
async def save_file(api: Api, file_id: str, path: str) -> Result:
    """Save a file that somebody shared as a new file here.

    Args:
        file_id: From reading the channel or thread.
        path: Where to; relative paths start in the session's folder.
    """
    found = (await api.get("/files.info", query={"file": file_id}))["file"]
    kept = str(found.get("url_private_download") or "")
    ours = (FILES, str(api.options.get("base_url") or FILES))
    if not kept.startswith(ours):  # the token goes to Slack and nobody else
        raise ToolError(f"{found.get('name', file_id)} is not kept by Slack itself.")
    return await api.download(kept, path)
