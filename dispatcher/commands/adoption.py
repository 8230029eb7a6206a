"""What became of a manifest: a template, and a word for each field. Pure.

Nothing is lost without a word: a field is kept, moved, translated, left out because the dispatcher decides it, or left
to a person. What the API server would refuse in the manifest, the check of the template tells afterwards.

    WorkSource ─▶ job_adoption: the Job ─▶ pod_adoption: its Pod ─▶ Adoption
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.jobs.fields import OF_ARGO_CD, OF_CLEANERS, OF_PRUNERS, OF_RELOADER, dotted, object_at
from dispatcher.jobs.template_text import Path
from dispatcher.model import launches as ids
from dispatcher.model.jobs import Json, Manifest

NOTHING: Final = "''"
"""How the words show an empty annotation."""
UNLIKELY: Final = re.compile(r"[^a-z0-9]+")
OF_CONTROLLERS: Final = re.compile(
    r"(batch\.kubernetes\.io/)?(controller-uid|job-name)|batch\.kubernetes\.io/.*|app\.kubernetes\.io/managed-by"
    rf"|kubectl\.kubernetes\.io/last-applied-configuration|{re.escape(ids.DOMAIN)}/.*"
    rf"|{OF_PRUNERS.pattern}|addonmanager\.kubernetes\.io/mode"
    r"|argocd\.argoproj\.io/(instance|tracking-id)|tanka\.dev/environment"
    r"|(kustomize|helm)\.toolkit\.fluxcd\.io/(name|namespace)|meta\.helm\.sh/release-.*|skaffold\.dev/run-id"
    r"|config\.k8s\.io/owning-inventory|cni\.projectcalico\.org/(podIPs?|containerID)|k8s\.ovn\.org/.*|openshift\.io/scc"
    r"|k8s\.v1\.cni\.cncf\.io/networks?-status|kubernetes\.io/(psp|limit-ranger)"
)
"""Labels and annotations that a controller or a tool writes, and those that the dispatcher sets.

