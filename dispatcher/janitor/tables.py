"""Keeps two tables of the database in step with the dispatcher: the templates, and the reasons of rows.

    ConfigMaps {INSTALLATION}-status, -reasons ─▶ ReasonReport (what changed) ─▶ janitor_tell

`TemplateTableSync`: keeps the table `templates` in step with the files, so that INSERT refuses what a launch would be
refused for. New and changed templates count within a second or two. A template without a file is deleted only after the
files have been the same for a while: a janitor that starts with an empty folder must not refuse the rows of all teams.

`ReasonTableSync`: writes the dispatcher's reasons into the database, for people who have only SQL. It writes only
changes, in at most one call a second with 200 rows. If the dispatcher is away, its last reasons stay, with their time.
If a ConfigMap is missing or somebody else has written it, the rows stay as they are until the dispatcher writes again.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeVar

import msgspec
import structlog
from msgspec import Struct

from dispatcher.jobs.catalog import Catalog
from dispatcher.kube.config_maps import WireConfigMap
from dispatcher.kube.reflector import Reflector, Reflectors, Resource, fault_of
from dispatcher.kube.wire import Bare, in_namespace
from dispatcher.model.errors import ClusterStale
from dispatcher.model.tasks import OfferedTemplate
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.views.published import NOT_OURS, PublishedReasons
from dispatcher.views.status import InstallationStatus, QueueStatus

LOOK_SECONDS: Final = 1
"""Seconds between two looks at the files."""
WRITE_SECONDS: Final = 10
"""Seconds between two comparisons of the table, even if no file has changed: somebody may have edited the table."""
log = structlog.get_logger(component="janitor.tables")
Offered = Sequence[OfferedTemplate]


class TemplateTable(Protocol):
    """The janitor's call."""

    async def templates(self, offered: Offered, *, are_all: bool) -> tuple[int, Offered]: ...


class TemplateTableSync:
    """Keeps the table. Its catalog is not the janitor's, which must not change within a round."""

    def __init__(self, catalog: Catalog, steady_seconds: float, table: TemplateTable, clock: Clock = elapsed) -> None:
        self._catalog = catalog
        self._steady_seconds = steady_seconds
        self._table = table
        self._clock = clock
        self._changed_at = clock()
        self._written_at = float("-inf")

    async def run_once(self) -> float:
        """Writes the table if a file has changed, or after a while. Raises DatabaseError; the next round repeats it."""
        if self._catalog.refresh():
            self._changed_at, self._written_at = self._clock(), float("-inf")
        if not self._catalog.fault and self._clock() - self._written_at >= WRITE_SECONDS:
            are_steady = self._clock() - self._changed_at >= self._steady_seconds
            changed, refused = await self._table.templates(self._catalog.offered(), are_all=are_steady)
            if changed:
                log.info("templates written into the database", changed=changed)
            for one in refused:
                log.warning("the database refuses a template", name=one.name)
            self._written_at = self._clock()
        return LOOK_SECONDS


ROWS_A_CALL: Final = 200
"""Rows with a reason in one call, at most."""
GONE_A_CALL: Final = 1000
"""Rows without a reason in one call, at most."""


class ReportedReason(Struct, frozen=True, array_like=True):
    task: int
    attempt: int
    reason: str
    since: datetime
    message: str


class ReasonReport(Struct, frozen=True, omit_defaults=True):
    """The argument of `janitor_tell`: the changes of reasons since the last call.

    as_of: time of the cycle.
    queues: the state of all queues; None: unchanged.
    queues_left_out: queues that the ConfigMap had no room for. They stay as they were.
    rows: rows with a new reason.
    gone: rows that have no reason any more.
    """

    as_of: datetime
    queues: Sequence[QueueStatus] | None = None
    queues_left_out: int = 0
    rows: Sequence[ReportedReason] = ()
    gone: Sequence[int] = ()


def rows_of(reasons: PublishedReasons) -> dict[int, ReportedReason]:
    """The rows, each with its message. Somebody else may have written the reasons: a wrong index gives no message."""
    words = reasons.messages
    return {
        id_: ReportedReason(id_, attempt, reason, since, words[at] if 0 <= at < len(words) else "")
        for id_, attempt, reason, since, at in reasons.rows
    }


