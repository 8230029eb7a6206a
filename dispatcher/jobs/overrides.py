"""The first check of rows: judges a kind of row against the bounds of its template.

A kind is judged once for all its rows, so that ten thousand bad rows cost ten thousand look-ups in a dictionary.
"""

import hashlib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from dispatcher.jobs.env import env_denials
from dispatcher.jobs.needs import NOT_PLACED, PlacedBy, plan_needs
from dispatcher.jobs.templates import Template
from dispatcher.model.launches import Offer
from dispatcher.model.quantity import parse_quantity
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
)


def judge_kind(
    kind: Kind, templates: Mapping[str, Template | str], passed: frozenset[str], placed_by: PlacedBy = NOT_PLACED
) -> Offer | Hold:
    """The offer for rows of this kind, or why they are held. A template that is a string is the fault of its file."""
    template = templates.get(kind.template)
    if template is None:
        known = ", ".join(sorted(templates)) or "none"
        return Hold(HoldReason.UNKNOWN_TEMPLATE, f'template "{kind.template}" is not known; known: {known}')
    if isinstance(template, str):
        return Hold(HoldReason.INVALID_TEMPLATE, template)
    denied = why_denied(kind, template, passed)
    if denied:
        return Hold(HoldReason.POLICY_DENIED, denied)
    image = kind.spec.get("image", template.task_container.get("image", ""))
    needs = plan_needs(template, kind.spec, placed_by)
    return Offer(image, plan_shape(template, kind.spec), template.name, needs)


def why_denied(kind: Kind, template: Template, passed: frozenset[str]) -> str:
    """The first bound that the kind breaks; empty: none."""
    return next(denials(kind, template, passed), "")


def denials(kind: Kind, template: Template, passed: frozenset[str]) -> Iterator[str]:
    """The bounds that the kind breaks."""
    for closed in sorted(kind.spec_names - template.opened):
        yield f'template "{template.name}" does not open spec.{closed}'
    if kind.timeout_seconds is not None and kind.timeout_seconds > template.max_seconds:
        yield f"timeout_seconds {kind.timeout_seconds} is over the template's {template.max_seconds}"
    opened = {name: value for name, value in kind.spec.items() if name in template.opened}
    yield from filter(None, (
        check_image(opened.get("image"), template),
        check_amount("cpu", opened.get("cpu"), template),
        check_amount("memory", opened.get("memory"), template),
        check_machine("private_machine", opened, template),
        check_machine("special_machine", opened, template),
    ))  # fmt: skip
    yield from env_denials(kind.env_names, template.opened, template.taken | passed)


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
    return f"spec.{resource} {written} is over the template's bound" if most is None or amount > most else ""


def plan_shape(template: Template, spec: Mapping[str, str]) -> str:
    """Digest of resources and placement constraints. Pods of one shape fit the same nodes."""
    pod: Mapping[str, Any] = template.pod_spec
    containers = [container.get("resources") for container in (*pod["containers"], *(pod.get("initContainers") or ()))]
    constraints = {field: pod[field] for field in PLACED_BY if field in pod}
    chosen = {name: spec[name] for name in ("cpu", "memory", "private_machine", "special_machine") if name in spec}
    written = msgspec.json.encode([containers, template.container, constraints, chosen], order="deterministic")
    return hashlib.sha256(written).hexdigest()[:16]
