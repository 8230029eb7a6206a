"""How kube-scheduler is configured, told from its calls."""

import pytest

from dispatcher.extender.configuration_check import (
    ENOUGH_CALLS,
    FAULTS,
    NO_FILTER,
    NO_PRIORITIZE,
    REMEMBERED,
    TURNS,
    TURNS_WITHIN_SECONDS,
    TWO_CALLERS,
    UNCACHED,
    ConfigurationCheck,
    Peer,
)

ONE: Peer = ("127.0.0.1", 40_001)
OTHER: Peer = ("127.0.0.1", 40_002)
THIRD: Peer = ("127.0.0.1", 40_003)


class Heard:
    """Calls of one kind after another, a second apart; what was said of them, each at its time."""

    def __init__(self) -> None:
        self.callers = ConfigurationCheck()
        self.now = 0.0
        self.said: list[str] = []

    def call(self, *verbs: str, peer: Peer = ONE, has_choice: bool = True, is_cached: bool = True) -> None:
        for verb in verbs:
            new = self.callers.hear(verb, peer, self.now, has_choice=has_choice, is_cached=is_cached)
            self.said += sorted(new)
            self.now += 1

    def turns(self, *peers: Peer, seconds: float = 1) -> None:
        for peer in peers:
            self.call("filter", "prioritize", peer=peer)
            self.now += seconds - 2


def test_a_scheduler_that_asks_as_it_should_is_not_spoken_of() -> None:
    heard = Heard()
    heard.call(*["filter", "prioritize"] * 5 * ENOUGH_CALLS)
    assert (heard.said, heard.callers.faults) == ([], frozenset())


def test_whole_nodes_are_a_fault_that_is_said_once() -> None:
    heard = Heard()
    heard.call("filter", "prioritize", "filter", is_cached=False)
    heard.call("filter")
    assert (heard.said, heard.callers.faults) == ([UNCACHED], frozenset({UNCACHED}))


@pytest.mark.parametrize(
    ("called", "silent", "fault"), [("filter", "prioritize", NO_PRIORITIZE), ("prioritize", "filter", NO_FILTER)]
)
def test_a_verb_that_is_never_called_is_missed_after_enough_calls_of_the_other(
    called: str, silent: str, fault: str
) -> None:
    heard = Heard()
    heard.call(*[called] * (ENOUGH_CALLS - 1))
    assert heard.said == []
    heard.call(called, called)
    assert (heard.said, heard.callers.faults) == ([fault], frozenset({fault}))
    late = Heard()
    late.call(silent, *[called] * 5 * ENOUGH_CALLS)
    assert late.said == []


def test_of_one_node_nobody_asks_for_points() -> None:
    heard = Heard()
    heard.call(*["filter"] * 5 * ENOUGH_CALLS, has_choice=False)
    assert heard.said == []
    heard.call(*["filter"] * ENOUGH_CALLS)
    assert heard.said == [NO_PRIORITIZE]


def test_other_verbs_are_no_sign_of_either() -> None:
    heard = Heard()
    heard.call(*["preempt"] * 5 * ENOUGH_CALLS, *["filter"] * ENOUGH_CALLS)
    assert heard.said == [NO_PRIORITIZE]


def test_several_faults_are_each_said() -> None:
    heard = Heard()
    heard.call("filter", is_cached=False)
    heard.call(*["filter"] * ENOUGH_CALLS)
    heard.turns(OTHER, ONE, OTHER, ONE)
    assert heard.said == [UNCACHED, NO_PRIORITIZE, TWO_CALLERS]
    assert set(heard.said) == heard.callers.faults


def test_each_fault_says_what_to_do() -> None:
    assert set(FAULTS) == {UNCACHED, NO_PRIORITIZE, NO_FILTER, TWO_CALLERS}
    assert all(": " in said for said in FAULTS.values())


# Two of them


def test_two_connections_in_turn_are_two_callers() -> None:
    heard = Heard()
    heard.turns(ONE, OTHER, ONE, OTHER)
    assert heard.said == [], "of two turns nothing is concluded"
    heard.turns(ONE)
    assert heard.said == [TWO_CALLERS]
    heard.turns(OTHER, ONE, OTHER)
    assert heard.said == [TWO_CALLERS], "once"


def test_the_same_port_of_another_machine_is_somebody_else() -> None:
    heard = Heard()
    heard.turns(*[("10.0.0.1", 40_001), ("10.0.0.2", 40_001)] * 3)
    assert heard.said == [TWO_CALLERS]


def test_three_in_turn_are_found_too() -> None:
    heard = Heard()
    heard.turns(*[ONE, OTHER, THIRD] * 2)
    assert heard.said == [TWO_CALLERS]


def test_a_connection_that_is_replaced_is_no_second_caller() -> None:
    heard = Heard()
    for port in range(41_000, 41_000 + 3 * REMEMBERED):
        heard.turns(*[("127.0.0.1", port)] * 3)
    assert heard.said == []


def test_calls_over_one_connection_are_no_turns() -> None:
    heard = Heard()
    heard.turns(ONE, *[OTHER] * 5 * TURNS, ONE, ONE)
    assert heard.said == []


def test_turns_count_while_they_are_young() -> None:
    """A port is used again one day, and a new leader follows the old one."""
    slow = Heard()
    slow.turns(*[ONE, OTHER] * 9, seconds=TURNS_WITHIN_SECONDS / (TURNS - 1) + 0.1)
    assert slow.said == []
    slow.turns(*[ONE, OTHER] * TURNS)
    assert slow.said == [TWO_CALLERS]
    just = Heard()
    just.turns(*[ONE, OTHER] * 9, seconds=TURNS_WITHIN_SECONDS / (TURNS - 1))
    assert just.said == [TWO_CALLERS]


def test_of_connections_long_gone_nothing_is_remembered() -> None:
    heard = Heard()
    new = [("127.0.0.1", 42_000 + number) for number in range(5 * REMEMBERED)]
    for start in range(0, len(new), REMEMBERED):
        heard.turns(ONE, *new[start : start + REMEMBERED], seconds=0.001)
    assert heard.said == []
