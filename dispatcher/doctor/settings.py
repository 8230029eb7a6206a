"""Judges the settings. A value that cannot be read ends every program, so only unknown names are left to find."""

from collections.abc import Iterator, Sequence

from dispatcher.doctor.finding import Finding, fault, good


def judge_settings(unknown: Sequence[str]) -> Iterator[Finding]:
    """`unknown`: the warnings of loading, each of which begins with the name of a variable."""
    for said in unknown:
        name, _, rest = said.partition(" ")
        yield fault("UnknownSetting", name, rest, name=name)
    if not unknown:
        yield good("UnknownSetting", "environment")
