"""Quantities, and the requests of Pods, in whole thousandths of a core, a byte or a Pod. Pure.

`parse_quantity`: Kubernetes quantities, as the API server counts them (`1500m`, `2Gi`, `1e3`). Grammar and bounds:
apimachinery `pkg/api/resource/quantity.go`. A value is a whole number of billionths; a finer one is rounded up. A
number may have any length and any exponent: a value above 2**63 - 1 counts as that. Anybody may write such texts into a
Pod, so the work for one text is bounded.

`Amounts` are whole numbers, because thousands of nodes are compared for every Pod. Finer amounts are rounded up, as
kube-scheduler does.

`asked_by`: the requests of a Pod, by the rule of kube-scheduler's `component-helpers/resource.PodRequests`:

* Containers run at the same time: their requests are added.
* Init containers run before them, one after another: the highest request counts, if it is above that sum.
* A sidecar is an init container that keeps running: it counts together with everything that starts after it.
* A request for the Pod as a whole replaces these numbers.
* Overhead is added at the end.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Final

TENS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
"""Powers of ten, by suffix."""
TWOS: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
"""Powers of two, by suffix."""
WRITTEN: Final = re.compile(
    r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?"  # the number
    r"(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?"  # a suffix or an exponent
)
BILLION: Final = 10**9
LARGEST: Final = 2**63 - 1
MOST_DIGITS: Final = 100
"""Digits of a number that are read. Later digits, and powers of ten beyond this number, change no result."""
LONGEST_KEPT: Final = 40
"""Characters of a text whose value is remembered, at most."""


def parse_quantity(written: str) -> Fraction:
    """The value of a quantity in its base unit (cores, bytes). Raises ValueError for any other text."""
    return Fraction(billionths_of(written), BILLION)


def billionths_of(written: str) -> int:
    """The value in billionths of its base unit. Raises ValueError for a text that is no quantity."""
    return kept(written) if len(written) <= LONGEST_KEPT else read(written)


@lru_cache(maxsize=8192)
def kept(written: str) -> int:
    return read(written)


def read(written: str) -> int:
    match = WRITTEN.fullmatch(written)
    if match is None:
        raise ValueError(f'"{written[:40]}" is not a Kubernetes quantity such as "500m" or "2Gi"')
    sign, whole, part, suffix, exponent = match.groups(default="")
    digits = (whole + part).lstrip("0")
    tens = bounded(exponent) + TENS.get(suffix, 0) - len(part) + max(0, len(digits) - MOST_DIGITS)
    rounded_up = bool(digits[MOST_DIGITS:].strip("0"))
    number = (int(digits[:MOST_DIGITS] or "0") + rounded_up) << TWOS.get(suffix, 0)
    value = min(times_ten_to(number, tens + 9), LARGEST * BILLION)
    return -value if sign == "-" else value


def bounded(exponent: str) -> int:
    """The exponent as a number. A very long text counts as a large exponent."""
    found = exponent.lstrip("+-").lstrip("0")
    power = int(found or "0") if len(found) <= 8 else 10**8
    return -power if exponent.startswith("-") else power


def times_ten_to(number: int, power: int) -> int:
    """`number` times ten to the `power`, rounded up. A value that is far too large or small is not computed."""
    tens: int = 10 ** min(abs(power), 2 * MOST_DIGITS)
    return number * tens if power >= 0 else -(-number // tens)


Amounts = Mapping[str, int]
NOTHING: Final[Amounts] = MappingProxyType({})
Written = tuple[tuple[str, str], ...]
"""Requests as in a manifest: (resource, quantity) pairs."""
Asked = tuple[tuple[Written, ...], tuple[tuple[Written, bool], ...], Written, Written]
"""Requests of one Pod: containers, init containers (each with: is it a sidecar?), overhead, the Pod as a whole."""
BINARY: Final = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
MOST_CONTAINERS: Final = 8
"""Containers of a Pod whose sum is remembered, at most."""
MOST_NAMES: Final = 8
"""Resources of a container whose sum is remembered, at most."""


def milli_of(written: str) -> int:
    """Thousandths of a quantity: `1500m` is 1500. Raises ValueError for any other text."""
    return -(-billionths_of(written) // 10**6)


def is_quantity(written: str) -> bool:
    try:
        milli_of(written)
    except ValueError:
        return False
    return True


def amounts(written: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Amounts by resource. Text that is no quantity is left out: the API server refuses objects with such text."""
    found = {}
    for name, amount in written:
        try:
            found[name] = milli_of(amount)
        except ValueError:
            continue
    return found


def written(resource: str, milli: int) -> str:
    """An amount as people write it: `1500m` of cpu, `4Gi` of memory."""
    if milli % 1000:
        return f"{milli}m"
    whole = milli // 1000
    is_bytes = resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-")
    fitting = (f"{whole // size}{unit}" for unit, size in BINARY if is_bytes and whole and whole % size == 0)
    return next(fitting, str(whole))


def added(some: Amounts, more: Amounts) -> dict[str, int]:
    return {name: some.get(name, 0) + more.get(name, 0) for name in {**some, **more}}


def add_to(total: dict[str, int], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def take_from(total: dict[str, int], gone: Amounts) -> None:
    """Takes away what was added. A resource of which 0 is left is removed."""
    for name, amount in gone.items():
        if name in total:
            total[name] -= amount
            if not total[name]:
                del total[name]


def less(some: Amounts, gone: Amounts) -> dict[str, int]:
    return {name: some[name] - gone.get(name, 0) for name in some}


def without(some: Amounts, gone: Amounts) -> dict[str, int]:
    """`some` less `gone`, without the resources of which 0 is left."""
    return {name: left for name in some if (left := some[name] - gone.get(name, 0))}


def highest(some: Amounts, more: Amounts) -> dict[str, int]:
    return {name: max(some.get(name, 0), more.get(name, 0)) for name in {**some, **more}}


def asked_by(asked: Asked) -> Amounts:
    """All requests of one Pod, and one Pod (`pods`). Pods with equal requests share the result: never change it."""
    is_plain = len(asked[0]) + len(asked[1]) <= MOST_CONTAINERS and all(len(one) <= MOST_NAMES for one in asked[0])
    return remembered(asked) if is_plain else total_of(asked)  # large requests of others must not fill the cache


@lru_cache(maxsize=4096)
def remembered(asked: Asked) -> Amounts:
    return total_of(asked)


def total_of(asked: Asked) -> Amounts:
    """The requests of one Pod. The work grows only with their number: anybody may write a Pod with thousands."""
    containers, init_containers, overhead, whole = asked
    total: dict[str, int] = {}
    peak: dict[str, int] = {}
    for written, is_sidecar in init_containers:
        for name, amount in amounts(written).items():
            now = total.get(name, 0) + amount
            if is_sidecar:
                total[name] = now
            peak[name] = max(peak.get(name, 0), now)
    for written in containers:
        add_to(total, amounts(written))
    everything = added({**highest(total, peak), **amounts(whole)}, amounts(overhead))
    return {**without(everything, {}), "pods": 1000}
