"""Whoever was turned away is told when it could come."""

import pytest

from dispatcher.reservations.waiting_pods import LOOKED_AT, MOST, MOST_NAMES, MOST_NODES, NEAREST
from tests.unit.waiting import Kept, an_asker, anything, nobody, nothing


def test_who_could_have_one_of_its_nodes_is_told_until_it_knows_and_others_are_not() -> None:
    kept = Kept()
    kept.note(1, "a", "b")
    kept.note(2, "c")
    for _ in range(2):
        (found,) = kept.attempts(lambda _, node: node == "b")
        assert found.request.name == "team/p1"
    kept.all.forget(found)
    assert kept.could(anything) == ["team/p2"]


def test_who_was_not_turned_away_the_last_time_is_not_told() -> None:
    kept = Kept()
    kept.note(1, "a")
    kept.note(1)
    assert kept.could(anything) == []


def test_who_asked_again_before_it_was_told_is_remembered() -> None:
    kept = Kept()
    kept.note(1, "a")
    (told,) = kept.attempts(anything)
    kept.note(1, "b")
    kept.all.forget(told)
    kept.all.put_off(told, 0)
    assert kept.could(lambda _, node: node == "b") == ["team/p1"]


def test_who_is_on_a_node_is_forgotten() -> None:
    kept = Kept()
    kept.note(1, "a")
    assert kept.attempts(anything, is_bound=lambda _: True) == []
    assert kept.could(anything) == []


def test_a_new_pod_of_the_same_name_is_another() -> None:
    kept = Kept()
    assert kept.note(1, "a")
    assert not kept.note(1, "a")
    assert kept.all.note(an_asker(1, "another"), {"a": "why"}, everywhere=True)


def test_of_many_nodes_those_that_lacked_least_are_looked_at_and_those_that_gained() -> None:
    kept, nodes = Kept(), [f"n{number}" for number in range(NEAREST + 1)]
    kept.note(1, *nodes)
    assert kept.could(lambda _, node: node == nodes[0]) == []
    assert kept.could(lambda _, node: node == nodes[0], nodes[0]) == ["team/p1"]
    assert kept.could(lambda _, node: node == nodes[1]) == ["team/p1"]


def test_a_gain_elsewhere_is_nothing_to_it() -> None:
    kept = Kept()
    kept.note(1, "a")
    assert kept.could(lambda _, node: node == "b", "b") == []


def test_everybody_is_asked_about_a_gain_whoever_came_first() -> None:
    kept, nodes = Kept(), [f"n{number}" for number in range(NEAREST + 1)]
    for number in range(LOOKED_AT + 1):
        kept.note(number, *nodes)
    assert kept.could(lambda request, node: (request.name, node) == (f"team/p{LOOKED_AT}", "n0"), "n0") == []
    found = kept.all.ready_to_retry(
        lambda request, node: (request.name, node) == (f"team/p{LOOKED_AT}", "n0"), nobody, 0
    )
    assert [one.request.name for one in found] == [f"team/p{LOOKED_AT}"]


def test_of_too_many_nodes_in_all_a_few_of_each_pod_are_remembered() -> None:
    kept, nodes = Kept(), [f"n{number}" for number in range(MOST_NAMES)]
    kept.note(1, *nodes)
    kept.note(2, *nodes)
    assert kept.could(lambda _, node: node == nodes[0], nodes[0]) == ["team/p1"]
    kept.all.note(an_asker(1), {})
    kept.note(3, *nodes[:20])
    assert kept.could(lambda _, node: node == nodes[0], nodes[0]) == ["team/p3"]


def test_of_too_many_pods_the_oldest_is_forgotten() -> None:
    kept = Kept()
    for number in range(MOST + 1):
        kept.note(number, "a")
    assert kept.could(anything)[0] == "team/p1"


def test_who_was_turned_away_in_doubt_is_told_whatever_it_could_have() -> None:
    kept = Kept()
    kept.note(1, "a", in_doubt=True)
    assert kept.could(nothing) == ["team/p1"]
    kept.note(1, "a")
    assert kept.could(nothing) == []


def test_who_would_push_others_aside_is_told_of_any_gain_on_its_nodes() -> None:
    kept = Kept()
    kept.note(1, "a")
    kept.all.note_push(an_asker(1), ["b"])
    kept.all.note_push(an_asker(2), [])
    assert kept.could(nothing, "c") == []
    assert kept.could(nothing, "b") == ["team/p1"]
    assert kept.could(nothing, "a") == ["team/p1"]


