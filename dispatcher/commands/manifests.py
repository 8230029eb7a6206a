"""Reads manifests of other systems by their kind: Job, CronJob, ScaledJob, Pod, and the workflows of Argo. Pure.

Each becomes one template, but for workflows: those become one for each step that runs a container.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from dispatcher.commands.adoption import (
    AdoptedField,
    Adopter,
    Adoption,
    Did,
    Json,
    Statement,
    WorkSource,
    objects,
    template_name,
)
from dispatcher.jobs.env import ENV_NAME, is_dispatchers
from dispatcher.jobs.fields import dotted, object_at
from dispatcher.jobs.template_text import Path
from dispatcher.jobs.templates import MOST_FAILURES, TASK
from dispatcher.model import launches as ids
from dispatcher.model.jobs import Manifest

PARAMETER: Final = re.compile(r"\{\{\s*(?:inputs|workflow)\.parameters\.([A-Za-z0-9_-]+)\s*\}\}")


def name_of(document: Json) -> str:
    meta = object_at(document, "metadata")
    return str(meta.get("name") or str(meta.get("generateName") or document.get("kind")).rstrip("-"))


def of_job(document: Json) -> Iterator[Adoption]:
    yield Adopter(
        WorkSource(name_of(document), object_at(document, "spec"), object_at(document, "metadata"), ("spec",))
    ).adopt()


def of_pod(document: Json) -> Iterator[Adoption]:
    meta = object_at(document, "metadata")
    found = Adopter(WorkSource(name_of(document), object_at(document, "spec"), meta, ("spec",), is_pod=True))
    if any(one.get("name") == "base" for one in objects(found.source.spec.get("containers"))):
        words = f"Airflow gives args: open them by {ids.ROW_MAY_SET}: args, and write them into spec.args of a row"
        found.tell(Did.OPEN, ("spec", "containers"), f"{words}; its retries: n are {ids.MAX_FAILURES}: n + 1")
    yield found.adopt()


def of_cron_job(document: Json) -> Iterator[Adoption]:
    at: Path = ("spec", "jobTemplate", "spec")
    meta = {**object_at(document, "spec", "jobTemplate", "metadata"), "name": name_of(document)}
    found = Adopter(WorkSource(name_of(document), object_at(document, *at), meta, at))
    spec = object_at(document, "spec")
    for field in sorted(object_at(document, "metadata").keys() - {"name"}):
        found.tell(Did.LEFT_OUT, ("metadata", field), "it was the CronJob's, and not its Jobs'")
    for field in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        if spec.get(field) is not None:
            found.tell(Did.LEFT_OUT, ("spec", field), "the janitor keeps rows as long as the operator says")
    found.tell(Did.OPEN, ("spec", "schedule"), word_of_schedule(spec))
    for field, value in spec.items():
        if value is not None and (word := word_of_time(field, value)):
            found.tell(word[0], ("spec", field), word[1])
    found.statements.append(row_in_time(spec, found.name))
    yield replace(found.adopt(), schedule=times_of(spec))


TIMES: Final = {
    "schedule": "schedule", "timeZone": "timeZone", "timezone": "timeZone", "suspend": "suspend",
    "startingDeadlineSeconds": "startingDeadlineSeconds",
}  # fmt: skip
"""The fields of a CronJob and of a CronWorkflow that say when, and their names in a CronJob."""


def times_of(spec: Json) -> Json:
    """When a row is inserted, by the names of a CronJob. A CronWorkflow may have a list: one alone is a schedule."""
    found = {TIMES[field]: value for field, value in spec.items() if field in TIMES and value is not None}
    several = spec.get("schedules")
    return {**found, "schedule": several[0]} if isinstance(several, list) and len(several) == 1 else found


def row_in_time(spec: Json, template: str) -> Statement:
    is_alone = spec.get("concurrencyPolicy") in ("Forbid", "Replace")
    return Statement("one_at_a_time" if is_alone else "again", {"template": template})


def word_of_schedule(spec: Json) -> str:
    times = times_of(spec)
    zone = f" in {times['timeZone']}" if times.get("timeZone") else ""
    return f"the CronJob below inserts the row at {times.get('schedule')}{zone}: give it a login, in a Secret"


def word_of_time(field: str, value: object) -> tuple[Did, str] | None:
    """What becomes of the other fields of a schedule. None: it is none of them."""
    if field not in {*TIMES, "concurrencyPolicy"} or field == "schedule":
        return None
    if value in (False, "Allow"):
        return Did.LEFT_OUT, "it is so anyway"
    words = "dedupe_key: no second row while one is alive" if field == "concurrencyPolicy" else "in the CronJob below"
    return Did.OPEN if value == "Replace" else Did.TRANSLATED, words


PSQL_IMAGE: Final = "postgres:18"
LONGEST_NAME: Final = 52
"""Of a CronJob: the names of its Jobs are longer."""


def inserting_cron_job(name: str, schedule: Json, statement: str) -> Manifest:
    """The CronJob that inserts a row. Its login stands in the Secret `dispatcher-submitter`, as `url`."""
    secret = {"secretKeyRef": {"name": "dispatcher-submitter", "key": "url"}}
    container = {
        "name": "insert", "image": PSQL_IMAGE,
        "command": ["psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "$(DATABASE_URL)", "--command", statement],
        "env": [{"name": "DATABASE_URL", "valueFrom": secret}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    safe = {"runAsNonRoot": True, "runAsUser": 999, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {"restartPolicy": "Never", "securityContext": safe, "containers": [container]}
    job = {"spec": {"backoffLimit": 3, "template": {"spec": pod}}}
    spec = {**schedule, "concurrencyPolicy": "Forbid", "jobTemplate": job}
    name = name[:LONGEST_NAME].rstrip("-")
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


def of_scaled_job(document: Json) -> Iterator[Adoption]:
    at: Path = ("spec", "jobTargetRef")
    found = Adopter(WorkSource(name_of(document), object_at(document, *at), object_at(document, "metadata"), at))
    spec = object_at(document, "spec")
    for number, one in enumerate(objects(spec.get("triggers"))):
        words = f"the producer inserts a row for each piece of work, beside a message of {one.get('type')} or instead"
        found.tell(Did.OPEN, ("spec", "triggers", number), words)
    queue = "default"
    if isinstance(most := spec.get("maxReplicaCount"), int):
        queue = found.name
        found.statements.append(Statement("queue", {"queue": queue, "count": most}))
        found.tell(Did.TRANSLATED, ("spec", "maxReplicaCount"), f"queues.max_jobs: {most}")
    for field in sorted(spec.keys() - {"jobTargetRef", "triggers", "maxReplicaCount"}):
        found.tell(Did.LEFT_OUT, ("spec", field), "rows are launched when they come")
    found.statements.append(Statement("row", {"queue": queue, "template": found.name}))
    yield found.adopt()


def of_workflow(document: Json) -> Iterator[Adoption]:
    """A template for each step that runs a container. The graph is left to a person."""
    at: Path = ("spec", "workflowSpec") if document.get("kind") == "CronWorkflow" else ("spec",)
    whole = object_at(document, *at)
    cron = {key: value for key, value in object_at(document, "spec").items() if value is not None and at != ("spec",)}
    first_step = str(whole.get("entrypoint"))
    steps = [
        step_of_workflow(step, whole, (*at, "templates", number)) if isinstance(step.get("container"), dict)
        else graph(step, (*at, "templates", number))
        for number, step in enumerate(objects(whole.get("templates")))
    ]  # fmt: skip
    first = next((one for one in steps if one.manifest and one.name == template_name(first_step)), None)
    if first and (times := times_of(cron)).get("schedule"):
        steps[steps.index(first)] = replace(first, statements=[row_in_time(cron, first.name)], schedule=times)
        told = list(words_of_cron(cron))
    else:
        told = [word_of_cron(field) for field in sorted(cron.keys() - {"workflowSpec"})]
    nothing = [AdoptedField(Did.OPEN, dotted((*at, "templates")), "no step is here: adopt the file that has them")]
    head, *others = steps or [Adoption(template_name(name_of(document)), {}, nothing, [])]
    yield replace(head, fields=[*words_of_workflow(document, whole, at), *told, *head.fields])
    yield from others


def words_of_cron(spec: Json) -> Iterator[AdoptedField]:
    """What becomes of the fields of a CronWorkflow whose first step gets a CronJob."""
    for field in sorted(spec.keys() - {"workflowSpec"}):
        if field in {"schedule", "schedules"}:
            yield AdoptedField(Did.OPEN, dotted(("spec", field)), word_of_schedule(spec))
        elif word := word_of_time(field, spec[field]):
            yield AdoptedField(word[0], dotted(("spec", field)), word[1])
        else:
            yield word_of_cron(field)


def word_of_cron(field: str) -> AdoptedField:
    did, words = OF_CRON.get(field, (Did.OPEN, NO_LIKE))
    return AdoptedField(did, dotted(("spec", field)), words)


def words_of_workflow(document: Json, whole: Json, at: Path) -> Iterator[AdoptedField]:
    """What becomes of the fields above the steps."""
    for field in object_at(document, "metadata"):
        yield AdoptedField(Did.LEFT_OUT, dotted(("metadata", field)), "it was the workflow's, and not its Pods'")
    for field in sorted(whole.keys() - {"templates"}):
        if field == "podMetadata":
            yield AdoptedField(Did.KEPT, dotted((*at, field)), "in each step, but for what the step says otherwise")
        elif field == "volumes":
            yield AdoptedField(Did.KEPT, dotted((*at, field)), "in each step that mounts them")
        elif field in OF_POD or field == "retryStrategy":
            yield AdoptedField(Did.KEPT, dotted((*at, field)), "in each step that has none of its own")
        else:
            did, words = OF_WORKFLOW.get(field, (Did.OPEN, NO_LIKE))
            yield AdoptedField(did, dotted((*at, field)), words)


def graph(step: Json, path: Path) -> Adoption:
    what = ", ".join(sorted(step.keys() - {"name", "inputs", "outputs"})) or "nothing"
    words = "no container to launch: insert rows in the order that it says"
    told = AdoptedField(Did.OPEN, dotted(path), f"{what}: {words}")
    return Adoption(template_name(step.get("name", "")), {}, [told], [])


NO_LIKE: Final = "it has no like here"
OF_STEP: Final = frozenset({
    "container", "sidecars", "initContainers", "volumes", "name", "inputs", "metadata", "activeDeadlineSeconds",
    "retryStrategy",
})  # fmt: skip
OF_POD: Final = frozenset({
    "nodeSelector", "tolerations", "affinity", "serviceAccountName", "securityContext", "hostAliases",
    "priorityClassName", "schedulerName", "automountServiceAccountToken", "imagePullSecrets", "dnsPolicy", "dnsConfig",
    "hostNetwork",
})  # fmt: skip
OF_CRON: Final = {
    "schedule": (Did.OPEN, "somebody inserts the rows at these times, such as pg_cron or a CronJob"),
    "schedules": (Did.OPEN, "somebody inserts the rows at these times, as for schedule"),
    "timezone": (Did.OPEN, "the one who inserts needs it"),
    "suspend": (Did.OPEN, "do not begin to insert yet"),
    "concurrencyPolicy": (Did.OPEN, "a dedupe_key: no second row while one is alive"),
    "startingDeadlineSeconds": (Did.LEFT_OUT, "a row waits as long as it must"),
    "successfulJobsHistoryLimit": (Did.LEFT_OUT, "the janitor keeps rows as long as the operator says"),
    "failedJobsHistoryLimit": (Did.LEFT_OUT, "the janitor keeps rows as long as the operator says"),
}
OF_WORKFLOW: Final = {
    "entrypoint": (Did.LEFT_OUT, "each row names the template that it wants"),
    "arguments": (Did.OPEN, "each row gives them, by env"),
    "activeDeadlineSeconds": (Did.OPEN, "it was that of all steps together: each row has a limit of its own"),
    "ttlStrategy": (Did.LEFT_OUT, "the dispatcher removes finished Jobs"),
    "podGC": (Did.LEFT_OUT, "the dispatcher removes finished Jobs"),
    "parallelism": (Did.OPEN, "give the rows a queue of their own, with max_jobs"),
    "onExit": (Did.OPEN, "insert its row when the others have ended"),
}
OF_RETRIES: Final = {
    ("backoff", ""): (Did.OPEN, "pauses are 10 s, doubled up to 10 min, for every row"),
    ("retryPolicy", "OnFailure"): (Did.LEFT_OUT, "it is so anyway"),
    ("retryPolicy", "Always"): (Did.LEFT_OUT, "a disruption is repeated anyway, and costs no failure"),
    ("retryPolicy", "OnTransientError"): (Did.OPEN, f"every status but 0 is tried again: {ids.FINAL_CODES}"),
    ("retryPolicy", "OnError"): (
        Did.OPEN,
        f"only what others caused was tried again: {ids.MAX_FAILURES} 1",
    ),
}


def step_of_workflow(step: Json, whole: Json, path: Path) -> Adoption:
    """The template of one step. `whole`: the workflow, whose fields are those of a step that has none of its own."""
    names = dict[str, str]()
    container: dict[str, Any] = {"name": TASK, **step["container"]}
    env = objects(container.pop("env", None))
    given = {match[1]: str(one.get("name")) for one in env if (match := PARAMETER.fullmatch(str(one.get("value"))))}
    container = with_parameters(container, names)
    kept = [one for one in env if one.get("name") not in given.values()]
    container |= {"env": kept} if kept else {}
    names |= given
    strategy = step.get("retryStrategy") or whole.get("retryStrategy")
    limit = str(strategy.get("limit")) if isinstance(strategy, Mapping) else ""
    meta = merged(object_at(whole, "podMetadata"), object_at(step, "metadata"))
    spec = {
        "backoffLimit": int(limit) if limit.isdecimal() else 0,
        "template": {"metadata": meta, "spec": pod_of_step(step, whole, container)},
    }
    found = Adopter(WorkSource(str(step.get("name", "step")), spec, {}, path))
    made = found.adopt()
    inherited = {dotted((*path, field)) for field in OF_POD if field not in step}
    found.fields[:] = [one for each in found.fields if (one := as_of_step(each, path)).field not in inherited]
    if names:
        opened = ",".join(sorted({f"env.{name}" for name in names.values()}))
        made.manifest["metadata"]["annotations"][ids.ROW_MAY_SET] = opened
    told = (
        *words_of_step(step, path),
        *words_of_retries(strategy, path),
        *words_of_parameters(step, path, names, kept),
    )
    for did, at, words in told:
        found.tell(did, at, words)
    return made


def merged(theirs: Json, own: Json) -> Json:
    """Labels and annotations of both. Of a key that stands twice, the step's own value counts."""
    both = {field: {**object_at(theirs, field), **object_at(own, field)} for field in ("labels", "annotations")}
    return {**theirs, **own, **{field: values for field, values in both.items() if values}}


