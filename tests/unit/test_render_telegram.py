"""Telegram's HTML: every part is valid alone and within the limit, whatever a model wrote."""

from __future__ import annotations

import pytest

from bot.render import telegram
from tests.fakes.markup import Entity, Refused, telegram_entities, telegram_html, units

FAMILY = "👨\u200d👩\u200d👧\u200d👦"

CASES = {
    "T-01 reserved": ("See (docs) v1.2 - done! {x}", "See (docs) v1.2 - done! {x}"),
    "T-01 rule": ("above\n\n---\n\nbelow", "above\n\n────────────\n\nbelow"),
    "T-01 address": (
        "[docs](https://example.org/a_(b))",
        '<a href="https://example.org/a_(b)">docs</a>',
    ),
    "tags are text": ("a <thinking> & </b>", "a &lt;thinking&gt; &amp; &lt;/b&gt;"),
    "styles": (
        "**b *both*** ~~old~~ `c<d`",
        "<b>b </b><b><i>both</i></b> <s>old</s> <code>c&lt;d</code>",
    ),
    "code is only code": ("**`x`** [`y`](https://e.org)", ("<code>x</code> ", ">y</a>")),
    "heading": ("## A *b*\ntext", "<b>A </b><b><i>b</i></b>\n\ntext"),
    "language": (
        "```python\nx < 1\n```",
        '<pre><code class="language-python">x &lt; 1</code></pre>',
    ),
    "odd language": ('```"><b>\nx\n```', "<pre>x</pre>"),
    "nested list": ("- a\n  1. b\n  2. c\n     d", "• a\n    1. b\n    2. c\n       d"),
    "tasks": ("- [ ] open\n- [x] done", "☐ open\n☑ done"),
    "quote": ("> a\n> **b**\n\nc", "<blockquote>a\n<b>b</b></blockquote>\n\nc"),
    "nested quote": ("> a\n> > b", "<blockquote>a\n\n&gt; b</blockquote>"),
    "quoted code": ("> ```\n> x\n> ```", "<blockquote><pre>x</pre></blockquote>"),
    "bare address": ("see https://e.org/a_b.", "see https://e.org/a_b."),
    "mail": ("[write](mailto:a@b.co) <c@d.co>", "write (a@b.co) c@d.co"),
    "unsafe address": ("[x](tg://user?id=1)", "x (tg://user?id=1)"),
    "script": ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
    "image": ("![pic](https://e.org/p.png)", '<a href="https://e.org/p.png">pic</a>'),
    "hard break": ("a  \nb\\\nc", "a\nb\nc"),
    "mention": ("@anabel a@beta.org `@anabel`", "@\u200banabel a@beta.org <code>@anabel</code>"),
    "definition": ("text\n\n[1]: https://e.org", "text\n\n[1]: https://e.org"),
    "nothing": (" \n\u200b\n", None),
    "empty fence": ("```\n```", "```\n```"),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_markdown_becomes_html(text: str, expected: str | tuple[str, ...] | None) -> None:
    parts = telegram.render(text)
    if expected is None:
        assert parts == []
        return
    [part] = parts
    telegram_html(part.html)
    if isinstance(expected, str):
        assert part.html == expected
    else:
        assert all(each in part.html for each in expected)


def test_a_cut_fence_is_closed_and_opened_again_with_its_language() -> None:
    """T-03: prose, then a fence over the border of the message."""
    lines = [f"value_{number} = {number}  # {'x' * 90}" for number in range(60)]
    text = "p" * 3950 + "\n\n```python\n" + "\n".join(lines) + "\n```\nend"
    parts = telegram.render(text)
    read = [telegram_html(part.html) for part in parts]
    codes = [
        seen.encode("utf-16-le")[2 * each.offset : 2 * each.end].decode("utf-16-le")
        for seen, entities in read
        for each in entities
    ]
    assert len(codes) > 1
    assert "\n".join(codes).split("\n") == lines
    assert {each.language for _, entities in read for each in entities} == {"python"}


@pytest.mark.parametrize("fence", ["```\n{}\n```", "{}", "- {}", "> {}", "# {}", "`{}`"])
def test_an_endless_line_is_cut_and_comes_to_an_end(fence: str) -> None:
    """T-04: one line of 9,000 characters without a break."""
    parts = telegram.render(fence.format("z" * 9000))
    seen = [telegram_html(part.html)[0] for part in parts]
    assert len(parts) == 3
    assert sum(each.count("z") for each in seen) == 9000


def test_no_sign_is_cut_in_two() -> None:
    parts = telegram.render(FAMILY * 500, limit=200)
    assert len(parts) < 40
    for part in parts:
        seen, _ = telegram_html(part.html, 200)
        assert seen == FAMILY * (len(seen) // len(FAMILY))


def test_an_emoji_before_a_link_moves_nothing() -> None:
    """T-23: entities count UTF-16 units."""
    [part] = telegram.render(f"{FAMILY} [here](http://example.org) **b**")
    seen, entities = telegram_html(part.html)
    link = next(each for each in entities if each.type == "text_link")
    raw = seen.encode("utf-16-le")[2 * link.offset : 2 * link.end]
    assert raw.decode("utf-16-le") == "here"


def test_overlapping_styles_print_text_once() -> None:
    """T-23: bold and italic that share letters."""
    [part] = telegram.render("**klm*nop***qr")
    assert telegram_html(part.html)[0] == part.plain == "klmnopqr"


def test_a_paragraph_that_is_too_long_loses_its_markup_and_keeps_its_words() -> None:
    text = "**bold** [docs](https://example.org/x) " * 300
    parts = telegram.render(text)
    assert all("<b>" not in part.html for part in parts)
    seen = " ".join(telegram_html(part.html)[0] for part in parts)
    assert seen.count("docs (https://example.org/x)") == 300


def test_more_marks_than_telegram_takes_are_spread_over_messages() -> None:
    parts = telegram.render("\n\n".join(["**a** *b* `c`"] * 50))
    assert len(parts) == 2
    for part in parts:
        telegram_html(part.html)
    [alone] = telegram.render("**a** b " * 101)
    assert "<b>" not in alone.html


def test_what_must_be_cut_begins_where_half_of_a_message_is_left() -> None:
    first, *_ = telegram.render("a" * 90 + "\n\n" + "word " * 100, limit=200)
    assert first.plain.startswith("a" * 90 + "\n\nword")
    first, *_ = telegram.render("a" * 110 + "\n\n" + "word " * 100, limit=200)
    assert first.plain == "a" * 110


def test_a_heading_goes_with_what_it_heads() -> None:
    parts = telegram.render("a" * 150 + "\n\n# Title\n\n" + "b" * 100, limit=200)
    assert [part.html[:8] for part in parts] == ["a" * 8, "<b>Title"]


def test_the_open_end_is_plain_and_what_is_closed_is_not() -> None:
    [part] = telegram.render_open("**a**\n\nthis is **bo")
    assert part.html == "<b>a</b>\n\nthis is **bo"
    [part] = telegram.render_open("- **a**\n- *b")
    assert part.html == "• <b>a</b>\n• *b"
    [part] = telegram.render_open("```py\nx = 1")
    assert part.html == '<pre><code class="language-py">x = 1</code></pre>'
    [part] = telegram.render_open("done **bold**\n\n")
    assert part.html == "done <b>bold</b>"


def test_plain_text_keeps_addresses_and_lists_tables() -> None:
    [text] = telegram.plain("[docs](https://e.org)\n\n|a|b|\n|-|-|\n|1|2|\n\n> q @anabel")
    assert text == "docs (https://e.org)\n\na: 1\nb: 2\n\n> q @\u200banabel"


REFUSED = {
    "open tag": ("<b>x", "can't parse entities"),
    "crossed tags": ("<b><i>x</b></i>", "can't parse entities"),
    "unknown tag": ("<thinking>", "can't parse entities"),
    "lone bracket": ("1 < 2", "can't parse entities"),
    "code in bold": ("<b><code>x</code></b>", "can't parse entities"),
    "bold in code": ("<code>a<b>x</b></code>", "can't parse entities"),
    "quote in quote": ("<blockquote>a<blockquote>b</blockquote></blockquote>", "can't parse"),
    "script": ('<a href="javascript:x">x</a>', "can't parse entities"),
    "too long": ("👍" * 2049, "message is too long"),
    "empty": ("<b> </b>", "message text is empty"),
}


@pytest.mark.parametrize(("html", "error"), REFUSED.values(), ids=REFUSED)
def test_the_fake_refuses_what_telegram_refuses(html: str, error: str) -> None:
    with pytest.raises(Refused, match=error):
        telegram_html(html)


def test_the_fake_counts_what_is_seen() -> None:
    assert telegram_html("&lt;" * 4096) == ("<" * 4096, [])


def test_the_fake_refuses_entities_that_overlap_or_cut_a_sign() -> None:
    bold = Entity(type="bold", offset=0, length=5)
    italic = Entity(type="italic", offset=3, length=5)
    with pytest.raises(Refused, match="overlap"):
        telegram_entities("klmnopqr", [bold, italic])
    with pytest.raises(Refused, match="whole signs"):
        telegram_entities("👍👍", [Entity(type="bold", offset=1, length=2)])
    assert units("👍") == 2
