"""Recognises keys that somebody pasted into chat, by the forms their makers gave them.

Only forms that are surely a key are here: a beginning that a maker promises, and enough that looks
random after it. Scanners of repositories (detect-secrets, gitleaks) know many more, guess by
entropy, and would refuse people's ordinary words.
"""

from __future__ import annotations

import re

__all__ = ["blotted", "found"]

#: What it is -> its form.
_FORMS = {
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,})",
    "a GitLab token": r"\bgl(?:pat|ptt|dt|rt)-[\w-]{20,}",
    "a Slack token": r"\bx(?:ox[abeprs]|app)-[\w-]{20,}",
    "a Slack webhook": r"\bhttps://hooks\.slack\.com/services/T\w+/B\w+/\w{20,}",
    "a Stripe key": r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{20,}",
    "a model provider's key": r"\bsk-[\w-]{32,}",
    "a Google API key": r"\bAIza[\w-]{35}",
    "a Google client secret": r"\bGOCSPX-[\w-]{24,}",
    "a Linear key": r"\blin_(?:api|oauth)_[A-Za-z0-9]{32,}",
    "a Notion token": r"\b(?:secret_[A-Za-z0-9]{43}|ntn_[A-Za-z0-9]{40,})",
    "an Atlassian token": r"\bAT(?:ATT3|CTT3)[\w=-]{60,}",
    "an AWS key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "an npm token": r"\bnpm_[A-Za-z0-9]{36}",
    "a PyPI token": r"\bpypi-AgEI[\w-]{50,}",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "a SendGrid key": r"\bSG\.[\w-]{22}\.[\w-]{43}",
    "a Telegram bot's token": r"\b\d{8,10}:[\w-]{35}\b",
    "a Discord bot's token": r"\b[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}",
    "a private key": (
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?s:.*?(?:-----END[^-]*-----|\Z))"
    ),
}
_ANY = re.compile("|".join(f"(?P<f{n}>{form})" for n, form in enumerate(_FORMS.values())))
_NAMES = tuple(_FORMS)

#: Different characters of a key; a placeholder ("ghp_xxxxxxxx") has fewer.
_RANDOM = 10


def found(text: str) -> str:
    """Return what key there is in the text: "a GitHub token"; empty: none."""
    return next((_NAMES[int(str(match.lastgroup)[1:])] for match in _matches(text)), "")


def blotted(text: str) -> str:
    """Return the text with a word in place of each key."""
    kept, at = [], 0
    for match in _matches(text):
        kept += [text[at : match.start()], "[a key, left out]"]
        at = match.end()
    return "".join([*kept, text[at:]])


def _matches(text: str) -> list[re.Match[str]]:
    return [match for match in _ANY.finditer(text) if len(set(match[0])) >= _RANDOM]
