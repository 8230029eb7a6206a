"""Job templates: plain Job manifests. Their annotations say which fields rows may set (docs/author.md).

Templates are trusted, but checked when the file is read. A template must not break "one launch = one Job = one Pod",
and its bounds must mean what they say. A faulty template launches no Job; the fault names the field.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.jobs.env import ENV_NAME, is_closed
from dispatcher.model.errors import TemplateError
from dispatcher.model.identity import (
    DOMAIN,
    IMAGES,
    MACHINES,
    MAX_CPU,
    MAX_MEMORY,
    MAX_SECONDS,
    OPENINGS,
    REPORT,
    ROW_MAY_SET,
)
from dispatcher.model.jobs import Manifest
from dispatcher.model.quantity import parse_quantity

NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
OPENABLE: Final = frozenset({"image", "command", "args", "cpu", "memory", "env", "private_machine", "special_machine"})
LONGEST_SECONDS: Final = 604800
OURS: Final = (
    "activeDeadlineSeconds", "backoffLimitPerIndex", "completionMode", "managedBy", "manualSelector",
    "maxFailedIndexes", "podFailurePolicy", "podReplacementPolicy", "selector",
    "successPolicy", "suspend", "ttlSecondsAfterFinished",
)  # fmt: skip
"""Fields of the Job's spec that the dispatcher sets or forbids. For example, a TTL would delete a launch's memory."""


class Template(Struct, frozen=True):
    """A manifest that passed the checks.

    name: name of the template.
    manifest: the Job as it was written.
    container: index of the task's container.
    opened: names of the fields that rows may set.
    taken: names of the variables that the template sets.
    images: globs for a row's image.
    machines: globs for a row's machine.
    max_cpu: most cores that a row may ask for; None: rows may not set cpu.
    max_memory: most bytes that a row may ask for; None: rows may not set memory.
    max_seconds: highest run limit.
    report: "sql" or "exit-code".
    digest: digest of the manifest.
    """

    name: str
    manifest: Manifest
    container: int
    opened: frozenset[str]
    taken: frozenset[str]
    images: tuple[str, ...]
    machines: tuple[str, ...]
    max_cpu: Fraction | None
    max_memory: Fraction | None
    max_seconds: int
    report: str
    digest: str

    @property
    def pod_spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.manifest["spec"]["template"]["spec"]
        return spec

    @property
    def task_container(self) -> Mapping[str, Any]:
        container: Mapping[str, Any] = self.pod_spec["containers"][self.container]
        return container


def parse_template(name: str, text: str) -> Template:
    """The template of a file's text. TemplateError names field, value and rule."""
    try:
        manifest = msgspec.yaml.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as fault:
        raise TemplateError(f"template {name}: not one YAML document with a Job: {fault}") from fault
    try:
        return judge_template(name, manifest)
    except TemplateError as fault:
        raise TemplateError(f"template {name}: {fault}") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as fault:
        raise TemplateError(f"template {name}: not a Job manifest ({type(fault).__name__}: {fault})") from fault


def judge_template(name: str, manifest: Manifest) -> Template:
    """The template of a manifest, after all checks."""
    must(NAME.fullmatch(name) is not None, "its name", name, "lower-case letters, digits, '-', at most 63 characters")
    must(manifest.get("apiVersion") == "batch/v1", "apiVersion", manifest.get("apiVersion"), "must be batch/v1")
    must(manifest.get("kind") == "Job", "kind", manifest.get("kind"), "must be Job")
    meta, spec = manifest.get("metadata") or {}, manifest["spec"]
    annotations = dict(meta.get("annotations") or {})
    check_metadata(meta, spec["template"].get("metadata") or {})
    check_one_launch(spec)
    containers = spec["template"]["spec"]["containers"]
    index = next((i for i, container in enumerate(containers) if container.get("name") == "task"), 0)
    taken = check_own_env(containers[index].get("env") or [])
    opened = read_openings(annotations)
    return Template(
        name=name,
        manifest=manifest,
        container=index,
        opened=opened,
        taken=taken,
        images=read_images(annotations, opened),
        machines=read_globs(annotations.get(MACHINES)),
        max_cpu=read_bound("cpu", annotations.get(MAX_CPU), containers[index], opened),
        max_memory=read_bound("memory", annotations.get(MAX_MEMORY), containers[index], opened),
        max_seconds=read_seconds(annotations.get(MAX_SECONDS)),
        report=read_report(annotations.get(REPORT, "sql")),
        digest=hashlib.sha256(msgspec.json.encode(manifest, order="deterministic")).hexdigest()[:16],
    )


