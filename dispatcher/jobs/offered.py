"""What the templates let rows set, for the table `templates`; and whether a Job can be built of a template. Pure.

`offered_templates`: the trigger of INSERT judges rows by the table. The rows of the table are made from the templates
that judge launches, so that both refuse the same.

`why_unusable`: makes Jobs of a template when it is read, with each sort of placement. The checks of a template know the
parts that a Job is built from. No list of such checks is complete: a blank that helm or envsubst left may stand
anywhere. A template that cannot be built is faulty. It must never end a cycle, which launches the rows of all teams.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final

import msgspec

from dispatcher.jobs.manifest import JobSite, PlacedBy, build_job
from dispatcher.jobs.policy import check_job
from dispatcher.jobs.row_check import offer_of
from dispatcher.jobs.templates import Template
from dispatcher.model.caches import Placement, Pool
from dispatcher.model.cluster import LONG_AGO
from dispatcher.model.launches import NO_KEY, Launch, LaunchSpec
from dispatcher.model.resources import written
from dispatcher.model.tasks import Kind, OfferedTemplate, Request, Status, Task
from dispatcher.settings.definition import PlacementSettings

DESCRIPTION: Final = "kubernetes.io/description"
"""The usual annotation for a description of an object. It becomes the note."""
LONGEST_NOTE: Final = 1000
"""Characters of a note, at most."""
MOST_TOLD: Final = 20
"""Differences that are listed, at most."""
MOST_GLOBS: Final = 64
"""Globs that one glob with brackets may become, at most."""
BRACKETS: Final = re.compile(r"\[(?!!)([A-Za-z0-9._/:@-]+)\]")


def offered_templates(templates: Mapping[str, Template | str], passed: Iterable[str]) -> list[OfferedTemplate]:
    """The rows of the table, by name. `passed`: names of the variables that PASS_ENV hands to every container."""
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
    """The globs, with one glob for each letter in brackets: LIKE has no brackets.

    A glob stays unchanged if its brackets exclude letters, hold a wildcard, or have too many letters. SQL then refuses
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
    """The bounds. A bound finer than a thousandth is left out: SQL judges only what it can compare exactly.

    image: rows have to name one.
    """
    found: dict[str, str | int] = {"seconds": template.max_seconds}
    for resource, most in (("cpu", template.max_cpu), ("memory", template.max_memory)):
        if most is not None and (most * 1000).denominator == 1:
            found[resource] = written(resource, (most * 1000).numerator)
    once = template.report == "exit-code"  # an image that cannot report may not bear a second run, either
    more = {"bytes": template.max_bytes, "failures": template.max_failures or int(once)}
    found |= {name: number for name, number in more.items() if number}
    return found | ({"image": "needed"} if template.needs_image else {})


def note_of(words: Any) -> str:
    return " ".join(str(words).replace("\0", " ").split())[:LONGEST_NOTE]


def differences(ours: Sequence[OfferedTemplate], table: Sequence[OfferedTemplate]) -> list[str]:
    """The differences between the dispatcher's templates and the janitor's table, one text for each template.

    An empty table has no differences: no janitor has written it, and INSERT judges nothing by it.
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


CACHES: Final = "/caches"
"""The cache root of the trial."""
SITE: Final = JobSite("dispatcher", "default", 3600, PlacementSettings(cache_root=CACHES), {})
"""The settings of the trial."""


PLACEMENTS: Final = (
    Placement(),
    Placement(pool=Pool("example.com/pool", "a", is_private=True)),
    Placement(preferred=("node-1",), avoided=("node-2",), cache_path=f"{CACHES}/dispatcher/{'0' * 40}"),
)
"""One placement of each sort."""


UNREAD: Final = PlacedBy(needs_of=lambda _: None)
"""The trial builds Jobs, and nobody looks for room for them."""


UNBUILT: Final = (
    AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError, msgspec.ValidationError,
)  # fmt: skip
"""The exceptions of parts that have another shape than expected."""


def why_unusable(template: Template) -> str:
    """Why no Job can be built of the template; empty: one can. Bounds that a row breaks do not count."""
    task, asks_nothing = a_row(template.name), Kind(b"", template.name, None, {}, frozenset(), frozenset())
    try:
        offer = offer_of(asks_nothing, template, UNREAD)
        for placement in PLACEMENTS:
            order = LaunchSpec(task, Request(1, 1, {}, {}, None), Launch(1), offer, NO_KEY, placement, NO_KEY)
            check_job(build_job(order, template, SITE), order, template, SITE)
    except UNBUILT as fault:
        return f"template {template.name}: a part is blank or of another type, and no Job can be made: {fault!r}"
    return ""


def a_row(template: str) -> Task:
    """A row as INSERT makes it, if it names a template and sets nothing else."""
    return Task(
        id=1, queue="default", priority=100, run_at=None, timeout_seconds=None, max_failures=3, template=template,
        status=Status.WAITING, attempt=1, launch=0, failures=0, job_uid=None, pod_name=None, submitted_by="somebody",
        created_at=LONG_AGO, started_at=None, heartbeat_at=None, finished_at=None, cancel_requested_at=None, kind=b"",
    )  # fmt: skip
