"""MCP servers that vendors run themselves, with a sign-in; the addresses are the vendors' own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["HOSTED", "OWN", "Hosted"]

#: What is said of one that does not register Nod by itself.
OWN = "needs an OAuth client of yours there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosted:
    """One server."""

    title: str
    about: str
    url: str
    #: It registers clients by itself (RFC 7591); otherwise a person makes an OAuth client there.
    registers: bool = True


HOSTED: Mapping[str, Hosted] = {
    # developers.asana.com/docs/integrating-with-asanas-mcp-server
    "asana": Hosted(
        title="Asana",
        about="tasks, projects, portfolios",
        url="https://mcp.asana.com/v2/mcp",
        registers=False,
    ),
    # support.atlassian.com/atlassian-ai-gateway/docs/use-rovo-mcp-with-other-supported-mcp-clients
    "atlassian": Hosted(
        title="Atlassian",
        about="Jira, Confluence, Compass, Bitbucket",
        url="https://mcp.atlassian.com/v1/mcp/authv2",
    ),
    # github.com/github/github-mcp-server/blob/main/docs/host-integration.md
    "github": Hosted(
        title="GitHub",
        about="repositories, issues, pull requests",
        url="https://api.githubcopilot.com/mcp/",
        registers=False,
    ),
    # v0.app/docs/api/platform/guides/oauth-mcp-servers names it with Linear's own OAuth
    "linear": Hosted(
        title="Linear", about="issues, projects, cycles", url="https://mcp.linear.app/mcp"
    ),
    # developer.monday.com/api-reference/docs/integrate-with-monday-mcp
    "monday": Hosted(
        title="monday.com",
        about="boards, items, documents",
        url="https://mcp.monday.com/mcp",
        registers=False,
    ),
    # developers.notion.com/docs/mcp
    "notion": Hosted(
        title="Notion", about="pages, databases, search", url="https://mcp.notion.com/mcp"
    ),
    "sentry": Hosted(
        title="Sentry", about="issues, events, traces", url="https://mcp.sentry.dev/mcp"
    ),
    # docs.stripe.com/mcp
    "stripe": Hosted(
        title="Stripe", about="payments, customers, invoices", url="https://mcp.stripe.com"
    ),
}
