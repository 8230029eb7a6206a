"""Texts as people get to see them: those of others, a Job without values of env, and the output of a container."""

import copy
import sys
import unicodedata
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.commands.logs import LONGEST_PIECE, LogSelection, is_to_come, none_in_words, texts_of, what_is_left
from dispatcher.commands.options import as_document
from dispatcher.jobs.template_text import read_manifest
from dispatcher.model.history import LaunchFacts
from dispatcher.model.tasks import for_terminal, one_line, printable
from dispatcher.views.row_page import HIDDEN, masked
from tests.rig.builders import NOW, a_manifest
from tests.unit.explaining import an_explanation

SHOWN = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("as_json", [False, True])
def test_document_has_no_such_sign_and_is_read_as_the_same_value(as_json: bool) -> None:
    """`render` shows the rows of others, and its output is applied."""
    texts = [sign for sign in HOSTILE if sign != "\n"]
    value = {"env": {f"{sign}A": f"a{sign}b" for sign in texts}, "all": "x".join(texts)}
    document = as_document(value, as_json)
    assert not {*document} & {*texts}
    assert (msgspec.json.decode(document) if as_json else read_manifest(document)) == value


@pytest.mark.parametrize("sign", ["\x00", "\x07", "\x0b", "\r", "\x1b", "\x7f", "\x9b", "\ud800"])
def test_control_characters_are_replaced(sign: str) -> None:
    assert printable(f"a{sign}b\tc\nd") == f"a{SHOWN}b\tc\nd"


@pytest.mark.parametrize("end", ["\n", "\u2028", "\u2029", "\n\n"])
def test_text_of_several_lines_becomes_one(end: str) -> None:
    assert len(one_line(f"first{end}  operator's turn: run this").splitlines()) == 1


HOSTILE = "".join(
    chr(one) for one in range(sys.maxunicode + 1) if unicodedata.category(chr(one)) in {"Cc", "Cf", "Zl", "Zp"}
)


@pytest.mark.parametrize("shown", [printable, one_line, for_terminal])
def test_no_sign_that_controls_a_screen_or_a_direction_is_left(shown: Callable[[str], str]) -> None:
    """Of all that Unicode has of them, in this version of Python."""
    told = shown(f"a{HOSTILE}b")
    assert (told[0], told[-1]) == ("a", "b")
    assert set(told) & set(HOSTILE) <= ({"\t", "\n"} if shown is printable else {"\t"})


SECRET = "planted-secret-91cd"
KEY = {"secretKeyRef": {"name": "db", "key": "password"}}


@pytest.mark.parametrize("place", ["containers", "initContainers", "ephemeralContainers"])
def test_values_of_env_are_hidden_in_every_container(place: str) -> None:
    env = [{"name": "PASSWORD", "value": SECRET}, {"name": "FROM", "valueFrom": KEY}, {"name": "EMPTY"}]
    job = a_manifest(pod={place: [{"name": "a"}, {"name": "b", "env": env}]})
    before = copy.deepcopy(job)
    found = masked(job)["spec"]["template"]["spec"][place][1]["env"]
    assert found == [{"name": "PASSWORD", "value": HIDDEN}, {"name": "FROM", "valueFrom": KEY}, {"name": "EMPTY"}]
    assert job == before, "the template is shared by all rows"


def test_headers_of_probes_and_copies_of_the_manifest_are_hidden() -> None:
    probe = {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": SECRET}]}}
    job = a_manifest(container={"livenessProbe": probe})
    job["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": f'"{SECRET}"', "kept": "x"}
    job["spec"]["template"]["metadata"] = {"annotations": {"dispatcher.internal/cache-key": SECRET}}
    found = masked(job)
    assert SECRET not in str(found)
    assert found["metadata"]["annotations"]["kept"] == "x"


def test_label_that_is_called_env_stays() -> None:
    job = a_manifest()
    job["metadata"]["labels"] = {"env": "production"}
    assert masked(job)["metadata"]["labels"] == {"env": "production"}


def test_env_of_another_form_is_hidden_whole() -> None:
    assert masked({"env": [SECRET, ["a", SECRET]]}) == {"env": [HIDDEN, HIDDEN]}


LEAVES = st.none() | st.booleans() | st.text(max_size=5)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner))


@given(JSON, st.text(max_size=4))
def test_no_value_of_env_is_left_wherever_it_stands(noise: Any, name: str) -> None:
    job = {"a": [noise, {"env": [{"name": name, "value": SECRET, "more": noise}]}], "b": noise}
    found = masked(job)
    assert SECRET.encode() not in msgspec.json.encode(found)
    assert found["a"][1]["env"][0]["name"] == name


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
    ("wanted", "status", "words"),
    [
        ({}, "waiting", "no launch yet"),
        ({}, "cancelled", "no launch"),
        ({"attempt": 3}, "waiting", "no such launch"),
        ({"launch": 3}, "succeeded", "no such launch"),
    ],
)
def test_row_without_a_launch_is_told_from_a_wrong_number(wanted: dict[str, Any], status: str, words: str) -> None:
    assert none_in_words(LogSelection(7, **wanted), an_explanation(status=status)) == words


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
