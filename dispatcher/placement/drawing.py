"""An order of all nodes for each cache key, so that launches that must go cold go to the same node.

The order hardly changes when nodes come and go (consistent hashing: Karger et al., STOC 1997). Pure.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Final
from zlib import crc32

PLACES: Final = 8
"""Places of each node on the ring. With more of them, nodes come first for more equal numbers of keys."""


class Drawing:
    """The ring of the nodes that were asked about last."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._ring: list[tuple[int, str]] = []

    def order(self, key: tuple[str, str], names: Collection[str]) -> Iterator[str]:
        """The nodes in the order of the key, each once."""
        if len(names) != len(self._names) or not self._names.issuperset(names):
            self._names = frozenset(names)
            self._ring = sorted((place(f"{name}/{at}"), name) for name in names for at in range(PLACES))
        ring, begin = self._ring, bisect_left(self._ring, (place("/".join(key)), ""))
        seen = set[str]()
        for at in chain(range(begin, len(ring)), range(begin)):
            if (name := ring[at][1]) not in seen:
                seen.add(name)
                yield name


def place(text: str) -> int:
    return crc32(text.encode(errors="surrogatepass"))
