"""The output of a container: which launch is meant, when to wait for it, and what a terminal gets to see."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from dispatcher.commands.logs import LONGEST_PIECE, LogSelection, is_to_come, texts_of, what_is_left
from dispatcher.model.history import LaunchFacts
from tests.rig.builders import NOW
from tests.unit.explaining import an_explanation

OPEN = LaunchFacts(attempt=2, launch=1, pod="p", logs="kubectl logs p")
OVER = LaunchFacts(attempt=2, launch=1, ended_at=NOW)
NOTHING_YET = LaunchFacts(attempt=2, launch=1)


async def told(*pieces: bytes) -> list[str]:
    async def output() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return [text async for text in texts_of(output())]


async def test_output_is_passed_on_in_whole_lines() -> None:
    assert await told(b"one\ntw", b"o", b"\nthree") == ["one\n", "two\n", "three"]
    assert await told(b"caf\xc3", b"\xa9\n") == ["caf\u00e9\n"]
    assert await told(b"\xff\n") == ["\N{REPLACEMENT CHARACTER}\n"]
    assert await told() == []


async def test_step_of_a_progress_bar_is_a_line() -> None:
    assert await told(b"10 %\r20 %\r", b"30 %\r\nend\n") == ["10 %\n", "20 %\n30 %\nend\n"]


async def test_output_without_line_ends_is_not_held_for_ever() -> None:
    assert await told(b"x" * (LONGEST_PIECE + 1), b"y") == ["x" * (LONGEST_PIECE + 1), "y"]


async def test_colours_are_dropped_and_other_control_characters_are_shown_as_such() -> None:
    (text,) = await told(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07 \x1b[2J\ttab\n")
    assert text == "red \N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}[2J\ttab\n"


@pytest.mark.parametrize(
    ("wanted", "status", "launches", "waits"),
    [
        ({}, "waiting", [], True),
        ({}, "waiting", [NOTHING_YET], True),
        ({}, "processing", [OPEN], False),
        ({}, "waiting", [OVER], True),
        ({}, "failed", [OVER], False),
        ({}, "cancelled", [], False),
        ({"attempt": 1}, "waiting", [], False),
        ({"attempt": 2}, "waiting", [OVER], True),
        ({"attempt": 2, "launch": 1}, "waiting", [OVER], False),
        ({"attempt": 3}, "waiting", [OVER], True),
    ],
)
def test_container_that_may_still_start_is_waited_for(
    wanted: dict[str, Any], status: str, launches: list[LaunchFacts], waits: bool
) -> None:
    found = an_explanation(status=status, attempt=2, launches=launches)
    assert is_to_come(found, LogSelection(7, follow=True, **wanted)) is waits


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (OPEN, "its Pod is there, but its output could not be read"),
        (LaunchFacts(attempt=1, launch=1, error="no"), "its Pod is gone; this is the last output that was kept"),
        (OVER, "no output was kept"),
        (NOTHING_YET, "its container has not started"),
    ],
)
def test_launch_without_output_says_why(launch: LaunchFacts, words: str) -> None:
    assert what_is_left(launch) == words
