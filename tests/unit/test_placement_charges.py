"""Who is between filter and bind, and how much that is in all."""

from dispatcher.placement.charges import CHARGE_TICKS, Charges


def charged(**counts: bool) -> Charges:
    """Pods that ask for one core each."""
    charges = Charges()
    for name, one in counts.items():
        charges.put(name, {"cpu": 1}, (), counts=one)
    return charges


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
    assert charges.settle("b")
    assert charges.total == {"cpu": 1}
    assert charges.settle("a")
    assert charges.total == {}
    assert not charges.settle("a")


def test_they_are_forgotten_in_their_order() -> None:
    charges = charged(a=True)
    assert charges.tick() == []
    charges.put("b", {"cpu": 1}, (), counts=True)
    ticks = [charges.tick() for _ in range(CHARGE_TICKS)]
    assert ticks[-2:] == [["a"], ["b"]]
    assert charges.total == {}


def test_towards_a_node_are_those_who_were_not_refused_it() -> None:
    charges = Charges()
    charges.put("a", {"cpu": 1}, ["n"], counts=True)
    charges.put("b", {"cpu": 2}, [], counts=True)
    charges.put("c", {"cpu": 4}, [], counts=False)
    assert charges.towards("n", "nobody") == {"cpu": 2}
    assert charges.towards("m", "nobody") == {"cpu": 3}
    assert charges.towards("m", "b") == {"cpu": 1}
