"""Job templates: plain Job manifests whose annotations say which fields rows may set (docs/author.md). Pure.

Templates are trusted, but checked when the file is read. A template must not break "one launch = one Job = one Pod",
and its bounds must mean what they say. A faulty template launches no Job; the fault names the field. All faults are
found at once, so that an author corrects a file in one go.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.container.contract import CODES_RULE, read_statuses
from dispatcher.jobs.env import ENV_NAME, LOGIN, is_closed, is_dispatchers, readers_of_nothing
from dispatcher.jobs.fields import (
    KINDS,
    POD,
    as_read,
    at,
    deleted_by_tools,
    dotted,
    field_faults,
    is_but,
    list_at,
    object_at,
)
from dispatcher.jobs.template_text import Path, read_manifest
from dispatcher.model.errors import TemplateError, TemplateFault
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import (
    CONTAINER,
    CONTROLLER_UID,
    DOMAIN,
    FINAL_CODES,
    IMAGES,
    MACHINES,
    MAX_BYTES,
    MAX_CPU,
    MAX_FAILURES,
    MAX_MEMORY,
    MAX_SECONDS,
    OPENINGS,
    REPORT,
    ROW_MAY_SET,
    TIMEOUT_SECONDS,
)
from dispatcher.model.reservations import JOB_NAMES
from dispatcher.model.resources import parse_quantity

NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
OPENABLE: Final = frozenset({"image", "command", "args", "cpu", "memory", "env", "private_machine", "special_machine"})
TASK: Final = "task"
"""The usual name of the task's container."""
LONGEST_SECONDS: Final = 604800
"""The highest run limit, in seconds."""
MOST_FAILURES: Final = 100
"""The highest max_failures of a template."""
FEWEST_BYTES: Final = 2**10
"""The lowest max-bytes of a template."""
MOST_BYTES: Final = 256 * 2**10
"""The highest max-bytes of a template."""
DECIDED: Final = "the dispatcher decides it: leave it out"
OURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("managedBy", "maxFailedIndexes", "selector", "successPolicy", "ttlSecondsAfterFinished"), DECIDED),
    "activeDeadlineSeconds": f"use the annotation {TIMEOUT_SECONDS}",
    "backoffLimitPerIndex": f"use the annotation {MAX_FAILURES}",
    "podFailurePolicy": f"use the annotation {FINAL_CODES}",
}
"""Fields of the Job's spec that the dispatcher sets or forbids. For example, a TTL would delete a launch's memory."""
ONE_EACH: Final = "must be 1: one launch = one Pod, so insert a row for each"
ONES: Final[Mapping[str, tuple[int, str]]] = {
    "parallelism": (1, ONE_EACH), "completions": (1, ONE_EACH),
    "backoffLimit": (0, f"must be 0: one launch = one Pod, see {MAX_FAILURES}"),
}  # fmt: skip
"""Fields that may have one value only."""
DEFAULTS: Final[Mapping[str, object]] = {
    "suspend": False, "completionMode": "NonIndexed", "manualSelector": False, "podReplacementPolicy": "Failed",
}  # fmt: skip
"""Fields that may be set to their default only."""
RESTARTS: Final[Mapping[str, Collection[object]]] = {
    "containers": (None, "Never"), "initContainers": (None, "Never", "Always"),
}  # fmt: skip
"""Allowed values of a container's restartPolicy. Kubernetes 1.35 restarts containers of a Pod that never restarts."""
OF_EACH_JOB: Final = frozenset({CONTROLLER_UID, "controller-uid", *JOB_NAMES})
"""Labels that the API server gives the Pods of a Job. It refuses other values, as exports have them."""
OF_THE_JOB: Final = "write it into metadata.annotations, of the Job"
ANNOTATIONS: Final[Path] = ("metadata", "annotations")
DROPPED: Final = KINDS["ObjectMeta"].others.keys() - {"labels", "annotations"}
"""Fields of metadata that no Job gets from its template."""


