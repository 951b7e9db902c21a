"""Whatever comes in, and wherever a worker dies: the state is the fold of the log, no call is left
without its one result, nothing with consequences runs while its fate is open, and it always ends.

The world here has no store and no tools; `decide` and `apply` are the real ones, and everything
they depend on (answers of the model, verdicts, presses, stops, crashes, look-ups) is drawn.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.canonical import argument_hash, dumps, loads
from engine.events import Event, Kind, numbered
from engine.turn import decide as steps
from engine.turn.decide import decide
from engine.turn.state import Call, Limits, Mail, Reply, State, apply, fold

LIMITS = Limits(iterations=6, repeats_warn=3, repeats_end=4, failures_end=3)
RISKS = ("external", "external", "read", "write_local", "control")
CONSEQUENTIAL = frozenset({"write_local", "external"})
STOPPED = ("stopped before", "stopped after")
FATES = (
    *("done", "failed", "lost", "late", "refused"),
    *("died before", "died before", "died after", *STOPPED),
)
HAPPENS = ("step", "step", "work", "work", "press", "press", "press", "mail", "crash")
MAIL = ("message", "stop", "note", "retry", "undo", "switch", "fire", "wake")

#: Steps in a row without anything coming in; more would be a loop.
BOUND = 400


@dataclass
class World:
    """A store, an outside and a worker that dies now and then, all drawn from `data`."""

    data: st.DataObject
    state: State = field(default_factory=lambda: State(session="s", limits=LIMITS))
    #: What is durable, and what the worker has not committed.
    log: list[Event] = field(default_factory=list)
    buffer: list[Event] = field(default_factory=list)
    mail: list[Mail] = field(default_factory=list)
    replies: dict[str, Reply] = field(default_factory=dict)
    #: Effects, by call; the truth no worker knows.
    effects: Counter[str] = field(default_factory=Counter)
    worker: int = 1
    now: float = 1000.0
    turn_at: int = 0
    quiet: bool = False

    def draw(self, *options: Any) -> Any:
        """Choose; when the world is to come to rest, the first option."""
        return options[0] if self.quiet else self.data.draw(st.sampled_from(options))

    # -- the log

    def put(self, kind: Kind, body: dict[str, Any], call: str | None = None) -> None:
        state = self.state
        self.take_in(
            Event(
                session="s",
                kind=kind,
                turn=state.turn,
                iteration=state.iteration,
                call=call,
                at=self.now,
                body=body,
            )
        )

    def take_in(self, fact: Event) -> None:
        stored = replace(numbered(fact, len(self.log) + len(self.buffer) + 1), body=_json(fact))
        self.state = apply(self.state, stored)
        self.buffer.append(stored)
        self.check_fold()

    def check_fold(self) -> None:
        """The state is the fold of the log, also when that begins with the open turn's start."""
        facts = [*self.log, *self.buffer]
        if facts[-1].kind is Kind.TURN_START:
            self.turn_at = len(facts) - 1
            self.check_against(facts)
        if self.turn_at < len(facts):
            self.check_against(facts[self.turn_at :])

    def check_against(self, facts: list[Event]) -> None:
        fresh = State(session="s", limits=LIMITS, mail=self.state.mail, replies=self.state.replies)
        folded = fold(fresh, facts)
        assert self.state == replace(folded, mail=self.state.mail, replies=self.state.replies)

    def commit(self) -> None:
        self.log += self.buffer
        for fact in self.buffer:
            if fact.kind is Kind.STOPPED:
                self.close_prompts(fact)
        self.buffer = []

    def close_prompts(self, stop: Event) -> None:
        """A stop answers what is still open, so nobody can any more."""
        for prompt in self.open_prompts(upto=stop.seq):
            self.replies.setdefault(prompt["id"], _STOPPED)

    def refresh(self) -> None:
        """See what came in, as the store has it."""
        facts = [*self.log, *self.buffer]
        entered = {fact.body.get("mail") for fact in facts}
        decided = {fact.body["prompt"] for fact in facts if fact.kind is Kind.DECIDED}
        self.state = replace(
            self.state,
            mail=tuple(each for each in self.mail if each.id not in entered),
            replies=tuple(
                reply
                for prompt, reply in self.replies.items()
                if reply is not _STOPPED and prompt not in decided
            ),
        )

    def crash(self) -> None:
        """The worker dies; another one has what is in the store."""
        self.buffer = []
        self.worker += 1
        turns = [n for n, fact in enumerate(self.log) if fact.kind is Kind.TURN_START]
        self.turn_at = turns[-1] if turns else 0
        self.state = fold(State(session="s", limits=LIMITS), self.log[self.turn_at :])
        self.refresh()

    # -- what comes in

    def open_prompts(self, upto: int = 10**9) -> list[dict[str, Any]]:
        raised = [
            {**fact.body["prompt"], "call": fact.call, "loose": fact.body["loose"]}
            for fact in self.log
            if "prompt" in fact.body and isinstance(fact.body["prompt"], dict) and fact.seq < upto
        ]
        return [prompt for prompt in raised if prompt["id"] not in self.replies]

    def post(self, kind: str) -> None:
        body = {"message": {"role": "user", "content": "Do it."}, "mode": "auto"}
        self.mail.append(Mail(id=len(self.mail) + 1, kind=kind, by="ana", at=self.now, body=body))

    def press(self, prompt: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"kind": self._answer(prompt)}
        if answer["kind"] == "edit":
            answer["arguments"] = {"n": self.draw(1, 2, 3)}
        self.replies[prompt["id"]] = Reply(
            prompt=prompt["id"],
            kind=prompt["kind"],
            call=prompt["call"],
            hash=prompt["hash"],
            answer=answer,
            by="ana",
            surface="phone",
            at=self.now,
        )

    def _answer(self, prompt: dict[str, Any]) -> str:
        if prompt["kind"] == "question":
            return str(self.draw("answer", "deny"))
        if prompt["kind"] == "grant":
            return str(self.draw("approve", "deny"))
        if prompt["kind"] == "approval":
            return str(self.draw("once", "always", "edit", "deny"))
        if prompt["kind"] == "connect":
            return str(self.draw("done", "done", "deny"))
        if self.effects[prompt["call"]]:
            return str(self.draw("happened", "unknown"))
        if prompt["loose"]:
            return str(self.draw("leave", "unknown"))
        return str(self.draw("run", "run", "leave", "unknown"))

    # -- a step

    def step(self) -> bool:
        """Do what `decide` says; True when there is nothing to do."""
        if self.draw(True, False):
            self.refresh()
        gone = {f"w{n}" for n in range(1, self.worker + 1)} if self.draw(True, False) else set()
        step = decide(self.state, self.now, gone)
        if isinstance(step, steps.Release):
            return self.release(step.state)
        self.carry_out(step)
        return False

    def carry_out(self, step: steps.Step) -> None:
        match step:
            case steps.Put():
                for fact in step.facts:
                    self.take_in(fact)
            case steps.Judge():
                for call in step.calls:
                    answer = self.draw("allow", "allow", "allow", "ask", "ask", "refuse")
                    self.put(Kind.VERDICT, {"answer": answer, "reason": "", "step": ""}, call.id)
            case steps.Raise():
                self.ask(step)
            case steps.CallModel():
                self.answer_as_model(step.tools)
            case steps.Run():
                self.run(step.calls)
            case steps.LookUp():
                self.look_up(step.call)
            case steps.Undo():
                self.put(Kind.NOTICE, {"text": "undone", "mail": step.mail.id})
                self.commit()
            case steps.Wait():
                assert step.until > self.now
                self.now = step.until

    def release(self, state: str) -> bool:
        before = self.state.mail, self.state.replies
        self.commit()
        self.refresh()
        assert state == ("parked" if self.state.open else "idle")
        if self.state.open:
            said = (Kind.SWITCHED, Kind.NOTICE)
            told = [fact for fact in self.log if fact.kind not in said]
            assert told[-1].body.get("status") == "parked", "that it waits is in the log"
        return before == (self.state.mail, self.state.replies)

    def ask(self, step: steps.Raise) -> None:
        for call in step.calls:
            kind = step.kind or call.asks or "approval"
            number = call.attempts if step.kind else call.revision
            prompt = {"id": f"{kind}:{call.id}/{number}", "kind": kind, "hash": call.hash}
            raised = [fact.body.get("prompt") for fact in (*self.log, *self.buffer)]
            assert prompt not in raised, "a prompt is asked once"
            loose = any(each.id == call.id for each in self.state.loose)
            self.put(Kind.PERMISSION_REQUIRED, {"prompt": prompt, "loose": loose}, call.id)

    def answer_as_model(self, tools: bool) -> None:
        state = self.state
        assert all(call.done for call in state.calls), "the model is called with all results"
        assert not state.held, "nothing goes on while a budget is asked about"
        if self.held_back(self.draw(*["go"] * 9, "soft", "soft", "hard")):
            return
        if self.draw(*[False] * 9, True):
            self.put(Kind.ERROR, {"text": "the model is away"})
            return
        self.put(Kind.ASSISTANT_MESSAGE, {"message": {"role": "assistant"}, "finish": "stop"})
        for place in range(self.draw(0, 1, 1, 2, 3) if tools else 0):
            arguments = {"n": self.draw(1, 2)}
            risk = self.draw(*RISKS)
            body = {
                "place": place,
                "name": "act",
                "arguments": arguments,
                "hash": argument_hash("act", arguments),
                "risk": risk,
                "asks": "question" if risk == "control" and self.draw(True, False) else "",
                "fault": self.draw("", "", "", "not JSON"),
            }
            self.put(Kind.TOOL_PROPOSED, body, f"{state.turn}-{state.iteration}-{place}")

    def held_back(self, limit: str) -> bool:
        """Weigh the call against a budget, as the driver does."""
        if limit == "hard":
            self.put(Kind.ERROR, {"text": "it is spent", "error_type": "BudgetSpent"})
        elif limit == "soft":
            number = len(self.log) + len(self.buffer)
            prompt = {"id": f"grant:{number}", "kind": "grant", "hash": ""}
            self.put(Kind.PERMISSION_REQUIRED, {"prompt": prompt, "loose": False})
        return limit != "go"

    def run(self, calls: tuple[Call, ...]) -> None:
        assert len(calls) == 1 or all(call.risk == "read" for call in calls)
        assert all(not call.done for call in calls), "a call with a result does not run"
        if calls[0].asks:
            assert calls[0].decided
            self.finish(calls[0])
        elif calls[0].risk in CONSEQUENTIAL:
            self.run_consequential(calls[0])
        else:
            for call in calls:
                self.start(call)
            for call in calls:
                if self.draw(*[False] * 4, True):
                    self.refuse(call)
                else:
                    self.finish(call)

    def refuse(self, call: Call) -> None:
        """The service does not know us, and has done nothing."""
        lacks = {"connector": "github", "account": "", "why": "It expired.", "person": ""}
        lacks["title"] = "GitHub"
        self.put(Kind.UNKNOWN, {"found": "refused", "lacks": lacks}, call.id)

    def start(self, call: Call) -> None:
        body = {
            "attempt": call.attempts + 1,
            "worker": f"w{self.worker}",
            "act_by": self.now + 10,
            "limit": 60.0,
        }
        self.put(Kind.TOOL_STARTED, body, call.id)

    def run_consequential(self, call: Call) -> None:
        self.check_may_run(call)
        if self.draw(*["go"] * 5, "spent") == "spent":
            answer = "refuse" if call.decided else "ask"
            self.put(Kind.VERDICT, {"answer": answer, "reason": "", "step": ""}, call.id)
            return
        before = self.state, list(self.buffer)
        self.start(call)
        if any(mail.kind == "stop" for mail in self.unseen()):
            self.state, self.buffer = before
            self.refresh()
            return
        self.commit()
        fate = self.draw(*FATES)
        if fate in ("done", "lost", "died after", "stopped after"):
            self.effects[call.id] += 1
        if fate.startswith("died"):
            self.crash()
        elif fate == "late":
            self.put(Kind.UNKNOWN, {"found": "did_not"}, call.id)
        elif fate == "refused":
            self.refuse(call)
        elif fate in STOPPED:
            self.post("stop")
            self.refresh()
        elif fate != "lost":
            self.finish(call, failed=fate == "failed")

    def check_may_run(self, call: Call) -> None:
        """Only a call whose last start is known to have had no effect may start again."""
        facts = [fact for fact in (*self.log, *self.buffer) if fact.call == call.id]
        starts = [n for n, fact in enumerate(facts) if fact.kind is Kind.TOOL_STARTED]
        after = facts[starts[-1] :] if starts else []
        known = [
            fact
            for fact in after
            if (fact.kind is Kind.UNKNOWN and fact.body["found"] == "did_not")
            or (fact.kind is Kind.DECIDED and fact.body["answer"]["kind"] in ("run", "done"))
        ]
        assert not starts or known, "it was started, and nobody knows that it did not happen"
        assert self.effects[call.id] == 0, "it runs twice"

    def unseen(self) -> list[Mail]:
        entered = {fact.body.get("mail") for fact in (*self.log, *self.buffer)}
        seen = {mail.id for mail in self.state.mail}
        return [mail for mail in self.mail if mail.id not in entered | seen]

    def finish(self, call: Call, *, failed: bool | None = None) -> None:
        wrong = self.draw(False, True) if failed is None else failed
        status = "error" if wrong else "ok"
        body = {"name": call.name, "status": status, "content": "done"}
        self.put(Kind.TOOL_FINISHED, body, call.id)

    def look_up(self, call: Call) -> None:
        truth = "happened" if self.effects[call.id] else "did_not"
        found = self.draw(truth, "cannot_tell", "cannot_tell", "cannot_tell")
        loose = any(each.id == call.id for each in self.state.loose)
        if found == "happened" and not loose:
            self.finish(call, failed=False)
        else:
            self.put(Kind.UNKNOWN, {"found": found}, call.id)
        self.commit()

    def untold(self) -> list[str | None]:
        """Return the calls of unknown fate that neither a person nor the model was told of."""
        asked = {
            fact.call
            for fact in self.log
            if fact.kind is Kind.PERMISSION_REQUIRED and fact.body["prompt"]["kind"] == "outcome"
        }
        noted = {
            fact.call
            for fact in self.log
            if fact.kind is Kind.MESSAGE and fact.body["cause"] == "outcome"
        }
        return [
            fact.call
            for fact in self.log
            if fact.kind is Kind.TOOL_FINISHED
            and fact.body["status"] == "unknown"
            and fact.call not in (noted if fact.body.get("loose") else asked)
        ]

    # -- the whole

    def work(self) -> None:
        """Step until there is nothing to do."""
        for _ in range(BOUND):
            if self.step():
                return
        raise AssertionError(f"it goes on and on: {decide(self.state, self.now)}")

    def come_to_rest(self) -> None:
        """Nothing strange happens any more; people answer what is asked."""
        self.quiet = True
        for _ in range(BOUND):
            self.refresh()
            self.work()
            prompts = self.open_prompts()
            if not prompts:
                return
            for prompt in prompts:
                self.press(prompt)
        raise AssertionError("there is always one more prompt")


_STOPPED = Reply(prompt="", kind="", call=None, hash="", answer={}, by="", surface="", at=0.0)


def _json(fact: Event) -> Any:
    """Return the body as the log gives it back."""
    return loads(dumps(fact.body))


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_the_state_is_the_fold_of_the_log_and_every_call_has_one_result(
    data: st.DataObject,
) -> None:
    world = World(data)
    world.post("message")
    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(HAPPENS)):
            case "step":
                world.step()
            case "work":
                world.work()
            case "mail":
                world.post(data.draw(st.sampled_from(MAIL)))
            case "press" if world.open_prompts():
                world.press(data.draw(st.sampled_from(world.open_prompts())))
            case "crash":
                world.crash()
    world.come_to_rest()
    assert not world.state.open and not world.state.mail and not world.state.replies
    assert not world.state.loose
    proposed = Counter(fact.call for fact in world.log if fact.kind is Kind.TOOL_PROPOSED)
    results = Counter(fact.call for fact in world.log if fact.kind is Kind.TOOL_FINISHED)
    assert results == proposed
    assert all(count == 1 for count in world.effects.values())
    assert world.untold() == []
    assert [fact.seq for fact in world.log] == list(range(1, len(world.log) + 1))
