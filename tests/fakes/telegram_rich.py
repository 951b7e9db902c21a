"""What the Bot API refuses in a rich message: tags, nesting, limits (rich-message-limits)."""

from __future__ import annotations

from html.parser import HTMLParser

from tests.fakes.markup import Refused

__all__ = ["rich_text"]

_BLOCKS = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote", "footer"}
_INSIDE: dict[str, set[str]] = {
    "ul": {"li"},
    "ol": {"li"},
    "table": {"tr"},
    "tr": {"th", "td"},
}
_INLINE = {"b", "i", "u", "s", "code", "a"}
_VOID = {"br", "hr"}
_KNOWN = _BLOCKS | set(_INSIDE) | {"li", "th", "td"} | _INLINE | _VOID
#: Tags that count as a block.
_COUNTED = _BLOCKS | {"li", "tr", "table", "ul", "ol", "hr"}


def rich_text(marked: str) -> str:
    """Return what is seen of a rich message. Raises Refused."""
    reading = _Reading()
    reading.feed(marked)
    reading.close()
    if reading.open:
        raise Refused(f"Bad Request: can't parse rich message: <{reading.open[-1]}> is not closed")
    text = "".join(reading.seen).strip()
    if not text and not reading.blocks:
        raise Refused("Bad Request: message text is empty")
    if len("".join(reading.seen)) > 32_768:
        raise Refused("Bad Request: message is too long")
    if reading.blocks > 500:
        raise Refused("Bad Request: too many blocks")
    return text


class _Reading(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[str] = []
        self.blocks = 0
        self._cells = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        parent = self.open[-1] if self.open else ""
        if tag not in _KNOWN:
            raise Refused(f'Bad Request: can\'t parse rich message: unsupported tag "{tag}"')
        allowed = _INSIDE.get(parent)
        orphan = tag in {"li", "tr", "th", "td"} and not (allowed and tag in allowed)
        if orphan or (allowed and tag not in allowed):
            raise Refused(f"Bad Request: can't parse rich message: <{tag}> in <{parent}>")
        if parent in _INLINE and tag not in _INLINE | {"br"}:
            raise Refused(f"Bad Request: can't parse rich message: <{tag}> in <{parent}>")
        if len(self.open) >= 16:
            raise Refused("Bad Request: nested too deeply")
        for name, value in attrs:
            if tag == "a" and (name != "href" or not str(value).startswith(_LINKS)):
                raise Refused("Bad Request: can't parse rich message: unsupported link")
        self.blocks += tag in _COUNTED
        self._cells = self._cells + 1 if tag in {"th", "td"} else 0 if tag == "tr" else self._cells
        if self._cells > 20:
            raise Refused("Bad Request: too many columns")
        if tag in _VOID:
            self.seen.append("\n")
        else:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            raise Refused(f"Bad Request: can't parse rich message: <{tag}/>")
        self.blocks += tag == "hr"
        self.seen.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            raise Refused(f"Bad Request: can't parse rich message: </{tag}> closes nothing")
        self.open.pop()
        if tag in _COUNTED | {"th", "td"}:
            self.seen.append("\t" if tag in {"th", "td"} else "\n")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in _INSIDE and data.strip():
            raise Refused("Bad Request: can't parse rich message: text between items")
        self.seen.append(data)


_LINKS = ("http://", "https://", "mailto:", "tel:")
