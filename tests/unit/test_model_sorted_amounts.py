"""Names in the order of an amount."""

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.admission.room_view import SortedAmounts

NAMES = st.sampled_from("abcdef")
AMOUNTS = st.integers(-3, 3)


@given(st.lists(st.tuples(NAMES, AMOUNTS | st.none())), AMOUNTS)
def test_names_below_a_limit_are_found_after_any_changes(changes: list[tuple[str, int | None]], limit: int) -> None:
    amounts, known = SortedAmounts(), dict[str, int]()
    for name, amount in changes:
        if amount is None:
            amounts.drop(name)
            known.pop(name, None)
        else:
            amounts.put(name, amount)
            known[name] = amount
    assert sorted(amounts.names_below(limit)) == sorted(name for name, amount in known.items() if amount < limit)
    assert len(amounts) == len(known)
