"""Nodes by an amount, kept in order: who has less than so much is found without looking at the others."""

from bisect import bisect_left, insort


class SortedAmounts:
    """Each name once, with its amount."""

    def __init__(self) -> None:
        self._amounts: dict[str, int] = {}
        self._order: list[tuple[int, str]] = []

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

    def below(self, amount: int) -> list[str]:
        """Names with less than that."""
        return [name for _, name in self._order[: bisect_left(self._order, (amount, ""))]]
