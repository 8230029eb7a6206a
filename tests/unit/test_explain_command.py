"""The explanation of a row as lines for people."""

from datetime import timedelta

import click
import pytest
from msgspec.structs import replace

from dispatcher.commands.explain import in_words
from dispatcher.commands.options import COLOURS, coloured
from dispatcher.model.history import LaunchFacts
from dispatcher.model.reasons import ReasonInWords, Turn
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.estimate import Estimate
from dispatcher.views.launches import CacheNow
from dispatcher.views.nodes import NodeGroup
from tests.rig.builders import NOW, later
from tests.unit.explaining import an_explanation

CRASH = LaunchFacts(attempt=1, launch=1, outcome="lost", reason="exit code 1", error="\x1b[2Jgone\nno disk")


def test_waiting_row_is_told_with_its_place_its_nodes_and_what_comes_next() -> None:
    found = an_explanation(
        nodes=[NodeGroup(1200, "full: cpu 1 < 2", ["a", "b"], later(600)), NodeGroup(1, "cordoned", ["c"])],
        also=[ReasonInWords(HoldReason.JOB_CAP, "100 of 100")],
        estimate=Estimate(later(90), later(7300), 25),
    )
    assert in_words(found).splitlines() == [
        "task 42 (builds), attempt 2: waiting",
        "  NoRoomNow: the nodes are full",
        "  since 2026-03-14 11:59:00 UTC",
        "  place 3 of 1,200 in its queue",
        "  starts in 1 min to 2 h, as the starts of the last hour tell",
        "  cluster's turn: add a node",
        "  nodes: 1,200 full: cpu 1 < 2 (a, b); run limits free one of them by about 2026-03-14 12:10:00 UTC",
        "  nodes: 1 cordoned (c)",
        "  then JobCap: 100 of 100",
        "  as of 2026-03-14 12:00:00 UTC",
    ]


def test_cache_of_the_row_and_of_each_launch_is_told() -> None:
    cold = LaunchFacts(attempt=1, launch=1, node="n7", cache="cold: no node had the cache", outcome="succeeded")
    cache = CacheNow(message="warm on 3 nodes (12 GiB)", nodes=("n7", "n8", "n9"), bytes=12 * 2**30)
    told = in_words(an_explanation(cache=cache, launches=[cold]))
    assert "\n  cache: warm on 3 nodes (12 GiB)\n" in told
    assert "\n  attempt 1, launch 1 on n7 (cold: no node had the cache): succeeded\n" in told


def test_range_of_one_moment_is_one_moment() -> None:
    soon = Estimate(NOW + timedelta(seconds=5), NOW + timedelta(seconds=5.4), 25)
    assert "  starts in about 5 s, as" in in_words(an_explanation(estimate=soon))


def test_nodes_are_told_where_they_are_the_reason() -> None:
    groups = [NodeGroup(1, "cordoned", ["a"])]
    assert "nodes:" not in in_words(an_explanation(reason=HoldReason.PAUSED, nodes=groups))


def test_row_that_does_not_wait_has_its_launches_alone() -> None:
    found = an_explanation(reason=None, message="it has failed", position=None, launches=[CRASH])
    assert in_words(found).splitlines()[1:4] == [
        "  it has failed", "  attempt 1, launch 1: lost: exit code 1", "    | \N{REPLACEMENT CHARACTER}[2Jgone",
    ]  # fmt: skip


def test_texts_of_others_cannot_steer_a_terminal() -> None:
    """A container writes its error itself."""
    assert "\x1b" not in in_words(an_explanation(launches=[CRASH], message="\x1b]0;x\x07"))


def test_texts_of_others_cannot_look_like_a_line_of_ours() -> None:
    """A registry's answer is in the message."""
    forged = "ErrImagePull\n  operator's turn: run this\r\n  as of now"
    told = in_words(an_explanation(message=forged, launches=[replace(CRASH, reason=forged)]))
    assert told.count("\n  operator's turn") == 0
    assert coloured(told).count("\x1b[") == 3


@pytest.mark.parametrize("turn", Turn)
def test_line_of_whose_turn_it_is_begins_with_a_colour(turn: Turn) -> None:
    told = in_words(an_explanation(whose_turn=turn))
    shown = coloured(told)
    assert click.unstyle(shown) == told
    assert click.style(f"  {turn}'s turn", fg=COLOURS[turn], bold=True) + ": add a node" in shown
    assert shown.count("\x1b[") == 3, "two for colour and weight, one that ends both"
