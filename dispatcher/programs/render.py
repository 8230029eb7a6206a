"""`dispatcher render`: shows the Job of a row, or of a template. It reads rows and templates, but no Jobs.

So it knows no Jobs of the row, and cannot say whether the row would be launched now (`JobsPicture.judge_row`).
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec

from dispatcher.admission.orders import OrderInputs, make_order
from dispatcher.jobs.manifest import Site, build_job
from dispatcher.jobs.policy import check_job
from dispatcher.jobs.templates import Template
from dispatcher.model.cache_history import CacheHistory
from dispatcher.model.errors import DispatcherError
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import Launch, Offer, Order
from dispatcher.model.tasks import Kind, Request, Status, Task
from dispatcher.model.verdicts import Hold
from dispatcher.pg.connect import Session
from dispatcher.pg.tasks import look
from dispatcher.programs.startup import catalog_of, placing_of, site_of
from dispatcher.settings.definition import Settings

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
    past = CacheHistory(tuple(next(iter(nodes.values()), ())))
    return preview(tasks[task_id], (requests[task_id], past), kinds[0], database_id, settings)


def keys_of(tasks: Mapping[int, Task], requests: Mapping[int, Request]) -> list[tuple[str, str]]:
    return [(tasks[one.task_id].queue, one.cache_key) for one in requests.values() if one.cache_key is not None]


def preview_template(name: str, settings: Settings) -> Manifest:
    """The Job of a row that names this template and sets no further field."""
    task = a_new_row(name)
    kind = Kind(b"", name, None, {}, frozenset(), frozenset())
    return preview(task, (Request(1, 1, {}, {}, None), CacheHistory()), kind, NO_DATABASE, settings)


def a_new_row(template: str) -> Task:
    """A row as INSERT makes it, if it names a template and sets nothing else."""
    return Task(
        id=1, queue="default", priority=100, run_at=None, timeout_seconds=None, max_failures=3, template=template,
        status=Status.WAITING, attempt=1, launch=0, failures=0, job_uid=None, submitted_by="somebody",
        created_at=LONG_AGO, started_at=None, heartbeat_at=None, finished_at=None, cancel_requested_at=None, kind=b"",
    )  # fmt: skip


def preview(
    task: Task, asked: tuple[Request, CacheHistory], kind: Kind, database_id: str, settings: Settings
) -> Manifest:
    site = site_of(settings, settings.kube.namespace or "default")
    catalog = catalog_of(settings, site.passed)
    catalog.refresh()
    if catalog.fault:
        raise DispatcherError(catalog.fault)
    offer = catalog.offer(kind)
    if isinstance(offer, Hold):
        raise DispatcherError(f"{offer.reason}: {offer.detail}")
    order = preview_order(task, asked, offer, database_id, settings)
    return rendered(order, catalog.templates[task.template], site)


def previews_of(
    settings: Settings, templates: Callable[[], Mapping[str, Template | str]], site: Site
) -> Callable[[Task, tuple[Request, CacheHistory], Offer, str], Manifest]:
    """Shows Jobs of rows as a running dispatcher would make them. `templates`: those of now."""

    def preview_of(task: Task, asked: tuple[Request, CacheHistory], offer: Offer, database_id: str) -> Manifest:
        template = templates().get(task.template)
        if not isinstance(template, Template):  # somebody else may have written the row's kind
            raise DispatcherError(f"there is no template {task.template}")
        return rendered(preview_order(task, asked, offer, database_id, settings), template, site)

    return preview_of


def preview_order(
    task: Task, asked: tuple[Request, CacheHistory], offer: Offer, database_id: str, settings: Settings
) -> Order:
    """The order of the next launch, without its key."""
    request, history = asked
    inputs = OrderInputs(database_id, None, placing_of(settings).plan)
    order = make_order(task, request, (Launch(task.launch + 1), offer), history, inputs)
    return msgspec.structs.replace(order, start_key=HIDDEN)


def rendered(order: Order, template: Template | str, site: Site) -> Manifest:
    """The Job as a dispatcher would send it."""
    assert isinstance(template, Template)  # a faulty template has no offer
    job = build_job(order, template, site)
    if violation := check_job(job, order, template, site):
        raise DispatcherError(f"PolicyDenied: {violation}")
    return job
