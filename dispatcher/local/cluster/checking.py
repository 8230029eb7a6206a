"""What makes an object invalid: every fault of it at once, by field, as the API server names them.

Of all its rules those that a template or a row may run into; `fields` has the names and types of fields.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dispatcher.errors import DispatcherError
from dispatcher.local.cluster.faults import Cause, invalid
from dispatcher.local.cluster.kinds import JOB, LEASE, NAMESPACE, POD, Kind
from dispatcher.quantity import parse_quantity

Json = dict[str, Any]
LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
SUBDOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
KEY: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
ENV_NAME: Final = re.compile(r"[ -<>-~]+")
REQUIRED, INVALID, UNSUPPORTED, TWICE, NO_SUCH, FORBIDDEN = (
    "FieldValueRequired", "FieldValueInvalid", "FieldValueNotSupported", "FieldValueDuplicate", "FieldValueNotFound",
    "FieldValueForbidden",
)  # fmt: skip
MUTABLE_IN_PODS: Final = frozenset(
    {"activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates"}
)
IMMUTABLE_IN_JOBS: Final = (
    "template",
    "selector",
    "completions",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
)
RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
OWN_FINALIZERS: Final = frozenset({"foregroundDeletion", "orphan", "kubernetes"})
Causes = Iterator[Cause]


def check_object(kind: Kind, whole: Json) -> None:
    """ApiFault 422: it may not be made."""
    causes = [*faults_of_meta(kind, whole["metadata"]), *faults_of_body(kind, whole)]
    if kind is not JOB or whole["metadata"]["labels"] != whole["spec"]["template"]["metadata"]["labels"]:
        causes += faults_of_labels(whole["metadata"], "metadata")  # those of its template are told there
    causes += faults_of_annotations(whole["metadata"], "metadata")
    if causes:
        raise invalid(kind.group, kind.kind, whole["metadata"]["name"], causes)


def check_update(kind: Kind, before: Json, after: Json) -> None:
    """ApiFault 422: it may not become that."""
    causes = [*faults_of_labels(after["metadata"], "metadata"), *faults_of_change(kind, before, after)]
    old, new = (set(one["metadata"].get("finalizers") or []) for one in (before, after))
    if "deletionTimestamp" in before["metadata"] and new - old:
        words = "no new finalizers can be added if the object is being deleted"
        causes.append(Cause("metadata.finalizers", FORBIDDEN, words))
    if causes:
        raise invalid(kind.group, kind.kind, before["metadata"]["name"], causes)


def faults_of_change(kind: Kind, before: Json, after: Json) -> Causes:
    old, new = before.get("spec") or {}, after.get("spec") or {}
    if kind is JOB:
        for field in IMMUTABLE_IN_JOBS:
            if old.get(field) != new.get(field):
                where = f"spec.{field}.spec" if field == "template" else f"spec.{field}"
                yield Cause(where, INVALID, "field is immutable")
    if kind is POD and frozen_part(old) != frozen_part(new):
        yield Cause("spec", FORBIDDEN, "pod updates may not change fields other than images, deadlines and tolerations")


def frozen_part(spec: Json) -> Json:
    containers = [{**one, "image": ""} for one in spec.get("containers", ())]
    return {key: value for key, value in spec.items() if key not in MUTABLE_IN_PODS} | {"containers": containers}


def faults_of_meta(kind: Kind, meta: Json) -> Causes:
    name, longest = meta["name"], 63 if kind is NAMESPACE else 253
    shape = LABEL if kind is NAMESPACE else SUBDOMAIN
    if not shape.fullmatch(name):
        yield Cause("metadata.name", INVALID, f"Invalid value: {name!r}: a lowercase RFC 1123 subdomain is required")
    elif len(name) > longest:
        yield Cause("metadata.name", INVALID, f"Invalid value: {name!r}: must be no more than {longest} characters")
    yield from faults_of_finalizers(meta)


def faults_of_finalizers(meta: Json) -> Causes:
    for number, name in enumerate(meta.get("finalizers") or []):
        if "/" not in name and name not in OWN_FINALIZERS:
            yield Cause(
                f"metadata.finalizers[{number}]", INVALID, f"Invalid value: {name!r}: prefer a domain-qualified name"
            )


def faults_of_labels(meta: Json, at: str) -> Causes:
    for key, value in (meta.get("labels") or {}).items():
        if not KEY.fullmatch(key):
            yield Cause(f"{at}.labels", INVALID, f"Invalid value: {key!r}: no qualified name")
        if not VALUE.fullmatch(value):
            yield Cause(f"{at}.labels", INVALID, f"Invalid value: {value!r}: a valid label is at most 63 characters")


def faults_of_annotations(meta: Json, at: str) -> Causes:
    for key in meta.get("annotations") or {}:
        if not KEY.fullmatch(key.lower()):
            yield Cause(f"{at}.annotations", INVALID, f"Invalid value: {key!r}: no qualified name")


def faults_of_body(kind: Kind, whole: Json) -> Causes:
    if kind is JOB:
        yield from faults_of_job(whole["spec"])
    elif kind is POD:
        yield from faults_of_pod(whole["spec"], "spec")
    elif kind is LEASE:
        spec = whole.get("spec") or {}
        for field, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
            if spec.get(field, least) < least:
                yield Cause(f"spec.{field}", INVALID, f"Invalid value: {spec[field]}: must be at least {least}")


def faults_of_job(spec: Json) -> Causes:
    for field in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        if (spec.get(field) or 0) < 0:
            yield Cause(f"spec.{field}", INVALID, f"Invalid value: {spec[field]}: must be greater than or equal to 0")
    yield from faults_of_choice(spec, "completionMode", ("NonIndexed", "Indexed"), "spec")
    for number, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or []):
        at = f"spec.podFailurePolicy.rules[{number}]"
        yield from faults_of_choice(rule, "action", ("FailJob", "FailIndex", "Ignore", "Count"), at)
    template = spec["template"]
    yield from faults_of_labels(template["metadata"], "spec.template")
    yield from faults_of_annotations(template["metadata"], "spec.template")
    restart = template["spec"]["restartPolicy"]
    if restart not in {"Never", "OnFailure"}:
        words = f'Unsupported value: "{restart}": supported values: "OnFailure", "Never"'
        yield Cause("spec.template.spec.restartPolicy", REQUIRED if restart in {None, "Always"} else UNSUPPORTED, words)
    elif spec.get("podFailurePolicy") and restart != "Never":
        yield Cause(
            "spec.template.spec.restartPolicy", INVALID, "only Never is supported when podFailurePolicy is specified"
        )
    yield from faults_of_pod(template["spec"], "spec.template.spec")


def faults_of_pod(spec: Json, at: str) -> Causes:
    yield from faults_of_placement(spec, at)
    if (spec.get("activeDeadlineSeconds") or 1) < 1:
        yield Cause(f"{at}.activeDeadlineSeconds", INVALID, "must be between 1 and 2147483647, inclusive")
    volumes = [volume.get("name") or "" for volume in spec.get("volumes") or []]
    yield from faults_of_names(volumes, f"{at}.volumes")
    if not spec.get("containers"):
        yield Cause(f"{at}.containers", REQUIRED, "Required value")
    all_names = [one.get("name") or "" for field in ("initContainers", "containers") for one in spec.get(field) or []]
    yield from faults_of_names(all_names, f"{at}.containers")
    for field in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(field) or []):
            yield from faults_of_container(container, f"{at}.{field}[{number}]", volumes)


def faults_of_placement(spec: Json, at: str) -> Causes:
    for key in spec.get("nodeSelector") or {}:
        if not KEY.fullmatch(key):
            yield Cause(f"{at}.nodeSelector", INVALID, f"Invalid value: {key!r}: no qualified name")
    for number, toleration in enumerate(spec.get("tolerations") or []):
        yield from faults_of_choice(
            toleration, "operator", ("", "Equal", "Exists", "Lt", "Gt"), f"{at}.tolerations[{number}]"
        )


def faults_of_choice(held: Json, field: str, known: tuple[str, ...], at: str) -> Causes:
    """`known` begins with what counts where nothing is said."""
    if held.get(field, known[0]) not in known:
        yield Cause(f"{at}.{field}", UNSUPPORTED, f'Unsupported value: "{held[field]}": supported values: {known}')


def faults_of_names(names: list[str], at: str) -> Causes:
    for number, name in enumerate(names):
        if not name:
            yield Cause(f"{at}[{number}].name", REQUIRED, "Required value")
        elif not LABEL.fullmatch(name) or len(name) > 63:
            yield Cause(
                f"{at}[{number}].name", INVALID, f"Invalid value: {name!r}: a lowercase RFC 1123 label is required"
            )
        elif name in names[:number]:
            yield Cause(f"{at}[{number}].name", TWICE, f"Duplicate value: {name!r}")


def faults_of_container(container: Json, at: str, volumes: list[str]) -> Causes:
    if not container.get("image"):
        yield Cause(f"{at}.image", REQUIRED, "Required value")
    for number, variable in enumerate(container.get("env") or []):
        yield from faults_of_variable(variable, f"{at}.env[{number}]")
    yield from faults_of_choice(container, "imagePullPolicy", ("Always", "IfNotPresent", "Never"), at)
    yield from faults_of_mounts(container.get("volumeMounts") or [], f"{at}.volumeMounts", volumes)
    yield from faults_of_sources(container.get("envFrom") or [], f"{at}.envFrom")
    yield from faults_of_resources(container["resources"], f"{at}.resources")


def faults_of_mounts(mounts: list[Json], at: str, volumes: list[str]) -> Causes:
    paths = [mount.get("mountPath") or "" for mount in mounts]
    for number, mount in enumerate(mounts):
        if mount.get("name") not in volumes:
            yield Cause(f"{at}[{number}].name", NO_SUCH, f"Not found: {mount.get('name')!r}")
        if not paths[number]:
            yield Cause(f"{at}[{number}].mountPath", REQUIRED, "Required value")
        elif paths[number] in paths[:number]:
            yield Cause(f"{at}[{number}].mountPath", INVALID, f"Invalid value: {paths[number]!r}: must be unique")


def faults_of_sources(sources: list[Json], at: str) -> Causes:
    for number, source in enumerate(sources):
        for name in ("configMapRef", "secretRef"):
            if name in source and not source[name].get("name"):
                yield Cause(f"{at}[{number}].{name}.name", REQUIRED, "Required value")


def faults_of_variable(variable: Json, at: str) -> Causes:
    name, source = variable.get("name") or "", variable.get("valueFrom")
    if not name:
        yield Cause(f"{at}.name", REQUIRED, "Required value")
    elif not ENV_NAME.fullmatch(name):
        yield Cause(f"{at}.name", INVALID, f"Invalid value: {name!r}: only printable ASCII characters except '='")
    if source is not None and variable.get("value"):
        yield Cause(f"{at}.valueFrom", INVALID, "may not be specified when `value` is not empty")


def faults_of_resources(resources: Mapping[str, Any], at: str) -> Causes:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for side, amounts in (("requests", requests), ("limits", limits)):
        for name, amount in amounts.items():
            if "/" not in name and name not in RESOURCES:
                yield Cause(f"{at}.{side}[{name}]", INVALID, f"Invalid value: {name!r}: must be a standard resource")
            elif amount_of(amount) < 0:
                yield Cause(
                    f"{at}.{side}[{name}]", INVALID, f"Invalid value: {amount!r}: must be greater than or equal to 0"
                )
    for name, amount in requests.items():
        if name in limits and amount_of(amount) > amount_of(limits[name]):
            words = f"Invalid value: {amount!r}: must be less than or equal to {name} limit of {limits[name]}"
            yield Cause(f"{at}.requests", INVALID, words)


def amount_of(written: str | float) -> float:
    """What is no quantity has been refused before, with its body."""
    try:
        return float(parse_quantity(str(written)))
    except (DispatcherError, ValueError):
        return 0
