"""Reads Jobs, CronJobs, ScaledJobs and Pods. Each becomes one template. Pure.

`in_time`: a schedule becomes a CronJob that inserts the row.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from dispatcher.commands.adoption import OF_META, Adopter, Adoption, Did, Json, Statement, WorkSource, objects
from dispatcher.jobs.fields import object_at
from dispatcher.jobs.template_text import Path
from dispatcher.model import launches as ids
from dispatcher.model.jobs import Manifest


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
        found.tell(Did.LEFT_OUT, ("metadata", field), OF_META.get(field, "it was the CronJob's, and not its Jobs'"))
    for field in HISTORY:
        if spec.get(field) is not None:
            found.tell(Did.LEFT_OUT, ("spec", field), "the janitor keeps rows as long as the operator says")
    found.tell_unknown(spec, {*TIMES, *HISTORY, "concurrencyPolicy", "jobTemplate"}, ("spec",))
    found.tell_unknown(object_at(spec, "jobTemplate"), {"metadata", "spec"}, ("spec", "jobTemplate"))
    found.tell(Did.OPEN, ("spec", "schedule"), word_of_schedule(spec, "CronJob"))
    made = found.adopt()
    rows = next((one for one in made.statements if one.file in SEVERAL), None)
    for field, value in spec.items():
        if value is None or (word := word_of_time(field, value)) is None:
            continue
        if rows is not None and word[1].startswith("dedupe_key"):
            word = Did.OPEN, "several rows have no dedupe_key in common: look whether the last ones have ended"
        found.tell(word[0], ("spec", field), word[1])
    if rows is None:
        found.statements.append(rows := row_in_time(spec, found.name))
    yield in_time(made, spec, rows)


HISTORY: Final = ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")
SEVERAL: Final = frozenset({"rows", "indexed_rows"})
"""Statements that insert several rows."""


def in_time(made: Adoption, spec: Json, statement: Statement) -> Adoption:
    """The template with a CronJob that runs the statement, if the spec has a schedule."""
    times = times_of(spec)
    return replace(made, schedule=times, in_time=statement) if times.get("schedule") else made


TIMES: Final = {
    "schedule": "schedule", "timeZone": "timeZone", "timezone": "timeZone", "suspend": "suspend",
    "startingDeadlineSeconds": "startingDeadlineSeconds",
}  # fmt: skip
"""The fields of a CronJob and of a CronWorkflow with the times, and their names in a CronJob."""


def times_of(spec: Json) -> Json:
    """The times at which a row is inserted, by the names of a CronJob. A CronWorkflow's list counts with one item."""
    found = {TIMES[field]: value for field, value in spec.items() if field in TIMES and value is not None}
    several = spec.get("schedules")
    if isinstance(several, list) and len(several) == 1:
        found["schedule"] = several[0]
    if match := ZONE.fullmatch(str(found.get("schedule"))):
        found |= {"timeZone": match[1], "schedule": match[2]}
    return found


ZONE: Final = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*\S)\s*")
"""A time zone in front of a schedule, where the API server refuses it."""


def row_in_time(spec: Json, template: str, env: Mapping[str, str] = {}) -> Statement:
    """The statement that inserts a row. `env`: the variables of the row."""
    is_alone = spec.get("concurrencyPolicy") in ("Forbid", "Replace")
    file = "one_at_a_time" if is_alone else "again"
    if not env:
        return Statement(file, {"template": template})
    return Statement(f"{file}_with_env", {"template": template, "env": json.dumps(env)})


def word_of_schedule(spec: Json, kind: str) -> str:
    """What a person does with a schedule. `kind`: the kind of object that has run the work."""
    times = times_of(spec)
    if not times.get("schedule"):
        return "it says no time"
    zone = f" in {times['timeZone']}" if times.get("timeZone") else ""
    told = f"the CronJob below inserts the row at {times.get('schedule')}{zone}: give it a login, in a Secret"
    return f"{told}, and delete the old {kind} first, or both run"


