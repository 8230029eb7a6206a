"""Checks new objects: finds all faults at once, by field, in the words of the API server.

The tables have those rules that a template or a row may break. `fields` has the names of fields, `api` their types.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from dispatcher.model.resources import parse_quantity
from dispatcher.model.stored_json import Json
from dispatcher_demo.cluster.kinds import JOB, NAMESPACE, POD, FieldCause, ObjectKind, invalid

Causes = Iterator[FieldCause]
Test = Callable[[Any], bool]
Rule = tuple[str, str, str, Test]
"""Path (see `places`), reason, message, test of a right value. A missing field breaks only REQUIRED."""
REQUIRED, INVALID, UNSUPPORTED, TWICE, NO_SUCH = (
    f"FieldValue{what}" for what in ("Required", "Invalid", "NotSupported", "Duplicate", "NotFound")
)
NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
KEY: Final = re.compile(rf"([a-z0-9.-]{{1,253}}/)?{NAME.pattern}")
RESOURCES: Final = {"cpu", "memory", "ephemeral-storage"}


def shaped(pattern: str, longest: int) -> Test:
    return lambda text: len(text) <= longest and bool(re.fullmatch(pattern, text))


def at_least(least: int) -> Test:
    return lambda number: number >= least


def one_of(*known: str) -> Test:
    return lambda text: text in known


def are_keys(held: Mapping[str, Any]) -> bool:
    return all(KEY.fullmatch(key) for key in held)


def are_labels(held: Mapping[str, str]) -> bool:
    return are_keys(held) and all(not value or NAME.fullmatch(value) for value in held.values())


SUBDOMAIN: Final = shaped("[a-z0-9]([a-z0-9.-]*[a-z0-9])?", 253)
LABEL: Final = shaped("[a-z0-9]([a-z0-9-]*[a-z0-9])?", 63)
LABELS: Final[Rule] = ("labels", INVALID, "a qualified name, and at most 63 characters", are_labels)
META: Final[tuple[Rule, ...]] = (
    LABELS,
    ("annotations", INVALID, "qualified names", lambda held: are_keys({key.lower(): "" for key in held})),
)
JOB_RULES: Final[tuple[Rule, ...]] = (
    *((field, INVALID, "must be greater than or equal to 0", at_least(0)) for field in (
        "parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"
    )),
    ("completionMode", UNSUPPORTED, "NonIndexed, Indexed", one_of("NonIndexed", "Indexed")),
    ("podFailurePolicy.rules[].action", UNSUPPORTED, "FailJob, FailIndex, Ignore, Count",
     one_of("FailJob", "FailIndex", "Ignore", "Count")),
)  # fmt: skip
POD_RULES: Final[tuple[Rule, ...]] = (
    ("nodeSelector", INVALID, "qualified names", are_keys),
    ("tolerations[].operator", UNSUPPORTED, "Equal, Exists, Lt, Gt", one_of("", "Equal", "Exists", "Lt", "Gt")),
    ("activeDeadlineSeconds", INVALID, "must be between 1 and 2147483647, inclusive", at_least(1)),
    ("volumes[].name", REQUIRED, "Required value", bool),
    ("volumes[].name", INVALID, "a lowercase RFC 1123 label is required", LABEL),
    ("containers", REQUIRED, "Required value", bool),
)
CONTAINER_RULES: Final[tuple[Rule, ...]] = (
    ("name", REQUIRED, "Required value", bool),
    ("name", INVALID, "a lowercase RFC 1123 label is required", LABEL),
    ("image", REQUIRED, "Required value", bool),
    ("imagePullPolicy", UNSUPPORTED, "Always, IfNotPresent, Never", one_of("Always", "IfNotPresent", "Never")),
    ("env[].name", REQUIRED, "Required value", bool),
    ("env[].name", INVALID, "only printable ASCII characters except '='", shaped("[ -<>-~]*", 2**20)),
    ("envFrom[].configMapRef.name", REQUIRED, "Required value", bool),
    ("envFrom[].secretRef.name", REQUIRED, "Required value", bool),
    ("volumeMounts[].mountPath", REQUIRED, "Required value", bool),
)


def check_object(kind: ObjectKind, whole: Json) -> None:
    """Raises ApiFault 422 if the object is invalid."""
    causes = [*faults_of_name(kind, whole["metadata"]["name"]), *faults_of_body(kind, whole)]
    if causes:
        raise invalid(kind, whole["metadata"]["name"], causes)


def broken(rules: tuple[Rule, ...], held: Json, at: str) -> Causes:
    for path, reason, words, is_right in rules:
        for where, value in places(held, path, at):
            if not is_right(value) if value not in (None, "") else reason == REQUIRED:
                yield FieldCause(where, reason, words if reason == REQUIRED else f"{wrong_value(value)}: {words}")


def wrong_value(value: object) -> str:
    return f"Invalid value: {value!r}"


def places(held: Json, path: str, at: str) -> Iterator[tuple[str, Any]]:
    """Each value at the path, with its position. `a[].b` is the b of each a. None: an existing object lacks it."""
    step, _, rest = path.partition(".")
    name = step.removesuffix("[]")
    found, where = held.get(name), f"{at}.{name}"
    each = [(where, found)] if name == step else [(f"{where}[{n}]", one) for n, one in enumerate(found or [])]
    for where, one in each:
        if not rest:
            yield where, one
        elif one is not None:
            yield from places(one, rest, where)


def faults_of_name(kind: ObjectKind, name: str) -> Causes:
    if not (LABEL if kind is NAMESPACE else SUBDOMAIN)(name):
        yield FieldCause("metadata.name", INVALID, f"{wrong_value(name)}: a lowercase RFC 1123 subdomain is required")


def faults_of_body(kind: ObjectKind, whole: Json) -> Causes:
    meta, spec = whole["metadata"], whole.get("spec") or {}
    # A Job without labels has those of its template, whose faults are found there.
    is_of_template = kind is JOB and meta["labels"] == spec["template"]["metadata"]["labels"]
    yield from broken(META[1:] if is_of_template else META, meta, "metadata")
    if kind is JOB:
        yield from faults_of_job(spec)
    elif kind is POD:
        yield from faults_of_pod(spec, "spec")


def faults_of_job(spec: Json) -> Causes:
    template, restart = spec["template"], spec["template"]["spec"]["restartPolicy"]
    yield from broken(JOB_RULES, spec, "spec")
    yield from broken(META, template["metadata"], "spec.template")
    where = "spec.template.spec.restartPolicy"
    if restart not in {"Never", "OnFailure"}:
        reason = REQUIRED if restart in {None, "Always"} else UNSUPPORTED
        yield FieldCause(where, reason, f'Unsupported value: "{restart}": supported values: "OnFailure", "Never"')
    elif spec.get("podFailurePolicy") and restart != "Never":
        yield FieldCause(where, INVALID, "only Never is supported when podFailurePolicy is specified")
    yield from faults_of_pod(template["spec"], "spec.template.spec")


def faults_of_pod(spec: Json, at: str) -> Causes:
    yield from broken(POD_RULES, spec, at)
    yield from duplicates([*places(spec, "volumes[].name", at)], TWICE)
    containers = [*places(spec, "initContainers[]", at), *places(spec, "containers[]", at)]
    yield from duplicates([(f"{where}.name", one.get("name")) for where, one in containers], TWICE)
    for where, container in containers:
        yield from broken(CONTAINER_RULES, container, where)
        yield from faults_of_mounts(container, where, {name for _, name in places(spec, "volumes[].name", at)})
        for place, variable in places(container, "env[]", where):
            if variable.get("value") and variable.get("valueFrom") is not None:
                yield FieldCause(f"{place}.valueFrom", INVALID, "may not be specified when `value` is not empty")
        yield from faults_of_resources(container["resources"], f"{where}.resources")


def duplicates(named: list[tuple[str, Any]], reason: str) -> Causes:
    names = [name for _, name in named]
    for number, (where, name) in enumerate(named):
        if name and name in names[:number]:
            yield FieldCause(where, reason, f"{wrong_value(name)}: must be unique")


def faults_of_mounts(container: Json, at: str, volumes: set[str]) -> Causes:
    yield from duplicates([*places(container, "volumeMounts[].mountPath", at)], INVALID)
    for where, name in places(container, "volumeMounts[].name", at):
        if name not in volumes:
            yield FieldCause(where, NO_SUCH, f"Not found: {name!r}")


def faults_of_resources(resources: Json, at: str) -> Causes:
    sides = {side: resources.get(side) or {} for side in ("requests", "limits")}
    for side, amounts in sides.items():
        for name, amount in amounts.items():
            if "/" not in name and name not in RESOURCES:
                yield FieldCause(f"{at}.{side}[{name}]", INVALID, f"{wrong_value(name)}: must be a standard resource")
            elif amount_of(amount) < 0:
                words = f"{wrong_value(amount)}: must be greater than or equal to 0"
                yield FieldCause(f"{at}.{side}[{name}]", INVALID, words)
    for name, most in sides["limits"].items():
        if amount_of(sides["requests"].get(name, most)) > amount_of(most):
            yield FieldCause(f"{at}.requests", INVALID, f"must be less than or equal to {name} limit of {most}")


def amount_of(written: str | float) -> Fraction:
    """The quantity. `api.check_types` has refused any other text before."""
    return parse_quantity(str(written))
