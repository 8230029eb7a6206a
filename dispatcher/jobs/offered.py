"""What the templates let rows set, as the table `templates` tells it. The trigger of INSERT judges rows by that table.

The rows are made from the templates that launches are judged by, so that both refuse the same. Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final

from dispatcher.jobs.templates import Template
from dispatcher.model.amounts import written
from dispatcher.model.templates import OfferedTemplate

DESCRIPTION: Final = "kubernetes.io/description"
"""The usual annotation for a description of an object. It becomes the note."""
LONGEST_NOTE: Final = 1000
MOST_TOLD: Final = 20
MOST_GLOBS: Final = 64
BRACKETS: Final = re.compile(r"\[(?!!)([A-Za-z0-9._/:@-]+)\]")


def offered_templates(templates: Mapping[str, Template | str], passed: Iterable[str]) -> list[OfferedTemplate]:
    """The table's rows, by name. `passed`: names of the variables that PASS_ENV hands to every container."""
    return [offered(name, template, frozenset(passed)) for name, template in sorted(templates.items())]


def offered(name: str, template: Template | str, passed: frozenset[str]) -> OfferedTemplate:
    """One row. A template that is a string is the fault of its file."""
    if isinstance(template, str):
        return OfferedTemplate(name, None, {}, (), (), (), note_of(template))
    described = ((template.manifest.get("metadata") or {}).get("annotations") or {}).get(DESCRIPTION, "")
    return OfferedTemplate(
        name=name,
        row_may_set=tuple(sorted(template.opened)),
        bounds=bounds_of(template),
        images=without_brackets(template.images),
        machines=without_brackets(template.machines),
        sets=tuple(sorted(template.taken | passed)),
        note=note_of(described),
    )


def without_brackets(globs: Iterable[str]) -> tuple[str, ...]:
    """The globs with a glob for each letter in brackets: LIKE has no brackets.

    A glob stays as it is if its brackets exclude letters, hold a wildcard, or have too many letters. SQL then refuses
    nothing by it.
    """
    return tuple(dict.fromkeys(one for glob in globs for one in written_out(glob)))


def written_out(glob: str) -> Sequence[str]:
    parts = BRACKETS.split(glob)
    if any("[" in part for part in parts[::2]):
        return [glob]
    choices = [letters_of(part) if at % 2 else [part] for at, part in enumerate(parts)]
    return ["".join(one) for one in product(*choices)] if prod(map(len, choices)) <= MOST_GLOBS else [glob]


def letters_of(inside: str) -> list[str]:
    """The letters that brackets mean, such as `ac-e_`."""
    letters, at = list[str](), 0
    while at < len(inside):
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            letters += map(chr, range(ord(inside[at]), ord(inside[at + 2]) + 1))
            at += 3
        else:
            letters.append(inside[at])
            at += 1
    return letters


def bounds_of(template: Template) -> dict[str, str | int]:
    """The bounds. Without one that is finer than a thousandth: SQL judges only what it can compare exactly."""
    found: dict[str, str | int] = {"seconds": template.max_seconds}
    for resource, most in (("cpu", template.max_cpu), ("memory", template.max_memory)):
        if most is not None and (most * 1000).denominator == 1:
            found[resource] = written(resource, (most * 1000).numerator)
    return found


def note_of(words: Any) -> str:
    return " ".join(str(words).replace("\0", " ").split())[:LONGEST_NOTE]


def differences(ours: Sequence[OfferedTemplate], table: Sequence[OfferedTemplate]) -> list[str]:
    """What the dispatcher's templates and the janitor's table do not have alike, one text a template.

    Nothing if the table is empty: no janitor has written it, and INSERT judges nothing by it.
    """
    here, there = ({one.name: one for one in rows} for rows in (ours, table))
    if not there:
        return []
    told = [
        f'template "{name}": {what}'
        for name in sorted({*here, *there})
        if (what := difference(here.get(name), there.get(name)))
    ]
    rest = len(told) - MOST_TOLD
    return told if rest <= 0 else [*told[:MOST_TOLD], f"and {rest} more"]


def difference(here: OfferedTemplate | None, there: OfferedTemplate | None) -> str:
    """The difference of one template in words; empty: there is none."""
    if here is None:
        return "the janitor has it, the dispatcher has not: its rows wait"
    if there is None:
        return "the dispatcher has it, the janitor has not: INSERT refuses its rows"
    fields = [field for field in OfferedTemplate.__struct_fields__ if getattr(here, field) != getattr(there, field)]
    return f"the dispatcher and the janitor differ in {', '.join(fields)}" if fields else ""