def word_of_time(field: str, value: object) -> tuple[Did, str] | None:
    """What becomes of the other fields of a schedule. None: the field is none of them."""
    if field not in {*TIMES, "concurrencyPolicy"} or field == "schedule":
        return None
    if value in (False, "Allow"):
        return Did.LEFT_OUT, "it is so anyway"
    words = "dedupe_key: no second row while one is alive" if field == "concurrencyPolicy" else "in the CronJob below"
    return Did.OPEN if value == "Replace" else Did.TRANSLATED, words


PSQL_IMAGE: Final = "postgres:18"
LONGEST_NAME: Final = 52
"""Characters of a CronJob's name, at most: the names of its Jobs are longer."""


def escaped(text: str) -> str:
    """A text of a command that kubelet does not change."""
    return text.replace("$", "$$")


def inserting_cron_job(name: str, schedule: Json, statement: str) -> Manifest:
    """The CronJob that inserts a row. Its login is in the Secret `dispatcher-submitter`, as `url`.

    Its name differs from that of the old CronJob: an apply over the old one would keep the old container, and run both.
    """
    secret = {"secretKeyRef": {"name": "dispatcher-submitter", "key": "url"}}
    container = {
        "name": "insert", "image": PSQL_IMAGE,
        "command": ["psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "$(DATABASE_URL)", "--command", escaped(statement)],
        "env": [{"name": "DATABASE_URL", "valueFrom": secret}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    safe = {"runAsNonRoot": True, "runAsUser": 999, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {"restartPolicy": "Never", "securityContext": safe, "containers": [container]}
    job = {"spec": {"backoffLimit": 3, "template": {"spec": pod}}}
    spec = {**schedule, "concurrencyPolicy": "Forbid", "jobTemplate": job}
    name = f"insert-{name}"[:LONGEST_NAME].rstrip("-")
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


OF_SCALING: Final = frozenset({
    "pollingInterval", "successfulJobsHistoryLimit", "failedJobsHistoryLimit", "envSourceContainerName", "rollout",
    "rolloutStrategy", "scalingStrategy", "fallback", "advanced",
})  # fmt: skip
"""Fields about how KEDA reads the triggers and makes Jobs."""


MOST_JOBS: Final = 100
"""KEDA's default of maxReplicaCount."""


def of_scaled_job(document: Json) -> Iterator[Adoption]:
    at: Path = ("spec", "jobTargetRef")
    found = Adopter(WorkSource(name_of(document), object_at(document, *at), object_at(document, "metadata"), at))
    spec = object_at(document, "spec")
    for number, one in enumerate(objects(spec.get("triggers"))):
        words = f"the producer inserts a row for each piece of work, beside a message of {one.get('type')} or instead"
        found.tell(Did.OPEN, ("spec", "triggers", number), words)
    queue = "default"
    most = MOST_JOBS if spec.get("maxReplicaCount") is None else spec["maxReplicaCount"]
    if type(most) is int:
        queue = found.name
        found.statements.append(Statement("queue", {"queue": queue, "count": most}))
        why = ", the default of a ScaledJob" if spec.get("maxReplicaCount") is None else ""
        found.tell(Did.TRANSLATED, ("spec", "maxReplicaCount"), f"queues.max_jobs: {most}{why}")
    else:
        found.tell(Did.OPEN, ("spec", "maxReplicaCount"), "it is no whole number: queues.max_jobs")
    if spec.get("minReplicaCount"):
        found.tell(Did.OPEN, ("spec", "minReplicaCount"), "a Job is there only for a row: nothing waits for work")
    for field in sorted(OF_SCALING & spec.keys()):
        found.tell(Did.LEFT_OUT, ("spec", field), "rows are launched when they come")
    known = {*OF_SCALING, "jobTargetRef", "triggers", "maxReplicaCount", "minReplicaCount"}
    found.tell_unknown(spec, known, ("spec",))
    found.statements.append(Statement("row", {"queue": queue, "template": found.name}))
    yield found.adopt()
