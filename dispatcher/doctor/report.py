"""The findings as text, as JSON and as an exit status."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from dispatcher.doctor.check import Part
from dispatcher.doctor.checks import CHECKS
from dispatcher.doctor.finding import Finding, State

SHOUTED = {State.FAULT: "FAULT", State.WARNING: "warning"}


class Report(Struct, frozen=True):
    """All findings, by part. `faults`: how many of them are faults."""

    installation: str
    version: str
    faults: int
    findings: tuple[Finding, ...]


def exit_status(findings: Sequence[Finding]) -> int:
    return 1 if any(one.state is State.FAULT for one in findings) else 0


def in_words(findings: Sequence[Finding]) -> str:
    """One part after the other: faults first, then warnings, what was not checked, and what is good."""
    return "\n".join(line for part in Part for line in of_part(part, findings))


def of_part(part: Part, findings: Sequence[Finding]) -> Iterator[str]:
    own = [one for one in findings if one.part is part]
    if not own:
        return
    counts = ", ".join(f"{n} {state}" for state in State if (n := sum(one.state is state for one in own)))
    yield f"{part}: {counts}"
    for state, word in SHOUTED.items():
        for one in own:
            if one.state is state:
                yield f"  {word} {one.what}: {one.where}: {one.message}"
                yield f"    why: {one.why}"
                yield f"    mend: {one.mend}"
    for one in own:
        if one.state is State.NOT_CHECKED:
            yield f"  not checked {one.what}: {one.where}: {one.message}"
    for name in dict.fromkeys(one.what for one in own if one.state is State.GOOD):
        places = [one.where for one in own if one.state is State.GOOD and one.what == name]
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield f"  good: {CHECKS[name].asks} ({places[0]}{more})"
