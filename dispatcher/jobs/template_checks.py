"""The checks of a template's manifest. All faults are found at once: an author corrects a file in one go."""

import re
from fractions import Fraction
from typing import Final

from msgspec import Struct

from dispatcher.jobs.env import ENV_NAME, is_closed
from dispatcher.jobs.template_shape import POD, at, list_at, object_at, shape_faults
from dispatcher.jobs.template_text import Path
from dispatcher.model.errors import Fault
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
ANNOTATIONS: Final[Path] = ("metadata", "annotations")


class Bounds(Struct, frozen=True):
    """The fields that a template opens to rows, and their bounds. `Template` explains each."""

    container: int
    opened: frozenset[str]
    taken: frozenset[str]
    images: tuple[str, ...]
    machines: tuple[str, ...]
    max_cpu: Fraction | None
    max_memory: Fraction | None
    max_seconds: int
    report: str


class Checks:
    """The checks of one manifest. `faults` are those found so far."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._annotations = object_at(manifest, *ANNOTATIONS)
        self.faults = list(shape_faults(manifest))

    def must(self, holds: bool, path: Path, words: str) -> None:
        if not holds:
            self.faults.append(Fault(path, words))

    def check(self, name: str) -> Bounds:
        """Runs all checks. The bounds mean nothing if there is a fault."""
        manifest = self._manifest
        rule = "lower-case letters, digits, '-', at most 63 characters"
        self.must(NAME.fullmatch(name) is not None, (), is_but("its name", name, rule))
        for field, only in (("apiVersion", "batch/v1"), ("kind", "Job")):
            self.must(manifest.get(field) == only, (field,), is_but(field, manifest.get(field), f"must be {only}"))
        self.check_metadata()
        self.check_one_launch()
        return self.read_bounds()

    def check_metadata(self) -> None:
        meta = object_at(self._manifest, "metadata")
        rule = "leave it out: one installation, one namespace"
        where = ("metadata", "namespace")
        self.must("namespace" not in meta, where, is_but("metadata.namespace", meta.get("namespace"), rule))
        pod: Path = ("spec", "template", "metadata")
        for part in (("metadata", "labels"), (*pod, "labels"), (*pod, "annotations")):
            for key in object_at(self._manifest, *part):
                words = is_but("a label or Pod annotation", key, "the dispatcher sets these: leave it out")
                self.must(not key.startswith(f"{DOMAIN}/"), (*part, key), words)
        for key, value in self._annotations.items():
            known = key in OPENINGS or not key.startswith(f"{DOMAIN}/")
            words = is_but("an annotation", key, f"known are {', '.join(sorted(OPENINGS))}")
            self.must(known, (*ANNOTATIONS, key), words)
            words = is_but(key, value, "annotations are strings: quote it")
            self.must(isinstance(value, str), (*ANNOTATIONS, key), words)

    def check_one_launch(self) -> None:
        """Checks that one launch is one Job and one Pod that runs once."""
        spec, pod = object_at(self._manifest, "spec"), object_at(self._manifest, *POD)
        for field in OURS:
            words = is_but(f"spec.{field}", spec.get(field), "the dispatcher decides it: leave it out")
            self.must(field not in spec, ("spec", field), words)
        for field, only in (("parallelism", 1), ("completions", 1), ("backoffLimit", 0)):
            words = is_but(f"spec.{field}", spec.get(field), f"must be {only}: one launch = one Pod")
            self.must(spec.get(field, only) == only, ("spec", field), words)
        policy = pod.get("restartPolicy", "Never")
        self.must(policy == "Never", (*POD, "restartPolicy"), is_but("restartPolicy", policy, "must be Never"))
        words = is_but("the Pod's activeDeadlineSeconds", "", f"use the annotation {MAX_SECONDS}")
        self.must("activeDeadlineSeconds" not in pod, (*POD, "activeDeadlineSeconds"), words)
        words = is_but("containers", "[]", "a task needs one")
        self.must(pod.get("containers") != [], (*POD, "containers"), words)

    def read_bounds(self) -> Bounds:
        containers = list_at(self._manifest, *POD, "containers")
        index = next((i for i, one in enumerate(containers) if at(one, "name") == "task"), 0)
        opened = self.read_openings()
        return Bounds(
            container=index,
            opened=opened,
            taken=self.check_own_env((*POD, "containers", index)),
            images=self.read_images(opened),
            machines=read_globs(self.text(MACHINES)),
            max_cpu=self.read_bound("cpu", MAX_CPU, index, opened),
            max_memory=self.read_bound("memory", MAX_MEMORY, index, opened),
            max_seconds=self.read_seconds(),
            report=self.read_report(),
        )

    def text(self, annotation: str) -> str | None:
        """The text of an annotation. None: the template has none, or a value of another type."""
        value = self._annotations.get(annotation)
        return value if isinstance(value, str) else None

    def check_own_env(self, container: Path) -> frozenset[str]:
        """The names that the task's container sets."""
        env = list_at(self._manifest, *container, "env")
        names = {index: at(one, "name") for index, one in enumerate(env) if isinstance(at(one, "name"), str)}
        for index, name in names.items():
            where = (*container, "env", index)
            is_first = name not in list(names.values())[: list(names).index(index)]
            self.must(is_first, where, is_but("env", name, "a name stands once"))
            self.must(not is_closed(name), where, is_but("env", name, "this name is the dispatcher's"))
        return frozenset(names.values())

    def read_openings(self) -> frozenset[str]:
        written = self.text(ROW_MAY_SET)
        opened = frozenset(word.strip() for word in ("env" if written is None else written).split(",") if word.strip())
        for word in sorted(opened):
            name = word.removeprefix("env.")
            fine = word in OPENABLE or (name != word and ENV_NAME.fullmatch(name) is not None and not is_closed(name))
            rule = f"known are {', '.join(sorted(OPENABLE))} and env.NAME of an open name"
            self.must(fine, (*ANNOTATIONS, ROW_MAY_SET), is_but(ROW_MAY_SET, word, rule))
        return opened

    def read_images(self, opened: frozenset[str]) -> tuple[str, ...]:
        globs = read_globs(self.text(IMAGES))
        words = is_but(IMAGES, "", "rows may set the image, so say which: registry/team-a/*")
        self.must("image" not in opened or bool(globs), (*ANNOTATIONS, IMAGES), words)
        return globs

    def read_bound(self, resource: str, annotation: str, index: int, opened: frozenset[str]) -> Fraction | None:
        """The most that a row may ask for: the annotation, or else the container's own limit."""
        if resource not in opened:
            return None
        limits: Path = (*POD, "containers", index, "resources", "limits", resource)
        source: object = self._annotations.get(annotation)
        path = limits if source is None else (*ANNOTATIONS, annotation)
        source = at(self._manifest, *limits) if source is None else source
        try:
            bound = parse_quantity(str(source)) if source is not None else None
        except ValueError as fault:
            self.must(False, path, f"max-{resource}: {fault}")
            return None
        unbound = f"{annotation} is missing: rows may set {resource}, so set it or the container's limit"
        self.must(bound is not None, path, unbound)
        self.must(bound is None or bound > 0, path, is_but(f"max-{resource}", source, "must be above 0"))
        return bound

    def read_seconds(self) -> int:
        written, path = self.text(MAX_SECONDS), (*ANNOTATIONS, MAX_SECONDS)
        is_number = written is None or re.fullmatch(r"[0-9]{1,9}", written) is not None
        self.must(is_number, path, is_but(MAX_SECONDS, written, "a whole number of seconds"))
        seconds = LONGEST_SECONDS if written is None or not is_number else int(written)
        is_inside = 1 <= seconds <= LONGEST_SECONDS
        self.must(is_inside, path, is_but(MAX_SECONDS, written, f"1..{LONGEST_SECONDS}"))
        return seconds

    def read_report(self) -> str:
        written = str(self._annotations.get(REPORT, "sql"))
        self.must(written in {"sql", "exit-code"}, (*ANNOTATIONS, REPORT), is_but(REPORT, written, "sql or exit-code"))
        return written


def is_but(field: str, value: object, rule: str) -> str:
    return f"{field} is {str(value)[:80]!r}: {rule}"


def read_globs(written: str | None) -> tuple[str, ...]:
    return tuple(glob.strip() for glob in (written or "").split(",") if glob.strip())


def opening_of(manifest: Manifest, name: str) -> tuple[Bounds, tuple[Fault, ...]]:
    """The bounds of a manifest, and all its faults."""
    checks = Checks(manifest)
    return checks.check(name), tuple(checks.faults)
