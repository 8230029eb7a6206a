"""Makes a template of a Job's or Pod's spec of another system, and says what became of each field. Pure.

Nothing is lost silently: a field is kept, moved, translated, left out because the dispatcher decides it, or left to a
person. Afterwards the check of the template finds what the API server would refuse in the manifest.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from dispatcher.container.contract import LAST_STATUS, statuses_as_text
from dispatcher.jobs.env import LOGIN, is_dispatchers
from dispatcher.jobs.fields import dotted, list_at, object_at
from dispatcher.jobs.template_text import Path
from dispatcher.jobs.templates import DEFAULTS, LONGEST_SECONDS, MOST_FAILURES, RESTARTS, TASK, is_image
from dispatcher.model import launches as ids
from dispatcher.model.jobs import Manifest

Json = Mapping[str, Any]
EXIT_CODE: Final = "exit-code"
RETRIES_OF_A_JOB: Final = 6
"""The API server's default of backoffLimit."""
USUAL_NAMES: Final = ("base", "main")
"""Names of the working container in Airflow and Argo."""
INDEX: Final = "JOB_COMPLETION_INDEX"
INDEX_NOTE: Final = "job-completion-index"
"""The annotation of a Pod with the same number."""
UNLIKELY: Final = re.compile(r"[^a-z0-9]+")
OF_CONTROLLERS: Final = re.compile(
    r"(batch\.kubernetes\.io/)?(controller-uid|job-name)|batch\.kubernetes\.io/.*|app\.kubernetes\.io/managed-by"
    rf"|kubectl\.kubernetes\.io/last-applied-configuration|{re.escape(ids.DOMAIN)}/.*"
)
"""Labels and annotations that a controller or a tool writes, and those that the dispatcher sets."""
OF_TIMES: Final = {
    re.compile(r"helm\.sh/hook.*|argocd\.argoproj\.io/(hook.*|sync-wave)"): "a release ran it: insert its row then",
    re.compile(r"autoscaling\.keda\.sh/paused.*"): "it was paused: queues.paused_until",
}
"""Annotations that say when work runs. In a template they have no meaning."""
DECIDED: Final[Mapping[str, str]] = {
    "ttlSecondsAfterFinished": "the dispatcher removes finished Jobs",
    "selector": "it belongs to one Job",
}  # fmt: skip
READ_ELSEWHERE: Final = frozenset({
    "template", "activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex", "parallelism", "completions",
    "podFailurePolicy",
})  # fmt: skip
UNKNOWN_HERE: Final[Mapping[str, str]] = {
    "successPolicy": "a row is done when its container is: insert rows, and look at their batch",
    "maxFailedIndexes": "each row ends by itself: cancel the rest of the batch with batch_cancel",
    "managedBy": "the dispatcher makes no Jobs for other controllers",
}  # fmt: skip


OF_META: Final[Mapping[str, str]] = {
    "name": "the name of the template",
    "namespace": "Jobs run in the dispatcher's namespace: what the Pod names must be there",
}


class Did(StrEnum):
    """What became of a field."""

    KEPT = "kept"
    MOVED = "moved"
    TRANSLATED = "translated"
    LEFT_OUT = "left out"
    OPEN = "to decide"


class AdoptedField(Struct, frozen=True):
    """One field of the manifest, and what became of it. `words`: empty if the field itself says it."""

    did: Did
    field: str
    words: str = ""


class Statement(Struct, frozen=True):
    """A file of sql/adopt, and its variables."""

    file: str
    values: Mapping[str, str | int]


class Adoption(Struct, frozen=True):
    """A template that was made of a manifest.

    name: name of the template.
    manifest: the template.
    fields: what became of each field.
    statements: statements to paste into psql.
    schedule: fields of the spec of a CronJob that inserts the rows, with the times; empty: there is none.
    in_time: the statement of that CronJob; None: there is none.
    """

    name: str
    manifest: Manifest
    fields: list[AdoptedField]
    statements: list[Statement]
    schedule: Json = {}
    in_time: Statement | None = None


