"""Jobs of hostile rows. The dispatcher's code reads, judges and builds them; other code compares them with the
template.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.manifest import JobSite, build_job
from dispatcher.jobs.policy import check_job
from dispatcher.jobs.row_check import plan_shape
from dispatcher.jobs.templates import Template
from dispatcher.model.caches import CacheHistory
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import Launch, LaunchSpec, Offer, start_key
from dispatcher.model.resources import parse_quantity
from dispatcher.model.tasks import Kind, Request, Task
from dispatcher.model.verdicts import Hold
from dispatcher.pg.connect import Session
from dispatcher.pg.tasks import look
from dispatcher.placement.placing import PlacementPolicy
from dispatcher.settings.definition import JobSettings, PlacementSettings
from tests.contract.hostile_words import TRUSTED_NAMES
from tests.property.differences import allowed, differences
from tests.property.kubelet import seen_env, seen_words
from tests.rig.builders import NOT_PLACED, a_manifest, a_request

PASSED = {"S3_URL": "s3://bucket?price=$5"}
PLACEMENT = PlacementSettings(cache_root="/var/cache/tasks", node_selector="pool=tasks")
SECRET = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "team-a", "key": "token"}}}
OWN = {"env": [SECRET, {"name": "PLAIN", "value": "$(KEY)"}], "envFrom": [{"secretRef": {"name": "team-a"}}]}
EVERYTHING = (
    "env,image,command,args,cpu,memory,private_machine,special_machine,env.KEY,env.S3_URL,env.PYTHONPATH,env.PATH"
)
BOUNDS = {"images": "team-a/*", "max-cpu": "4", "max-memory": "8Gi", "max-seconds": "3600", "machines": "team-a-*"}
MANIFESTS = {
    "default": a_manifest(),
    "closed": a_manifest(annotations={"row-may-set": ""}, container={"command": ["run", "$(KEY)"], **OWN}),
    "open": a_manifest(
        annotations={"row-may-set": EVERYTHING, "images": "*", "max-cpu": "1M", "max-memory": "1Ei", "machines": "*"},
        container=OWN,
    ),
    "bounded": a_manifest(
        annotations={"row-may-set": "env,image,args,cpu,memory,private_machine,env.PLAIN", **BOUNDS},
        container={**OWN, "args": ["x"], "volumeMounts": [{"name": "scratch", "mountPath": "/s"}]},
        pod={
            "volumes": [{"name": "scratch", "emptyDir": {}}], "serviceAccountName": "team-a",
            "initContainers": [{"name": "init", "image": "init:1", "env": [{"name": "A", "value": "init"}]}],
        },
    ),
}  # fmt: skip
VOLATILE = ("controller-uid", "job-name")


def write_templates(folder: Path) -> None:
    for name, manifest in MANIFESTS.items():
        (folder / f"{name}.yaml").write_text(json.dumps(manifest))


@dataclass(frozen=True, slots=True)
class Rendered:
    """A row with its Job. The Job is built in any case, to see whether the second check stops it.

    * verdict: the offer of the row's kind, or the hold.
    * refused: the words of the second check; empty: it passes.
    """

    task: Task
    verdict: Offer | Hold
    order: LaunchSpec
    template: Template
    site: JobSite
    job: Manifest
    refused: str

    def plain(self) -> Manifest:
        """The Job of the same launch if the row had asked for nothing."""
        asked = msgspec.structs.replace(self.order, request=a_request())
        return build_job(asked, self.template, self.site)


class Renderer:
    """The dispatcher's way from ids to Jobs, without creating them."""

    def __init__(self, templates: Path, reader_url: str, namespace: str) -> None:
        self._catalog = Catalog(JobSettings(templates_dir=str(templates)), frozenset(PASSED), NOT_PLACED)
        self._catalog.refresh()
        self._session = Session(lambda: reader_url)
        self._kinds: dict[bytes, Offer | Hold] = {}
        self.site = JobSite("dispatcher", namespace, 3600, PLACEMENT, PASSED)

    async def close(self) -> None:
        await self._session.close()

    async def rows(self, ids: Sequence[int]) -> tuple[list[Task], Mapping[int, Request], "Seen"]:
        """Reads the rows as a cycle reads them, in one snapshot."""
        async with look(self._session) as found:
            tasks, requests = await found.tasks(ids), await found.requests(ids)
            fresh = {task.kind: task.id for task in tasks.values() if task.kind not in self._kinds}
            self._judge(await found.kinds(list(fresh.values())) if fresh else [])
            return list(tasks.values()), requests, Seen(found.database_id, await found.start_secret())

    async def render(self, ids: Sequence[int]) -> list[Rendered | Task]:
        """The rows in any order. A Task in place of a Rendered: its template does not exist."""
        tasks, requests, seen = await self.rows(ids)
        return [self._render(task, requests[task.id], seen) for task in tasks]

    def _judge(self, kinds: Sequence[Kind]) -> None:
        for kind in kinds:
            self._kinds[kind.digest] = self._catalog.offer(kind)

    def _render(self, task: Task, request: Request, seen: "Seen") -> Rendered | Task:
        verdict, template = self._kinds[task.kind], self._catalog.templates.get(task.template)
        if not isinstance(template, Template):
            assert isinstance(verdict, Hold), "a template that nobody has"
            return task
        offer = verdict if isinstance(verdict, Offer) else Offer("", plan_shape(template, {}), template.name)
        placement = PlacementPolicy(self.site.installation, self.site.placement).plan(
            task.queue, request, CacheHistory()
        )
        key = start_key(seen.secret, task.id, task.created_at)
        order = LaunchSpec(task, request, Launch(1), offer, seen.database_id, placement, key)
        job = build_job(order, template, self.site)
        return Rendered(task, verdict, order, template, self.site, job, check_job(job, order, template, self.site))


