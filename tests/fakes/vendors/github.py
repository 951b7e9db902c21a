"""GitHub's REST API, as far as our connector uses it; docs.github.com/en/rest, version 2022-11-28.

One repository, acme/app, with issue 1, pull request 2 on branch `fix`, a file, a deployment. It
refuses what the real one refuses: unknown fields and wrong types (422), pages over 100, a missing
User-Agent (403) or version header (400), a stale `sha` (409).
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from tests.fakes.vendors.cases import Case
from tests.fakes.vendors.service import Refused, Service

__all__ = ["ACTS", "MANY", "READS", "Fake"]

_R = {"repo": "acme/app"}
READS = (
    Case(
        tool="github_search_issues", arguments={"query": "repo:acme/app crash"}, gives="It crashes"
    ),
    Case(tool="github_reviews_waiting", arguments={}, gives="Fix the crash"),
    Case(tool="github_search_code", arguments={"query": "retry"}, gives="src/a b.py"),
    Case(tool="github_list_issues", arguments=_R, gives="It crashes"),
    Case(tool="github_read_issue", arguments={**_R, "number": 1}, gives="Here, too"),
    Case(tool="github_list_pulls", arguments=_R, gives="Fix the crash"),
    Case(tool="github_read_pull", arguments={**_R, "number": 2}, gives='"conclusion":"failure"'),
    Case(tool="github_read_diff", arguments={**_R, "number": 2}, gives="+fixed"),
    Case(tool="github_list_commits", arguments=_R, gives="Begin"),
    Case(tool="github_list_checks", arguments={**_R, "ref": "fix"}, gives="unit"),
    Case(tool="github_list_deployments", arguments=_R, gives='"state":"success"'),
    Case(tool="github_read_file", arguments={**_R, "path": "src/a b.py"}, gives="retry = 3"),
)
ACTS = (
    Case(
        tool="github_create_issue",
        arguments={
            **_R,
            "title": "Slow",
            "body": "Very.",
            "labels": ["bug"],
            "assignees": ["Bo"],
        },
        gives='"number":3',
        target=("github:@bo", "github:acme/app"),
        method="POST",
    ),
    Case(
        tool="github_comment",
        arguments={**_R, "number": 1, "body": "Looking."},
        gives="html_url",
        target=("github:acme/app#1",),
        method="POST",
    ),
    Case(
        tool="github_update_issue",
        arguments={**_R, "number": 1, "state": "closed"},
        gives='"state":"closed"',
        target=("github:acme/app#1",),
        method="PATCH",
    ),
    Case(
        tool="github_create_pull",
        arguments={**_R, "title": "More", "head": "more", "base": "main"},
        gives='"number":3',
        target=("github:acme/app",),
        method="POST",
    ),
    Case(
        tool="github_review_pull",
        arguments={**_R, "number": 2, "event": "COMMENT", "body": "Nearly."},
        gives="COMMENTED",
        target=("github:acme/app#2",),
        method="POST",
    ),
    Case(
        tool="github_write_file",
        arguments={
            **_R,
            "path": "src/a b.py",
            "text": "retry = 4\n",
            "message": "More tries",
            "branch": "fix",
        },
        gives="commit",
        target=("github:acme/app@fix",),
        method="PUT",
    ),
)
MANY = Case(
    tool="github_list_commits",
    arguments={**_R, "branch": "many", "limit": 10_000},
    gives="commit 9999",
)

_REPO = "/repos/{owner}/{repo}"
_DIFF = "diff --git a/x b/x\n+fixed\n"
_WHEN, _LATER = "2026-03-01T08:00:00Z", "2026-03-02T08:00:00Z"


class Fake(Service):
    """The vendor, with one repository."""

    def routes(self) -> None:
        self._users()
        self.begun = False
        self.issues = {1: self._item(1, "It crashes"), 2: self._item(2, "Fix the crash", pull=True)}
        self.comments = {1: [self._said("Here, too")], 2: []}
        self.reviews: dict[int, list[dict[str, Any]]] = {2: []}
        self.files = {"src/a b.py": b"retry = 3\n"}
        self.begun = True  # what comes now is new
        on = self.on
        on("GET", "/user", self._user)
        on("GET", "/search/{what}", self._search)
        on("GET", f"{_REPO}/issues", self._list)
        on("POST", f"{_REPO}/issues", self._create)
        on("GET", f"{_REPO}/issues/{{number}}", self._issue)
        on("PATCH", f"{_REPO}/issues/{{number}}", self._update)
        on("GET", f"{_REPO}/issues/{{number}}/comments", self._said_there)
        on("POST", f"{_REPO}/issues/{{number}}/comments", self._comment)
        on("GET", f"{_REPO}/pulls", self._pulls)
        on("POST", f"{_REPO}/pulls", self._create_pull)
        on("GET", f"{_REPO}/pulls/{{number}}", self._pull)
        on("GET", f"{_REPO}/pulls/{{number}}/files", self._changed)
        on("GET", f"{_REPO}/pulls/{{number}}/reviews", self._reviewed)
        on("POST", f"{_REPO}/pulls/{{number}}/reviews", self._review)
        on("GET", f"{_REPO}/commits", self._commits)
        on("GET", f"{_REPO}/commits/{{ref}}/check-runs", self._checks)
        on("GET", f"{_REPO}/deployments", self._deployments)
        on("GET", f"{_REPO}/deployments/{{id}}/statuses", self._statuses)
        on("GET", f"{_REPO}/contents/{{path:.*}}", self._contents)
        on("PUT", f"{_REPO}/contents/{{path:.*}}", self._write)

    def _users(self) -> None:
        self.waiting = [2]

    # -- what there is

    def _item(self, number: int, title: str, *, pull: bool = False) -> dict[str, Any]:
        item = {
            "number": number,
            "title": title,
            "state": "open",
            "body": "It happens on start.",
            "user": {"login": "bo"},
            "labels": [],
            "assignees": [],
            "comments": 1,
            "created_at": _now() if self.begun else _WHEN,
            "updated_at": _WHEN,
            "html_url": f"https://github.com/acme/app/issues/{number}",
            "repository_url": "https://api.github.com/repos/acme/app",
        }
        if pull:
            ends = {"head": {"ref": "fix", "sha": "f1"}, "base": {"ref": "main", "sha": "m1"}}
            item |= {"draft": False, "requested_reviewers": [{"login": "ana"}], "pull_request": {}}
            item |= {**ends, "mergeable": True}
        return item

    def ask_review(self, number: int, title: str, at: str = _LATER) -> None:
        """Ask for a review of a pull request, which changes it at that time."""
        self.issues[number] = self._item(number, title, pull=True) | {"updated_at": at}
        self.waiting.append(number)

    def _said(self, body: str) -> dict[str, Any]:
        where = {"html_url": "https://github.com/acme/app/issues/1#c1"}
        at = _now() if self.begun else _WHEN
        return {"body": body, "user": {"login": "cy"}, "created_at": at, **where}

    # -- reads

    async def _user(self, request: web.Request) -> Any:
        self._asked(request)
        return {"login": self.who(request)}

    async def _search(self, request: web.Request) -> Any:
        self._asked(request)
        if request.match_info["what"] == "code":
            found: list[Any] = [{"path": "src/a b.py", "repository": {"full_name": "acme/app"}}]
        elif "review-requested:@me" in request.query["q"]:
            if request.query.get("sort", "best-match") not in ("best-match", "updated"):
                raise _invalid("sort")
            found = [self.issues[number] for number in self.waiting]
            found.sort(key=lambda each: str(each["updated_at"]), reverse=True)
        else:
            found = list(self.issues.values())
        items, headers = self._page(request, found)
        body = {"total_count": len(found), "incomplete_results": False, "items": items}
        return web.json_response(body, headers=headers)

    async def _list(self, request: web.Request) -> Any:
        self._repo(request)
        state = request.query.get("state", "open")
        if state not in ("open", "closed", "all"):
            raise _invalid("state")
        found = [each for each in self.issues.values() if state in ("all", each["state"])]
        return self._paged(request, found[::-1])

    async def _issue(self, request: web.Request) -> Any:
        return self._number(request)

    async def _said_there(self, request: web.Request) -> Any:
        said = self.comments[self._number(request)["number"]]
        since = request.query.get("since", "")  # of the last change, as the real one has it
        return self._paged(request, [each for each in said if each["created_at"] >= since])

    async def _pulls(self, request: web.Request) -> Any:
        self._repo(request)
        found = [each for each in self.issues.values() if "head" in each]
        return self._paged(request, found[::-1])

    async def _pull(self, request: web.Request) -> Any:
        pull = self._a_pull(request)
        if "diff" in request.headers.get("Accept", ""):
            return web.Response(text=_DIFF, content_type="application/vnd.github.diff")
        return pull

    async def _changed(self, request: web.Request) -> Any:
        self._a_pull(request)
        part = {"filename": "x", "status": "modified", "additions": 1, "deletions": 0}
        return self._paged(request, [part])

    async def _reviewed(self, request: web.Request) -> Any:
        return self._paged(request, self.reviews[self._a_pull(request)["number"]])

    async def _commits(self, request: web.Request) -> Any:
        self._repo(request)
        many = request.query.get("sha") == "many"
        messages = [f"commit {n}" for n in range(10_000)] if many else ["Begin"]
        author = {"name": "Bo", "date": _WHEN}
        found = [{"sha": "m1", "commit": {"author": author, "message": each}} for each in messages]
        return self._paged(request, found)

    async def _checks(self, request: web.Request) -> Any:
        self._repo(request)
        runs = [{"name": "unit", "status": "completed", "conclusion": "failure"}]
        items, headers = self._page(request, runs)
        return web.json_response({"total_count": 1, "check_runs": items}, headers=headers)

    async def _deployments(self, request: web.Request) -> Any:
        self._repo(request)
        one = {"id": 7, "ref": "main", "sha": "m1", "environment": "production"}
        return self._paged(request, [{**one, "created_at": _WHEN, "description": None}])

    async def _statuses(self, request: web.Request) -> Any:
        self._repo(request)
        return self._paged(request, [{"state": "success"}])

    async def _contents(self, request: web.Request) -> Any:
        self._repo(request)
        path = request.match_info["path"]
        if path not in self.files:
            raise Refused(404, {"message": "Not Found"})
        data = self.files[path]
        content = base64.encodebytes(data).decode()
        return {"type": "file", "encoding": "base64", "content": content, "sha": _sha(data)}

    # -- acts

    async def _create(self, request: web.Request) -> Any:
        self._repo(request)
        fields = {"title": str, "body": str, "labels": list, "assignees": list}
        given = await self._body(request, fields, needed=("title",))
        made = self._item(max(self.issues) + 1, given["title"]) | {"body": given.get("body")}
        return self._made(self._kept(made))

    async def _comment(self, request: web.Request) -> Any:
        number = self._number(request)["number"]
        given = await self._body(request, {"body": str}, needed=("body",))
        said = self._said(given["body"])
        self.comments[number].append(said)
        self.acts.append(said)
        return self._made(said)

    async def _update(self, request: web.Request) -> Any:
        item = self._number(request)
        fields = {"title": str, "state": str, "labels": list, "assignees": list}
        given = await self._body(request, fields)
        if given.get("state", "open") not in ("open", "closed"):
            raise _invalid("state")
        item |= {name: given[name] for name in ("title", "state") if name in given}
        self.acts.append(given)
        return item

    async def _create_pull(self, request: web.Request) -> Any:
        self._repo(request)
        fields = {"title": str, "head": str, "base": str, "body": str, "draft": bool}
        given = await self._body(request, fields, needed=("title", "head", "base"))
        if given["head"] == given["base"]:
            raise _invalid("head")
        made = self._item(max(self.issues) + 1, given["title"], pull=True)
        return self._made(self._kept(made | {"body": given.get("body")}))

    async def _review(self, request: web.Request) -> Any:
        number = self._a_pull(request)["number"]
        given = await self._body(request, {"event": str, "body": str}, needed=("event",))
        if given["event"] not in ("APPROVE", "REQUEST_CHANGES", "COMMENT"):
            raise _invalid("event")
        made = {"body": given.get("body"), "state": "COMMENTED", "user": {"login": "ana"}}
        self.reviews[number].append(made)
        self.acts.append(made)
        return made

    async def _write(self, request: web.Request) -> Any:
        self._repo(request)
        path = request.match_info["path"]
        fields = {"message": str, "content": str, "sha": str, "branch": str}
        given = await self._body(request, fields, needed=("message", "content"))
        held = self.files.get(path)
        if held is not None and "sha" not in given:
            raise _invalid("sha")
        if held is not None and given["sha"] != _sha(held):
            raise Refused(409, {"message": f"{path} does not match {given['sha']}"})
        self.files[path] = base64.b64decode(given["content"], validate=True)
        self.acts.append(path)
        return {"content": {"path": path}, "commit": {"sha": "c2"}}

    # -- what it refuses

    def _asked(self, request: web.Request) -> None:
        if not request.headers.get("User-Agent"):
            raise Refused(403, {"message": "Request forbidden by administrative rules."})
        if request.headers.get("X-GitHub-Api-Version") != "2022-11-28":
            raise Refused(400, {"message": "Invalid API version."})

    def _repo(self, request: web.Request) -> None:
        self._asked(request)
        if (request.match_info["owner"], request.match_info["repo"]) != ("acme", "app"):
            raise Refused(404, {"message": "Not Found"})

    def _number(self, request: web.Request) -> dict[str, Any]:
        self._repo(request)
        number = request.match_info["number"]
        if not number.isdigit() or int(number) not in self.issues:
            raise Refused(404, {"message": "Not Found"})
        return self.issues[int(number)]

    def _a_pull(self, request: web.Request) -> dict[str, Any]:
        item = self._number(request)
        if "head" not in item:
            raise Refused(404, {"message": "Not Found"})
        return item

    async def _body(
        self, request: web.Request, fields: dict[str, type], needed: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        given: dict[str, Any] = await request.json()
        for name, value in given.items():
            if name not in fields or not isinstance(value, fields[name]):
                raise _invalid(name)
        for name in needed:
            if not given.get(name):
                raise _invalid(name)
        return given

    def _kept(self, item: dict[str, Any]) -> dict[str, Any]:
        self.issues[item["number"]] = item
        self.comments[item["number"]] = []
        self.reviews[item["number"]] = []
        self.acts.append(item)
        return item

    def _made(self, item: dict[str, Any]) -> web.Response:
        return web.json_response(item, status=201)

    def _paged(self, request: web.Request, found: list[Any]) -> web.Response:
        items, headers = self._page(request, found)
        return web.json_response(items, headers=headers)

    def _page(self, request: web.Request, found: list[Any]) -> tuple[list[Any], dict[str, str]]:
        """Cut a page, and name the next one in the header Link."""
        size, page = int(request.query.get("per_page", 30)), int(request.query.get("page", 1))
        if not 1 <= size <= 100:
            raise _invalid("per_page")
        items = found[size * (page - 1) : size * page]
        if len(found) <= size * page:
            return items, {}
        following = request.url.update_query({"page": str(page + 1)})
        return items, {"Link": f'<{following}>; rel="next", <{following}>; rel="last"'}


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _sha(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\x00%b" % (len(data), data), usedforsecurity=False).hexdigest()


def _invalid(name: str) -> Refused:
    errors = [{"resource": "Issue", "field": name, "code": "invalid"}]
    return Refused(422, {"message": "Validation Failed", "errors": errors})
