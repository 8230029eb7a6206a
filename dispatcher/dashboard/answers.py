"""Finds the answer of each address. A refusal is an answer, too."""

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from dispatcher.dashboard.about import AboutSources, about_page
from dispatcher.dashboard.asking import Asking, NotYet
from dispatcher.dashboard.asking_nodes import AskingNodes
from dispatcher.dashboard.asking_queues import AskingQueues
from dispatcher.dashboard.asking_row import AskingRow
from dispatcher.dashboard.overview import LOOKED_AT_SECONDS, Overview
from dispatcher.dashboard.queue_view import no_queue
from dispatcher.explain.fitting import needs_of
from dispatcher.explain.node_room import WantedNodes
from dispatcher.model.errors import DatabaseError
from dispatcher.model.history import Wanted, WantedBatch

LARGEST_ID: Final = 2**63 - 1
LONGEST_QUERY: Final = 6000
"""Characters of the filters in an address. Pages repeat them in their links."""
UNSTORABLE: Final = re.compile(r"[\x00\ud800-\udfff]")
"""Postgres stores no such character."""
AN_ID: Final = re.compile(r"[1-9][0-9]{0,18}")


class Asked(Struct, frozen=True):
    """One question. `path`: the parameter in its path; `query`: those behind it."""

    path: str = ""
    query: Mapping[str, str] = {}


class Refusal(Struct, frozen=True):
    """Why there is no answer, and what to do. `status`: of HTTP."""

    status: int
    error: str


Reader = Callable[[Asked], Awaitable[Any]]
"""Returns the answer, or a Refusal. Raises NotYet and DatabaseError."""


class Sources(Struct, frozen=True):
    """The objects that know the answers, and are asked for them."""

    asking: Asking
    overview: Overview
    row: AskingRow
    queues: AskingQueues
    nodes: AskingNodes
    about: AboutSources


class Answers:
    """The answers of one replica."""

    def __init__(self, sources: Sources) -> None:
        self._asking, self._overview, self._about = sources.asking, sources.overview, sources.about
        self._row, self._queues, self._nodes = sources.row, sources.queues, sources.nodes
        self._readers: Mapping[str, Reader] = {
            "/status": self.status,
            "/queues": self.queues,
            "/queues/{name}": self.queue,
            "/nodes": self.nodes,
            "/tasks": self.tasks,
            "/tasks/{id}": self.task,
            "/tasks/{id}/explain": self.explain,
            "/batches": self.batches,
            "/failures": self.failures,
            "/about": self.about,
        }

    async def find(self, address: str, asked: Asked) -> Any:
        """The answer of an address, or a Refusal."""
        if (fault := too_long(asked)) is not None:
            return fault
        try:
            return await self._readers[address](asked)
        except (NotYet, DatabaseError) as fault:
            return Refusal(503, str(fault))

    async def explain(self, asked: Asked) -> Any:
        id_ = id_of(asked.path)
        return id_ if isinstance(id_, Refusal) else await self._asking.explain(id_) or no_row(id_)

    async def task(self, asked: Asked) -> Any:
        id_ = id_of(asked.path)
        return id_ if isinstance(id_, Refusal) else await self._row.page(id_) or no_row(id_)

    async def about(self, _: Asked) -> Any:
        return about_page(self._about, datetime.now(UTC))

    async def tasks(self, asked: Asked) -> Any:
        wanted = filters(asked, Wanted)
        if isinstance(wanted, Refusal):
            return wanted
        try:
            return await self._asking.lists.page(wanted)
        except ValueError as fault:
            return Refusal(400, str(fault))

    async def batches(self, asked: Asked) -> Any:
        wanted = filters(asked, WantedBatch)
        return wanted if isinstance(wanted, Refusal) else await self._asking.lists.batches(wanted)

    async def failures(self, _: Asked) -> Any:
        return await self._asking.lists.failures()

    async def nodes(self, asked: Asked) -> Any:
        wanted = filters(asked, WantedNodes)
        if isinstance(wanted, Refusal):
            return wanted
        try:
            needs = needs_of(wanted.cpu, wanted.memory)
        except ValueError as fault:
            return Refusal(400, str(fault))
        return await self._nodes.page(wanted, needs) or Refusal(404, "no node is watched: CHECK_ROOM is false")

    async def status(self, _: Asked) -> Any:
        return await self._overview.page(self._asking.estimates.record)

    async def queues(self, _: Asked) -> Any:
        return (await self._overview.status(LOOKED_AT_SECONDS)).queues

    async def queue(self, asked: Asked) -> Any:
        found = await self._queues.page(asked.path)
        return found or Refusal(404, no_queue(asked.path, await self._queues.known()))


def too_long(asked: Asked) -> Refusal | None:
    """Refuses filters that would fill the page. None: their length is right."""
    length = len(urlencode(asked.query))
    if length <= LONGEST_QUERY:
        return None
    return Refusal(400, f"the filters have {length:,} characters in an address: give {LONGEST_QUERY:,} at most")


def id_of(written: str) -> int | Refusal:
    """The id of a row in a path."""
    if AN_ID.fullmatch(written) is None or int(written) > LARGEST_ID:
        return Refusal(400, f"{written[:40]!r} is no id of a row: give a whole number from 1 to {LARGEST_ID}")
    return int(written)


def no_row(id_: int) -> Refusal:
    why = f"there is no row {id_}: it never was, or it was deleted after its retention"
    return Refusal(404, f"{why}; find the row by its queue or submitter in the list of rows")


def filters(asked: Asked, kind: type[Any]) -> Any:
    """The parameters of a query as a `kind`, or a Refusal. A form sends empty fields, too: they are left out."""
    for name, value in asked.query.items():
        if UNSTORABLE.search(value):
            return Refusal(400, f"{name[:40]!r} has a character that no row can have (NUL, or half of a pair)")
    try:
        return msgspec.convert({name: value for name, value in asked.query.items() if value}, kind, strict=False)
    except msgspec.ValidationError as fault:
        return Refusal(400, f"{fault}; the filters are {', '.join(kind.__struct_fields__)}"[:500])
