"""A process that asks for an account's headers, several callers at once, when it is told to.

Arguments: store, data folder, address of the token server, account id, callers. Each line on stdin
is a round: "headers", or "renewed" with what was got last; each round answers with one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from connectors import accounts
from connectors.credentials import Credentials
from connectors.oauth import Vendor
from connectors.secrets import Secrets
from engine.clock import system_now
from engine.store.opening import open_store
from tests.fakes.oauth import oauth_at


async def main(url: str, data: str, server: str, account_id: str, callers: int) -> None:
    store = await open_store(url)
    vendor = Vendor(system_now)
    credentials = Credentials(
        store=store,
        secrets=Secrets(os.environ, Path(data)),
        vendor=vendor,
        ways=lambda name: (oauth_at(server),),
        now=system_now,
    )
    account = await store.read(lambda tx: accounts.get(tx, account_id))
    assert account is not None
    print("ready", flush=True)
    spent: dict[str, str] = {}
    while what := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if what == "headers":
            asked = [credentials.headers(account) for _ in range(callers)]
        else:
            asked = [credentials.renewed(account, spent) for _ in range(callers)]
        got = await asyncio.gather(*asked)
        spent = got[0]
        print(json.dumps([each["Authorization"] for each in got]), flush=True)
    await credentials.aclose()
    await vendor.aclose()
    await store.close()


asyncio.run(main(*sys.argv[1:5], int(sys.argv[5])))
