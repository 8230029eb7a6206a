"""Makes a template of a Job's spec or a Pod of another system. Pure.

Its count becomes rows, its retries and deadlines become annotations, and its Pod stays.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dispatcher.commands.adoption import (
    Adoption,
    AdoptionReport,
    Did,
    MetaOwner,
    Statement,
    WorkSource,
    objects,
    template_name,
    words_of_meta,
)
from dispatcher.commands.placeholders import unfilled
from dispatcher.commands.pod_adoption import (
    EXIT_CODE,
    INDEX,
    INDEX_OF_ROW,
    ONLY_INDEX,
    PodReader,
    closed_parts,
    lost_marks,
    named_by_content,
    of_its_namespace,
    secrets_of,
    unlike_ours,
)
from dispatcher.container.contract import LAST_STATUS, statuses_as_text
from dispatcher.jobs.env import injectors
from dispatcher.jobs.fields import KINDS, dotted, object_at
from dispatcher.jobs.template_text import Path
from dispatcher.jobs.templates import DEFAULTS, LONGEST_SECONDS, MOST_FAILURES
from dispatcher.model import launches as ids
from dispatcher.model.jobs import Json
from dispatcher.model.reservations import QUEUE_OF_KUEUE

DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
HELPERS: Final = "a helper belongs into initContainers, with restartPolicy Always"
RETRIES_OF_A_JOB: Final = 6
"""What the API server sets where a Job has no backoffLimit."""
DECIDED: Final[Mapping[str, str]] = {
    "ttlSecondsAfterFinished": "the dispatcher removes finished Jobs",
    "selector": "it belongs to one Job",
}  # fmt: skip
WITHOUT_LIKE: Final[Mapping[str, str]] = {
    "successPolicy": "a row is done when its container is: insert rows, and look at their batch",
    "maxFailedIndexes": "each row ends by itself: cancel the rest of the batch with batch_cancel",
    "managedBy": "the dispatcher makes no Jobs for other controllers",
}  # fmt: skip


class Adopter(AdoptionReport):
    """Makes one template.

    is_indexed: whether each Pod of the Job gets a number, also if there is only one.
    count: how many Pods have to succeed, each as a row; 0: not known.
    at_once: how many of them may run at the same time.
    given: names of the variables that rows have to give.
    has_queue: whether somebody else says how many Jobs the queue of its own may have.
    marks: where the manifest has the labels and annotations of the template, as `Adoption.places`.
    """

    def __init__(self, source: WorkSource) -> None:
        super().__init__(template_name(source.name))
        self.source = source
        self.statements: list[Statement] = []
        self.is_indexed = not source.is_pod and source.spec.get("completionMode") == "Indexed"
        self.count = 1
        self.at_once = 1
        self.given: list[str] = []
        self.has_queue = False
        self.marks: list[tuple[str, str]] = []

    def adopt(self) -> Adoption:
        spec, at = self.source.spec, self.source.at
        pod_path: Path = at if self.source.is_pod else (*at, "template", "spec")
        pod = self.source.spec if self.source.is_pod else object_at(spec, "template", "spec")
        job_meta, pod_meta = self.read_meta()
        self.own = job_meta.get("annotations", {})
        if not self.source.is_pod:
            self.read_job(spec, at, is_of_kueue=QUEUE_OF_KUEUE in job_meta.get("labels", {}))
            self.tell_unknown(object_at(spec, "template"), {"metadata", "spec"}, (*at, "template"))
        self.read_retries(spec, pod, at, pod_path)
        self.read_limits(spec, pod, at, pod_path)
        reader = PodReader(self, pod_path, self.read_index(at))
        made = reader.read(pod, object_at(pod_meta, "annotations").get(DEFAULT_CONTAINER))
        reports = self.annotations.get(ids.REPORT) or self.own.get(ids.REPORT)
        if reports == EXIT_CODE and len(objects(made.get("containers"))) > 1 and not self.source.has_sidecars:
            words = f"only the status of {reader.task} counts, where each container had to exit 0: {HELPERS}"
            self.tell(Did.OPEN, (*pod_path, "containers"), words)
        self.open_to_rows({"metadata": pod_meta, "spec": made}, at, pod_path)
        self.read_policy(spec, at, reader.task if reports == EXIT_CODE else "")
        template = {**({"metadata": pod_meta} if pod_meta else {}), "spec": made}
        meta = {**job_meta, "annotations": {**self.own, **self.annotations}}
        manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}
        if not self.source.is_pod:
            self.tell_untold(spec, at)
        space = self.source.space or (self.source.owner or self.source.meta).get("namespace")
        elsewhere = of_its_namespace(pod, object_at(pod_meta, "labels"), pod_path, space) if space else ()
        had = next(meta for owner, _, meta, _ in self.meta_sources() if owner is MetaOwner.POD)
        closed, blanks = closed_parts(made, pod_path), unfilled(made, pod_path, reader.task)
        hashed = named_by_content(made, pod_path)
        lost = lost_marks(made, had, pod_meta, pod_path)
        for path, words in (*unlike_ours(made, pod_path), *lost, *closed, *hashed, *elsewhere, *blanks):
            self.tell(Did.OPEN, path, words)
        has_work = bool(objects(made.get("containers")))
        return Adoption(
            self.name, manifest if has_work else {}, self.fields, self.statements, places=self.places(pod_path)
        )

    def places(self, pod_path: Path) -> list[tuple[str, str]]:
        """Where the manifest has what the template has elsewhere."""
        meta_at: Path = self.source.meta_at if self.source.is_pod else (*pod_path[:-1], "metadata")
        pod = (r"^spec\.template\.spec\b", dotted(pod_path)), (r"^spec\.template\.metadata\b", dotted(meta_at))
        return [*self.marks, *pod]

    def read_job(self, spec: Json, at: Path, *, is_of_kueue: bool) -> None:
        """The fields of the Job's spec that are no retries and no limits."""
        for field, value in spec.items():
            if is_of_kueue and field == "suspend" and value:
                self.tell(Did.LEFT_OUT, (*at, field), "Kueue suspends each Job itself, docs/kueue.md")
            elif value is not None and (found := word_of_job(field, value)):
                self.tell(found[0], (*at, field), found[1])
        self.read_count(spec, at)

    def read_count(self, spec: Json, at: Path) -> None:
        """Several Pods of one Job become several rows."""
        given = {field: spec[field] for field in COUNTS if spec.get(field) is not None}
        wrong = {field for field, value in given.items() if type(value) is not int or value < 0}
        for field in given if wrong else ():
            words = "it is no whole number" if field in wrong else "insert a row for each Pod that has to succeed"
            self.tell(Did.OPEN, (*at, field), words)
        if wrong:
            self.count = 0
            return
        completions, parallel = given.get("completions"), given.get("parallelism", 1)
        self.count = 1 if completions == 0 else max(completions or parallel, 1)
        self.at_once = min(parallel, self.count)
        for field in given:
            did, words = word_of_count(field, completions, parallel, self.word_of_queue())
            self.tell(did, (*at, field), words)
        if self.count > 1:
            self.insert_rows(at, is_default="parallelism" not in given)

    def insert_rows(self, at: Path, *, is_default: bool) -> None:
        """Adds the statements. `is_default`: whether the Job does not say how many of its Pods may run at once."""
        is_bounded = self.at_once < self.count and not self.has_queue
        if is_bounded:
            self.statements.append(Statement("queue", {"count": self.at_once}, has_own_queue=True))
        if self.at_once < self.count and is_default:
            self.tell(Did.TRANSLATED, (*at, "parallelism"), f"{self.word_of_queue()}, the default of a Job")
        values: Mapping[str, str | int] = {"template": self.name, "count": self.count}
        file = "indexed_rows" if self.is_indexed else "rows"
        self.statements.append(Statement(file, values, has_own_queue=is_bounded or self.has_queue))

    def word_of_queue(self) -> str:
        """How many rows may run at once. The caller has words of its own for a queue that it declares."""
        each = f"{self.at_once} Pods of each Job count in queues.max_jobs"
        return each if self.has_queue else f"queues.max_jobs: {self.at_once}, of a queue of its own"

    def read_index(self, at: Path) -> str:
        """The value of the index in the template; empty: the Job has none."""
        if not self.is_indexed:
            return ""
        if self.count == 1:
            self.tell(Did.TRANSLATED, (*at, "completionMode"), f"{INDEX}: {ONLY_INDEX} in each container")
            return ONLY_INDEX
        self.given.append(INDEX)
        return INDEX_OF_ROW

    def open_to_rows(self, template: Json, at: Path, pod_path: Path) -> None:
        """Says what rows may set: what they have to give, and without a Secret every open variable."""
        named, brought = list(secrets_of(template["spec"])), injectors(template["metadata"])
        secrets = ", ".join(sorted({*brought, *(name for _, name in named)}))
        if not self.given and (not secrets or self.own.get(ids.ROW_MAY_SET) is not None):
            return
        why = f"because it has Secret {secrets}: a row may set no other variable" if secrets else ""
        path: Path = (*pod_path, *named[0][0]) if named else (*pod_path, "containers")
        opened = ",".join(f"env.{name}" for name in self.given)
        self.annotate((*at, "completionMode") if self.is_indexed and self.given else path, ids.ROW_MAY_SET, opened, why)

    def read_policy(self, spec: Json, at: Path, container: str) -> None:
        """The statuses after which no try follows. `container`: it reports by its status; empty: none does.

        The first rule that fits a status counts.
        """
        actions, path = dict[int, str](), (*at, "podFailurePolicy")
        for number, rule in enumerate(objects(object_at(spec, "podFailurePolicy").get("rules"))):
            action = str(rule.get("action"))
            if word := word_of_rule(rule, container):
                self.tell(word[0], (*path, "rules", number), word[1])
            elif self.count != 1 and action == "FailJob":
                self.tell(Did.OPEN, (*path, "rules", number), "the other rows go on: end them with batch_cancel")
            if container and is_of(rule, container):
                actions = {**dict.fromkeys(codes_of(rule) or (), action), **actions}
        if final := sorted(code for code, action in actions.items() if action in ENDING):
            self.annotate(path, ids.FINAL_CODES, statuses_as_text(final))

    def tell_untold(self, spec: Json, at: Path) -> None:
        """The fields of the Job's spec of which nothing has been told."""
        told = [one.field for one in self.fields]
        for field, value in spec.items():
            name = dotted((*at, field))
            if value is not None and not any(one == name or one.startswith((f"{name}.", f"{name}[")) for one in told):
                like = next((one for one in FIELDS if one.lower() == field.lower()), "")
                self.tell(Did.OPEN, (*at, field), f"it is not known here{f': is it {like}?' if like else ''}")

    def read_retries(self, spec: Json, pod: Json, at: Path, pod_path: Path) -> None:
        policy, limit = pod.get("restartPolicy"), spec.get("backoffLimit")
        if policy not in (None, "Never"):
            blank = ", with a blank emptyDir" if any("emptyDir" in one for one in objects(pod.get("volumes"))) else ""
            words = f"a new Pod each time, as max_failures says{blank}"
            self.tell(Did.TRANSLATED, (*pod_path, "restartPolicy"), words)
        elif policy is not None:
            self.tell(Did.LEFT_OUT, (*pod_path, "restartPolicy"), "it is so anyway")
        if self.source.is_pod:
            if policy in (None, "Always"):
                words = "it also ran again after success: has it an end? A row that succeeded does not run again"
                self.tell(Did.OPEN, (*pod_path, "restartPolicy"), words)
            once = policy == "Never"
            why = "it ran once" if once else "it was restarted for ever: that is the most"
            self.annotate((*pod_path, "restartPolicy"), ids.MAX_FAILURES, "1" if once else str(MOST_FAILURES), why)
            return
        field, per_index = "backoffLimit", spec.get("backoffLimitPerIndex")
        if per_index is not None:
            field = "backoffLimitPerIndex"
            if limit is not None:
                self.tell(Did.LEFT_OUT, (*at, "backoffLimit"), "each row has a limit of its own")
        given = next((one for one in (per_index, limit) if one is not None), RETRIES_OF_A_JOB)
        if type(given) is not int or given < 0:
            self.tell(Did.OPEN, (*at, field), "it is no whole number")
            return
        is_default = limit is None and per_index is None
        why = "the default of a Job" if is_default else "" if given < MOST_FAILURES else "that is the most"
        of_all = "for each row; it was for all together" if self.count != 1 and per_index is None else ""
        why = ", ".join(filter(None, (why, of_all)))
        self.annotate((*at, field), ids.MAX_FAILURES, str(min(given + 1, MOST_FAILURES)), why)

    def read_limits(self, spec: Json, pod: Json, at: Path, pod_path: Path) -> None:
        """The shorter of both deadlines is the run limit. A Job without one may run as long as a row may."""
        places = {(*pod_path, "activeDeadlineSeconds"): pod.get("activeDeadlineSeconds")}
        places |= {} if self.source.is_pod else {(*at, "activeDeadlineSeconds"): spec.get("activeDeadlineSeconds")}
        given = {path: value for path, value in places.items() if type(value) is int and value > 0}
        for path, value in places.items():
            if value is not None and path not in given:
                self.tell(Did.OPEN, path, f"it is no whole number above 0: {ids.TIMEOUT_SECONDS}")
        most = longest(self.own)
        if not given and all(value is None for value in places.values()):
            why = "it had no deadline: that is the most"
            self.annotate((*at, "activeDeadlineSeconds"), ids.TIMEOUT_SECONDS, str(most), why)
        if not given:
            return
        path = min(given, key=lambda one: given[one])
        of_all = (
            "for each try, where it was for all tries together" if path[:-1] == at and not self.source.is_pod else ""
        )
        why = ", ".join(filter(None, ("that is the most" if given[path] > most else "", of_all)))
        self.annotate(path, ids.TIMEOUT_SECONDS, str(min(given[path], most)), why)
        for other in given.keys() - {path}:
            self.tell(Did.LEFT_OUT, other, "the other deadline is shorter")

    def read_meta(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The metadata of the Job and of its Pod in the template."""
        job, pod = dict[str, Any](), dict[str, Any]()
        for owner, path, meta, name in self.meta_sources():
            for did, at, words in words_of_meta(meta, path, owner, name):
                is_mark = len(at) == len(path) + 2 and did in (Did.KEPT, Did.MOVED)
                field, key = str(at[-2]), str(at[-1])
                if is_mark and did is Did.MOVED and key in job.get(field, {}):
                    self.tell(Did.LEFT_OUT, at, "that of the Job counts")
                    continue
                self.tell(did, at, words)
                if is_mark:
                    is_of_pod = did is Did.KEPT and owner is MetaOwner.POD
                    to, there = (pod, OF_POD) if is_of_pod else (job, OF_JOB)
                    to.setdefault(field, {})[key] = object_at(meta, field)[key]
                    self.marks.append((rf"^{re.escape(dotted((*there, field, key)))}$", dotted(at)))
        return job, pod

    def meta_sources(self) -> Iterator[tuple[MetaOwner, Path, Json, str]]:
        """The metadata of a manifest: whose it is, its place, and the template's name if it comes of it."""
        source = self.source
        if source.is_pod:
            yield MetaOwner.POD, source.meta_at, source.meta, self.name
            return
        yield MetaOwner.JOB, source.meta_at, source.meta, self.name if source.owner is None else ""
        if source.owner is not None:
            yield MetaOwner.CRON_JOB, ("metadata",), source.owner, self.name
        yield MetaOwner.POD, (*source.at, "template", "metadata"), object_at(source.spec, "template", "metadata"), ""


def longest(annotations: Json) -> int:
    """The longest run limit that a template with these annotations may name."""
    written = str(annotations.get(ids.MAX_SECONDS))
    return min(int(written), LONGEST_SECONDS) if re.fullmatch(r"[1-9][0-9]{0,8}", written) else LONGEST_SECONDS


FIELDS: Final = KINDS["JobSpec"].others
COUNTS: Final = ("completions", "parallelism")
OF_JOB: Final[Path] = ("metadata",)
OF_POD: Final[Path] = ("spec", "template", "metadata")


def word_of_count(field: str, completions: int | None, parallel: int, queue: str) -> tuple[Did, str]:
    """What becomes of a field of COUNTS. `completions`: None where the Job has none. `queue`: words for max_jobs."""
    if field == "completions" and completions == 0:
        return Did.OPEN, "it ran no Pod: insert no row"
    rows = completions or parallel
    if field == "parallelism" and parallel == 0:
        words = f"{queue}: raise it to begin" if rows > 1 else "insert no row, or pause the queue"
        return Did.OPEN, f"it was paused: {words}"
    if rows == 1:
        return Did.LEFT_OUT, "a row is one Pod"
    if field == "completions" or completions is None:
        return Did.OPEN, f"insert one row for each of the {rows}"
    if parallel < completions:
        return Did.TRANSLATED, queue
    return Did.LEFT_OUT, "all rows may run at once"


def word_of_job(field: str, value: object) -> tuple[Did, str] | None:
    """What becomes of a field of a Job's spec that means the same for all Jobs. None: it is another one."""
    if (field, value) == ("completionMode", "Indexed"):
        return None
    if field in DECIDED:
        return Did.LEFT_OUT, DECIDED[field]
    if field == "suspend" and value:
        return Did.OPEN, "insert no row, or pause the queue: queues.paused_until"
    if (field, value) == ("podReplacementPolicy", "TerminatingOrFailed"):
        return Did.LEFT_OUT, "the API server's default; here a try follows when the last Pod has ended"
    if field in DEFAULTS:
        is_same = DEFAULTS[field] == value
        return (Did.LEFT_OUT, "it is so anyway") if is_same else (Did.OPEN, f"it is {DEFAULTS[field]!r} here")
    return (Did.OPEN, WITHOUT_LIKE[field]) if field in WITHOUT_LIKE else None


def codes_of(rule: Json) -> Sequence[int] | None:
    """The exit statuses of a rule, without 0; None: it is of another kind."""
    given = object_at(rule, "onExitCodes")
    values = given.get("values")
    if not isinstance(values, list) or not all(type(one) is int for one in values):
        return None
    is_in = given.get("operator") == "In"
    return [code for code in range(1, LAST_STATUS + 1) if (code in values) == is_in]


ENDING: Final = ("FailJob", "FailIndex")
"""Actions of a rule after which no try follows."""


def word_of_rule(rule: Json, container: str) -> tuple[Did, str] | None:
    """What becomes of a rule. None: it ends the row by its statuses. `container`: it reports by its status."""
    types, action = {str(one.get("type")) for one in objects(rule.get("onPodConditions"))}, rule.get("action")
    if codes_of(rule) is None:
        if types == {"DisruptionTarget"} and action == "Ignore":
            return Did.LEFT_OUT, "it is so anyway: a disruption is no failure"
        return Did.OPEN, "a disruption is no failure here, and other conditions are not read"
    if not is_of(rule, container):
        return Did.OPEN, "only the status of the task's container counts here"
    if action not in (*ENDING, "Count"):
        return Did.OPEN, f"{action}: every failure counts here"
    if not container:
        return Did.OPEN, "`dispatcher exec --final CODES` says which statuses end the row"
    return (Did.LEFT_OUT, "every failure counts here") if action == "Count" else None


def is_of(rule: Json, container: str) -> bool:
    """Whether the rule reads the status of the container."""
    return not container or object_at(rule, "onExitCodes").get("containerName") in (None, container)
