"""Whoever was turned away is told when it could come."""

from itertools import count

import pytest

from dispatcher.placement.reservations import Asker
from dispatcher.placement.turned_away import LOOKED_AT, MOST, NEAREST, TurnedAway

NEWS = count(1)


def an_asker(number: int) -> Asker:
    return Asker(f"team/p{number}", (), {})


def nobody(_: Asker) -> bool:
    return False


def test_who_could_have_one_of_its_nodes_is_told_and_others_are_not() -> None:
    turned_away = TurnedAway()
    turned_away.note(an_asker(1), ["a", "b"])
    turned_away.note(an_asker(2), ["c"])
    assert turned_away.who_could(lambda _, node: node == "b", nobody, next(NEWS)) == ["team/p1"]
    assert turned_away.who_could(lambda _, node: node == "b", nobody, next(NEWS)) == ["team/p1"]
    turned_away.forget("team/p1")
    assert turned_away.who_could(lambda *_: True, nobody, next(NEWS)) == ["team/p2"]


def test_who_was_not_turned_away_the_last_time_is_not_told() -> None:
    turned_away = TurnedAway()
    turned_away.note(an_asker(1), ["a"])
    turned_away.note(an_asker(1), [])
    assert turned_away.who_could(lambda *_: True, nobody, next(NEWS)) == []


def test_who_is_on_a_node_is_forgotten() -> None:
    turned_away = TurnedAway()
    turned_away.note(an_asker(1), ["a"])
    assert turned_away.who_could(lambda *_: True, lambda _: True, next(NEWS)) == []
    assert turned_away.who_could(lambda *_: True, nobody, next(NEWS)) == []


def test_of_many_nodes_those_with_the_most_room_are_remembered() -> None:
    turned_away, nodes = TurnedAway(), [f"n{number}" for number in range(NEAREST + 1)]
    turned_away.note(an_asker(1), nodes)
    assert turned_away.who_could(lambda _, node: node == nodes[0], nobody, next(NEWS)) == []
    assert turned_away.who_could(lambda _, node: node == nodes[1], nobody, next(NEWS)) == ["team/p1"]


def test_of_too_many_pods_the_oldest_is_forgotten() -> None:
    turned_away = TurnedAway()
    for number in range(MOST + 1):
        turned_away.note(an_asker(number), ["a"])
    turned_away.forget("team/p0")
    assert turned_away.who_could(lambda asker, _: asker.name == "team/p0", nobody, next(NEWS)) == []
    assert turned_away.who_could(lambda *_: True, nobody, next(NEWS))[0] != "team/p0"


@pytest.mark.parametrize("number", [0, LOOKED_AT, 3 * LOOKED_AT - 1])
def test_everybody_has_a_turn(number: int) -> None:
    turned_away = TurnedAway()
    for one in range(3 * LOOKED_AT):
        turned_away.note(an_asker(one), ["a"])
    news, found = next(NEWS), list[str]()
    for _ in range(4):
        for name in turned_away.who_could(lambda asker, _: asker.name == f"team/p{number}", nobody, news):
            found.append(name)
            turned_away.forget(name)
    assert found == [f"team/p{number}"]


def test_nobody_is_looked_at_again_before_something_has_changed() -> None:
    turned_away, news = TurnedAway(), next(NEWS)
    turned_away.note(an_asker(1), ["a"])
    assert turned_away.who_could(lambda *_: False, nobody, news) == []
    assert turned_away.who_could(lambda *_: True, nobody, news) == []
    assert turned_away.who_could(lambda *_: True, nobody, next(NEWS)) == ["team/p1"]
