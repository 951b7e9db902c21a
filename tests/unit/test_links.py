"""Where a thread can be opened: the address on each platform, made from its target alone."""

from __future__ import annotations

import pytest

from bot.surfaces.links import link


@pytest.mark.parametrize(
    ("target", "address"),
    [
        pytest.param(
            "slack:T1/C1/1700.000100",
            "https://app.slack.com/client/T1/C1/thread/C1-1700.000100",
            id="slack-thread",
        ),
        pytest.param(
            "slack:T1/D1", "https://slack.com/app_redirect?team=T1&channel=D1", id="slack-direct"
        ),
        pytest.param("telegram:7/-1001234/42", "https://t.me/c/1234/42", id="telegram-supergroup"),
        pytest.param("telegram:7/-1001234", "telegram:7/-1001234", id="telegram-no-post"),
        pytest.param("telegram:7/501", "telegram:7/501", id="telegram-private"),
        pytest.param("telegram:7/-55/3", "telegram:7/-55/3", id="telegram-small-group"),
        pytest.param("discord:G1/C1/T1", "https://discord.com/channels/G1/T1", id="discord-thread"),
        pytest.param("discord:G1/C1", "https://discord.com/channels/G1/C1", id="discord-channel"),
        pytest.param("discord:@me/C2", "https://discord.com/channels/@me/C2", id="discord-direct"),
        pytest.param("console:main", "console:main", id="console"),
    ],
)
def test_a_thread_has_the_address_of_its_platform(target: str, address: str) -> None:
    assert link(target) == address