@dataclass(frozen=True, slots=True)
class Seen:
    database_id: str
    secret: tuple[bytes, bytes]


def excesses(one: Rendered) -> Iterator[str]:
    """Parts of an admitted row's Job that its template lacks, or that reach its container changed."""
    container = one.job["spec"]["template"]["spec"]["containers"][one.template.container]
    own, asked = one.template.taken | PASSED.keys(), one.order.request
    for path in differences(one.job, one.plain()):
        name = path.removeprefix("/spec/template/spec/containers/task/env/")
        is_new = name != path and "env" in one.template.opened and name not in {*own, *TRUSTED_NAMES}
        is_key = path == "/spec/template/metadata/annotations/dispatcher.internal/cache-key"
        if not is_new and not is_key and not path.startswith(tuple(allowed(one.template))):
            yield path
    seen = seen_env(container)
    yield from (f"env.{name} arrives changed" for name, value in asked.env.items() if seen[name] != value)
    for field in {"command", "args"} & asked.spec.keys():
        if seen_words(container, field) != asked.spec[field]:
            yield f"{field} arrives changed"
    yield from machine_excesses(one)
    yield from amount_excesses(container, one.template)
    if one.job["spec"]["template"]["spec"]["activeDeadlineSeconds"] > one.template.max_seconds:
        yield "the run limit"


def machine_excesses(one: Rendered) -> Iterator[str]:
    """A private or special machine is in the Job only if a glob of the template matches its name."""
    pool = one.order.placement.pool
    if pool is not None and pool.label != "pool":
        field = "private_machine" if pool.is_private else "special_machine"
        if field not in one.template.opened or not any(fnmatchcase(pool.value, glob) for glob in one.template.machines):
            yield f"{field} {pool.value}"


def amount_excesses(container: Mapping[str, Any], template: Template) -> Iterator[str]:
    """The bounds of the templates above, written down a second time."""
    if template.name == "bounded":
        image = container["image"]
        if not image.startswith(("team-a/", "registry.example/")) or ".." in image or "//" in image:
            yield f"image {image}"
        for side in ("requests", "limits"):
            if parse_quantity(container["resources"][side]["cpu"]) > 4:
                yield f"{side}.cpu"
            if parse_quantity(container["resources"][side]["memory"]) > 8 * 2**30:
                yield f"{side}.memory"


def added(answer: Any, sent: Any, path: str = "") -> dict[str, Any]:
    """Paths and values at which the object of the server differs from the object that was sent."""
    if isinstance(answer, Mapping) and isinstance(sent, Mapping):
        keys = answer.keys() | sent.keys()
        return {at: value for key in keys if not key.endswith(VOLATILE)
                for at, value in added(answer.get(key), sent.get(key), f"{path}/{key}").items()}  # fmt: skip
    if isinstance(answer, list) and isinstance(sent, list) and len(answer) == len(sent):
        return {at: value for number, (mine, theirs) in enumerate(zip(answer, sent, strict=True))
                for at, value in added(mine, theirs, f"{path}/{name_of(theirs, number)}").items()}  # fmt: skip
    return {} if answer == sent or (not answer and not sent) or is_same_amount(answer, sent) else {path: answer}


def name_of(one: Any, number: int) -> str:
    return str(one.get("name", number)) if isinstance(one, Mapping) else str(number)


def is_same_amount(answer: Any, sent: Any) -> bool:
    """The server writes `1000m` as `1`, and rounds cpu up to the next thousandth."""
    try:
        return 0 <= parse_quantity(answer) - parse_quantity(sent) < Fraction(1, 1000)
    except (TypeError, ValueError):
        return False
