"""One row under every function in any order, by several Pods, against a model of docs/protocol.md, section 3."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.rig.postgres import Database, PostgresServer
from tests.rig.rows import TERMINAL, Pod, Row, Started, insert_row

T = TypeVar("T")

PROFILE = settings(
    max_examples=60, stateful_step_count=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck), print_blob=True,
)  # fmt: skip
PODS = [Pod("a", "job-1"), Pod("b", "job-1"), Pod("a", "job-2"), *(Pod("a", "job-1", run_id=run) for run in "xy")]


@dataclass
class Model:
    """docs/protocol.md, section 3, in Python. A holder is a launch that started and may report."""

    max_failures: int
    status: str = "waiting"
    attempt: int = 1
    launch: int = 0
    failures: int = 0
    holder: tuple[UUID, Pod] | None = None
    is_cancel_asked: bool = False
    is_silent: bool = False
    has_second_process: bool = False
    newest: UUID | None = None
    answers: dict[UUID, str] = field(default_factory=dict)

    def accepts(self, attempt: int, launch: int) -> bool:
        is_open = self.status == "waiting" or (self.status == "processing" and self.max_failures > 1)
        return is_open and attempt == self.attempt and launch > self.launch and not self.is_cancel_asked

    def is_of_the_holder(self, attempt: int, launch: int, pod: Pod) -> bool:
        """Whether the Pod of the holder asks, by whatever process."""
        if self.holder is None or (attempt, launch) != (self.attempt, self.launch):
            return False
        return (self.holder[1].name, self.holder[1].job_uid) == (pod.name, pod.job_uid)

    def repeats(self, pod: Pod) -> bool:
        """Whether the process of the holder asks again. Without an id of the process it is believed, but not twice."""
        assert self.holder is not None
        return pod.run_id == self.holder[1].run_id if pod.run_id else self.max_failures > 1

    def start(self, launch: int, pod: Pod, token: UUID) -> None:
        self.status, self.launch, self.is_silent, self.has_second_process = "processing", launch, False, False
        self.holder, self.newest = (token, pod), token

    @property
    def held_digest(self) -> bytes | None:
        return Started(self.holder[0], None).run_digest if self.holder else None

    def holds(self, token: UUID) -> bool:
        return self.holder is not None and self.holder[0] == token

    def heartbeat(self, token: UUID) -> str:
        if not self.holds(token):
            return "lost"
        self.is_silent = False
        return "cancel" if self.is_cancel_asked else "continue"

    def finish(self, token: UUID, outcome: str) -> str | None:
        if self.holds(token):
            self.answers[token] = self.report(outcome)
        return self.answers.get(token)

    def report(self, outcome: str) -> str:
        if outcome == "succeeded":
            return self.end("succeeded")
        if self.is_cancel_asked:
            return self.end("cancelled")
        if outcome == "retry" and self.failures + 1 < self.max_failures:
            return self.next_attempt(self.failures + 1)
        return self.end("failed")

    def cancel(self) -> None:
        if self.status == "waiting" or (self.status == "processing" and self.is_silent):
            self.end("cancelled")
        elif self.status == "processing":
            self.is_cancel_asked = True

    def end(self, status: str) -> str:
        self.status, self.holder = status, None
        return status

    def next_attempt(self, failures: int) -> str:
        self.status, self.attempt, self.launch, self.failures = "waiting", self.attempt + 1, 0, failures
        self.holder, self.is_cancel_asked = None, False
        return self.status


class OneRow(RuleBasedStateMachine):
    def __init__(self, database: Database, runner: asyncio.Runner) -> None:
        super().__init__()
        self.database, self.runner = database, runner
        self.started: list[Started] = []
        self.seen = (1, 0)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    @initialize(max_failures=st.integers(1, 4))
    def insert(self, max_failures: int) -> None:
        self.row: Row = self.run(insert_row(self.database, max_failures=max_failures, payload="p"))
        self.model = Model(max_failures)

    @rule(
        attempt=st.sampled_from([0, 0, 0, 0, -1, 1]),
        launch=st.sampled_from([0, 1, 1, 2, -1]),
        pod=st.sampled_from(PODS),
    )
    def start(self, attempt: int, launch: int, pod: Pod) -> None:
        attempt, launch = self.model.attempt + attempt, self.model.launch + launch
        answer = self.run(self.row.start(attempt=attempt, launch=launch, pod=pod))
        if self.model.accepts(attempt, launch):
            assert answer is not None, "an acceptable start was refused"
            assert answer not in self.started, "a token was given twice"
            self.started.append(answer)
            self.model.start(launch, pod, answer.run_token)
        elif self.model.is_of_the_holder(attempt, launch, pod) and self.model.repeats(pod):
            assert answer in self.started[-1:], "the holder asking again must get its own token"
        else:
            self.model.has_second_process |= self.model.is_of_the_holder(attempt, launch, pod)
            assert answer is None, "a start was accepted that is not the newest"

    @rule(back=st.integers(1, 4))
    def heartbeat(self, back: int) -> None:
        for started in self.started[-back:][:1]:
            assert self.run(self.row.heartbeat(started)) == self.model.heartbeat(started.run_token)

    @rule(back=st.integers(1, 4), outcome=st.sampled_from(["succeeded", "retry", "retry", "failed"]))
    def finish(self, back: int, outcome: str) -> None:
        for started in self.started[-back:][:1]:
            is_new = started.run_token not in self.model.answers
            answer = self.run(self.row.finish(started, outcome))
            assert answer == self.model.finish(started.run_token, outcome)
            assert not (answer and is_new) or started.run_token == self.model.newest, "an older start was believed"

    @rule()
    def silence(self) -> None:
        if self.model.status == "processing":
            self.run(self.row.silent_for(61))
            self.model.is_silent = True

    @rule(spares_the_waiting=st.sampled_from([True, True, True, False]))
    def cancel(self, spares_the_waiting: bool) -> None:
        if spares_the_waiting and self.model.status == "waiting":
            return  # otherwise most rows would be over before they start
        self.run(self.row.cancel())
        self.model.cancel()

    @rule(attempt=st.sampled_from([None, 0, -1, 1]))
    def retry(self, attempt: int | None) -> None:
        named = None if attempt is None else self.model.attempt + attempt
        self.run(self.row.retry(named))
        if not attempt:
            self.model.next_attempt(0)

    @invariant()
    def the_row_is_what_the_model_says(self) -> None:
        model, now = self.model, self.run(self.row.now())
        row = (now["status"], now["attempt"], now["launch"], now["run_digest"])
        assert row == (model.status, model.attempt, model.launch, model.held_digest)
        assert model.status in TERMINAL or now["failures"] == model.failures
        assert now["second_process"] == model.has_second_process
        if model.status == "processing":
            assert (now["cancel_requested_at"] is not None) == model.is_cancel_asked
        assert self.seen <= (now["attempt"], now["launch"]), "attempt fell, or launch within one attempt"
        self.seen = (now["attempt"], now["launch"])

    @invariant()
    def exactly_the_holder_has_an_open_launch(self) -> None:
        launches = self.run(self.row.launches())
        still_open = [launch["run_digest"] for launch in launches if launch["ended_at"] is None]
        assert still_open == ([self.model.held_digest] if self.model.holder else [])
        assert len(launches) == len(self.started)
        assert len({(launch["attempt"], launch["launch"]) for launch in launches}) == len(launches)
        assert not (self.model.status in TERMINAL and still_open)


def one_row_of(database: Database, runner: asyncio.Runner) -> type[RuleBasedStateMachine]:
    class OneRowHere(OneRow):
        def __init__(self) -> None:
            super().__init__(database, runner)

    return OneRowHere


@pytest.mark.slow
def test_a_row_follows_the_protocol(postgres: PostgresServer) -> None:
    with asyncio.Runner() as runner:
        database = runner.run(postgres.create_database())
        try:
            run_state_machine_as_test(one_row_of(database, runner), settings=PROFILE)
        finally:
            runner.run(database.drop())