def must(holds: bool, field: str, value: object, rule: str) -> None:
    if not holds:
        raise TemplateError(f"{field} is {str(value)[:80]!r}: {rule}")


def check_metadata(meta: Mapping[str, Any], pod_meta: Mapping[str, Any]) -> None:
    must(
        "namespace" not in meta,
        "metadata.namespace",
        meta.get("namespace"),
        "leave it out: one installation, one namespace",
    )
    labels = [*(meta.get("labels") or {}), *(pod_meta.get("labels") or {}), *(pod_meta.get("annotations") or {})]
    for key in labels:
        must(
            not key.startswith(f"{DOMAIN}/"),
            "a label or Pod annotation",
            key,
            "the dispatcher sets these: leave it out",
        )
    for key, value in (meta.get("annotations") or {}).items():
        known = key in OPENINGS or not key.startswith(f"{DOMAIN}/")
        must(known, "an annotation", key, f"known are {', '.join(sorted(OPENINGS))}")
        must(isinstance(value, str), key, value, "annotations are strings: quote it")


def check_one_launch(spec: Mapping[str, Any]) -> None:
    """Checks that one launch is one Job and one Pod that runs once."""
    for field in OURS:
        must(field not in spec, f"spec.{field}", spec.get(field), "the dispatcher decides it: leave it out")
    for field, only in (("parallelism", 1), ("completions", 1), ("backoffLimit", 0)):
        must(spec.get(field, only) == only, f"spec.{field}", spec.get(field), f"must be {only}: one launch = one Pod")
    pod = spec["template"]["spec"]
    must(pod.get("restartPolicy", "Never") == "Never", "restartPolicy", pod.get("restartPolicy"), "must be Never")
    must("activeDeadlineSeconds" not in pod, "the Pod's activeDeadlineSeconds", "", f"use the annotation {MAX_SECONDS}")
    must(bool(pod["containers"]), "containers", "[]", "a task needs one")


def check_own_env(own: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    names = [variable["name"] for variable in own]
    for name in names:
        must(names.count(name) == 1, "env", name, "a name stands once")
        must(not is_closed(name), "env", name, "this name is the dispatcher's")
    return frozenset(names)


def read_openings(annotations: Mapping[str, str]) -> frozenset[str]:
    opened = frozenset(word.strip() for word in annotations.get(ROW_MAY_SET, "env").split(",") if word.strip())
    for word in opened:
        name = word.removeprefix("env.")
        fine = word in OPENABLE or (name != word and ENV_NAME.fullmatch(name) is not None and not is_closed(name))
        must(fine, ROW_MAY_SET, word, f"known are {', '.join(sorted(OPENABLE))} and env.NAME of an open name")
    return opened


def read_images(annotations: Mapping[str, str], opened: frozenset[str]) -> tuple[str, ...]:
    globs = read_globs(annotations.get(IMAGES))
    must("image" not in opened or bool(globs), IMAGES, "", "rows may set the image, so say which: registry/team-a/*")
    return globs


def read_globs(written: str | None) -> tuple[str, ...]:
    return tuple(glob.strip() for glob in (written or "").split(",") if glob.strip())


def read_bound(
    resource: str, written: str | None, container: Mapping[str, Any], opened: frozenset[str]
) -> Fraction | None:
    """The most that a row may ask for: the annotation, or else the container's own limit."""
    if resource not in opened:
        return None
    limits = (container.get("resources") or {}).get("limits") or {}
    source = written if written is not None else limits.get(resource)
    must(source is not None, f"max-{resource}", None, f"rows may set {resource}, so say how much")
    try:
        bound = parse_quantity(str(source))
    except ValueError as fault:
        raise TemplateError(f"max-{resource}: {fault}") from fault
    must(bound > 0, f"max-{resource}", source, "must be above 0")
    return bound


def read_seconds(written: str | None) -> int:
    is_number = written is None or re.fullmatch(r"[0-9]{1,9}", written) is not None
    must(is_number, MAX_SECONDS, written, "a whole number of seconds")
    seconds = LONGEST_SECONDS if written is None else int(written)
    must(1 <= seconds <= LONGEST_SECONDS, MAX_SECONDS, written, f"1..{LONGEST_SECONDS}")
    return seconds


def read_report(written: str) -> str:
    must(written in {"sql", "exit-code"}, REPORT, written, "sql or exit-code")
    return written
