"""The pause after failures in a row: it doubles with each of them, up to a limit."""

from typing import Final

MOST_DOUBLINGS: Final = 32


def doubled(first: float, times: int, longest: float) -> float:
    """`first`, doubled `times` times, at most `longest`."""
    return min(first * 2.0 ** min(times, MOST_DOUBLINGS), longest)
