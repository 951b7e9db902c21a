"""What counts as a key that was pasted, and what does not."""

from __future__ import annotations

import pytest

from bot.inbound.pasted import blotted, found

_R = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6"
_PEM = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAA\n"
    "-----END OPENSSH PRIVATE KEY-----"
)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        pytest.param(f"ghp_{_R[:36]}", "a GitHub token", id="github"),
        pytest.param(f"github_pat_{_R}", "a GitHub token", id="github-fine"),
        pytest.param(f"glpat-{_R[:20]}", "a GitLab token", id="gitlab"),
        pytest.param(f"xoxb-{_R[:30]}", "a Slack token", id="slack"),
        pytest.param(f"xapp-1-{_R[:30]}", "a Slack token", id="slack-app"),
        pytest.param(f"sk-{_R[:48]}", "a model provider's key", id="openai"),
        pytest.param(f"sk-ant-api03-{_R}", "a model provider's key", id="anthropic"),
        pytest.param(f"AIza{_R[:35]}", "a Google API key", id="google"),
        pytest.param(f"GOCSPX-{_R[:28]}", "a Google client secret", id="google-client"),
        pytest.param(f"lin_api_{_R[:40]}", "a Linear key", id="linear"),
        pytest.param(f"secret_{_R[:43]}", "a Notion token", id="notion"),
        pytest.param(f"ntn_{_R[:46]}", "a Notion token", id="notion-new"),
        pytest.param("AKIAIOSFODNN7EXAMPLE", "an AWS key", id="aws"),
        pytest.param(f"ATATT3{_R}{_R}", "an Atlassian token", id="atlassian"),
        pytest.param(f"sk_live_{_R[:24]}", "a Stripe key", id="stripe"),
        pytest.param(f"1234567890:{_R[:35]}", "a Telegram bot's token", id="telegram"),
        pytest.param(_PEM, "a private key", id="pem"),
        pytest.param(_PEM[:60], "a private key", id="half-a-pem"),
    ],
)
def test_a_key_is_recognised_wherever_it_stands(text: str, what: str) -> None:
    for line in (text, f"take `{text}`, please", f"KEY={text}\nand more"):
        assert found(line) == what
        assert text not in blotted(line)
        assert "[a key, left out]" in blotted(line)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "What does sk- stand for?",
        "Is ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx the form?",
        "Use xoxb-… from the page",
        "the task-manager-with-a-very-long-name-in-it",
        "AKIA is a prefix; AKIAKIAKIAKIAKIAKIAK is a song",
        "-----BEGIN PUBLIC KEY-----",
        "see commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        "https://github.com/acme/app/pull/17",
        "12:30 and 1234567890:short",
    ],
)
def test_ordinary_words_pass_unchanged(text: str) -> None:
    assert found(text) == ""
    assert blotted(text) == text
