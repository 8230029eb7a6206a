"""The Jobs stage of a cycle: builds the picture by which rows are judged, and sends the launches."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.memory import Memory
from dispatcher.jobs.observed import Rules
from dispatcher.jobs.picture import Carried, JobsPicture, Judged, KnownJobs, know_jobs, observe, still_carried
from dispatcher.jobs.submit import Submitter
from dispatcher.model.launches import Order
from dispatcher.model.snapshot import ClusterView
from dispatcher.runtime.clock import Clock, elapsed


class Launcher:
    """One object for the life of the process. Its state between cycles is a cache."""

    def __init__(
        self, submitter: Submitter, memory: Memory, catalog: Catalog, rules: Rules, clock: Clock = elapsed
    ) -> None:
        self._submitter = submitter
        self._memory = memory
        self._catalog = catalog
        self._rules = rules
        self._clock = clock
        self._carried = Carried()
        self._database_id = ""
        self._known: KnownJobs | None = None

    def picture(self, view: ClusterView, now: datetime, database_id: str) -> JobsPicture:
        """The picture of a new cycle, made from this view of the cluster. `now`: the database's clock."""
        if self._catalog.refresh() or self._database_id not in {"", database_id}:
            self._memory.forget_rows()
            self._carried = Carried(self._carried.first_seen, self._carried.settled)
        self._database_id = database_id
        self._memory.creates.observe(view)
        self._submitter.tell_time(now)
        at, known = self._clock(), self._know(view, now)
        carried = still_carried(self._carried, view, known.by_task, at)
        return JobsPicture(
            installation=self._submitter.installation,
            database_id=database_id,
            cluster=observe(view, now, self._rules, carried.first_seen),
            all_jobs=known.jobs,
            jobs=known.by_task,
            counted=known.counted,
            offers=self._catalog,
            creates=self._memory.known(at),
            carried=carried,
            at=at,
        )

    def _know(self, view: ClusterView, now: datetime) -> KnownJobs:
        """The Jobs of the view. They are counted anew only if a Job, a Pod or a refusal has changed."""
        if self._known is None or not self._known.is_of(view):
            self._known = know_jobs(view, now)
        return self._known

    async def launch(self, picture: JobsPicture, judged: Judged, orders: Sequence[Order]) -> int:
        """Ends the cycle of a picture: sends the orders. Returns how many, without waiting for the answers."""
        self._carried = picture.carry(judged)
        await self._submitter.resolve()
        refusals, now = self._memory.refusals, self._clock()
        sent = [order for order in self._probes(orders, picture.creates.probed()) if not refusals.rests(order, now)]
        await self._submitter.submit(sent, self._catalog.templates)
        return len(sent)

    def _probes(self, orders: Iterable[Order], probed: set[str]) -> Iterator[Order]:
        """After a create of a template failed, sends one create of that template at a time.

        The create is chosen among admitted rows. A held row would block the probe.
        """
        for order in orders:
            name = order.task.template
            if not self._memory.of_template(name).is_probing:
                yield order
            elif name not in probed:
                probed.add(name)
                yield order

    async def drain(self) -> None:
        """Waits until every create has its answer."""
        await self._submitter.drain()
