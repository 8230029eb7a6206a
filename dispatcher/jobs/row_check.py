"""The first check of rows: judges a kind of row by its template, and the columns of a row without a database. Pure.

`judge_kind`: a kind is judged once for all its rows, so that ten thousand bad rows cost ten thousand look-ups.

`column_faults`: checks the columns of `dispatcher render --file F --row JSON`. INSERT refuses what is refused here;
tests/integration/test_row_columns.py compares both. INSERT refuses more, because it knows the queues, the existing
rows, and the sizes of values (UNCHECKED).
"""

import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from dispatcher.jobs.env import NOT_OPENED, env_denials
from dispatcher.jobs.manifest import PlacedBy, plan_needs
from dispatcher.jobs.templates import LEAST_BYTES, Template
from dispatcher.model.launches import Offer
from dispatcher.model.resources import parse_quantity
from dispatcher.model.resources import written as in_words
from dispatcher.model.tasks import Kind
from dispatcher.model.verdicts import Hold, HoldReason

PLACED_BY: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "schedulerName",
    "topologySpreadConstraints",
    "priorityClassName",
    "resources",
    "runtimeClassName",
    "nodeName",
    "volumes",
    "hostNetwork",
    "overhead",
    "resourceClaims",
    "schedulingGates",
)


NO_TEMPLATE: Final = "set DISPATCHER_IMAGE, or put default.yaml into DISPATCHER_TEMPLATES_DIR"


def judge_kind(
    kind: Kind, templates: Mapping[str, Template | str], passed: frozenset[str], placed_by: PlacedBy
) -> Offer | Hold:
    """The offer for rows of this kind, or their hold. A template that is a string is the fault of its file."""
    template = templates.get(kind.template)
    if template is None:
        known = ", ".join(sorted(templates))[:300] or f"none: {NO_TEMPLATE}"
        return Hold(HoldReason.UNKNOWN_TEMPLATE, f'template "{kind.template}" is not known; known: {known}')
    if isinstance(template, str):
        return Hold(HoldReason.INVALID_TEMPLATE, template)
    denied = kind.fault or why_denied(kind, template, passed)
    if denied:
        return Hold(HoldReason.POLICY_DENIED, denied)
    return offer_of(kind, template, placed_by)


def offer_of(kind: Kind, template: Template, placed_by: PlacedBy) -> Offer:
    """The offer for rows of a kind that breaks no bound."""
    image = kind.spec.get("image", template.task_container.get("image", ""))
    needs = plan_needs(template, kind.spec, placed_by)
    return Offer(image, plan_shape(template, kind.spec), template.name, needs)


def why_denied(kind: Kind, template: Template, passed: frozenset[str]) -> str:
    """The first bound that the kind breaks; empty: none."""
    return next(denials(kind, template, passed), "")


def denials(kind: Kind, template: Template, passed: frozenset[str]) -> Iterator[str]:
    """The bounds that the kind breaks."""
    whose, may_set = f'template "{template.name}"', ", ".join(sorted(template.opened))[:300] or "nothing"
    for closed in sorted(kind.spec_names - template.opened):
        yield f"{whose} does not open spec.{closed}; rows of it may set: {may_set}"
    if template.needs_image and "image" not in kind.spec_names:
        yield f"{whose} has no image, so spec.image is needed: one of {', '.join(template.images)[:300]}"
    if kind.timeout_seconds is not None and kind.timeout_seconds > template.max_seconds:
        yield f"timeout_seconds {kind.timeout_seconds} is over the {template.max_seconds} of {whose}"
    opened = {name: value for name, value in kind.spec.items() if name in template.opened}
    yield from filter(None, (
        check_image(opened.get("image"), template),
        check_amount("cpu", opened.get("cpu"), template),
        check_amount("memory", opened.get("memory"), template),
        check_machine("private_machine", opened, template),
        check_machine("special_machine", opened, template),
    ))  # fmt: skip
    for told in env_denials(kind.env_names, template.opened, template.taken | passed):
        is_closed = told.startswith(NOT_OPENED)
        yield f"{whose}{told.removeprefix(NOT_OPENED)}; rows of it may set: {may_set}" if is_closed else told


def check_image(image: str | None, template: Template) -> str:
    if image is None:
        return ""
    # A glob's `*` also matches "/", so a path with ".." could leave the folder that the glob names.
    fine = ".." not in image and "//" not in image and any(fnmatchcase(image, glob) for glob in template.images)
    return "" if fine else f"spec.image is none of the template's {', '.join(template.images)}"


def check_machine(field: str, spec: Mapping[str, str], template: Template) -> str:
    """Why a row may not name this machine; empty: it may. Machines belong to teams, so templates list theirs."""
    if field not in spec or any(fnmatchcase(spec[field], glob) for glob in template.machines):
        return ""
    return f"spec.{field} is none of the template's machines: {', '.join(template.machines) or 'it has none'}"


