"""The order in which a task in Python learns that it is to stop."""

from typing import Any

import pytest

from dispatcher.container.contract import LaunchContract
from dispatcher.task import run as here
from dispatcher.task.run import ContainerTask

CONTRACT = LaunchContract("postgresql://nobody@127.0.0.1:1/x", 60, (1, "key", 1, 1, "uid", "node", "pod"))


@pytest.mark.parametrize("answer", ["cancel", "lost"])
def test_end_knows_that_the_row_says_stop_before_anybody_is_told(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """A SIGTERM between the words and the knowledge left a cancelled row without a report."""
    task: Any = ContainerTask(CONTRACT, heartbeat_seconds=0)
    task._token = "token"
    told = list[tuple[str, str, bool]]()

    def say(words: str) -> None:
        told.append((words, task._heard, task.cancelled))
        task._over.set()

    monkeypatch.setattr(here, "call", lambda *_: (answer,))
    monkeypatch.setattr(here, "say", say)
    task._beat()
    assert told == [(f"the row says {answer}", answer, False)]
    assert task.cancelled
