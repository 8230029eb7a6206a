"""Kubernetes quantities, exactly (`1500m`, `2Gi`, `1e3`).

Grammar: apimachinery `pkg/api/resource/quantity.go`. Values are `Fraction`s, so that comparing bounds never rounds.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

SUFFIXES: Final = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "E": Fraction(10**18), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
WRITTEN: Final = re.compile(
    r"([+-]?[0-9]{1,30}(?:\.[0-9]{0,30})?|[+-]?\.[0-9]{1,30})"  # the number
    r"(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?"  # a suffix or an exponent
)


@lru_cache(maxsize=4096)
def parse_quantity(written: str) -> Fraction:
    """The value of a quantity in its base unit (cores, bytes). Raises ValueError for any other text."""
    match = WRITTEN.fullmatch(written)
    if match is None:
        raise ValueError(f'"{written[:40]}" is not a Kubernetes quantity such as "500m" or "2Gi"')
    number, suffix, exponent = match.groups()
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else SUFFIXES[suffix or ""])