def pod_of_step(step: Json, whole: Json, container: Json) -> Json:
    """The Pod's spec. Of the workflow's volumes it has those that a container of the step mounts."""
    containers = [container, *objects(step.get("sidecars")), *objects(step.get("initContainers"))]
    mounted = {str(one.get("name")) for each in containers for one in objects(each.get("volumeMounts"))}
    own = objects(step.get("volumes"))
    named = {str(one.get("name")) for one in own}
    theirs = [one for one in objects(whole.get("volumes")) if str(one.get("name")) in mounted - named]
    volumes = [*own, *theirs]
    return {
        **{field: found for field in OF_POD if (found := step.get(field, whole.get(field))) is not None},
        **{field: step[field] for field in ("initContainers", "activeDeadlineSeconds") if step.get(field)},
        **({"volumes": volumes} if volumes else {}),
        "containers": [container, *objects(step.get("sidecars"))],
    }


def as_of_step(told: AdoptedField, path: Path) -> AdoptedField:
    """The word with the place where the step has the field, not where a Job has it."""
    step = re.escape(dotted(path))
    field = re.sub(rf"^{step}\.template\.spec\.containers(\[0\]|$)", f"{dotted(path)}.container", told.field)
    field = re.sub(
        rf"^{step}\.template\.spec\.containers\[(\d+)\]", lambda at: f"{dotted(path)}.sidecars[{int(at[1]) - 1}]", field
    )
    field = re.sub(rf"^{step}\.template\.(spec\.)?", f"{dotted(path)}.", field)
    return replace(told, field=re.sub(rf"^{step}\.backoffLimit$", f"{dotted(path)}.retryStrategy.limit", field))