@pytest.mark.parametrize("number", [0, LOOKED_AT, 3 * LOOKED_AT - 1])
def test_everybody_has_a_turn(number: int) -> None:
    kept = Kept()
    for one in range(3 * LOOKED_AT):
        kept.note(one, "a")
    kept.all.hear(99, ())
    found = list[str]()
    for _ in range(4):
        for attempt in kept.all.ready_to_retry(lambda request, _: request.name == f"team/p{number}", nobody, 0):
            found.append(attempt.request.name)
            kept.all.forget(attempt)
    assert found == [f"team/p{number}"]


def test_nobody_is_looked_at_again_before_something_has_changed() -> None:
    kept = Kept()
    kept.note(1, "a")
    assert kept.could(nothing) == []
    assert kept.all.ready_to_retry(anything, nobody, 0) == []
    assert kept.could(anything) == ["team/p1"]


def test_those_who_had_their_turn_have_another_after_a_change_in_the_middle() -> None:
    kept = Kept()
    for number in range(LOOKED_AT + 1):
        kept.note(number, *[f"n{node}" for node in range(NEAREST + 1)])
    assert kept.could(nothing, "n0") == []
    assert kept.all.is_looking
    (found,) = kept.attempts(lambda request, node: (request.name, node) == ("team/p0", "n0"), "n0")
    assert found.request.name == "team/p0"
    kept.all.forget(found)
    kept.all.ready_to_retry(nothing, nobody, 0)
    assert not kept.all.is_looking


def test_a_change_without_a_gain_counts_as_well_for_those_who_had_their_turn() -> None:
    """Somebody is no longer on his way."""
    kept = Kept()
    for number in range(LOOKED_AT + 1):
        kept.note(number, "a")
    assert kept.could(nothing) == []
    assert kept.could(lambda request, _: request.name == "team/p0") == ["team/p0"]


def test_when_all_who_waited_are_gone_the_next_have_their_turn() -> None:
    kept = Kept()
    kept.note(1, "a")
    kept.all.forget(kept.attempts(anything)[0])
    kept.note(2, "a")
    kept.note(3, "a")
    assert kept.could(anything) == ["team/p2", "team/p3"]


def test_in_one_go_so_many_nodes_are_looked_at_and_no_more() -> None:
    looks, kept, nodes = [0], Kept(), [f"n{number}" for number in range(MOST_NODES // 2)]
    for number in range(10):
        kept.note(number, *nodes)

    def count(*_: object) -> bool:
        looks[0] += 1
        return False

    assert kept.attempts(count, *nodes) == []
    assert MOST_NODES < looks[0] < 2 * MOST_NODES
    assert kept.all.is_looking


def test_of_each_reason_those_that_lacked_least_are_looked_at() -> None:
    """Ten that will never have the memory must not hide one that lacked cpu alone."""
    kept = Kept()
    lacking = {"worst": "cpu", "almost": "cpu"} | {f"n{number}": "memory" for number in range(NEAREST)}
    kept.all.note(an_asker(1), lacking)
    assert kept.could(lambda _, node: node == "almost") == ["team/p1"]


def test_who_may_not_push_either_still_waits_for_the_nodes_that_lacked_least() -> None:
    kept = Kept()
    kept.note(1, "a")
    kept.all.note_push(an_asker(1), ["b"])
    assert kept.could(lambda _, node: node == "a") == ["team/p1"]


def test_it_is_news_when_a_pod_that_was_refused_some_nodes_is_refused_all() -> None:
    kept = Kept()
    assert not kept.all.note(an_asker(1), {"a": "why"})
    assert kept.all.note(an_asker(1), {"a": "why", "b": "why"}, everywhere=True)
    assert not kept.all.note(an_asker(1), {"a": "why", "b": "why"}, everywhere=True)


def test_who_was_offered_nothing_was_not_turned_away() -> None:
    assert not Kept().all.note(an_asker(1), {}, everywhere=True)


def test_who_may_not_push_keeps_its_turn_and_its_doubt() -> None:
    kept = Kept()
    kept.note(1, "a", in_doubt=True)
    kept.note(2, "a")
    kept.all.hear(99, ())
    for number in (1, 2):
        kept.all.note_push(an_asker(number), ["b"])
    found = kept.all.ready_to_retry(lambda request, node: (request.name, node) == ("team/p2", "a"), nobody, 0)
    assert [one.request.name for one in found] == ["team/p1", "team/p2"]
