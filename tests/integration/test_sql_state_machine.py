"""One row under every function in any order, by several Pods, against `tests/model/row.py`.

`test_row_against_sql` has each call on each small row. Here a row, its launches and its answers are the result of many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.model import row as rows
from tests.model.row import PROCESSING, STATUSES, WAITING, Call, StartAnswer
from tests.rig.postgres import Database, PostgresServer
from tests.rig.rows import TERMINAL, Pod, Row, Started, insert_row

T = TypeVar("T")

PROFILE = settings(
    max_examples=60, stateful_step_count=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck), print_blob=True,
)  # fmt: skip
PODS = {
    (1, 0, 0): Pod("a", "job-1"), (1, 1, 0): Pod("b", "job-1"), (2, 0, 0): Pod("a", "job-2"),
    (1, 0, 1): Pod("a", "job-1", run_id="x"), (1, 0, 2): Pod("a", "job-1", run_id="y"),
}  # fmt: skip
"""By the uid of the Job, the Pod and the process in the model."""


class OneRow(RuleBasedStateMachine):
    """The row in SQL, and that of the model.

    started: accepted starts. The n-th one has the token n in the model.
    answers: of the reports that were believed, by token.
    """

    def __init__(self, database: Database, runner: asyncio.Runner) -> None:
        super().__init__()
        self.database, self.runner = database, runner
        self.started: list[Started] = []
        self.answers: dict[int, str] = {}
        self.model, self.is_silent = rows.Row(), False
        self.seen = (1, 0)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    @property
    def status(self) -> str:
        return STATUSES[self.model.status]

    @property
    def held_digest(self) -> bytes | None:
        return self.started[self.model.token - 1].run_digest if self.model.token else None

    @initialize(max_failures=st.integers(1, 4))
    def insert(self, max_failures: int) -> None:
        self.row: Row = self.run(insert_row(self.database, max_failures=max_failures, payload="p"))
        self.max_failures = max_failures

    @rule(
        attempt=st.sampled_from([0, 0, 0, 0, -1, 1]),
        launch=st.sampled_from([0, 1, 1, 2, -1]),
        pod=st.sampled_from(list(PODS)),
    )
    def start(self, attempt: int, launch: int, pod: tuple[int, int, int]) -> None:
        uid, number, process = pod
        call = Call(self.model.attempt + attempt, self.model.launch + launch, uid, number, process=process)
        answer = self.run(self.row.start(attempt=call.attempt, launch=call.launch, pod=PODS[pod]))
        self.model, expected = rows.start(self.model, call, self.max_failures)
        if expected is StartAnswer.NEW:
            assert answer is not None, "an acceptable start was refused"
            assert answer not in self.started, "a token was given twice"
            self.started.append(answer)
            self.model, self.is_silent = self.model._replace(token=len(self.started)), False
        elif expected is StartAnswer.SAME:
            assert answer in self.started[-1:], "the holder asking again must get its own token"
        else:
            assert answer is None, "a start was accepted that is not the newest"

    @rule(back=st.integers(0, 3))
    def heartbeat(self, back: int) -> None:
        if (token := len(self.started) - back) > 0:
            expected = rows.heartbeat(self.model, token)
            assert self.run(self.row.heartbeat(self.started[token - 1])) == expected
            self.is_silent = self.is_silent and expected == "lost"

    @rule(back=st.integers(0, 3), outcome=st.sampled_from(["succeeded", "retry", "retry", "failed"]))
    def finish(self, back: int, outcome: str) -> None:
        if (token := len(self.started) - back) > 0:
            is_new = token not in self.answers
            answer = self.run(self.row.finish(self.started[token - 1], outcome))
            self.model, status = rows.finish(self.model, token, outcome, self.max_failures)
            if status is not None:
                self.answers[token] = STATUSES[status]
            assert answer == self.answers.get(token)
            assert not (answer and is_new) or token == len(self.started), "an older start was believed"

    @rule()
    def silence(self) -> None:
        if self.model.status == PROCESSING:
            self.run(self.row.silent_for(61))
            self.is_silent = True

    @rule(spares_the_waiting=st.sampled_from([True, True, True, False]))
    def cancel(self, spares_the_waiting: bool) -> None:
        if spares_the_waiting and self.model.status == WAITING:
            return  # otherwise most rows would be over before they start
        self.run(self.row.cancel())
        self.model = rows.cancel(self.model, is_stale=self.is_silent)

    @rule(attempt=st.sampled_from([None, 0, -1, 1]))
    def retry(self, attempt: int | None) -> None:
        named = None if attempt is None else self.model.attempt + attempt
        self.run(self.row.retry(named))
        self.model = rows.retry(self.model, named)

    @invariant()
    def the_row_is_what_the_model_says(self) -> None:
        model, now = self.model, self.run(self.row.now())
        row = (now["status"], now["attempt"], now["launch"], now["run_digest"])
        assert row == (self.status, model.attempt, model.launch, self.held_digest)
        assert self.status in TERMINAL or now["failures"] == model.failures
        if model.status == PROCESSING:
            assert (now["cancel_requested_at"] is not None, now["second_process"]) == (bool(model.cancel), model.second)
        assert self.seen <= (now["attempt"], now["launch"]), "attempt fell, or launch within one attempt"
        self.seen = (now["attempt"], now["launch"])

    @invariant()
    def exactly_the_holder_has_an_open_launch(self) -> None:
        launches = self.run(self.row.launches())
        still_open = [launch["run_digest"] for launch in launches if launch["ended_at"] is None]
        assert still_open == ([self.held_digest] if self.model.token else [])
        assert len(launches) == len(self.started)
        assert len({(launch["attempt"], launch["launch"]) for launch in launches}) == len(launches)
        assert not (self.status in TERMINAL and still_open)


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
