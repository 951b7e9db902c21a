"""Texts for the renderers' tests: random Markdown, and what of a text must be seen."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = ["LONG", "documents", "keeps", "markdown_seen", "mrkdwn_seen", "slack_seen"]

_STOCK = MarkdownIt("commonmark", {"html": False, "maxNesting": 1000})
_STOCK.enable(["table", "strikethrough"])

_WORDS = (
    "word **bold** *it* ***both*** ~~old~~ `code` ``a`b`` snake_case_name __dunder__ 2*3*4 a_b "
    "[docs](https://example.org/a_(b)) [x](javascript:alert(1)) [r](./rel.md) "
    "![pic](https://e.org/p.png) http://example.org/a_b?c=d&e=f. <https://e.org> "
    "<ana@example.org> <thinking> </b> <!-- --> <!channel> <@U123> <#C12|x> <!subteam^S1> <@&5> "
    "<@!7> @everyone @here @anabel <t:1:R> &amp; &lt;b&gt; &#42; ||spoiler|| "
    "👨\u200d👩\u200d👧\u200d👦 🇩🇪 👍🏽 é e\u0301\u0302 日本語 ｶﾞ **重要**です العربية a\u200db "
    "\\* \\_ \\ C:\\dir ] [ ]( ) * ** _ ~ ` ``` > # - [^1] [foo] $x$ :smile: | \\| {x} v1.2 "
    "done! (docs)"
).split(" ")
_STARTS = (
    *(
        "",
        "",
        "",
        "# ",
        "### ",
        "- ",
        "* ",
        "1. ",
        "12) ",
        "> ",
        "> > ",
        "- [ ] ",
        "- [x] ",
        "  - ",
    ),
    *("    ", "   1. ", "| ", "+ ", "-# ", "\\- ", "> - "),
)
_WHOLE = (
    *(
        "---",
        "```",
        "```python",
        "~~~~",
        "===",
        "",
        "",
        "\t",
        "| a | b |\n|---|:-:|\n| 1 | `x|y` |",
    ),
    *("[foo]: https://example.org/foo", "<br>", "| only |\n|-|", "***"),
)

#: An answer as models write it, of 7,000 characters.
LONG = """# Quarterly review

The **main point** is that *revenue* grew by `12.4 %`, see [the report](https://example.org/q3_(final)).
Not everything went well: ~~the plan~~ was late, and <thinking> about `snake_case` took time.

| region | revenue | growth |
|:-------|--------:|:------:|
| North  | 1,204   | 12 %   |
| 東京    | 998     | **31 %** |

- first point with some words to fill the line
  - nested point, with https://example.org/some_page?x=1&y=2
  1. and a numbered one
- [x] a task that is done
- [ ] a task that is open

> A quote of somebody
> over two lines.

```python
def total(rows: list[int]) -> int:
    return sum(row for row in rows if row > 0)
```

Some closing words. 👨‍👩‍👧‍👦 And & <signs> that need care.

"""
LONG = (LONG * 10)[:7000]


def documents(seed: int, count: int) -> Iterator[str]:
    """Yield random Markdown, the same for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        yield "\n".join(_line(rng) for _ in range(rng.choice((1, 1, 2, 3, 4, 16))))


def _line(rng: random.Random) -> str:
    if rng.random() < 0.25:
        return rng.choice(_WHOLE)
    words = [rng.choice(_WORDS) for _ in range(rng.choice((1, 2, 3, 12)))]
    return rng.choice(_STARTS) + rng.choice((" ", " ", " ", "")).join(words)


def keeps(source: str, shown: str) -> bool:
    """Return whether what CommonMark shows of `source` is all in `shown`, in its order."""
    running, cells = _seen(_STOCK.parse(source))
    shown = _bare(shown)
    return _is_within(running, shown) and all(_is_within(cell, shown) for cell in cells)


def markdown_seen(rendered: str) -> str:
    """Return what a platform that reads Markdown shows."""
    running, cells = _seen(_STOCK.parse(rendered))
    return running + "".join(cells)


def mrkdwn_seen(rendered: str) -> str:
    """Return what Slack shows of mrkdwn; its paired signs stay."""
    labels = re.sub(r"<([^<>|]*)(?:\|([^<>]*))?>", lambda found: found[2] or found[1], rendered)
    return labels.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("ˋ", "`")


def slack_seen(blocks: Sequence[Mapping[str, Any]]) -> str:
    """Return what Slack shows of a message's blocks."""
    out: list[str] = []
    for block in blocks:
        if block["type"] == "markdown":
            out.append(markdown_seen(block["text"]))
        elif block["type"] == "section":
            out.append(mrkdwn_seen(block["text"]["text"]))
        else:
            for row in block["rows"]:
                out += ["".join(_cell(cell)) for cell in row]
    return "".join(out)


def _cell(cell: Mapping[str, Any]) -> Iterator[str]:
    for section in cell.get("elements", [cell]):
        for element in section.get("elements", [section]):
            yield element["text"]


def _seen(tokens: Sequence[Token]) -> tuple[str, list[str]]:
    running: list[str] = []
    cells: list[str] = []
    in_table = 0
    for token in tokens:
        if token.type in ("table_open", "table_close"):
            in_table += token.nesting
        elif token.type in ("inline", "fence", "code_block"):
            (cells if in_table else running).append(_bare(_inside(token)))
    return "".join(running), cells


def _inside(token: Token) -> str:
    if token.children is None:
        return token.content
    return "".join(_inside(child) if child.children else child.content for child in token.children)


def _bare(text: str) -> str:
    """Return the text without what may change.

    These are spaces, unseen signs, the boxes of tasks, line breaks of cells, the signs of code
    that CommonMark cuts at a column's border, and how an address spells `@`.
    """
    text = re.sub(r"\[[ xX]\]|<br\s*/?>|`", "", text).replace("%40", "@")
    return "".join(each for each in text if unicodedata.category(each)[0] not in "ZC")


def _is_within(part: str, whole: str) -> bool:
    rest = iter(whole)
    return all(sign in rest for sign in part)
