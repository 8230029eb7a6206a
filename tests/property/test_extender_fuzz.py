"""100,000 requests that were right once, straight into the extender: only `BadBody` is ever raised, and only where no
name can be read; every other answer is one that kube-scheduler takes.
"""

import json
from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.extender.server import BadBody, Call, Extender
from tests.contract.bodies import ROOMS, SECRET, asking
from tests.property.drawn import GOOD
from tests.property.mutations import change
from tests.property.profiles import FACT
from tests.rig.unreserved import unreserved_filter

SEED = 20260314
INPUTS = 100_000
PARTS = 4
VERBS = ("filter", "prioritize", "preempt", "explain")
PEER = ("127.0.0.1", 40_000)
NOT_READ = object()


def offered(body: bytes) -> list[str] | None:
    """Names as another reader of JSON finds them, each once; None: it finds no request, or no name in its list."""
    asked = parsed(body)
    if not isinstance(asked, dict):
        return None
    items = asked.get("NodeNames")
    if items is None:
        nodes = asked.get("Nodes")
        items = nodes.get("items", []) if isinstance(nodes, dict) else 0
        items = [] if items is None else items
        found = [name_of(item) for item in items] if isinstance(items, list) else []
    else:
        found = items if isinstance(items, list) else []
    names = list(dict.fromkeys(name for name in found if isinstance(name, str) and is_text(name)))
    return names if names or items == [] else None


def name_of(item: Any) -> Any:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    return metadata.get("name") if isinstance(metadata, dict) else None


def parsed(body: bytes) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return json.loads(body.decode(errors="surrogateescape"), parse_constant=refuse)
    except (ValueError, RecursionError):
        return NOT_READ


def is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def is_sure(body: bytes) -> bool:
    """The two readers agree on everything but halves of characters: those spoil a whole body here."""
    return b"\\ud" not in body.lower()


class Judge:
    """Gives one body to each verb, and looks at what comes back."""

    def __init__(self) -> None:
        self._extender = Extender(ROOMS, unreserved_filter())
        self.outcomes: Counter[str] = Counter()
        self.refusals: set[str] = set()

    def ask(self, verb: str, body: bytes) -> Any:
        """The decoded answer. Returns None for a BadBody."""
        try:
            answer, outcome = getattr(self._extender, verb)(Call(body, PEER, lambda: False))
        except BadBody as fault:
            self.refusals.add(str(fault))
            self.outcomes[f"{verb} bad"] += 1
            return None
        assert outcome == "ok"
        self.outcomes[f"{verb} ok"] += 1
        return parsed(msgspec.json.encode(answer))

    def judge(self, body: bytes, *, is_rare: bool = False) -> None:
        """`is_rare`: by verbs, too, that are seldom asked."""
        names = self.judge_filter(body)
        self.judge_points(body, names)
        if is_rare:
            self.judge_preempt(body)
            self.judge_explain(body)

    def judge_filter(self, body: bytes) -> list[str] | None:
        answer, expected = self.ask("filter", body), offered(body)
        if answer is None:
            assert expected is None or not is_sure(body), "a name could be read"
            return None
        assert (answer["FailedNodes"], answer["FailedAndUnresolvableNodes"], answer["Error"]) == ({}, {}, "")
        nodes, names = answer["Nodes"], answer["NodeNames"]
        is_whole = parsed(body).get("NodeNames") is None
        assert (nodes is None, names is None) == (not is_whole, is_whole), "null is nobody"
        names = names if nodes is None else [item["metadata"]["name"] for item in nodes["items"]]
        assert len(set(names)) == len(names)
        assert names == expected
        return list(names)

    def judge_points(self, body: bytes, names: list[str] | None) -> None:
        answer = self.ask("prioritize", body)
        assert (answer is None) == (names is None)
        assert [one["Host"] for one in answer or ()] == (names or [])
        assert all(type(one["Score"]) is int and 0 <= one["Score"] <= 10 for one in answer or ())

    def judge_preempt(self, body: bytes) -> None:
        answer = self.ask("preempt", body)
        if answer is not None:
            asked = parsed(body)
            proposed = asked.get("NodeNameToMetaVictims") or asked.get("NodeNameToVictims") or {}
            assert list(answer) == ["NodeNameToMetaVictims"]
            assert set(answer["NodeNameToMetaVictims"]) == set(proposed)

    def judge_explain(self, body: bytes) -> None:
        answer = self.ask("explain", body)
        for told in (answer or {"nodes": {}})["nodes"].values():
            assert (told["verdict"], type(told["points"])) == ("pass", int)
            assert 0 <= told["points"] <= 10


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_request_gets_an_answer_that_lets_a_scheduler_go_on(part: int) -> None:
    random, judge = Random(SEED + part), Judge()
    for number in range(INPUTS // PARTS):
        body = change(random, GOOD[number % len(GOOD)])
        try:
            judge.judge(body, is_rare=number % 3 == 0)
        except Exception as fault:  # any fault gets the input that caused it
            fault.add_note(f"part {part}, input {number}: {body[:3000]!r}")
            raise
    few = INPUTS // PARTS // 15
    assert min(judge.outcomes[f"{verb} {end}"] for verb in VERBS for end in ("ok", "bad")) > few, "it tries both"
    assert not any(SECRET in refusal for refusal in judge.refusals)


@pytest.mark.parametrize("body", GOOD)
def test_unchanged_they_are_answered(body: str) -> None:
    judge = Judge()
    judge.judge(body.encode(), is_rare=True)
    assert (judge.outcomes["filter ok"], judge.outcomes["preempt ok"]) in {(1, 1), (0, 1)}


# Small enough to be told what is wrong

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=9,
)
"""Any JSON."""
metadata = st.fixed_dictionaries({}, optional={"annotations": values, "creationTimestamp": values, "uid": values})
spec = st.fixed_dictionaries({}, optional={"containers": values, "initContainers": values, "overhead": values})
pods = values | st.fixed_dictionaries({}, optional={"metadata": values | metadata, "spec": values | spec})


@pytest.mark.slow
@FACT
@given(pods)
def test_nodes_pass_for_any_pod(pod: object) -> None:
    judge, body = Judge(), asking(pod)
    assert judge.judge_filter(body) == ["a", "b"]
    judge.judge_points(body, ["a", "b"])


@FACT
@given(st.lists(st.sampled_from("abc") | values), values)
def test_nodes_pass_among_any_names(items: list[object], others: object) -> None:
    names = list(dict.fromkeys(item for item in items if isinstance(item, str)))
    if names or not items:
        assert Judge().judge_filter(asking(NodeNames=items, Nodes=others)) == names