def words_of_step(step: Json, path: Path) -> Iterator[tuple[Did, Path, str]]:
    """What becomes of the fields of a step that no Job has."""
    yield Did.MOVED, (*path, "name"), "the name of the template"
    for field in sorted(step.keys() & {"sidecars", "metadata"}):
        yield Did.KEPT, (*path, field), ""
    for field in sorted(object_at(step, "inputs").keys() - {"parameters"}):
        yield Did.OPEN, (*path, "inputs", field), "let the container fetch them"
    for field in sorted(step.keys() - OF_STEP - OF_POD):
        yield Did.OPEN, (*path, field), NO_LIKE


def words_of_retries(strategy: object, path: Path) -> Iterator[tuple[Did, Path, str]]:
    at = (*path, "retryStrategy")
    if not isinstance(strategy, Mapping):
        return
    if not str(strategy.get("limit")).isdecimal():
        yield Did.OPEN, (*at, "limit"), f"how often? {ids.MAX_FAILURES}, at most {MOST_FAILURES}"
    for field in sorted(strategy.keys() - {"limit"}):
        key = (field, "" if field == "backoff" else str(strategy[field]))
        did, words = OF_RETRIES.get(key, (Did.OPEN, NO_LIKE))
        yield did, (*at, field), words


def words_of_parameters(
    step: Json, path: Path, names: Mapping[str, str], env: Sequence[Json]
) -> Iterator[tuple[Did, Path, str]]:
    """`names`: the variables, by parameter. `env`: what is left of the container's."""
    parameters = objects(object_at(step, "inputs").get("parameters"))
    for number, one in enumerate(parameters):
        at, name = (*path, "inputs", "parameters", number), names.get(str(one.get("name")))
        words = f"{name} in env of the row" if name else "its container does not use it"
        yield Did.TRANSLATED if name else Did.LEFT_OUT, at, words
        if name and (value := one.get("value", one.get("default"))) is not None:
            yield Did.OPEN, at, f"put {value!r} into env of the template, or of each row that gives none"
    for parameter in sorted(names.keys() - {str(one.get("name")) for one in parameters}):
        yield Did.TRANSLATED, (*path, "container"), f"parameter {parameter}: {names[parameter]} in env of the row"
    for number, variable in enumerate(env):
        if PARAMETER.search(str(variable.get("value"))):
            words = "a value is not put together from others: give the whole value by env of the row"
            yield Did.OPEN, (*path, "container", "env", number), words


