"""Brings the dispatcher's reasons into the database, for people who have nothing but SQL.

    ConfigMaps {INSTALLATION}-status, -reasons ─▶ explain.report (what changed) ─▶ janitor_tell

Changes only, at most one call a second with 200 rows. If the dispatcher is away, its last words stay, with their time.
If a ConfigMap is missing or somebody else has written it, the rows stay as they are until the dispatcher writes again.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeVar
from urllib.parse import quote

import msgspec
import structlog

from dispatcher.explain.published import NOT_OURS, Reasons
from dispatcher.explain.report import ToldRow, after, plan_report, rows_of
from dispatcher.explain.status import InstallationStatus
from dispatcher.kube.config_maps import WireConfigMap
from dispatcher.kube.listing import Resource
from dispatcher.kube.reflector import Reflector
from dispatcher.kube.reflectors import Reflectors, fault_of
from dispatcher.kube.wire import Bare
from dispatcher.model.errors import ClusterStale

CALL_SECONDS: Final = 1
MOST_KNOWN: Final = 5000
"""Rows of the database that are read. The dispatcher tells of 2,000 at most."""
T = TypeVar("T")
log = structlog.get_logger(component="janitor.reasons")


class Text(msgspec.Struct, frozen=True):
    """A ConfigMap with one text."""

    name: str
    text: str


class Database(Protocol):
    """The janitor's calls."""

    async def told(self, most: int) -> Sequence[tuple[int, int, str, datetime, str]]: ...
    async def tell(self, report: str) -> int | None: ...


def read_text(raw: msgspec.Raw) -> Text:
    name = msgspec.json.decode(raw, type=Bare).metadata.name
    texts = list((msgspec.json.decode(raw, type=WireConfigMap).data or {}).values())
    return Text(name, texts[0] if len(texts) == 1 else "")


def config_map(namespace: str, name: str) -> Resource[Text]:
    """One ConfigMap. The right to list and watch is limited by name, and works with this field selector alone."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"
    return Resource("configmaps", path, read_text, fields=f"metadata.name={name}")


class BringingReasons:
    """Follows both ConfigMaps. Between rounds it keeps what stands in the database."""

    def __init__(self, reflectors: Reflectors, namespace: str, installation: str, database: Database) -> None:
        self._status = reflectors.of(config_map(namespace, f"{installation}-status"))
        self._reasons = reflectors.of(config_map(namespace, f"{installation}-reasons"))
        self._database = database
        self._known: Mapping[int, ToldRow] | None = None
        self._told: datetime | None = None
        self._unreadable: set[str] = set()

    async def run_once(self) -> float:
        """One call, if something has changed. Raises ClusterStale and DatabaseError."""
        for one in (self._status, self._reasons):
            if fault := fault_of(one):
                raise ClusterStale(fault)
        status, reasons = self._read(self._status, InstallationStatus), self._read(self._reasons, Reasons)
        if status is not None:
            await self._bring(status, reasons)
        return CALL_SECONDS

    async def _bring(self, status: InstallationStatus, reasons: Reasons | None) -> None:
        """After a call that failed, or that another janitor was faster than, the rows are read again.

        They are also read again after a call for which not all of them were read.
        """
        known, self._known = self._known, None
        if known is None:
            known = {row[0]: ToldRow(*row) for row in await self._database.told(MOST_KNOWN)}
        report = plan_report(known, known if reasons is None else rows_of(reasons), status, self._told)
        if report is None:
            self._known = known
        elif await self._database.tell(msgspec.json.encode(report).decode()) is not None:
            self._known = after(known, report) if len(known) < MOST_KNOWN else None
            self._told = report.as_of
        else:
            self._told = report.as_of

    def _read(self, reflector: Reflector[Text], what: type[T]) -> T | None:
        """What the ConfigMap says; None: there is none, or somebody else has written it."""
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
