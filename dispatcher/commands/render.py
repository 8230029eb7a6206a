"""`dispatcher render`: shows the Job of a row, of a template, or of a template's file, and the room for it.

`preview_row`: reads rows and templates, but no Jobs. So it cannot say whether the row would be launched now
(`JobsPicture.judge_row`).

`show_file`: the Job that a template's file and a row would become, or every fault of both. It reads no database and no
cluster. The code of the dispatcher judges: the checks of templates, the bounds of rows, the builder of Jobs and the
check of the finished Job.

`tell_room`: a look from outside. Waiting Pods of ours are not counted, and claims are not known: only the running
dispatcher knows them.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from msgspec import Struct

from dispatcher.admission.launch_inputs import OrderInputs, make_order
from dispatcher.admission.room import NOBODY, Room, RoomIndex
from dispatcher.admission.room_view import RoomView
from dispatcher.commands.options import as_document
from dispatcher.jobs.catalog import Catalog, bounded, misnamed, read_bounded
from dispatcher.jobs.env import EVERY_NAME, LOGIN, beside_variables, other_secrets
from dispatcher.jobs.fields import dotted
from dispatcher.jobs.manifest import JobSite, build_job
from dispatcher.jobs.offered import a_row, why_unusable
from dispatcher.jobs.policy import check_job, violations
from dispatcher.jobs.row_check import UNCHECKED, column_faults, denials, judge_kind
from dispatcher.jobs.template_text import line_of
from dispatcher.jobs.templates import Template, parse_template
from dispatcher.kube.capacity import NODES, PRIORITY_CLASSES, pods_of_all
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import is_cluster_named, log_in
from dispatcher.kube.pods import needs_of_manifest
from dispatcher.kube.reflector import list_all
from dispatcher.model.caches import CacheHistory
from dispatcher.model.errors import DispatcherError, TemplateError, TemplateFault
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import Launch, LaunchSpec, Offer
from dispatcher.model.needs import PodNeeds
from dispatcher.model.resources import parse_quantity
from dispatcher.model.stored_json import NotStoredJson, stored_json
from dispatcher.model.tasks import Kind, Request, Task, one_line, printable
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.pg.connect import Session
from dispatcher.pg.tasks import look
from dispatcher.settings.definition import Settings
from dispatcher.startup import catalog_of, placed_by_of, placing_of, site_of

HIDDEN = "(hidden)"
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
"""`created_at` of a preview's row. The time is fixed, so that two previews differ only by their templates."""
NO_DATABASE = "00000000-0000-0000-0000-000000000000"


async def preview_row(task_id: int, settings: Settings) -> Manifest:
    """The Job after the last launch that the row remembers. Raises DispatcherError if the templates allow none."""
    session = Session(lambda: settings.database.url)
    try:
        async with look(session) as rows:
            tasks, requests = await rows.tasks([task_id]), await rows.requests([task_id])
            kinds = await rows.kinds([task_id])
            nodes = await rows.histories(keys_of(tasks, requests))
            database_id = rows.database_id
    finally:
        await session.close()
    if task_id not in tasks:
        raise DispatcherError(f"there is no task {task_id}")
    if fault := requests[task_id].fault:
        raise DispatcherError(f"no Job can be made of task {task_id}: {fault}")
    past = CacheHistory(tuple(next(iter(nodes.values()), ())))
    row = tasks[task_id], requests[task_id], past
    return preview(row, kinds[0], database_id, read_catalog(settings), settings)


def keys_of(tasks: Mapping[int, Task], requests: Mapping[int, Request]) -> list[tuple[str, str]]:
    return [(tasks[one.task_id].queue, one.cache_key) for one in requests.values() if one.cache_key is not None]


def preview_template(name: str, settings: Settings, catalog: Catalog) -> Manifest:
    """The Job of a row that names this template and sets no more than it has to."""
    spec = least_spec(catalog.templates.get(name))
    kind = Kind(b"", name, None, spec, frozenset(spec), frozenset())
    row = a_row(name), Request(1, 1, {}, spec, None), CacheHistory()
    return preview(row, kind, NO_DATABASE, catalog, settings)


def least_spec(template: Template | str | None) -> dict[str, str]:
    """The spec that a row of the template needs: an image by its first glob, if it has none itself."""
    if not isinstance(template, Template) or not template.needs_image:
        return {}
    return {"image": WILDCARDS.sub(lambda one: one[1] or "x", template.images[0])}


WILDCARDS: Final = re.compile(r"\[([^!])[^\]]*\]|[*?]")


def read_catalog(settings: Settings) -> Catalog:
    """The templates as they are now. Raises DispatcherError if they cannot be read."""
    catalog = catalog_of(settings, site_of(settings, settings.kube.namespace or "default").passed)
    catalog.refresh()
    if catalog.fault:
        raise DispatcherError(catalog.fault)
    return catalog


