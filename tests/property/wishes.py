"""What submitters insert: mostly what can run, some that never can, and text that a shell or kubelet would read."""

from typing import Any

from hypothesis import strategies as st

from tests.property.rows import Wish

QUEUES = st.sampled_from(["default", "default", "other"])
TEAMS = st.sampled_from(["team_a", "team_b"])
WORDS = st.text(st.sampled_from("$()AB{}\\ \"'é\n"), max_size=8)
NAMES = st.sampled_from(["A", "B", "HOST", "_x1"])
ENV = st.dictionaries(NAMES, WORDS, max_size=3)


def specs() -> st.SearchStrategy[dict[str, Any]]:
    """Inside and outside of the bounds of the open template."""
    images = st.sampled_from(["team-a/app:2", "team-a/../x:1", "team-b/app:1"])
    words = st.lists(WORDS, max_size=2)
    amounts = st.sampled_from(["500m", "2", "64"])
    return st.fixed_dictionaries({}, optional={"image": images, "command": words, "args": words, "cpu": amounts})


def plain() -> st.SearchStrategy[Wish]:
    """What can run."""
    return st.builds(
        Wish, queue=QUEUES, submitted_by=TEAMS, priority=st.integers(0, 2), max_failures=st.integers(1, 3),
        template=st.sampled_from(["default", "other"]), env=ENV,
    )  # fmt: skip


def wishes() -> st.SearchStrategy[Wish]:
    asking = st.builds(
        Wish, queue=QUEUES, submitted_by=TEAMS, env=ENV, spec=specs(), timeout_seconds=st.sampled_from([None, 60, 9000])
    )
    hopeless = st.builds(Wish, queue=QUEUES, priority=st.just(0), template=st.sampled_from(["broken", "unknown"]))
    return st.one_of(plain(), plain(), asking, hopeless)