def plan_report(
    known: Mapping[int, ReportedReason],
    wanted: Mapping[int, ReportedReason],
    status: InstallationStatus,
    told: datetime | None,
) -> ReasonReport | None:
    """The next call; None: nothing has changed.

    known: the rows in the database.
    wanted: the rows in the dispatcher's ConfigMap.
    told: `as_of` of the last call.
    """
    rows = [row for id_, row in wanted.items() if known.get(id_) != row][:ROWS_A_CALL]
    gone = [id_ for id_ in known if id_ not in wanted][:GONE_A_CALL]
    is_new = status.as_of != told
    if not (rows or gone or is_new):
        return None
    return ReasonReport(status.as_of, status.queues if is_new else None, status.queues_left_out, rows, gone)


def after(known: Mapping[int, ReportedReason], report: ReasonReport) -> dict[int, ReportedReason]:
    """The rows in the database after the call."""
    gone = set(report.gone)
    return {id_: row for id_, row in known.items() if id_ not in gone} | {row.task: row for row in report.rows}


CALL_SECONDS: Final = 1
"""Seconds between two calls, at least."""
MOST_KNOWN: Final = 5000
"""Rows of the database that are read, at most. The dispatcher names 2,000 at most."""
T = TypeVar("T")


class Text(msgspec.Struct, frozen=True):
    """A ConfigMap with one text."""

    name: str
    text: str


class ReasonTables(Protocol):
    """The janitor's calls."""

    async def told(self, most: int) -> Sequence[tuple[int, int, str, datetime, str]]: ...
    async def tell(self, report: str) -> int | None: ...


def read_text(raw: msgspec.Raw) -> Text:
    name = msgspec.json.decode(raw, type=Bare).metadata.name
    texts = list((msgspec.json.decode(raw, type=WireConfigMap).data or {}).values())
    return Text(name, texts[0] if len(texts) == 1 else "")


def config_map(namespace: str, name: str) -> Resource[Text]:
    """One ConfigMap. The right to list and watch is limited by name, so it needs this field selector."""
    path = in_namespace("/api/v1", namespace, "configmaps")
    return Resource("configmaps", path, read_text, fields=f"metadata.name={name}")


class ReasonTableSync:
    """Follows both ConfigMaps. Between rounds it keeps the state of the database."""

    def __init__(self, reflectors: Reflectors, namespace: str, installation: str, database: ReasonTables) -> None:
        self._status = reflectors.of(config_map(namespace, f"{installation}-status"))
        self._reasons = reflectors.of(config_map(namespace, f"{installation}-reasons"))
        self._database = database
        self._known: Mapping[int, ReportedReason] | None = None
        self._told: datetime | None = None
        self._unreadable: set[str] = set()

    async def run_once(self) -> float:
        """Makes one call, if something has changed. Raises ClusterStale and DatabaseError."""
        for one in (self._status, self._reasons):
            if fault := fault_of(one):
                raise ClusterStale(fault)
        status, reasons = self._read(self._status, InstallationStatus), self._read(self._reasons, PublishedReasons)
        if status is not None:
            await self._bring(status, reasons)
        return CALL_SECONDS

    async def _bring(self, status: InstallationStatus, reasons: PublishedReasons | None) -> None:
        """Makes the call. The rows are read again after a call that failed, or if another janitor was faster.

        A call for which some rows were not read is followed by a second read, too.
        """
        known, self._known = self._known, None
        if known is None:
            known = {row[0]: ReportedReason(*row) for row in await self._database.told(MOST_KNOWN)}
        report = plan_report(known, known if reasons is None else rows_of(reasons), status, self._told)
        if report is None:
            self._known = known
        elif await self._database.tell(msgspec.json.encode(report).decode()) is not None:
            self._known = after(known, report) if len(known) < MOST_KNOWN else None
            self._told = report.as_of
        else:
            self._told = report.as_of

    def _read(self, reflector: Reflector[Text], what: type[T]) -> T | None:
        """The content of the ConfigMap; None: there is none, or somebody else has written it."""
        for text in reflector.store.view().values():
            try:
                found = msgspec.json.decode(text.text, type=what)
            except NOT_OURS as fault:
                if text.name not in self._unreadable:
                    log.warning("a ConfigMap is not the dispatcher's", name=text.name, fault=str(fault))
                self._unreadable.add(text.name)
                return None
            self._unreadable.discard(text.name)
            return found
        return None
