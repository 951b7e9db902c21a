"""What Google's services share: one OAuth client, scopes, how its lists are paged."""

from __future__ import annotations

from connectors.base import OAuth, Paging, by_cursor

__all__ = ["following", "oauth"]

#: How Google's lists go on.
following: Paging = by_cursor("nextPageToken", "pageToken")


def oauth(*scopes: str) -> OAuth:
    """Return Google's sign-in for these scopes (without the common beginning)."""
    return OAuth(
        authorize_url="https://accounts.google.com/o/oauth2/v2/auth",
        token_url="https://oauth2.googleapis.com/token",
        revoke_url="https://oauth2.googleapis.com/revoke",
        scopes=tuple(f"https://www.googleapis.com/auth/{each}" for each in scopes),
        client="GOOGLE",
        # Without these there is no refresh token, or none the second time.
        extra={"access_type": "offline", "prompt": "consent"},
    )
