"""The output of a benchmark: a table, a verdict for each figure, and on request a line in `records.jsonl`.

Each figure has a limit, which comes from the same run. Its strain is its relation to that limit: 1 is the limit, less
is better, for floors and ceilings alike. A figure within its limit is `reached`, any other is `missed`. A missed figure
fails the run. Exception: the newest recorded runs miss it too, on average, and the strain is at most a fifth above
theirs. Then the promise is open, and the gate only keeps it from getting worse.
"""

import argparse
import asyncio
import os
import platform
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import msgspec
from msgspec import Struct

RECORDS = Path(__file__).parent / "records.jsonl"
WORSE = 1.2
NEWEST = 3
"""Recorded runs in the mean. Older runs are of a program that was slower, or measured less honestly."""
LOAD_BEFORE = os.getloadavg()[0]
"""Load of the machine before the run. Above about 1 the ratios are noisy, and absolute figures mean nothing."""


class Figure(Struct, frozen=True):
    """One measured promise. `at_least`: the limit is a floor."""

    name: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def strain(self) -> float:
        over, under = (self.limit, self.value) if self.at_least else (self.value, self.limit)
        return over / under if under else 1 + over  # with limit 0 any value is too much

    @property
    def is_reached(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


class Record(Struct, frozen=True, omit_defaults=True, rename={"context": "beside"}):
    """One recorded run of one benchmark. `context`: values without a limit, for comparison or as an explanation."""

    benchmark: str
    date: datetime
    cores: int
    versions: Mapping[str, str]
    figures: Sequence[Figure]
    context: Mapping[str, float] = {}


def read_records(benchmark: str) -> list[Record]:
    lines = RECORDS.read_bytes().splitlines() if RECORDS.exists() else []
    records = [msgspec.json.decode(line, type=Record) for line in lines]
    return [record for record in records if record.benchmark == benchmark]


def gate_of(figure: Figure, records: Sequence[Record]) -> float:
    """The strain above which a run fails: 1, or a fifth above the recorded mean if that misses the promise."""
    known = [one.strain for record in records for one in record.figures if one.name == figure.name][-NEWEST:]
    return fmean(known) * WORSE if known and fmean(known) > 1 else 1


def tell(benchmark: str, figures: Sequence[Figure], context: Mapping[str, float], versions: Mapping[str, str]) -> int:
    """Prints the table, and records the run on request. Returns the exit status; 1: a gate failed."""
    records, context = read_records(benchmark), {**context, "load average before the run": LOAD_BEFORE}
    print(f"\n{benchmark}")
    print(f"  {'figure':44} {'measured':>10}   {'target':>10}  {'ratio':>6}  verdict")
    for figure in figures:
        sign = ">=" if figure.at_least else "<="
        ratio = f"{figure.value / figure.limit:.2f}" if figure.limit else "-"
        columns = f"{figure.value:>10.4g} {sign}{figure.limit:>10.4g}  {ratio:>6}"
        print(f"  {figure.name:44} {columns}  {verdict(figure, gate_of(figure, records))}")
    for name, value in context.items():
        print(f"  {name:44} {value:>10.4g}")
    if is_recording():
        now = datetime.now(UTC).replace(microsecond=0)
        record = Record(
            benchmark, now, os.cpu_count() or 0, {"python": platform.python_version(), **versions}, figures, context
        )
        with RECORDS.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
    return int(any(not figure.is_reached and figure.strain > gate_of(figure, records) for figure in figures))


def verdict(figure: Figure, gate: float) -> str:
    if figure.is_reached:
        return "reached"
    if gate == 1:
        return "missed"
    kept = "no worse than recorded" if figure.strain <= gate else "worse than recorded"
    return f"missed ({kept}: {figure.strain:.2f} of its limit, gate {gate:.2f})"


def run(work: Callable[[], Coroutine[None, None, int]]) -> None:
    """Runs a benchmark as a program. Its exit status says whether a gate failed."""
    is_recording()  # a wrong argument fails now, not after minutes
    raise SystemExit(asyncio.run(work()))


def is_recording() -> bool:
    asked = argparse.ArgumentParser(description="Measures one promise.")
    asked.add_argument("--record", action="store_true", help="append the run to records.jsonl")
    return bool(asked.parse_args().record)


def percentile(values: Sequence[float], part: float) -> float:
    """The percentile `part` (0 to 1). Rounds to the larger neighbour, which flatters small samples less."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