class WorkSource(Struct):
    """Where a manifest has its parts. `at`: the place of the Job's spec, for messages."""

    name: str
    spec: Json
    meta: Json
    at: Path
    is_pod: bool = False


class Adopter:
    """Makes one template."""

    def __init__(self, source: WorkSource) -> None:
        self.source = source
        self.fields: list[AdoptedField] = []
        self.statements: list[Statement] = []
        self.name = template_name(source.name)
        self._annotations: dict[str, str] = {}
        self._pod: dict[str, Any] = {}
        self._task_container = ""

    def tell(self, did: Did, path: Path, words: str = "") -> None:
        self.fields.append(AdoptedField(did, dotted(path), words))

    @property
    def own(self) -> Json:
        """Annotations of the manifest itself. Its words about the dispatcher win."""
        return {} if self.source.is_pod else object_at(self.source.meta, "annotations")

    def annotate(self, path: Path, annotation: str, value: str, why: str = "") -> None:
        if annotation in ids.OPENINGS and self.own.get(annotation) is not None:
            is_list = annotation == ids.ROW_MAY_SET
            words = f"add {value} to its own {annotation}" if is_list else f"its own {annotation} counts"
            self.tell(Did.OPEN if is_list else Did.LEFT_OUT, path, words)
            return
        self._annotations[annotation] = value
        self.tell(Did.TRANSLATED, path, f"{annotation}: {value}{f', {why}' if why else ''}")

    def adopt(self) -> Adoption:
        spec, at = self.source.spec, self.source.at
        pod_path: Path = at if self.source.is_pod else (*at, "template", "spec")
        pod = self.source.spec if self.source.is_pod else object_at(spec, "template", "spec")
        if not self.source.is_pod:
            self.read_job(spec, at)
            self.tell_unknown(object_at(spec, "template"), {"metadata", "spec"}, (*at, "template"))
        self._pod = dict(self._kept_pod(pod, pod_path))
        self.read_retries(spec, pod, at, pod_path)
        self.read_limits(spec, pod, at, pod_path)
        self.read_containers(pod_path)
        reports = self._annotations.get(ids.REPORT) or object_at(self.source.meta, "annotations").get(ids.REPORT)
        told, final = read_policy(spec, self._task_container, is_by_code=reports == EXIT_CODE)
        for index, did, words in told:
            self.tell(did, (*at, "podFailurePolicy", "rules", index), words)
        if final:
            self.annotate((*at, "podFailurePolicy"), ids.FINAL_CODES, statuses_as_text(final))
        pod_meta = self.source.meta if self.source.is_pod else object_at(spec, "template", "metadata")
        meta_at: Path = ("metadata",) if self.source.is_pod else (*at, "template", "metadata")
        labelled = {} if self.source.is_pod else self.kept_meta(self.source.meta, ("metadata",))
        kept = self.kept_meta(pod_meta, meta_at)
        template = {**({"metadata": kept} if kept else {}), "spec": self._pod}
        own = {**labelled.get("annotations", {}), **self._annotations}
        meta = {**labelled, "annotations": own}
        manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}
        if any(one.file == "indexed_rows" for one in self.statements):
            for part, number in without_index(self._pod, self._task_container):
                words = f"env.{INDEX} is in the container of the task alone"
                self.tell(Did.OPEN, (*pod_path, part, number), words)
            if pod.get("subdomain"):
                words = "no Pod is called NAME-INDEX, and rows start one by one: they cannot find each other by name"
                self.tell(Did.OPEN, (*pod_path, "subdomain"), words)
        for path, words in (*unlike_ours(self._pod, pod_path), *unfilled(self._pod, pod_path)):
            self.tell(Did.OPEN, path, words)
        has_work = bool(objects(self._pod.get("containers")))
        return Adoption(self.name, manifest if has_work else {}, self.fields, self.statements)

    def tell_unknown(self, found: Json, known: Collection[str], path: Path) -> None:
        for field in sorted(found.keys() - known):
            if found[field] is not None:
                self.tell(Did.OPEN, (*path, field), "it is not known here")

    def read_job(self, spec: Json, at: Path) -> None:
        """The fields of the Job's spec except retries and limits."""
        for field, value in spec.items():
            if value is not None and (found := word_of_job(field, value)):
                self.tell(found[0], (*at, field), found[1])
        self.read_count(spec, at)

    def read_count(self, spec: Json, at: Path) -> None:
        """Turns several Pods of one Job into several rows."""
        parallel, count = spec.get("parallelism"), spec.get("completions") or spec.get("parallelism") or 1
        if parallel == 0 and parallel is not False:
            self.tell(Did.OPEN, (*at, "parallelism"), "it was paused: insert no row, or pause the queue")
            parallel = None
        if not isinstance(count, int) or not isinstance(parallel, int | None):
            self.tell(Did.OPEN, (*at, "completions"), "it is no whole number")
            return
        if count == 1 and parallel in (None, 1):
            for field in {"parallelism", "completions"} & {key for key, value in spec.items() if value is not None}:
                self.tell(Did.LEFT_OUT, (*at, field), "a row is one Pod")
            return
        is_indexed = spec.get("completionMode") == "Indexed"
        self.statements.append(
            Statement("indexed_rows" if is_indexed else "rows", {"template": self.name, "count": count})
        )
        if is_indexed:
            self.annotate((*at, "completionMode"), ids.ROW_MAY_SET, f"env.{INDEX}")
        counted = "completions" if spec.get("completions") else "parallelism"
        self.tell(Did.OPEN, (*at, counted), f"insert one row for each of the {count}")
        if counted == "completions" and parallel is not None:
            self.tell(Did.OPEN, (*at, "parallelism"), f"give the rows a queue of their own, with max_jobs {parallel}")

    def read_retries(self, spec: Json, pod: Json, at: Path, pod_path: Path) -> None:
        policy, limit = pod.get("restartPolicy"), spec.get("backoffLimit")
        if policy not in (None, "Never"):
            self.tell(Did.TRANSLATED, (*pod_path, "restartPolicy"), "a new Pod each time, as max_failures says")
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
        if not isinstance(given, int):
            self.tell(Did.OPEN, (*at, field), "it is no whole number")
            return
        is_default = limit is None and per_index is None
        why = "the default of a Job" if is_default else "" if given < MOST_FAILURES else "that is the most"
        self.annotate((*at, field), ids.MAX_FAILURES, str(min(given + 1, MOST_FAILURES)), why)

    def read_limits(self, spec: Json, pod: Json, at: Path, pod_path: Path) -> None:
        """The shorter of both deadlines is the run limit. A Job without one may run as long as a row may."""
        places = {(*pod_path, "activeDeadlineSeconds"): pod.get("activeDeadlineSeconds")}
        places |= {} if self.source.is_pod else {(*at, "activeDeadlineSeconds"): spec.get("activeDeadlineSeconds")}
        given = {path: value for path, value in places.items() if type(value) is int}
        for path, value in places.items():
            if value is not None and path not in given:
                self.tell(Did.OPEN, path, f"it is no whole number: {ids.TIMEOUT_SECONDS}")
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
        self.annotate(path, ids.TIMEOUT_SECONDS, str(max(1, min(given[path], most))), why)
        for other in given.keys() - {path}:
            self.tell(Did.LEFT_OUT, other, "the other deadline is shorter")

    def _kept_pod(self, pod: Json, path: Path) -> Iterator[tuple[str, Any]]:
        for field, value in pod.items():
            if value is None or field in {"restartPolicy", "activeDeadlineSeconds"}:
                continue
            if field == "nodeName":
                self.tell(Did.OPEN, (*path, field), f"each row would be bound to {value}: give a nodeSelector")
                continue
            words = "DISPATCHER_SCHEDULER_NAME, where it is set, wins" if field == "schedulerName" else ""
            self.tell(Did.KEPT, (*path, field), words)
            yield field, value

    def kept_meta(self, meta: Json, path: Path) -> dict[str, dict[str, Any]]:
        """Labels and annotations without those of controllers."""
        kept = dict[str, dict[str, Any]]()
        for field in meta:
            if field not in {"labels", "annotations"}:
                words = OF_META.get(field, "the dispatcher or the cluster gives it")
                words += f": {self.name}" if field == "name" and meta[field] != self.name else ""
                self.tell(Did.MOVED if field == "name" else Did.LEFT_OUT, (*path, field), words)
                continue
            for key, each in object_at(meta, field).items():
                if words := next((words for one, words in OF_TIMES.items() if one.fullmatch(key)), ""):
                    self.tell(Did.OPEN, (*path, field, key), words)
                    continue
                is_theirs = OF_CONTROLLERS.fullmatch(key) and key not in ids.OPENINGS
                self.tell(Did.LEFT_OUT if is_theirs else Did.KEPT, (*path, field, key))
                if not is_theirs:
                    kept.setdefault(field, {})[key] = each
        return kept

    def read_containers(self, path: Path) -> None:
        """Chooses the task's container, cleans its variables, and finds out whether it can report."""
        containers = objects(self._pod.get("containers"))
        if not containers:
            words = "there are none: of a patch, `kubectl kustomize DIR | dispatcher adopt -` makes the whole"
            self.tell(Did.OPEN, (*path, "containers"), words)
            return
        given = object_at(self.source.meta, "annotations")
        names = [str(one.get("name")) for one in containers]
        usual = next((one for one in (given.get(ids.CONTAINER), TASK, *USUAL_NAMES) if one in names), None)
        index = names.index(usual) if usual else 0
        if len(names) > 1 and (usual is None or usual in USUAL_NAMES) and ids.CONTAINER not in given:
            self.annotate((*path, "containers"), ids.CONTAINER, names[index], f"of {', '.join(names)}")
        if len(names) > 1 and usual is None:
            self.tell(Did.OPEN, (*path, "containers"), f"is {names[0]} the one that works?")
        self._task_container = str(containers[index].get("name"))
        containers[index] = self.with_clean_env(containers[index], (*path, "containers", index))
        self._pod["containers"] = with_objects(self._pod["containers"], containers)
        for kind in sorted(RESTARTS.keys() & self._pod.keys()):
            found = [self.without_restarts(one, (*path, kind, n)) for n, one in enumerate(objects(self._pod[kind]))]
            self._pod[kind] = with_objects(self._pod[kind], found)
        if ids.REPORT not in given and not can_report(containers[index]):
            self.annotate((*path, "containers", index), ids.REPORT, EXIT_CODE, "the image calls no function of ours")

    def without_restarts(self, container: dict[str, Any], path: Path) -> dict[str, Any]:
        """The container without a restart: each try is a Pod. An init container that always restarts is a sidecar."""
        left = {key: value for key, value in container.items() if key != "restartPolicyRules"}
        if left.get("restartPolicy") not in RESTARTS[str(path[-2])]:
            self.tell(Did.TRANSLATED, (*path, "restartPolicy"), f"a new Pod each time: {left.pop('restartPolicy')}")
        if container.get("restartPolicyRules"):
            self.tell(Did.OPEN, (*path, "restartPolicyRules"), f"which exit codes are final? {ids.FINAL_CODES}")
        return left

    def with_clean_env(self, container: dict[str, Any], path: Path) -> dict[str, Any]:
        """The container without the dispatcher's variables. Of a repeated name the last one counts, as for kubelet."""
        env = objects(container.get("env"))
        kept = list[Json]()
        for number, one in enumerate(env):
            where = (*path, "env", number)
            if is_dispatchers(one):
                self.tell(Did.OPEN, where, f"{one.get('name')} is the dispatcher's name: give it another one")
            elif word := word_of_repeated(env, number):
                self.tell(word[0], where, word[1])
            elif INDEX_NOTE in str(object_at(one, "valueFrom", "fieldRef").get("fieldPath")):
                is_same = one.get("name") == INDEX
                words = f"env.{INDEX} of the row has it"
                self.tell(Did.TRANSLATED if is_same else Did.OPEN, where, words if is_same else f"{words}: read that")
            else:
                kept.append(one)
        others = [one for one in list_at(container, "env") if not isinstance(one, dict)]
        return {**container, "env": [*kept, *others]} if env else container


