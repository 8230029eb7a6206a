"""Jobs with much text wait their turn, and one submitter leaves the rest to the others."""

import pytest

from dispatcher.jobs.memory import (
    AGAIN_SECONDS,
    AHEAD_SECONDS,
    BURST_SECONDS,
    MORE_FOR_A_WRITE,
    PLAIN_BYTES,
    SHARES,
    LargeJobs,
    Memory,
    row_bytes,
)
from dispatcher.model.launches import LaunchSpec
from dispatcher.model.verdicts import MUCH_TEXT, Hold, HoldReason
from tests.rig.builders import a_request, a_task, an_order

WRITES = 50
LARGEST = 256 * 2**10
SHARE = WRITES * MORE_FOR_A_WRITE / SHARES


def a_large(submitter: str, task: int, size: int) -> LaunchSpec:
    return an_order(task=a_task(id=task, submitted_by=submitter), env={"A": "x" * (size - 1)})


def launched(large: LargeJobs, size: int, seconds: int, *submitters: str, many: int = 200) -> dict[str, int]:
    """How many Jobs go out within the time, if each submitter has very many rows that ask when their hold is over."""
    rests, sent, asked = dict[int, float](), dict.fromkeys(submitters, 0), 0
    for now in range(seconds):
        for at, submitter in enumerate(submitters):
            waiting = [one for one in range(at * 10_000, at * 10_000 + many) if rests.get(one, 0) <= now]
            for task in waiting:
                asked += 1
                held = large.hold(a_large(submitter, task, size), now)
                rests[task] = float("inf") if held is None else held[1]
                sent[submitter] += held is None
    assert asked <= sum(sent.values()) + len(submitters) * many * (2 + seconds / AGAIN_SECONDS), "rows ask too often"
    return sent


@pytest.mark.parametrize(
    ("env", "spec", "size"),
    [
        ({}, {}, 0),
        ({"A": "x"}, {}, 2),
        ({"A": "$5"}, {"args": ["$x", "y"], "command": ["z"], "image": "long"}, 9),
        ({"A": "\u20ac"}, {"cpu": "2"}, 4),
        ({"A": "\ud800"}, {}, 2),
    ],
)
def test_bytes_of_a_row_are_those_of_its_text_in_the_job(
    env: dict[str, str], spec: dict[str, object], size: int
) -> None:
    assert row_bytes(a_request(env=env, spec=spec)) == size


def test_plain_rows_never_wait() -> None:
    assert launched(LargeJobs(1), PLAIN_BYTES, 3, "a", many=1000) == {"a": 1000}


@pytest.mark.parametrize("size", [16 * 2**10, LARGEST])
def test_text_of_one_submitter_keeps_to_its_share_after_a_burst(size: int) -> None:
    expected = SHARE * (BURST_SECONDS + 200) / (size - PLAIN_BYTES)
    assert launched(LargeJobs(WRITES), size, 200, "a", many=1000)["a"] == pytest.approx(expected, abs=2)


def test_submitter_gets_its_share_beside_many_that_come_first() -> None:
    sent = launched(LargeJobs(WRITES), LARGEST, 300, *(f"hostile-{n}" for n in range(8)), "honest", many=60)
    assert sent["honest"] >= max(sent.values()) / 3, "the others were given turns before it came"
    most = WRITES * MORE_FOR_A_WRITE * (2 * BURST_SECONDS + AHEAD_SECONDS + 300)  # turns were given before others came
    assert sum(sent.values()) * (LARGEST - PLAIN_BYTES) <= most


def test_row_that_waits_is_told_why_and_keeps_its_turn() -> None:
    large = Memory(WRITES).large
    task = 0
    while (found := large.hold(a_large("a", task, LARGEST), 0)) is None:
        task += 1
    hold, until = found
    assert hold == Hold(HoldReason.SUBMITTER_CAP, f"{MUCH_TEXT}: {LARGEST} bytes")
    assert 0 < until < 20
    assert large.hold(a_large("a", task + 1, LARGEST), until) is not None, "it comes later"
    assert large.hold(a_large("a", task, LARGEST), until) is None


def test_names_and_turns_of_long_ago_are_forgotten() -> None:
    large = LargeJobs(1)
    for number in range(300):
        large.hold(a_large(f"login-{number}", number, LARGEST), number * 10_000)
        large.hold(a_large(f"login-{number}", number + 1_000_000, LARGEST), number * 10_000)
    assert len(large._busy_until) + len(large._turns) < 10