class Bounds(Struct, frozen=True):
    """The fields that a template opens to rows, and their bounds.

    container: index of the task's container.
    opened: names of the fields that rows may set.
    taken: names of the variables that the template sets.
    images: globs for a row's image.
    machines: globs for a row's machine.
    max_cpu: most cores that a row may ask for; None: rows may not set cpu.
    max_memory: most bytes that a row may ask for; None: rows may not set memory.
    max_seconds: highest run limit.
    timeout_seconds: run limit of rows that set none; 0: the installation's.
    max_failures: that of rows that set none; 0: one with `report: exit-code`, else 3.
    max_bytes: most bytes of variables, command and args that a row may add; 0: nobody has said it.
    report: "sql" or "exit-code".
    final_codes: with "exit-code", the statuses that end the row, such as `2,64-68`; empty: none does.
    """

    container: int
    opened: frozenset[str]
    taken: frozenset[str]
    images: tuple[str, ...]
    machines: tuple[str, ...]
    max_cpu: Fraction | None
    max_memory: Fraction | None
    max_seconds: int
    timeout_seconds: int
    max_failures: int
    max_bytes: int
    report: str
    final_codes: str


def restarts(manifest: Manifest) -> Iterator[tuple[Path, str]]:
    """Parts that would start a container of a Pod again. An init container that always restarts is a sidecar."""
    rule = "a container runs once; max_failures of a row says how often the row does"
    for kind, policies in RESTARTS.items():
        for index, container in enumerate(list_at(manifest, *POD, kind)):
            policy, rules, where = (
                at(container, "restartPolicy"),
                at(container, "restartPolicyRules"),
                (*POD, kind, index),
            )
            if policy not in policies:
                yield (*where, "restartPolicy"), is_but(f"{kind}[{index}].restartPolicy", policy, rule)
            if rules:
                yield (*where, "restartPolicyRules"), is_but(f"{kind}[{index}].restartPolicyRules", rules, rule)