def word_of_repeated(env: Sequence[Json], number: int) -> tuple[Did, str] | None:
    """What becomes of a variable whose name is repeated below. None: the name is not repeated."""
    name = env[number].get("name")
    again = [at for at in range(number + 1, len(env)) if env[at].get("name") == name]
    if not again:
        return None
    readers = [at for at in range(number + 1, again[-1] + 1) if f"$({name})" in str(env[at].get("value"))]
    if readers:
        return Did.OPEN, f"{name} stands again below, and env[{readers[0]}] reads this one: give this one another name"
    return Did.LEFT_OUT, f"{name} stands again below"


def longest(annotations: Json) -> int:
    """The longest run limit that a template with these annotations may name."""
    written = str(annotations.get(ids.MAX_SECONDS))
    return min(int(written), LONGEST_SECONDS) if re.fullmatch(r"[1-9][0-9]{0,8}", written) else LONGEST_SECONDS


def without_index(pod: Json, task_container: str) -> Iterator[tuple[str, int]]:
    """The parts of a Pod that read the index of an Indexed Job, where a variable of the row does not arrive."""
    for field, part in pod.items():
        for number, one in enumerate(part if isinstance(part, list) else ()):
            is_task = field == "containers" and isinstance(one, dict) and one.get("name") == task_container
            if not is_task and any(INDEX in text or INDEX_NOTE in text for text in texts(one)):
                yield field, number


