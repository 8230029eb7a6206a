"""Rows that submitters insert. Most of them can run, some never can. Some have text that a shell or kubelet expands."""

from typing import Any

from hypothesis import strategies as st

from tests.property.rows import NewTask

QUEUES = st.sampled_from(["default", "default", "other"])
TEAMS = st.sampled_from(["team_a", "team_b"])
WORDS = st.text(st.sampled_from("$()AB{}\\ \"'é\n"), max_size=8)
NAMES = st.sampled_from(["A", "B", "HOST", "_x1"])
ENV = st.dictionaries(NAMES, WORDS, max_size=3)


def specs() -> st.SearchStrategy[dict[str, Any]]:
    """Specs inside and outside of the bounds of the open template."""
    images = st.sampled_from(["team-a/app:2", "team-a/../x:1", "team-b/app:1"])
    words = st.lists(WORDS, max_size=2)
    amounts = st.sampled_from(["500m", "2", "64"])
    return st.fixed_dictionaries({}, optional={"image": images, "command": words, "args": words, "cpu": amounts})


def runnable_tasks() -> st.SearchStrategy[NewTask]:
    """Rows that can run."""
    return st.builds(
        NewTask, queue=QUEUES, submitted_by=TEAMS, priority=st.integers(0, 2), max_failures=st.integers(1, 3),
        template=st.sampled_from(["default", "other"]), env=ENV,
    )  # fmt: skip


def any_tasks() -> st.SearchStrategy[NewTask]:
    with_requests = st.builds(
        NewTask,
        queue=QUEUES,
        submitted_by=TEAMS,
        env=ENV,
        spec=specs(),
        timeout_seconds=st.sampled_from([None, 60, 9000]),
    )
    unrunnable = st.builds(NewTask, queue=QUEUES, priority=st.just(0), template=st.sampled_from(["broken", "unknown"]))
    return st.one_of(runnable_tasks(), runnable_tasks(), with_requests, unrunnable)