Some tools delete each object that has their label and that they did not apply, so no Job of ours may have it.
"""
OF_TIMES: Final = {
    re.compile(r"helm\.sh/hook.*|argocd\.argoproj\.io/(hook.*|sync-wave)"): "a release ran it: insert its row then",
    re.compile(r"kueue\.x-k8s\.io/max-exec-time-seconds"): (
        f"Kueue would suspend the Job, and the row would run again: {ids.TIMEOUT_SECONDS}"
    ),
    re.compile(r"autoscaling\.keda\.sh/paused.*"): "it was paused: queues.paused_until",
    OF_RELOADER: "Reloader would start it again when its configuration changes, also while it runs: insert a row then",
    OF_CLEANERS: (f"a tool would delete a Job that runs, and its row would run again: {ids.TIMEOUT_SECONDS}"),
}
"""Annotations that say when work runs. In a template they say nothing."""
STARTED_TOGETHER: Final = (
    "its scheduler started the Pods of a group together: rows start one by one, so no Pod may wait for another"
)
OF_GROUPS: Final = {
    re.compile(r"kueue\.x-k8s\.io/(pod-group-.*|podset-.*|job-min-parallelism|retriable-in-group)"): (
        "Kueue admitted several Pods together: a Job of ours has one Pod, and each is admitted by itself, docs/kueue.md"
    ),
    re.compile(
        r"scheduling\.k8s\.io/group-name|scheduling\.volcano\.sh/group-.*|scheduling\.x-k8s\.io/pod-group"
        r"|pod-group\.scheduling\.sigs\.k8s\.io(/.*)?|yunikorn\.apache\.org/(task-group.*|schedulingPolicyParameters)"
    ): STARTED_TOGETHER,
}
"""Labels and annotations of Pods that start together."""
OF_KUEUE: Final = frozenset({"kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"})
"""Labels that Kueue reads of a Job."""
NAME_OF_TEMPLATE: Final = "the name of the template"
NAMES_OF_TEMPLATES: Final = "in the names of the templates"
OTHER_NAMESPACE: Final = (
    "Jobs run in the dispatcher's namespace: what the Pod names must be there, and its ServiceAccount, `default` too,"
    " needs the same rights and imagePullSecrets"
)


class Did(StrEnum):
    """What became of a field."""

    KEPT = "kept"
    MOVED = "moved"
    TRANSLATED = "translated"
    LEFT_OUT = "left out"
    OPEN = "to decide"


class AdoptedField(Struct, frozen=True):
    """One field of the manifest, and what became of it. `words`: empty where the field says it."""

    did: Did
    field: str
    words: str = ""


class Statement(Struct, frozen=True):
    """A file of sql/adopt, and its variables.

    has_own_queue: whether its queue is called as the template; else it is `default`.
    """

    file: str
    values: Mapping[str, str | int]
    has_own_queue: bool = False


class Adoption(Struct, frozen=True):
    """A template that was made of a manifest.

    name: name of the template.
    manifest: the template.
    fields: what became of each field.
    statements: what to paste into psql.
    schedule: of a CronJob that inserts the rows, those fields of its spec that say when; empty: there is none.
    more_schedules: of a CronWorkflow that has several, the others.
    in_time: its statement; None: there is none.
    places: where the manifest has what the template has elsewhere: patterns of places, and what stands there instead.
    """

    name: str
    manifest: Manifest
    fields: list[AdoptedField]
    statements: list[Statement]
    schedule: Json = {}
    more_schedules: Sequence[Json] = ()
    in_time: Statement | None = None
    places: Sequence[tuple[str, str]] = ()


class WorkSource(Struct):
    """Where a manifest has its parts.

    name: of the manifest.
    spec: the Job's spec; of a Pod that is alone: its own.
    meta: metadata of the Job, or of the Pod.
    at, meta_at: their places, for the words.
    is_pod: whether it is a Pod that is alone.
    owner: metadata of a CronJob that makes the Jobs.
    has_sidecars: whether its other containers are sidecars of Argo, whose status does not count.
    space: namespace of a workflow that makes the Pod, else that of the metadata counts; None: it is not said.
    """

    name: str
    spec: Json
    meta: Json
    at: Path
    meta_at: Path = ("metadata",)
    is_pod: bool = False
    owner: Json | None = None
    has_sidecars: bool = False
    space: object = None


class MetaOwner(StrEnum):
    JOB = "Job"
    POD = "Pod"
    CRON_JOB = "CronJob"
    WORKFLOW = "workflow"


ABOVE: Final[Mapping[MetaOwner, str]] = {
    MetaOwner.CRON_JOB: "it was the CronJob's, and not its Jobs'",
    MetaOwner.WORKFLOW: "it was the workflow's, and not its Pods'",
}
"""Metadata that no Pod has had."""


def words_of_meta(meta: Json, path: Path, owner: MetaOwner, name: str = "") -> Iterator[tuple[Did, Path, str]]:
    """What becomes of each label, each annotation and each other field. `name`: of the template, if it comes of here.

    Of a label or an annotation, `moved` means: to the metadata of the template itself.
    """
    for field, value in meta.items():
        if field in {"labels", "annotations"}:
            if value and not object_at(meta, field):
                yield Did.OPEN, (*path, field), "it is no object of texts"
            for key in object_at(meta, field):
                did, words = word_of_mark(field, key, owner)
                yield did, (*path, field, key), words
        elif name and field == ("name" if meta.get("name") else "generateName"):
            is_whole = owner is not MetaOwner.WORKFLOW
            words = NAME_OF_TEMPLATE + (f": {name}" if value != name else "") if is_whole else NAMES_OF_TEMPLATES
            yield Did.MOVED, (*path, field), words
        elif field == "namespace":
            yield Did.LEFT_OUT, (*path, field), OTHER_NAMESPACE
        else:
            given = (
                f"each {owner} gets a name of its own" if field == "name" else "the dispatcher or the cluster gives it"
            )
            yield Did.LEFT_OUT, (*path, field), ABOVE.get(owner, given)


def word_of_mark(field: str, key: str, owner: MetaOwner) -> tuple[Did, str]:
    """What becomes of a label or an annotation."""
    for pattern, words in (*OF_TIMES.items(), *OF_GROUPS.items()):
        if pattern.fullmatch(key):
            return Did.OPEN, words
    if key in (OF_KUEUE if field == "labels" else ids.OPENINGS):
        if owner is MetaOwner.WORKFLOW:
            return Did.OPEN, f"write it into metadata.{field} of the templates"
        return (Did.KEPT, "") if owner is MetaOwner.JOB else (Did.MOVED, f"metadata.{field} of the template")
    if OF_CONTROLLERS.fullmatch(key):
        return Did.LEFT_OUT, ""
    if (field, key, owner) == ("labels", OF_ARGO_CD, MetaOwner.JOB):
        return Did.LEFT_OUT, "by it Argo CD deletes what it did not apply. The Pod keeps its own"
    return (Did.LEFT_OUT, ABOVE[owner]) if owner in ABOVE else (Did.KEPT, "")


def renamed(adoption: Adoption, name: str) -> Adoption:
    """The template with another name, because another template has its own."""
    if name == adoption.name:
        return adoption
    words = f"{NAME_OF_TEMPLATE}: {name}"
    is_name = [one.did is Did.MOVED and one.words.startswith(NAME_OF_TEMPLATE) for one in adoption.fields]
    fields = [replace(one, words=words) if its else one for one, its in zip(adoption.fields, is_name, strict=True)]
    return replace(adoption, name=name, fields=fields)


class AdoptionReport:
    """What became of the fields of one manifest, and the annotations that its template gets.

    name: name of the template.
    own: annotations that the manifest has. What it says of the dispatcher wins.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.own: Json = {}
        self.fields: list[AdoptedField] = []
        self.annotations: dict[str, str] = {}

    def tell(self, did: Did, path: Path, words: str = "") -> None:
        self.fields.append(AdoptedField(did, dotted(path), words))

    def annotate(self, path: Path, annotation: str, value: str, why: str = "") -> None:
        if annotation in ids.OPENINGS and self.own.get(annotation) is not None:
            opened = {one.strip() for one in str(self.own[annotation]).split(",")}
            missing = set(value.split(",")) - opened if annotation == ids.ROW_MAY_SET else set()
            words = (
                f"add {','.join(sorted(missing))} to its own {annotation}"
                if missing
                else f"its own {annotation} counts"
            )
            self.tell(Did.OPEN if missing else Did.LEFT_OUT, path, words)
            return
        self.annotations[annotation] = value
        self.tell(Did.TRANSLATED, path, f"{annotation}: {value or NOTHING}{f', {why}' if why else ''}")

    def tell_unknown(self, found: Json, known: Collection[str], path: Path) -> None:
        for field in sorted(found.keys() - known):
            if found[field] is not None:
                self.tell(Did.OPEN, (*path, field), "it is not known here")


def objects(value: object) -> list[dict[str, Any]]:
    """The items of a list that are objects."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def with_objects(value: object, found: Sequence[Json]) -> object:
    """The value with these objects in place of its own. Whatever else it has stays: the check of the template tells."""
    left = iter(found)
    return [next(left) if isinstance(one, dict) else one for one in value] if isinstance(value, list) else value


def texts(part: object) -> Iterator[str]:
    """All texts of a part of a manifest."""
    if isinstance(part, str):
        yield part
    for one in part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ():
        yield from texts(one)


def entries(part: object) -> Iterable[tuple[str | int, object]]:
    return part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()


def template_name(name: str) -> str:
    """A name that the dispatcher reads. Rows without a template run `default`, so no manifest becomes that."""
    found = UNLIKELY.sub("-", str(name).lower()).strip("-")[:63].strip("-") or "template"
    return found if found != "default" else "default-work"