def with_parameters(part: Any, variables: dict[str, str]) -> Any:
    """The part with `$(NAME)` for each parameter of the workflow. `variables`: the names, by parameter."""

    def named(match: re.Match[str]) -> str:
        name = re.sub(r"[^A-Z0-9_]", "_", match[1].upper())
        name = name if ENV_NAME.fullmatch(name) and not is_dispatchers({"name": name}) else f"PARAMETER_{name}"
        variables[match[1]] = name
        return f"$({name})"

    if isinstance(part, str):
        return PARAMETER.sub(named, part)
    if isinstance(part, Mapping):
        return {key: with_parameters(value, variables) for key, value in part.items()}
    return [with_parameters(one, variables) for one in part] if isinstance(part, list) else part


READERS: Final[Mapping[str, Callable[[Json], Iterator[Adoption]]]] = {
    "Job": of_job, "CronJob": of_cron_job, "ScaledJob": of_scaled_job, "Pod": of_pod, "Workflow": of_workflow,
    "WorkflowTemplate": of_workflow, "ClusterWorkflowTemplate": of_workflow, "CronWorkflow": of_workflow,
}  # fmt: skip


OF_TRIGGERS: Final = "an insert of a row is the trigger, so leave it out, and give its login to whoever inserts"
NO_WORK: Final[Mapping[str, str]] = {
    **dict.fromkeys(("TriggerAuthentication", "ClusterTriggerAuthentication", "ScaledObject"), OF_TRIGGERS),
    **dict.fromkeys(("Sensor", "EventSource", "EventBus", "WorkflowEventBinding"), OF_TRIGGERS),
}  # fmt: skip


def adopt(document: Json) -> list[Adoption] | str:
    """The templates of one document, or why there is none. Of whatever shape it is, this raises nothing."""
    kind = document.get("kind")
    if (reader := READERS.get(str(kind))) is None:
        return f"{kind} {name_of(document)} is no work: {NO_WORK.get(str(kind), 'kubectl apply it as it is')}"
    return list(reader(document))