def check_amount(resource: str, written: str | None, template: Template) -> str:
    if written is None:
        return ""
    most = template.max_cpu if resource == "cpu" else template.max_memory
    try:
        amount = parse_quantity(written)
    except ValueError as fault:
        return f"spec.{resource}: {fault}"
    if amount <= 0:
        return f"spec.{resource} must be above 0"
    if resource == "memory" and amount < LEAST_BYTES:
        return f"spec.memory {written[:40]} is less than 1Mi: it lacks its unit"
    if most is None:
        return f'template "{template.name}" has no bound of {resource}, so rows may not set it'
    bound = in_words(resource, int(most * 1000))
    return f'spec.{resource} {written[:40]} is over the {bound} of template "{template.name}"' if amount > most else ""


def plan_shape(template: Template, spec: Mapping[str, str]) -> str:
    """Digest of resources and placement constraints. Pods of one shape fit the same nodes.

    Labels and annotations are part of it: affinity of other Pods goes by labels, and webhooks go by both.
    """
    pod: Mapping[str, Any] = template.pod_spec
    said = template.manifest["spec"]["template"].get("metadata") or {}
    containers = [
        [(one.get("resources"), one.get("ports"), one.get("restartPolicy")) for one in pod.get(kind) or ()]
        for kind in ("containers", "initContainers")
    ]
    constraints = {field: pod[field] for field in PLACED_BY if field in pod}
    chosen = {name: spec[name] for name in ("cpu", "memory", "private_machine", "special_machine") if name in spec}
    parts = (containers, template.container, constraints, chosen, said.get("labels"), said.get("annotations"))
    written = msgspec.json.encode(parts, order="deterministic")
    return hashlib.sha256(written).hexdigest()[:16]


UNCHECKED: Final = (
    "whether the queue is declared and open to you, whether a dedupe_key is free, how many rows you may have, "
    "whether run_at is a time, and the sizes of env, spec, labels and payload"
)
Key = Annotated[str, Meta(min_length=1, max_length=200)]
Words = Annotated[list[str], Meta(max_length=1000)]
Machine = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")]
AMOUNT: Final = r"^[0-9]{1,18}(\.[0-9]{1,9})?(%sk|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?\Z"
COLUMNS: Final[Mapping[str, Any]] = {
    "queue": str,
    "priority": Annotated[int, Meta(ge=0, le=1000)],
    "run_at": str | None,
    "timeout_seconds": Annotated[int, Meta(ge=1, le=604800)] | None,
    "max_failures": Annotated[int, Meta(ge=1, le=100)] | None,
    "template": str,
    "env": Annotated[dict[str, Any], Meta(max_length=64)],
    "spec": dict[str, Any],
    "payload": Any,
    "cache_key": Key | None,
    "dedupe_key": Key | None,
    "batch": Key | None,
    "labels": Annotated[dict[Annotated[str, Meta(min_length=1, max_length=63)], Any], Meta(max_length=16)],
}  # fmt: skip
SPEC: Final[Mapping[str, Any]] = {
    "image": Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*\Z", max_length=512)],
    "command": Words,
    "args": Words,
    "cpu": Annotated[str, Meta(pattern=AMOUNT % "m|")],
    "memory": Annotated[str, Meta(pattern=AMOUNT % "")],
    "private_machine": Machine,
    "special_machine": Machine,
}
KEPT: Final = frozenset({
    "id", "status", "attempt", "launch", "failures", "job_uid", "submitted_by", "created_at", "started_at",
    "heartbeat_at", "finished_at", "cancel_requested_at", "node_name", "pod_name", "error", "result", "progress",
    "note", "run_digest", "kind",
})  # fmt: skip


def column_faults(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, fault) for each column that INSERT would refuse."""
    yield from faults_of(row, COLUMNS, "the columns that a row may set")
    spec, env, labels = (
        found if isinstance(found := row.get(name), dict) else {} for name in ("spec", "env", "labels")
    )
    inner = {
        "spec": faults_of(spec, SPEC, "the keys of spec"),
        "env": faults_of(env, dict.fromkeys(env, str), ""),
        "labels": faults_of(labels, dict.fromkeys(labels, Annotated[str, Meta(max_length=200)]), ""),
    }
    for column, faults in inner.items():
        yield from ((f"{column}.{name}", words) for name, words in faults)


def faults_of(given: Mapping[str, Any], types: Mapping[str, Any], whose: str) -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        if name not in types:
            yield name, unknown(name, types, whose)
            continue
        try:
            msgspec.convert(value, types[name], strict=True)
        except msgspec.ValidationError as fault:
            yield name, re.sub(r" - at `\$(.*)`$", r" (at \1)", str(fault))


def unknown(name: str, types: Mapping[str, Any], whose: str) -> str:
    if name in KEPT and types is COLUMNS:
        return "the functions of the database keep this column; a submitter may not set it"
    near = difflib.get_close_matches(name, types, 1, 0.5)
    return f"not among {whose}; " + (f"did you mean {near[0]}?" if near else f"they are {', '.join(types)}")
