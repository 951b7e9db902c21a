"""What is asked at every message, answer or look is found by an index, never by going through all.

SQLite's planner is asked on an empty store without statistics, as it works in production.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

import pytest

from engine.store.base import load_migrations, load_queries

QUERIES = load_queries("sqlite")


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:")
    for _, _, statements in load_migrations("sqlite"):
        for statement in statements:
            made.execute(statement)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("query", "index"),
    [
        pytest.param("mail_count", "mailbox_waiting", id="every-message-counts-what-waits"),
        pytest.param("mail_waiting", "mailbox_waiting", id="every-take-reads-what-waits"),
        pytest.param("replies_waiting", "prompts_answered", id="every-take-reads-the-answers"),
        pytest.param("prompts_pending_in", "prompts_waiting", id="every-line-may-answer-a-card"),
        pytest.param("prompt_close", "prompts_waiting", id="a-stop-closes-cards"),
        pytest.param("prompt_close_turn", "prompts_waiting", id="an-error-closes-cards"),
        pytest.param("sessions_unpresented", "sessions_unpresented", id="look-for-facts-to-show"),
        pytest.param("deliveries_open", "deliveries_open", id="look-for-rows-to-show"),
        pytest.param("prompts_stale", "prompts_decided", id="look-for-cards-to-redraw"),
        pytest.param("prompts_unshown", "prompts_pending", id="look-for-cards-to-show"),
        pytest.param("delivery_by_ref", "deliveries_ref", id="a-reply-to-a-card"),
        pytest.param("session_of_ref", "deliveries_ref", id="a-reply-to-an-answer"),
        pytest.param("place_of_post", "deliveries_ref", id="where-a-post-stands"),
        pytest.param("mail_by", "mailbox_strangers", id="a-stranger-was-told"),
        pytest.param("mail_unrouted", "mailbox_strangers", id="a-stranger-is-let-in"),
        pytest.param("fire_at_work", "fires_at_work", id="every-fire-asks-for-the-run-before"),
        pytest.param("fire_queued", "fires_queued", id="every-fire-and-end-asks-for-what-waits"),
        pytest.param("fire_of_session", "fires_session", id="every-take-of-a-run"),
        pytest.param("schedules_due", "schedules_due", id="every-ring-asks-for-what-is-due"),
        pytest.param("fires_due", "fires_look", id="every-ring-asks-for-runs-to-see-to"),
        pytest.param("wakes_come", "wakes_event", id="every-event-may-wake"),
        pytest.param("wakes_due", "wakes_due", id="every-ring-asks-for-wakes"),
        pytest.param("watches_due", "subscriptions_due", id="every-ring-asks-for-watches"),
        pytest.param("arrivals_due", "arrivals_due", id="every-ring-asks-for-events"),
        pytest.param("watch_on", "subscriptions_source", id="every-line-may-be-watched"),
        pytest.param("watched_count", "watched_subscription", id="every-watched-line-counts"),
        pytest.param("arrivals_add", "schedules_event", id="every-event-may-start-a-schedule"),
        pytest.param("sessions_wanted", "sessions_worker", id="the-watch-of-two-workers"),
        pytest.param("sessions_runnable", "sessions_runnable", id="what-is-runnable"),
        pytest.param("sources_listed", "sources_tenant", id="every-look-asks-how-far-it-came"),
        pytest.param("jobs_running", "jobs_running", id="every-look-asks-what-runs"),
    ],
)
def test_a_hot_query_is_answered_by_its_index(
    connection: sqlite3.Connection, query: str, index: str
) -> None:
    plan = _plan(connection, query)
    assert re.search(rf"USING (COVERING )?INDEX {index}\b", plan[0]), plan
    assert not [step for step in plan[1:] if step.startswith("SCAN")], plan


def _plan(connection: sqlite3.Connection, query: str) -> list[str]:
    sql = QUERIES[query]
    params = dict.fromkeys(re.findall(r"(?<![:\w]):([a-z_]\w*)", sql), "1")
    return [row[3] for row in connection.execute(f"explain query plan {sql}", params)]
