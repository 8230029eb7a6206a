"""Node names in the order of an amount. All names below a limit are found without a look at the others."""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence


class SortedAmounts:
    """Names in ascending order of their amount. Each name is there once."""

    def __init__(self, amounts: Mapping[str, int] = {}) -> None:
        self._amounts = dict(amounts)
        self._order = sorted((amount, name) for name, amount in amounts.items())

    def __len__(self) -> int:
        return len(self._order)

    def put(self, name: str, amount: int) -> None:
        if self._amounts.get(name) != amount:
            self.drop(name)
            self._amounts[name] = amount
            insort(self._order, (amount, name))

    def drop(self, name: str) -> None:
        amount = self._amounts.pop(name, None)
        if amount is not None:
            del self._order[bisect_left(self._order, (amount, name))]

    def names_below(self, limit: int) -> list[str]:
        """Names whose amount is less than `limit`, the smallest amount first."""
        return [name for _, name in self._order[: bisect_left(self._order, (limit, ""))]]

    def order(self) -> Sequence[tuple[int, str]]:
        """A copy of (amount, name), the smallest amount first."""
        return self._order.copy()