def preview(
    row: tuple[Task, Request, CacheHistory], kind: Kind, database_id: str, catalog: Catalog, settings: Settings
) -> Manifest:
    task, request, past = row
    offer = catalog.offer(kind)
    if isinstance(offer, Hold):
        raise DispatcherError(f"{offer.reason}: {offer.detail}")
    order = preview_order(task, (request, past), offer, database_id, settings)
    site = site_of(settings, settings.kube.namespace or "default")
    return rendered(order, catalog.templates[task.template], site)


def previews_of(
    settings: Settings, templates: Callable[[], Mapping[str, Template | str]], site: JobSite
) -> Callable[[Task, tuple[Request, CacheHistory], Offer, str], Manifest]:
    """Returns a function that shows Jobs as a running dispatcher would make them. `templates`: the present ones."""

    def preview_of(task: Task, asked: tuple[Request, CacheHistory], offer: Offer, database_id: str) -> Manifest:
        template = templates().get(task.template)
        if not isinstance(template, Template):  # somebody else may have written the row's kind
            raise DispatcherError(f"there is no template {task.template}")
        return rendered(preview_order(task, asked, offer, database_id, settings), template, site)

    return preview_of


def preview_order(
    task: Task, asked: tuple[Request, CacheHistory], offer: Offer, database_id: str, settings: Settings
) -> LaunchSpec:
    """The order of the next launch, without its start key."""
    request, history = asked
    inputs = OrderInputs(database_id, None, placing_of(settings).plan)
    order = make_order(task, request, (Launch(task.launch + 1), offer), history, inputs)
    return msgspec.structs.replace(order, start_key=HIDDEN)


def rendered(order: LaunchSpec, template: Template | str, site: JobSite) -> Manifest:
    """The Job as a dispatcher would send it."""
    assert isinstance(template, Template)  # a faulty template has no offer
    job = build_job(order, template, site)
    if violation := check_job(job, order, template, site):
        raise DispatcherError(f"PolicyDenied: {violation}")
    return job


ROW: Final = "--row"
ONLY_THERE: Final = "names, values and policies. Ask it: pipe this Job into kubectl create --dry-run=server -f -"
ADVICE: Final = f"If it has more than {LOGIN}, name those that rows need: row-may-set: env.APP_MODE"


class LocatedFault(Struct, frozen=True):
    """A fault and its place.

    file: the file, or `--row`.
    line: line of the file; 0: the fault is the row's.
    path: the field.
    words: what is wrong.
    """

    file: str
    line: int
    path: str
    words: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return one_line(": ".join(filter(None, (where, self.path, self.words))))


def show_file(path: Path, row: str | None, settings: Settings, as_json: bool) -> int:
    """Prints the Job, or all faults. Returns the exit status."""
    try:
        found = render_file(path, row, settings)
    except OSError as fault:
        raise click.UsageError(f"--file {path}: {fault.strerror}") from fault
    if not isinstance(found, list):
        click.echo(as_document(found, as_json))
        for words in doubts_of(path, settings):
            click.echo(f"warning: {words}", err=True)
        click.echo(f"not checked, because only the database knows: {UNCHECKED}", err=True)
        click.echo(f"not checked, because only the API server knows: {ONLY_THERE}", err=True)
        return 0
    if as_json:
        click.echo(as_document({"faults": found}, as_json))
    for one in () if as_json else found:
        click.echo(str(one), err=True)
    return 1


def doubts_of(path: Path, settings: Settings) -> Iterator[str]:
    """What the author of a faultless template may not have intended."""
    template = read_template(path)
    yield from template.doubts(site_of(settings, "").passed, settings.placement.scheduler_name)
    secrets = {one.secret for one in beside_variables(template.pod_spec) if one.key != LOGIN}
    secrets |= {*other_secrets(template.manifest["spec"]["template"])}
    if EVERY_NAME in template.opened and secrets:
        beside = ", ".join(sorted(secrets))
        yield f"rows may set every variable that is not closed, next to Secret {beside}. {ADVICE}"


def render_file(path: Path, row: str | None, settings: Settings) -> Manifest | list[LocatedFault]:
    """The Job, or all faults. Raises OSError if the file cannot be read."""
    written, row_faults = read_row(row)
    try:
        template = read_template(path)
    except TemplateError as fault:
        return [*located(path, fault.faults), *row_faults]
    if written.get("template", template.name) != template.name:
        words = f"{written['template']!r:.80} is another template than the file's, {template.name}: leave it out"
        row_faults.append(LocatedFault(ROW, 0, "template", words))
    return row_faults or built(template, written, settings)


def read_template(path: Path) -> Template:
    """The template of the file, judged as the dispatcher judges it."""
    text = read_bounded(path)
    faults = tuple(TemplateFault((), words, 1) for words in [misnamed(path)] if words)
    try:
        template = parse_template(path.stem, text)
    except TemplateError as fault:
        places = (one._replace(line=one.line or line_of(text, one.path)) for one in fault.faults)
        raise TemplateError(*faults, *places) from None
    if (why := why_unusable(template)) and not faults:
        faults = (TemplateFault((), why, 1),)
    if faults:
        raise TemplateError(*faults)
    return template