def empty_terms(manifest: Manifest) -> Iterator[Path]:
    """The places of required node terms without conditions, which Helm leaves where its values are empty."""
    place: Path = (*POD, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for index, term in enumerate(list_at(manifest, *place, "nodeSelectorTerms")):
        if isinstance(term, dict) and not any(term.get(field) for field in ("matchExpressions", "matchFields")):
            yield (*place, "nodeSelectorTerms", index)


class Checks:
    """The checks of one manifest. `told`: the faults that were found so far."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._annotations = object_at(manifest, *ANNOTATIONS)
        self.told: list[TemplateFault] = []

    def must(self, holds: bool, path: Path, words: str) -> None:
        if not holds:
            self.told.append(TemplateFault(path, words))

    def check(self, name: str) -> Bounds:
        """Runs all checks. If there is a fault, the bounds mean nothing."""
        manifest = self._manifest
        rule = "lower-case letters, digits, '-', at most 63 characters"
        self.must(NAME.fullmatch(name) is not None, (), is_but("its name", name, rule))
        kinds = "must be Job. Of other kinds `dispatcher adopt` makes templates"
        for field, only, rule in (("apiVersion", "batch/v1", "must be batch/v1"), ("kind", "Job", kinds)):
            self.must(manifest.get(field) == only, (field,), is_but(field, manifest.get(field), rule))
        self.check_metadata()
        self.check_one_launch()
        for path in empty_terms(self._manifest):
            self.must(False, path, f"{dotted(path)} is empty: it fits no node")
        for annotation in (IMAGES, MACHINES):
            for glob in read_globs(self.text(annotation)):
                words = is_but(annotation, glob, "write commas between globs")
                self.must(len(glob.split()) == 1, (*ANNOTATIONS, annotation), words)
        return self.read_bounds()

    def check_metadata(self) -> None:
        meta = object_at(self._manifest, "metadata")
        rule = "leave it out: one installation, one namespace"
        where = ("metadata", "namespace")
        self.must(meta.get("namespace") is None, where, is_but("metadata.namespace", meta.get("namespace"), rule))
        pod: Path = ("spec", "template", "metadata")
        for part in (("metadata", "labels"), (*pod, "labels"), (*pod, "annotations")):
            for key in object_at(self._manifest, *part):
                rule = OF_THE_JOB if key in OPENINGS else "the dispatcher sets these: leave it out"
                words = is_but("a label or Pod annotation", key, rule)
                self.must(not key.startswith(f"{DOMAIN}/"), (*part, key), words)
        for key in object_at(self._manifest, *pod, "labels"):
            words = is_but("a label of the Pod", key, "the API server gives each Job another value: leave it out")
            self.must(key not in OF_EACH_JOB, (*pod, "labels", key), words)
        names = [one.removeprefix(f"{DOMAIN}/") for one in OPENINGS]
        for key, value in self._annotations.items():
            known = key in OPENINGS or not key.startswith(f"{DOMAIN}/")
            near = "".join(
                f"is it {DOMAIN}/{one}? " for one in get_close_matches(key.removeprefix(f"{DOMAIN}/"), names, 1)
            )
            words = is_but("an annotation", key, f"{near}known are {', '.join(sorted(OPENINGS))}")
            self.must(known, (*ANNOTATIONS, key), words)
            words = is_but(key, value, "annotations are strings: quote it")
            is_text = isinstance(value, str) or (value is None and key not in OPENINGS)
            self.must(is_text, (*ANNOTATIONS, key), words)

    def check_one_launch(self) -> None:
        """Checks that one launch is one Job and one Pod that runs once."""
        spec, pod = object_at(self._manifest, "spec"), object_at(self._manifest, *POD)
        for field, rule in OURS.items():
            self.must(spec.get(field) is None, ("spec", field), is_but(f"spec.{field}", spec.get(field), rule))
        for field, default in DEFAULTS.items():
            words = is_but(f"spec.{field}", spec.get(field), DECIDED)
            self.must(spec.get(field) in (None, default), ("spec", field), words)
        for field, (only, rule) in ONES.items():
            words = is_but(f"spec.{field}", spec.get(field), rule)
            self.must(spec.get(field) in (None, only), ("spec", field), words)
        policy, rule = pod.get("restartPolicy"), f"must be Never: each try is a Pod of its own, see {MAX_FAILURES}"
        self.must(policy in (None, "Never"), (*POD, "restartPolicy"), is_but("restartPolicy", policy, rule))
        for where, words in restarts(self._manifest):
            self.must(False, where, words)
        limit, rule = pod.get("activeDeadlineSeconds"), OURS["activeDeadlineSeconds"]
        words = is_but("the Pod's activeDeadlineSeconds", limit, rule)
        self.must(limit is None, (*POD, "activeDeadlineSeconds"), words)
        words = is_but("containers", "[]", "a task needs one")
        self.must(pod.get("containers") != [], (*POD, "containers"), words)

    def read_bounds(self) -> Bounds:
        containers = list_at(self._manifest, *POD, "containers")
        index = self.read_container([at(one, "name") for one in containers])
        seconds = self.read_number(MAX_SECONDS, LONGEST_SECONDS)
        opened = self.read_openings()
        report, final_codes = self.read_report()
        for path in without_image(self._manifest, given=index if "image" in opened else None):
            self.must(False, path, f"{dotted(path)} is missing: a container needs one")
        return Bounds(
            container=index,
            opened=opened,
            taken=self.check_own_env((*POD, "containers", index)),
            images=self.read_images(opened),
            machines=read_globs(self.text(MACHINES)),
            max_cpu=self.read_bound("cpu", MAX_CPU, index, opened),
            max_memory=self.read_bound("memory", MAX_MEMORY, index, opened),
            max_seconds=seconds or LONGEST_SECONDS,
            timeout_seconds=self.read_number(TIMEOUT_SECONDS, seconds or LONGEST_SECONDS),
            max_failures=self.read_number(MAX_FAILURES, MOST_FAILURES),
            max_bytes=self.read_bytes(),
            report=report,
            final_codes=final_codes,
        )

    def text(self, annotation: str) -> str | None:
        """The text of an annotation. None: the template has no such annotation, or a value of another type."""
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
            self.must(not is_dispatchers(env[index]), where, is_but("env", name, "this name is the dispatcher's"))
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
        """The most that a row may ask for: the annotation, else the container's own limit."""
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

    def read_container(self, names: Sequence[object]) -> int:
        """Index of the task's container: the named one, else `task`, else the first."""
        named = self.text(CONTAINER)
        if named is None:
            return names.index(TASK) if TASK in names else 0
        known = is_but(CONTAINER, named, f"the containers are {', '.join(map(str, names))}")
        self.must(named in names, (*ANNOTATIONS, CONTAINER), known)
        return names.index(named) if named in names else 0

    def read_number(self, annotation: str, most: int) -> int:
        """The number in an annotation; 0: the template has none."""
        written, path = self.text(annotation), (*ANNOTATIONS, annotation)
        if written is None:
            return 0
        is_number = re.fullmatch(r"[0-9]{1,9}", written) is not None
        self.must(is_number, path, is_but(annotation, written, "a whole number"))
        is_inside = not is_number or 1 <= int(written) <= most
        self.must(is_inside, path, is_but(annotation, written, f"1..{most}"))
        return int(written) if is_number and is_inside else 0

    def read_bytes(self) -> int:
        """The bytes in the annotation; 0: the installation's bound counts."""
        written, path = self.text(MAX_BYTES), (*ANNOTATIONS, MAX_BYTES)
        if written is None:
            return 0
        try:
            found = int(parse_quantity(written))
        except ValueError as fault:
            self.must(False, path, f"max-bytes: {fault}")
            return 0
        is_inside = FEWEST_BYTES <= found <= MOST_BYTES
        self.must(is_inside, path, is_but(MAX_BYTES, written, f"1Ki to {MOST_BYTES >> 10}Ki"))
        return found

    def read_report(self) -> tuple[str, str]:
        """How the task reports, and the final codes. Without codes, every status except 0 is tried again."""
        report, path = str(self._annotations.get(REPORT, "sql")), (*ANNOTATIONS, FINAL_CODES)
        self.must(report in {"sql", "exit-code"}, (*ANNOTATIONS, REPORT), is_but(REPORT, report, "sql or exit-code"))
        codes = self.text(FINAL_CODES)
        if codes is None:
            return report, ""
        rule = f"it needs {REPORT}: exit-code; a command of `dispatcher exec` has --final"
        self.must(report == "exit-code", path, is_but(FINAL_CODES, codes, rule))
        try:
            read_statuses(codes)
        except ValueError:
            self.must(False, path, is_but(FINAL_CODES, codes, CODES_RULE))
        return report, codes


def without_image(manifest: Manifest, given: int | None) -> Iterator[Path]:
    """The places of missing images. `given`: index of the container whose image rows may set."""
    for field in ("containers", "initContainers"):
        for index, one in enumerate(list_at(manifest, *POD, field)):
            is_given = field == "containers" and index == given
            if isinstance(one, dict) and one.get("image") in (None, "") and not is_given:
                yield (*POD, field, index, "image")


IMAGE: Final = re.compile(
    r"(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/)?"  # registry
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::\w[\w.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)


def is_image(text: object) -> bool:
    """Whether a node can read the text as the reference of an image. The API server accepts any text."""
    return isinstance(text, str) and IMAGE.fullmatch(text) is not None


LEAST_BYTES: Final = 2**20
"""Bytes of memory and of disk that a container needs, at least."""


def too_small(container: Mapping[str, Any]) -> Iterator[str]:
    """Amounts of bytes that have another unit than their author meant: `512m` are thousandths of a byte."""
    for side in ("requests", "limits"):
        for resource in ("memory", "ephemeral-storage"):
            written = at(container, "resources", side, resource)
            if written is not None and 0 < parse_quantity(str(written)) < LEAST_BYTES:
                whose = f"{side}.{resource} of container {container['name']}"
                yield f"{whose} is {written}, less than 1Mi: has it the right unit?"


def is_dropped(path: Path) -> bool:
    """Whether no Job has this part. Exports have a status, and more metadata than labels and annotations."""
    return path[:1] == ("status",) or (path[:1] == ("metadata",) and len(path) > 1 and path[1] in DROPPED)


def read_globs(written: str | None) -> tuple[str, ...]:
    return tuple(glob.strip() for glob in (written or "").split(",") if glob.strip())


def opening_of(manifest: Manifest, name: str) -> tuple[Bounds, tuple[TemplateFault, ...]]:
    """The bounds of a manifest, and all its faults."""
    checks = Checks(manifest)
    return checks.check(name), all_faults(manifest, checks.told)


def all_faults(manifest: Manifest, told: Sequence[TemplateFault]) -> tuple[TemplateFault, ...]:
    """Faults of the dispatcher's rules, and of the API schema for places without such a rule."""
    if isinstance(kind := manifest.get("kind"), str) and kind != "Job":
        return tuple(told)  # the fields of another kind are others
    ruled = {fault.path for fault in told if fault.path}
    wrong = [one for one in field_faults(manifest) if one.path not in ruled and not is_dropped(one.path)]
    return (*wrong, *told)


class Template(Bounds, frozen=True, kw_only=True):
    """A manifest that passed the checks.

    name: name of the template.
    manifest: the Job as it was written, without blanks.
    digest: digest of the manifest.
    """

    name: str
    manifest: Manifest
    digest: str

    @property
    def pod_spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.manifest["spec"]["template"]["spec"]
        return spec

    @property
    def task_container(self) -> Mapping[str, Any]:
        container: Mapping[str, Any] = self.pod_spec["containers"][self.container]
        return container

    @property
    def needs_image(self) -> bool:
        """Whether each row has to name an image, because the task's container has none."""
        return not self.task_container.get("image")

    def doubts(self, passed: Collection[str], scheduler: str = "") -> Iterator[str]:
        """What the author may not have intended.

        passed: the names of variables that PASS_ENV gives every container.
        scheduler: SCHEDULER_NAME; empty: it is not set.
        """
        names = [one["name"] for one in self.pod_spec["containers"]]
        if len(names) > 1 and names[self.container] != TASK and self.given.get(CONTAINER) is None:
            taken = names[self.container]
            yield f"of the containers {', '.join(names)}, {taken} is taken as the task's: name it by {CONTAINER}"
        sources = self.task_container.get("envFrom") or ()
        has_login = LOGIN in {*self.taken, *passed} or any(one.get("secretRef") for one in sources)
        if self.report == "sql" and not has_login:
            unless = ", unless its ConfigMap has the login" if sources else ""
            yield f"nothing in this template reports{unless}: add {LOGIN} and a report, or {REPORT}: exit-code"
        if sources and (names := sorted({*passed} - self.taken)):
            told = ", ".join(names[:3])
            yield f"PASS_ENV gives {told}, which win over keys of that name in envFrom: name those in env"
        hook = (self.task_container.get("lifecycle") or {}).get("preStop") or {}
        if self.report == "sql" and hook.keys() - {"sleep"}:
            yield "preStop runs before SIGTERM: a program that it ends with 0 counts as done. Let it signal process 1"
        for one in (*(self.pod_spec.get("initContainers") or ()), *self.pod_spec["containers"]):
            if one.get("image") and not is_image(one["image"]):
                yield f"image {one['image']!r:.80} is none that a node can pull: did nobody fill it in?"
            yield from too_small(one)
        yield from deleted_by_tools(self.manifest)
        yield from readers_of_nothing(self.pod_spec, self.container)
        own = self.pod_spec.get("schedulerName")
        if scheduler and own not in (None, scheduler):
            yield f"schedulerName {own} is not used: DISPATCHER_SCHEDULER_NAME is {scheduler}"

    @property
    def given(self) -> Mapping[str, Any]:
        """The annotations of the manifest."""
        return object_at(self.manifest, *ANNOTATIONS)


def parse_template(name: str, text: str) -> Template:
    """The template of a file's text. TemplateError names field, value and rule of all faults."""
    try:
        return judge_template(name, read_manifest(text))
    except TemplateError as fault:
        raise TemplateError(*fault.faults, of=f"template {name}: ") from None


def judge_template(name: str, manifest: Manifest) -> Template:
    """The template of a manifest, after all checks."""
    bounds, faults = opening_of(manifest, name)
    if faults:
        raise TemplateError(*faults)
    try:
        manifest = as_read(manifest)
        written = msgspec.json.encode(manifest, order="deterministic")
    except (TypeError, ValueError, RecursionError) as fault:  # for example, a key that is no text
        raise TemplateError(TemplateFault((), f"not a Job manifest ({type(fault).__name__}: {fault})")) from fault
    digest = hashlib.sha256(written).hexdigest()[:16]
    return Template(name=name, manifest=manifest, digest=digest, **msgspec.structs.asdict(bounds))
