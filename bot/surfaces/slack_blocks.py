"""Builds what Slack shows of cards, forms and boards, within its limits. Does no I/O.

A button's value is our token. Its action_id says what a press does: `nod:press:…` answers,
`nod:ask:…` opens a form first, `nod:look:…` shows more to the one who pressed.
Limits: https://docs.slack.dev/reference/block-kit/blocks
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bot.board import Page
from bot.cards import Button, Card, Row
from bot.forms import Field, Form
from bot.markup import plain
from bot.render.slack import Part, mrkdwn, render, render_open, sections, texts
from bot.surfaces.base import Message

__all__ = [
    "ASK",
    "FORM",
    "LOOK",
    "OURS",
    "board",
    "caption",
    "form",
    "levels",
    "page",
    "plan",
    "values",
]

OURS = "nod:"
ASK, PRESS, LOOK, FORM, PAGE = "nod:ask", "nod:press", "nod:look", "nod:form", "nod:page"

#: Characters of a section, a button's text, a modal's title and label, an input, a context line.
SECTION, LABEL, TITLE, INPUT, CONTEXT = 3_000, 75, 24, 3_000, 2_000
#: Blocks of a message, and of a modal or Home.
BLOCKS, VIEW_BLOCKS = 50, 100
#: Characters of all text of a card: Slack refuses a message of more than about 13,200.
CARD = 11_000
#: Of that, characters of its title, and of what all its buttons say.
HEAD, LABELS = 500, 5_000
#: Cards of one plan, and characters of one's title: no limit is documented, so careful ones.
TASKS, CARD_TITLE = 40, 150
#: Rows of one card that fit whatever they hold; the rest is in the inbox.
ROWS = 10
#: Buttons in one row of them.
BUTTONS = 25

Block = dict[str, Any]


# -- messages


def levels(message: Message) -> Iterator[list[Part]]:
    """Yield ways to show the message, the best first; the next one is for when it is refused."""
    if message.card is not None:
        yield [_with_footer([card(message.card)], message.footer)[0]]
        return
    if message.tasks:
        yield _with_footer([plan(message)], message.footer)
    best = render_open if message.growing else render
    yield _with_footer(best(message.text), message.footer)
    yield _with_footer(sections(message.text), message.footer)
    last = "\n\n".join(part for part in (message.text, message.footer) if part)
    yield [Part(blocks=(), fallback=each) for each in texts(last)]


def _with_footer(parts: list[Part], footer: str) -> list[Part]:
    if not footer:
        return parts
    small = _context(footer)
    if not parts:
        return [Part(blocks=(small,), fallback=mrkdwn(footer))]
    *before, last = parts
    return [*before, Part(blocks=(*last.blocks, small), fallback=last.fallback)]


def plan(message: Message) -> Part:
    """Return the message's to-do list as a plan of task cards.

    https://docs.slack.dev/reference/block-kit/blocks/plan-block
    """
    done = sum(each.status == "done" for each in message.tasks)
    tasks = [
        {
            "type": "task_card",
            "task_id": f"task-{number}",
            "title": _plain(each.title, CARD_TITLE)["text"],
            "status": _STATUS.get(each.status, "pending"),
        }
        for number, each in enumerate(message.tasks[:TASKS], 1)
    ]
    title = f"{done} of {len(message.tasks)} done"
    if len(message.tasks) > TASKS:
        title += f", the first {TASKS} shown"
    block = {"type": "plan", "title": title, "tasks": tasks}
    return Part(blocks=(block,), fallback=mrkdwn(message.text))


_STATUS = {"in_progress": "in_progress", "done": "complete"}


def caption(message: Message, block_id: str, names: Sequence[str]) -> list[Block]:
    """Return the blocks of a post that carries files; the first one carries `block_id`.

    Slack takes sections here, and no `markdown` blocks (files.completeUploadExternal).
    """
    shown = [dict(block) for part in sections(message.text)[:1] for block in part.blocks]
    blocks = shown or [_section(", ".join(names))]
    blocks += [_context(message.footer)] if message.footer else []
    return [{**blocks[0], "block_id": block_id}, *blocks[1:]]


# -- cards


def card(shown: Card) -> Part:
    """Return the card as one message."""
    rows = shown.rows[:ROWS]
    buttons = [b for row in rows if not row.decided for b in (*row.buttons, *row.looks)]
    size = min(LABEL, LABELS // max(1, len(buttons) + len(shown.buttons)))
    said = sum(min(size, len(each.label)) for each in (*buttons, *shown.buttons))
    room = (CARD - HEAD - said) // max(1, len(rows))
    blocks: list[Block] = [_section(f"**{shown.title}**", HEAD)]
    for number, row in enumerate(rows, 1):
        head = "" if row.title == shown.title and len(rows) == 1 else row.title
        blocks += _row(row, f"{number}. {head}" if len(rows) > 1 else head, room, size)
    if len(shown.rows) > ROWS:
        blocks.append(_context(f"… and {len(shown.rows) - ROWS} more: `/nod inbox`"))
    elif shown.buttons:
        for_all = [_button(each, size) for each in shown.buttons]
        blocks.append(_actions(f"nod:card:{shown.id}", for_all))
    told = [shown.title, *(f"{row.title}: {row.decided}" for row in rows if row.decided)]
    return Part(blocks=tuple(blocks), fallback=mrkdwn("\n".join(told), SECTION))


def _row(row: Row, head: str, room: int, size: int) -> list[Block]:
    """Return the blocks of one row within `room` characters, and `size` for each button."""
    lines = [f"**{head}**"] if head else []
    lines += [f"{label}: {value}" for label, value in row.facts]
    top = _section("\n".join(lines), min(SECTION, room // 3)) if lines else None
    blocks = [top] if top else []
    if row.preview:
        all_of_it = f"inbox {row.prompt}`"  # of the rest nothing is changed: it is exact
        preview = row.preview.replace(f"`/{all_of_it}", f"`/nod {all_of_it}")
        blocks.append(_section(preview, min(SECTION, room // 3)))
    if row.decided:
        blocks.append(_context(row.decided, min(CONTEXT, room // 4)))
    elif row.buttons:
        blocks.append(_buttons(row, size))
    return blocks


def _buttons(row: Row, size: int) -> Block:
    looks = [_button(each, size, LOOK) for each in row.looks]
    answers = [_button(each, size) for each in row.buttons[: BUTTONS - len(looks)]]
    return _actions(f"nod:{row.prompt}", [*answers, *looks])


def _actions(block_id: str, elements: list[Block]) -> Block:
    return {"type": "actions", "block_id": block_id[:255], "elements": elements}


def _button(button: Button, size: int, does: str = "") -> Block:
    does = does or (ASK if button.asks else PRESS)
    style = {"yes": {"style": "primary"}, "no": {"style": "danger"}}.get(button.style, {})
    return {
        "type": "button",
        "action_id": f"{does}:{button.answer}",
        "text": _plain(button.label, size),
        "value": button.token,
        **style,
    }


# -- modals


def form(shown: Form, kept: str) -> Block:
    """Return the modal of a form; `kept` comes back with it (3,000 characters at most)."""
    blocks: list[Block] = []
    for each in shown.fields[: VIEW_BLOCKS - 1]:
        if len(each.value) > INPUT:
            note = f"**{each.label}** is too long to be changed here, and stays as it is."
            blocks.append(_section(note))
        else:
            blocks.append(_input(each))
    return {
        "type": "modal",
        "callback_id": FORM,
        "private_metadata": kept,
        "title": _plain(shown.title, TITLE),
        "submit": _plain("Send", TITLE),
        "close": _plain("Back", TITLE),
        "blocks": blocks or [_section("There is nothing to fill in.")],
    }


def page(title: str, text: str) -> Block:
    """Return a modal that only shows something; what does not fit in is left out and said."""
    found = [dict(block) for part in sections(text) for block in part.blocks]
    if len(found) > VIEW_BLOCKS:
        found = [*found[: VIEW_BLOCKS - 1], _context("… the rest does not fit in here.")]
    return {
        "type": "modal",
        "callback_id": PAGE,
        "title": _plain(title, TITLE),
        "close": _plain("Close", TITLE),
        "blocks": found or [_section("There is nothing to show.")],
    }


def _input(field: Field) -> Block:
    return {
        "type": "input",
        "block_id": field.name,
        "optional": not field.required,
        "label": _plain(field.label, 2_000),
        "element": {"action_id": "value", **_element(field)},
    }


def _element(field: Field) -> Block:
    if field.kind in ("choice", "flag"):
        options = [_option(each) for each in (field.choices or ("true", "false"))[:100]]
        chosen = {"initial_option": _option(field.value)} if field.value else {}
        return {"type": "static_select", "options": options, **chosen}
    text: Block = {
        "type": "plain_text_input",
        "multiline": field.kind in ("long", "json"),
        "max_length": INPUT,
    }
    return {**text, "initial_value": field.value} if field.value else text


def _option(value: str) -> Block:
    return {"text": _plain(value, LABEL), "value": value[:150]}


def values(view: Mapping[str, Any]) -> dict[str, str]:
    """Return what a submitted form holds, by field; what was left empty is an empty text."""
    found = {}
    for name, block in view["state"]["values"].items():
        given = block["value"]
        chosen = (given.get("selected_option") or {}).get("value")
        found[name] = str(chosen or given.get("value") or "")
    return found


# -- the Home


def board(shown: Page | None) -> Block:
    """Return the Home: what waits, what runs, what is planned."""
    if shown is None:
        text = "We have not met yet. Write me a message, and I ask my owner about you."
        return {"type": "home", "blocks": [_section(text)]}
    blocks: list[Block] = [_header("Waiting for you")]
    for each in shown.cards:
        blocks += [*map(dict, card(each).blocks), {"type": "divider"}]
    if not shown.cards:
        blocks.append(_section("Nothing waits for you."))
    if shown.more:
        blocks.append(_context(f"… and {shown.more} more: `/nod inbox`"))
    blocks = blocks[: VIEW_BLOCKS - 5]
    for title, lines in (("At work", shown.sessions), ("Planned", shown.schedules)):
        if lines:
            shown_lines = "\n".join(f"- {line}" for line in lines)
            blocks += [_header(title), _section(shown_lines)]
    return {"type": "home", "blocks": blocks}


# -- parts


def _section(text: str, limit: int = SECTION) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": mrkdwn(text, limit) or " "}}


def _context(text: str, limit: int = CONTEXT) -> Block:
    shown = mrkdwn(text, limit) or " "
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": shown}]}


def _header(text: str) -> Block:
    return {"type": "header", "text": _plain(text, 150)}


def _plain(text: str, limit: int) -> Block:
    shown = plain(text).replace("\n", " ").strip() or "…"
    cut = shown if len(shown) <= limit else shown[: limit - 1] + "…"
    return {"type": "plain_text", "text": cut, "emoji": True}