def located(path: Path, faults: tuple[TemplateFault, ...]) -> list[LocatedFault]:
    named = [(dotted(fault.path), fault) for fault in faults]
    file = printable(str(path))
    found = [LocatedFault(file, one.line, name, one.words.removeprefix(f"{name} ")) for name, one in named]
    return sorted(found, key=lambda one: one.line)


def read_row(row: str | None) -> tuple[dict[str, Any], list[LocatedFault]]:
    """The columns of the row, and the faults of them that an INSERT would have."""
    try:
        stored = stored_json(row if row is not None else "{}")
    except NotStoredJson as fault:
        return {}, [LocatedFault(ROW, 0, "", f"no JSON that Postgres stores: {fault.rule}, {fault.detail}")]
    try:
        written = msgspec.json.decode(stored, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as fault:
        return {}, [LocatedFault(ROW, 0, "", f"not an object of columns: {fault}")]
    return written, [LocatedFault(ROW, 0, name, words) for name, words in column_faults(written)]


def built(template: Template, written: dict[str, Any], settings: Settings) -> Manifest | list[LocatedFault]:
    site = site_of(settings, settings.kube.namespace or "default")
    template = bounded(template, int(parse_quantity(settings.jobs.max_job_bytes)))
    task, kind, request = row_of(template, written)
    passed = frozenset(site.passed)
    if denied := list(denials(kind, template, passed)):
        return [LocatedFault(ROW, 0, "", words) for words in denied]
    offer = judge_kind(kind, {template.name: template}, passed, placed_by_of(settings))
    assert not isinstance(offer, Hold)  # nothing is denied, and the template is known
    order = preview_order(task, (request, CacheHistory()), offer, NO_DATABASE, settings)
    job = build_job(order, template, site)
    found = [LocatedFault(ROW, 0, "", f"PolicyDenied: {words}") for words in violations(job, order, template, site)]
    return found or job


def row_of(template: Template, written: dict[str, Any]) -> tuple[Task, Kind, Request]:
    """The row as the dispatcher reads it. Columns that do not change its Job are left out."""
    spec, env = written.get("spec", {}), written.get("env", {})
    chosen = {name: written[name] for name in ("queue", "timeout_seconds") if name in written}
    task = msgspec.structs.replace(a_row(template.name), **chosen)
    texts = {name: value for name, value in spec.items() if name not in {"command", "args"}}
    kind = Kind(b"", template.name, task.timeout_seconds, texts, frozenset(spec), frozenset(env))
    return task, kind, Request(task.id, task.attempt, env, spec, written.get("cache_key"))


LONGEST_SECONDS: Final = 20
"""Limit of the whole look at room, in seconds. The Job is shown in any case."""


async def tell_room(job: Manifest, settings: Settings) -> str:
    """Whether a node has room for the Job's Pod now, as one line; empty if no cluster is named.

    A cluster that cannot be asked is no fault.
    """
    if not is_cluster_named(settings.kube):
        return ""
    if not settings.kube.check_room:
        return "room: not judged, because DISPATCHER_CHECK_ROOM is false"
    needs = needs_of_manifest(job["spec"]["template"]["spec"])
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            view = await read_room(settings)
    except DispatcherError as fault:
        return f"room: not known: {fault}"
    except TimeoutError:
        return f"room: not known: no answer within {LONGEST_SECONDS} s"
    return f"room: {describe_room(needs, view)}"


def describe_room(needs: PodNeeds | None, view: RoomView) -> str:
    room = Room(view)
    if needs is None or view.threshold(needs) is None:
        return "not judged: only the Pod's scheduler can tell"
    if room.has_room(needs):
        return f"node {room.witness[needs, NOBODY]} has room now"
    could_fit, why = view.why_not(needs)
    return f"{HoldReason.NO_ROOM_NOW if could_fit else HoldReason.NEVER_FITS}: {why}"


async def read_room(settings: Settings) -> RoomView:
    """The nodes and their free amounts. Raises ClusterError."""
    client = KubeClient(await log_in(settings.kube))
    try:
        return await room_of(client, settings)
    finally:
        await client.close()


async def room_of(client: KubeClient, settings: Settings) -> RoomView:
    """As `read_room`, with the client of the caller."""
    scheduler = settings.placement.scheduler_name
    index = RoomIndex([scheduler] if scheduler else [])
    pods = pods_of_all(settings.kube.namespace or client.namespace, settings.kube.installation, scheduler)
    for node in (await list_all(client, NODES)).items:
        index.hear_node(None, node)
    for pod in (await list_all(client, pods)).items:
        index.hear_pod(None, pod)
    for one in (await list_all(client, PRIORITY_CLASSES)).items:
        index.hear_priority_class(None, one)
    return index.view()
