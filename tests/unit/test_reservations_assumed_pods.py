"""Who is between filter and bind, and how much that is in all."""

from dispatcher.reservations.assumed_pods import ASSUMED_TICKS, MOST_NAMES, AssumedPods, PossibleNodes
from dispatcher.reservations.pod_request import PodRequest


def an_asker(name: str, cpu: int = 1) -> PodRequest:
    return PodRequest(name, (), {"cpu": cpu})


def charged(**counts: bool) -> AssumedPods:
    """Pods that ask for one core each."""
    charges = AssumedPods()
    for name, one in counts.items():
        charges.put(an_asker(name), PossibleNodes(), counts=one)
    return charges


def towards(charges: AssumedPods, node: str, but: str = "nobody") -> list[str]:
    return [one.name for one in charges.towards(node, but)]


def test_those_who_may_have_no_node_with_a_hold_count_once_one_comes() -> None:
    charges = charged(a=True, b=False)
    assert charges.total == {"cpu": 1}
    charges.count_all()
    charges.count_all()
    assert charges.total == {"cpu": 2}


def test_nobody_is_beside_itself() -> None:
    charges = charged(a=True, b=True, c=False)
    assert [charges.beside(name)["cpu"] for name in ("a", "b", "c", "d")] == [1, 1, 2, 2]


def test_who_is_settled_counts_no_more() -> None:
    charges = charged(a=True, b=False)
    assert charges.forget("b")
    assert charges.total == {"cpu": 1}
    assert charges.forget("a")
    assert charges.total == {}
    assert not charges.forget("a")


def test_they_are_forgotten_in_their_order() -> None:
    charges = charged(a=True)
    assert charges.tick() == []
    charges.put(an_asker("b"), PossibleNodes(), counts=True)
    ticks = [charges.tick() for _ in range(ASSUMED_TICKS)]
    assert ticks[-2:] == [["a"], ["b"]]
    assert charges.total == {}


def test_towards_a_node_are_those_who_were_offered_it_and_not_refused() -> None:
    charges = AssumedPods()
    charges.put(an_asker("a"), PossibleNodes(["n", "m"], ["n"]), counts=True)
    charges.put(an_asker("b"), PossibleNodes(["n"]), counts=True)
    charges.put(an_asker("c"), PossibleNodes(["n", "m"]), counts=False)
    charges.put(an_asker("d"), PossibleNodes(), counts=True)
    assert towards(charges, "n") == ["b", "d"]
    assert towards(charges, "m") == ["a", "d"]
    assert towards(charges, "n", "b") == ["d"]


def test_of_too_many_names_it_is_forgotten_first_who_was_offered_what_and_then_who_was_refused_it() -> None:
    """Whoever might be on its way counts, and one that is settled makes room."""
    charges, half = AssumedPods(), [f"n{number}" for number in range(MOST_NAMES // 2)]
    charges.put(an_asker("first"), PossibleNodes(half, ["n"]), counts=True)
    charges.put(an_asker("second"), PossibleNodes(half, ["n"]), counts=True)
    charges.put(an_asker("third"), PossibleNodes((), half), counts=True)
    assert towards(charges, "elsewhere") == ["second", "third"]
    assert towards(charges, "n") == ["third"]
    assert towards(charges, "n1") == ["first", "second", "third"]
    charges.forget("first")
    charges.put(an_asker("fourth"), PossibleNodes(half, ["n"]), counts=True)
    assert towards(charges, "elsewhere") == ["second", "third"]