def unlike_ours(part: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Parts where the Pod selects Pods by a label of the Job controller. Our Jobs' Pods have another value of it."""
    for key, value in entries(part):
        at = (*path, key)
        if key == "labelSelector" and isinstance(value, dict):
            terms = (one.get("key") for one in objects(value.get("matchExpressions")))
            names = [*object_at(value, "matchLabels"), *terms]
        else:
            names = list(value) if key in {"matchLabelKeys", "mismatchLabelKeys"} and isinstance(value, list) else []
        for name in names:
            if OF_CONTROLLERS.fullmatch(str(name)):
                yield at, f"no Pod of ours has this {name}: give the Pods a label of your own, and select that"
        yield from unlike_ours(value, at)


def entries(part: object) -> Iterable[tuple[str | int, object]]:
    return part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()


def unfilled(pod: Json, path: Path) -> Iterator[tuple[Path, str]]:
    """Images that no node can pull, and mounts of no volume. Helm, envsubst, sed or Argo would have filled them in."""
    volumes = {str(one.get("name")) for one in objects(pod.get("volumes"))}
    for field in ("initContainers", "containers"):
        for number, one in enumerate(objects(pod.get(field))):
            if (image := one.get("image")) and not is_image(image):
                words = f"nobody fills in {image!r:.80} here: write it, or let rows choose: {ids.ROW_MAY_SET}: image"
                yield (*path, field, number, "image"), words
            for place, mount in enumerate(objects(one.get("volumeMounts"))):
                if str(mount.get("name")) not in volumes:
                    words = f"no volume is called {mount.get('name')!s:.80}: add one to volumes of the template"
                    yield (*path, field, number, "volumeMounts", place), words


def word_of_job(field: str, value: object) -> tuple[Did, str] | None:
    """What becomes of a field of a Job's spec. None: another function reports it."""
    if field in READ_ELSEWHERE or (field, value) == ("completionMode", "Indexed"):
        return None
    if field in DECIDED:
        return Did.LEFT_OUT, DECIDED[field]
    if field == "suspend" and value:
        return Did.OPEN, "insert no row, or pause the queue: queues.paused_until"
    if field in DEFAULTS:
        is_same = DEFAULTS[field] == value
        return (Did.LEFT_OUT, "it is so anyway") if is_same else (Did.OPEN, f"it is {DEFAULTS[field]!r} here")
    return Did.OPEN, UNKNOWN_HERE.get(field, "it is not known here")


def read_policy(spec: Json, container: str, *, is_by_code: bool) -> tuple[list[tuple[int, Did, str]], list[int]]:
    """What a person must decide about the rules, by their index, and the statuses that fail the Job.

    The first rule that fits a status counts.
    """
    told, actions = list[tuple[int, Did, str]](), dict[int, str]()
    for index, rule in enumerate(objects(object_at(spec, "podFailurePolicy").get("rules"))):
        codes = codes_of(rule)
        if codes is None:
            told.append((index, *word_of_rule(rule)))
        elif object_at(rule, "onExitCodes").get("containerName") not in (None, container):
            told.append((index, Did.OPEN, "only the status of the task's container counts here"))
        elif rule.get("action") not in ("FailJob", "Count"):
            told.append((index, Did.OPEN, f"{rule.get('action')}: every failure counts here"))
            actions = {**dict.fromkeys(codes, str(rule.get("action"))), **actions}
        elif not is_by_code:
            told.append((index, Did.OPEN, "`dispatcher exec --final CODES` says which statuses end the row"))
        else:
            actions = {**dict.fromkeys(codes, str(rule["action"])), **actions}
    return told, sorted(code for code, action in actions.items() if action == "FailJob")


def codes_of(rule: Json) -> Sequence[int] | None:
    """The exit statuses of a rule, without 0; None: the rule is of another kind."""
    given = object_at(rule, "onExitCodes")
    values = given.get("values")
    if not isinstance(values, list) or not all(type(one) is int for one in values):
        return None
    is_in = given.get("operator") == "In"
    return [code for code in range(1, LAST_STATUS + 1) if (code in values) == is_in]


def word_of_rule(rule: Json) -> tuple[Did, str]:
    """What becomes of a rule that names no exit statuses."""
    types = {str(one.get("type")) for one in objects(rule.get("onPodConditions"))}
    if types == {"DisruptionTarget"} and rule.get("action") == "Ignore":
        return Did.LEFT_OUT, "it is so anyway: a disruption is no failure"
    return Did.OPEN, "a disruption is no failure here, and other conditions are not read"


def can_report(container: Json) -> bool:
    """Whether the container has a login, or begins with `exec`."""
    words = [*list_at(container, "command"), *list_at(container, "args")]
    names = [one.get("name") for one in objects(container.get("env"))]
    return LOGIN in names or ("dispatcher" in words and "exec" in words)


def objects(value: object) -> list[dict[str, Any]]:
    """The items of a list that are objects."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def with_objects(value: object, found: Sequence[Json]) -> object:
    """The value with these objects in place of its own. Other items stay: the check of the template finds them."""
    left = iter(found)
    return [next(left) if isinstance(one, dict) else one for one in value] if isinstance(value, list) else value


def texts(part: object) -> Iterator[str]:
    """All texts of a part of a manifest."""
    if isinstance(part, str):
        yield part
    for one in part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ():
        yield from texts(one)


def template_name(name: str) -> str:
    """A name that the dispatcher accepts. Rows without a template run `default`, so no manifest gets that name."""
    found = UNLIKELY.sub("-", str(name).lower()).strip("-")[:63].strip("-") or "template"
    return found if found != "default" else "default-work"
