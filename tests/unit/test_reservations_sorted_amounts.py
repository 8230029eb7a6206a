"""Nodes in order of an amount."""

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.reservations.sorted_amounts import SortedAmounts

NAMES = st.sampled_from("abcdef")
AMOUNTS = st.integers(-3, 3)


@given(st.lists(st.tuples(NAMES, AMOUNTS | st.none())), AMOUNTS)
def test_those_below_are_found_whatever_came_and_went(changes: list[tuple[str, int | None]], limit: int) -> None:
    ranks, known = SortedAmounts(), dict[str, int]()
    for name, amount in changes:
        if amount is None:
            ranks.drop(name)
            known.pop(name, None)
        else:
            ranks.put(name, amount)
            known[name] = amount
    assert sorted(ranks.below(limit)) == sorted(name for name, amount in known.items() if amount < limit)
    assert len(ranks) == len(known)
