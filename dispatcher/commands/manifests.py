"""Reads Jobs, CronJobs, ScaledJobs and Pods. Each becomes one template. Pure.

A schedule becomes a CronJob that inserts the row.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from dispatcher.commands.adoption import Adoption, Did, Statement, WorkSource, objects
from dispatcher.commands.job_adoption import Adopter
from dispatcher.jobs.env import escape
from dispatcher.jobs.fields import object_at
from dispatcher.jobs.template_text import Path
from dispatcher.model import launches as ids
from dispatcher.model.jobs import Json, Manifest


def name_of(document: Json) -> str:
    meta = object_at(document, "metadata")
    return str(meta.get("name") or str(meta.get("generateName") or document.get("kind")).rstrip("-"))


def in_source(field: str, places: Iterable[tuple[str, str]]) -> str:
    """The place of a field in the manifest that it comes from."""
    for pattern, text in places:
        field = re.sub(pattern, text.replace("\\", r"\\"), field)
    return field


def of_job(document: Json) -> Iterator[Adoption]:
    yield Adopter(
        WorkSource(name_of(document), object_at(document, "spec"), object_at(document, "metadata"), ("spec",))
    ).adopt()


def of_pod(document: Json) -> Iterator[Adoption]:
    meta = object_at(document, "metadata")
    found = Adopter(WorkSource(name_of(document), object_at(document, "spec"), meta, ("spec",), is_pod=True))
    for number, one in enumerate(objects(found.source.spec.get("containers"))):
        if one.get("name") != "base":
            continue
        words = f"Airflow gives args: open them by {ids.ROW_MAY_SET}: args, and write them into spec.args of a row"
        found.tell(Did.OPEN, ("spec", "containers"), f"{words}; its retries: n are {ids.MAX_FAILURES}: n + 1")
        if OF_AIRFLOW.fullmatch(str(one.get("image"))):
            words = f"Airflow gives the image: write it, or let rows choose: {ids.ROW_MAY_SET}: image, and {ids.IMAGES}"
            found.tell(Did.OPEN, ("spec", "containers", number, "image"), words)
    yield found.adopt()


OF_AIRFLOW: Final = re.compile(r"dummy[-_]?image(:.*)?")
"""How a pod template of Airflow calls an image that is not there: the API server wants one."""


def of_cron_job(document: Json) -> Iterator[Adoption]:
    at: Path = ("spec", "jobTemplate", "spec")
    meta_at: Path = (*at[:-1], "metadata")
    owner = object_at(document, "metadata")
    found = Adopter(
        WorkSource(name_of(document), object_at(document, *at), object_at(document, *meta_at), at, meta_at, owner=owner)
    )
    spec, made = object_at(document, "spec"), found.adopt()
    above = len(found.fields)
    for field in HISTORY:
        if spec.get(field) is not None:
            found.tell(Did.LEFT_OUT, ("spec", field), "the janitor keeps rows as long as the operator says")
    found.tell_unknown(spec, {*TIMES, *HISTORY, "concurrencyPolicy", "jobTemplate"}, ("spec",))
    found.tell_unknown(object_at(spec, "jobTemplate"), {"metadata", "spec"}, ("spec", "jobTemplate"))
    found.tell(Did.OPEN, ("spec", "schedule"), word_of_schedule(spec, "CronJob", found.count))
    rows = next((one for one in made.statements if one.file in SEVERAL), None)
    is_pasted = bool(every_time(spec))
    for field, value in spec.items():
        if value is None or (word := word_of_time(field, value, is_pasted=is_pasted)) is None:
            continue
        if rows is not None and field == "concurrencyPolicy":
            word = (Did.OPEN, OF_SEVERAL[str(value)]) if str(value) in OF_SEVERAL else word
        found.tell(word[0], ("spec", field), word[1])
    if rows is None:
        found.statements.append(rows := row_in_time(spec, found.name))
    yield in_time(replace(made, fields=[*found.fields[above:], *found.fields[:above]]), spec, rows)


HISTORY: Final = ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")
SEVERAL: Final = frozenset({"rows", "indexed_rows"})
"""Statements that insert several rows."""


def in_time(made: Adoption, spec: Json, statement: Statement) -> Adoption:
    """The template with a CronJob that runs the statement, if the spec says when."""
    first, *others = every_time(spec) or [{}]
    return replace(made, schedule=first, more_schedules=others, in_time=statement) if first else made


TIMES: Final = {
    "schedule": "schedule", "timeZone": "timeZone", "timezone": "timeZone", "suspend": "suspend",
    "startingDeadlineSeconds": "startingDeadlineSeconds",
}  # fmt: skip
"""The fields of a CronJob and of a CronWorkflow that say when, and their names in a CronJob."""


def every_time(spec: Json) -> list[Json]:
    """When a row is inserted, by the names of a CronJob: once for each schedule. A CronWorkflow may have several."""
    found = {TIMES[field]: value for field, value in spec.items() if field in TIMES and value not in (None, "")}
    several = spec.get("schedules")
    times = several if isinstance(several, list) and several else [found.get("schedule")]
    return [at_time(found, one) for one in times if isinstance(one, str) and one]


def at_time(spec: Json, schedule: str) -> Json:
    match = ZONE.fullmatch(schedule)
    return {**spec, "timeZone": match[1], "schedule": match[2]} if match else {**spec, "schedule": schedule}


ZONE: Final = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*\S)\s*")
"""A time zone in front of a schedule. The API server refuses it there."""


def row_in_time(spec: Json, template: str, env: Mapping[str, str] = {}) -> Statement:
    """`env`: what the row gives."""
    is_alone = spec.get("concurrencyPolicy") in ("Forbid", "Replace")
    file = "one_at_a_time" if is_alone else "again"
    if not env:
        return Statement(file, {"template": template})
    return Statement(f"{file}_with_env", {"template": template, "env": json.dumps(env)})


def word_of_schedule(spec: Json, kind: str, rows: int = 1) -> str:
    """`kind`: of what ran the work until now. `rows`: how many are inserted at a time."""
    times = every_time(spec)
    if not times:
        return "it says no time"
    who = "the CronJobs below insert" if len(times) > 1 else "the CronJob below inserts"
    several = f"{rows} rows" if rows > 1 else "the row"
    told = f"{who} {several} at {told_times(times)}: give it a login, in a Secret"
    return f"{told}, and delete the old {kind} first, or both run"


def told_times(times: Sequence[Json]) -> str:
    zones = (f" in {one['timeZone']}" if one.get("timeZone") else "" for one in times)
    return ", and at ".join(f"{one['schedule']}{zone}" for one, zone in zip(times, zones, strict=True))


def word_of_time(field: str, value: object, *, is_pasted: bool = True) -> tuple[Did, str] | None:
    """What becomes of the other fields of a schedule. None: it is none of them. `is_pasted`: a CronJob comes."""
    if field not in {*TIMES, "concurrencyPolicy"} or field == "schedule":
        return None
    if value is False or value in ("", "Allow"):
        return Did.LEFT_OUT, "it is so anyway"
    if field == "concurrencyPolicy":
        return word_of_policy(str(value), is_pasted=is_pasted)
    if is_pasted:
        return Did.TRANSLATED, f"in the CronJob below: {value}"
    if field == "startingDeadlineSeconds":
        return Did.LEFT_OUT, "a row waits as long as it must"
    is_paused = field == "suspend"
    return Did.OPEN, "it was paused: do not begin to insert yet" if is_paused else f"its times are those of {value}"


def word_of_policy(policy: str, *, is_pasted: bool) -> tuple[Did, str]:
    """What becomes of a concurrencyPolicy that is no `Allow`."""
    if policy not in WORDS_OF_POLICIES:
        return Did.OPEN, f"{policy!r:.80} is not known here"
    did, words = WORDS_OF_POLICIES[policy]
    return (did, words) if is_pasted else (Did.OPEN, f"give each row a {words}")


WORDS_OF_POLICIES: Final = {
    "Forbid": (Did.TRANSLATED, "dedupe_key: no second row while one is alive"),
    "Replace": (
        Did.OPEN,
        "dedupe_key: by it the new row is dropped, and the old one goes on: end that by dispatch.task_cancel(id) first",
    ),
}
OF_SEVERAL: Final = {
    "Forbid": "several rows have no dedupe_key in common: look whether the last ones have ended",
    "Replace": "several rows have no dedupe_key in common: end the last batch by dispatch.batch_cancel first",
}
"""What to do about a concurrencyPolicy of a Job that becomes several rows."""


PSQL_IMAGE: Final = "postgres:18"
LONGEST_NAME: Final = 52
"""The longest name of a CronJob. The names of its Jobs are longer."""


def inserting_cron_job(template: str, schedule: Json, statement: str, number: int = 1) -> Manifest:
    """The CronJob that inserts a row. Its login stands in the Secret `dispatcher-submitter`, as `url`.

    `number`: of its schedule, if the template has several.
    """
    secret = {"secretKeyRef": {"name": "dispatcher-submitter", "key": "url"}}
    container = {
        "name": "insert", "image": PSQL_IMAGE,
        "command": ["psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "$(DATABASE_URL)", "--command", escape(statement)],
        "env": [{"name": "DATABASE_URL", "valueFrom": secret}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    safe = {"runAsNonRoot": True, "runAsUser": 999, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {"restartPolicy": "Never", "securityContext": safe, "containers": [container]}
    job = {"spec": {"backoffLimit": 3, "template": {"spec": pod}}}
    spec = {**schedule, "concurrencyPolicy": "Forbid", "jobTemplate": job}
    meta = {"name": inserting_name(template, number)}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": spec}


def inserting_name(template: str, number: int = 1) -> str:
    """The name of a CronJob that inserts rows of the template. Where it is cut, a digest tells it from others.

    It is not that of the old CronJob: an apply over that one would keep the old container, and run both.
    """
    name = f"insert{number if number > 1 else ''}-{template}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(template.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9].rstrip('-')}-{digest}"


OF_SCALING: Final = frozenset({
    "pollingInterval", "successfulJobsHistoryLimit", "failedJobsHistoryLimit", "envSourceContainerName", "rollout",
    "rolloutStrategy", "scalingStrategy", "fallback", "advanced",
})  # fmt: skip
"""Fields that say how KEDA looks at the triggers and makes Jobs."""


MOST_JOBS: Final = 100
"""What KEDA takes where a ScaledJob has no maxReplicaCount."""


def of_scaled_job(document: Json) -> Iterator[Adoption]:
    at: Path = ("spec", "jobTargetRef")
    found = Adopter(WorkSource(name_of(document), object_at(document, *at), object_at(document, "metadata"), at))
    spec = object_at(document, "spec")
    most = MOST_JOBS if spec.get("maxReplicaCount") is None else spec["maxReplicaCount"]
    found.has_queue = type(most) is int and most >= 0
    made = found.adopt()
    above = len(found.fields)
    crons = [one for one in objects(spec.get("triggers")) if one.get("type") == "cron"]
    for number, one in enumerate(objects(spec.get("triggers"))):
        is_cron = one.get("type") == "cron"
        words = word_of_cron(one, rows_of_cron(one, found), one is crons[0]) if is_cron else word_of_trigger(one)
        found.tell(Did.OPEN, ("spec", "triggers", number), words)
    if found.has_queue:
        found.statements.insert(0, Statement("queue", {"count": most * found.at_once}, has_own_queue=True))
        found.tell(Did.TRANSLATED, ("spec", "maxReplicaCount"), word_of_most(spec, most, found))
    else:
        found.tell(Did.OPEN, ("spec", "maxReplicaCount"), "it is no whole number: queues.max_jobs")
    if spec.get("minReplicaCount"):
        found.tell(Did.OPEN, ("spec", "minReplicaCount"), "a Job is there only for a row: nothing waits for work")
    for field in sorted(OF_SCALING & spec.keys()):
        found.tell(Did.LEFT_OUT, ("spec", field), "rows are launched when they come")
    known = {*OF_SCALING, "jobTargetRef", "triggers", "maxReplicaCount", "minReplicaCount"}
    found.tell_unknown(spec, known, ("spec",))
    rows = next((one for one in found.statements if one.file in SEVERAL), None)
    if rows is None:
        found.statements.append(rows := Statement("row", {"template": found.name}, has_own_queue=found.has_queue))
    made = replace(made, fields=[*found.fields[above:], *found.fields[:above]])
    if crons and rows.file != "indexed_rows" and (count := rows_of_cron(crons[0], found)) > 1:
        rows = Statement("rows", {"template": found.name, "count": count}, has_own_queue=found.has_queue)
    yield in_time(made, cron_of(crons[0]), rows) if crons else made


def cron_of(trigger: Json) -> Json:
    """The fields of a trigger that say when, by the names of a CronWorkflow."""
    given = object_at(trigger, "metadata")
    return {"schedule": given.get("start"), "timezone": given.get("timezone")}


def jobs_of_cron(trigger: Json) -> int:
    """How many Jobs KEDA kept running from the start to the end."""
    written = str(object_at(trigger, "metadata").get("desiredReplicas"))
    return int(written) if re.fullmatch(r"[1-9][0-9]{0,5}", written) else 1


def rows_of_cron(trigger: Json, found: Adopter) -> int:
    """How many rows are inserted at the start: those of all these Jobs. Of an Indexed Job, the indexes of one."""
    is_one = found.is_indexed and found.count != 1
    return found.count if is_one else jobs_of_cron(trigger) * max(found.count, 1)


def word_of_cron(trigger: Json, rows: int, is_first: bool) -> str:
    """`rows`: how many are inserted at the start. `is_first`: whether the CronJob below is for this one."""
    spec, end, jobs = cron_of(trigger), object_at(trigger, "metadata").get("end"), jobs_of_cron(trigger)
    words = word_of_schedule(spec, "ScaledJob", rows)
    if not is_first:
        zone = f" in {spec['timezone']}" if spec["timezone"] else ""
        several = f"{rows} rows" if rows > 1 else "a row"
        words = f"write a second CronJob as the one below, for {several} at {spec['schedule']}{zone}"
    kept = f"{jobs} Jobs" if jobs > 1 else "a Job"
    return f"{words}. KEDA kept {kept} running until {end}: insert as many rows as there is work"


def word_of_trigger(trigger: Json) -> str:
    """Who inserts rows now. `metadata` says where the work comes from: it is shown without what may be a secret."""
    kind, given = str(trigger.get("type")), object_at(trigger, "metadata")
    shown = ", ".join(f"{key}: {shown_value(key, str(value))}" for key, value in given.items())
    named = f"{kind} ({shown})" if shown else kind
    if kind in OF_DATABASES:
        return f"whoever writes the rows that {named} counts inserts a row of dispatch.tasks for each"
    if kind in OF_METRICS:
        return f"{named} is a number and no piece of work, and has no like here: whoever knows of the work inserts rows"
    return f"the producer inserts a row for each piece of work, beside a message of {named} or instead"


OF_DATABASES: Final = frozenset({
    "postgresql", "mysql", "mssql", "mongodb", "cassandra", "couchdb", "arangodb", "elasticsearch", "solr",
    "aws-dynamodb",
})  # fmt: skip
OF_METRICS: Final = frozenset({
    "prometheus", "cpu", "memory", "metrics-api", "datadog", "dynatrace", "graphite", "influxdb", "loki", "new-relic",
    "splunk", "splunk-observability", "sumologic", "aws-cloudwatch", "azure-monitor", "azure-log-analytics",
    "azure-app-insights", "gcp-stackdriver", "gcp-cloudmonitoring", "kubernetes-workload", "kubernetes-resource",
    "openstack-metric", "predictkube",
})  # fmt: skip
SECRET_KEY: Final = re.compile(
    r"(?i).*(pass|secret|token|credential|auth|cert|connection|dsn|sas|key$|keyid$).*(?<!FromEnv)"
)
SECRET_VALUE: Final = re.compile(r"(?i)://[^/\s]*@|(key|token|pass\w*|secret|sig|pwd)=")


def shown_value(key: str, value: str) -> str:
    """The value of a trigger's field, or dots where it may be a secret. A name of a variable is none."""
    is_secret = SECRET_KEY.fullmatch(key) or SECRET_VALUE.search(value)
    return "…" if is_secret else f"{value:.80}"


def word_of_most(spec: Json, most: int, found: Adopter) -> str:
    """How many rows of a ScaledJob may run at once. `most`: how many of its Jobs."""
    why = ", the default of a ScaledJob" if spec.get("maxReplicaCount") is None else ""
    each = f", for {most} Jobs of {found.at_once} Pods" if found.count != 1 else ""
    return f"queues.max_jobs: {most * found.at_once}{each}{why}"
