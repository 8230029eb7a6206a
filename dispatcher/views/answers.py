"""The addresses of the API and of the pages, the answer of each, and their description.

`Answers`: finds the answer of each address. A refusal is an answer, too.

`ADDRESSES`: the addresses below /api/v1. Most of them have a page, too, which shows the same.

`openapi`: the description of the API in OpenAPI 3.1, made from the types of its answers.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from dispatcher.model.errors import DatabaseError
from dispatcher.model.history import RowFilter, WantedBatch
from dispatcher.model.stored_json import Json
from dispatcher.model.tasks import LARGEST_ID
from dispatcher.views.about import AboutPage, AboutSources, about_page
from dispatcher.views.counting import LOOKED_AT_SECONDS, Overview
from dispatcher.views.explanation import Explanation
from dispatcher.views.failures import FailuresPage
from dispatcher.views.first_page import OverviewPage
from dispatcher.views.node_room import NodesPage, WantedNodes
from dispatcher.views.nodes import needs_of
from dispatcher.views.page_reads import NodePageReader, QueuePageReader, RowPageReader
from dispatcher.views.queue import QueuePage, no_queue
from dispatcher.views.reads import ExplanationReader, NoCycleYet
from dispatcher.views.row_page import RowPage
from dispatcher.views.rows import BatchesPage, RowsPage
from dispatcher.views.status import QueueStatus

LONGEST_QUERY: Final = 6000
"""Characters of the filters in an address, at most. Pages repeat them in their links."""
UNSTORABLE: Final = re.compile(r"[\x00\ud800-\udfff]")
"""Postgres stores no such character."""
AN_ID: Final = re.compile(r"[1-9][0-9]{0,18}")


class ApiRequest(Struct, frozen=True):
    """One question.

    path: the parameter in its path.
    query: the parameters after the path.
    repeated: names of the query that have several values. `query` has the first value.
    """

    path: str = ""
    query: Mapping[str, str] = {}
    repeated: Sequence[str] = ()


class Refusal(Struct, frozen=True):
    """Why there is no answer, and what to do. `status`: of HTTP."""

    status: int
    error: str


Reader = Callable[[ApiRequest], Awaitable[Any]]
"""Returns the answer, or a Refusal. Raises NoCycleYet and DatabaseError."""


class Sources(Struct, frozen=True):
    """The objects that know the answers."""

    asking: ExplanationReader
    overview: Overview
    row: RowPageReader
    queues: QueuePageReader
    nodes: NodePageReader
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

    async def find(self, address: str, asked: ApiRequest) -> Any:
        """The answer of an address, or a Refusal."""
        if (fault := too_long(asked) or ambiguous(asked) or without_filters(address, asked)) is not None:
            return fault
        try:
            return await self._readers[address](asked)
        except NoCycleYet as fault:  # whoever installs asks for the cause, and the image has no program for /readyz
            lacks = "; ".join(f"{name}: {why}" for name, why in self._overview.missing().items())
            return Refusal(503, f"no cycle has ended yet: {lacks}" if lacks else str(fault))
        except DatabaseError as fault:
            return Refusal(503, str(fault))

    async def explain(self, asked: ApiRequest) -> Any:
        id_ = id_of(asked.path)
        return id_ if isinstance(id_, Refusal) else await self._asking.explain(id_) or no_row(id_)

    async def task(self, asked: ApiRequest) -> Any:
        id_ = id_of(asked.path)
        return id_ if isinstance(id_, Refusal) else await self._row.page(id_) or no_row(id_)

    async def about(self, _: ApiRequest) -> Any:
        return about_page(self._about, datetime.now(UTC))

    async def tasks(self, asked: ApiRequest) -> Any:
        wanted = filters(asked, RowFilter)
        if isinstance(wanted, Refusal):
            return wanted
        try:
            return await self._asking.lists.page(wanted)
        except ValueError as fault:
            return Refusal(400, str(fault))

    async def batches(self, asked: ApiRequest) -> Any:
        wanted = filters(asked, WantedBatch)
        return wanted if isinstance(wanted, Refusal) else await self._asking.lists.batches(wanted)

    async def failures(self, _: ApiRequest) -> Any:
        return await self._asking.lists.failures()

    async def nodes(self, asked: ApiRequest) -> Any:
        wanted = filters(asked, WantedNodes)
        if isinstance(wanted, Refusal):
            return wanted
        try:
            needs = needs_of(wanted.cpu, wanted.memory)
        except ValueError as fault:
            return Refusal(400, str(fault))
        return await self._nodes.page(wanted, needs) or Refusal(404, "no node is watched: CHECK_ROOM is false")

    async def status(self, _: ApiRequest) -> Any:
        return await self._overview.page(self._asking.estimates.record)

    async def queues(self, _: ApiRequest) -> Any:
        return (await self._overview.status(LOOKED_AT_SECONDS)).queues

    async def queue(self, asked: ApiRequest) -> Any:
        found = await self._queues.page(asked.path)
        return found or Refusal(404, no_queue(asked.path, await self._queues.known()))


def too_long(asked: ApiRequest) -> Refusal | None:
    """Refuses filters that would fill the page. None: their length is right."""
    length = len(urlencode(asked.query))
    if length <= LONGEST_QUERY:
        return None
    return Refusal(400, f"the filters have {length:,} characters in an address: give {LONGEST_QUERY:,} at most")


def ambiguous(asked: ApiRequest) -> Refusal | None:
    """Refuses a filter that is given twice, because one of its values would be ignored. None: each is given once."""
    if not asked.repeated:
        return None
    return Refusal(400, f"{asked.repeated[0][:40]!r} is given more than once: a filter has one value")


def without_filters(address: str, asked: ApiRequest) -> Refusal | None:
    """Refuses filters of an address that has none, because its answer would look filtered. None: nothing is ignored."""
    given = [name for name, value in asked.query.items() if value]
    if not given or ADDRESSES[address].query is not None:
        return None
    return Refusal(400, f"{given[0][:40]!r} is no filter of {address}, which has none: take it out, or ask /tasks")


def id_of(written: str) -> int | Refusal:
    """The id of a row in a path."""
    if AN_ID.fullmatch(written) is None or int(written) > LARGEST_ID:
        return Refusal(400, f"{written[:40]!r} is no id of a row: give a whole number from 1 to {LARGEST_ID}")
    return int(written)


def no_row(id_: int) -> Refusal:
    why = f"there is no row {id_}: no row ever had this id, or it was deleted after its retention"
    newest = "these are the newest: SELECT id, queue FROM dispatch.tasks ORDER BY id DESC LIMIT 20"
    return Refusal(404, f"{why}; {newest}")


def filters(asked: ApiRequest, kind: type[Any]) -> Any:
    """The parameters of a query as a `kind`, or a Refusal. Empty fields, which a form sends, too, are left out."""
    for name, value in asked.query.items():
        if UNSTORABLE.search(value):
            return Refusal(400, f"{name[:40]!r} has a character that no row can have (NUL, or half of a pair)")
    try:
        return msgspec.convert({name: value for name, value in asked.query.items() if value}, kind, strict=False)
    except msgspec.ValidationError as fault:
        return Refusal(400, f"{fault}; the filters are {', '.join(kind.__struct_fields__)}"[:500])


API: Final = "/api/v1"


class ApiRefusal(Struct, frozen=True):
    """Why there is no answer, and what to do."""

    error: str


class Address(Struct, frozen=True):
    """One address, and the type of its answer.

    body: type of the answer.
    refusals: why there is an ApiRefusal instead, by status.
    path: the parameter in the path; empty: none.
    query: type of the parameters in the query; None: there are none.
    page: path of the page that shows the same; empty: there is none.
    template: the file of the page.
    """

    summary: str
    body: Any
    refusals: Mapping[int, str]
    path: str = ""
    query: type[Struct] | None = None
    page: str = ""
    template: str = ""


ALWAYS: Final[Mapping[int, str]] = {
    400: "a filter is unknown or given twice, or the filters are too long",
    403: "the name of the host is not one of ours: set DISPATCHER_DASHBOARD_HOSTS",
    429: "too many ask at the same time: ask again in some seconds",
    503: "no answer in time: the database is slow, or many ask",
}
"""Why any address may give an ApiRefusal, by status."""
AWAY: Final = {503: "no cycle has ended yet, or the database cannot be read"}
ADDRESSES: Final[Mapping[str, Address]] = {
    "/status": Address("The whole installation.", OverviewPage, AWAY, page="/", template="overview.html"),
    "/queues": Address("Every queue.", list[QueueStatus], AWAY),
    "/queues/{name}": Address(
        "One queue: settings, who is next, what ended last.", QueuePage, {404: "there is no such queue", **AWAY},
        "name", page="/queues/{name}", template="queue.html",
    ),
    "/nodes": Address(
        "A page of nodes by name, with their room, and how many Pods of one size fit.", NodesPage,
        {400: "no such filter, or no size of a Pod", 404: "no node is watched", **AWAY},
        query=WantedNodes, page="/nodes", template="nodes.html",
    ),
    "/tasks": Address(
        "A page of rows, the newest first.", RowsPage, {400: "no such filter", **AWAY},
        query=RowFilter, page="/tasks", template="tasks.html",
    ),
    "/tasks/{id}": Address(
        "One row with all that is known of it.", RowPage,
        {400: "no id of a row", 404: "there is no such row", **AWAY}, "id", page="/tasks/{id}", template="task.html",
    ),
    "/tasks/{id}/explain": Address(
        "Why a row waits, and what became of its launches.", Explanation,
        {400: "no id of a row", 404: "there is no such row", **AWAY}, "id",
    ),
    "/batches": Address(
        "How far a batch is, and what failed in it.", BatchesPage, {400: "no such parameter", **AWAY},
        query=WantedBatch, page="/batches", template="batches.html",
    ),
    "/failures": Address(
        "Rows that failed in the last day, and parked rows, by what is wrong.", FailuresPage, AWAY,
        page="/failures", template="failures.html",
    ),
    "/about": Address("The installation and this replica.", AboutPage, {}, page="/about", template="about.html"),
}  # fmt: skip


REF: Final = "#/components/schemas/{name}"


def openapi(version: str) -> Json:
    schemas, components = msgspec.json.schema_components(
        [*(one.body for one in ADDRESSES.values()), ApiRefusal], ref_template=REF
    )
    paths = {
        API + path: {"get": operation(path, address, schema)}
        for (path, address), schema in zip(ADDRESSES.items(), schemas[:-1], strict=True)
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "dispatcher", "version": version, "summary": "Why does a row wait? Everything is read-only."},
        "paths": paths,
        "components": {"schemas": components},
    }


def operation(path: str, address: Address, schema: Json) -> Json:
    fault = {"$ref": REF.format(name="ApiRefusal")}
    statuses = sorted({*address.refusals, *ALWAYS})
    refusals = {str(one): described(address.refusals.get(one) or ALWAYS[one], fault) for one in statuses}
    parameters = [*path_parameters(address), *query_parameters(address)]
    return {
        "operationId": "get" + path.title().translate(dict.fromkeys(map(ord, "/{}"))),
        "summary": address.summary,
        **({"parameters": parameters} if parameters else {}),
        "responses": {"200": described(address.summary, schema), **refusals},
    }


def described(words: str, schema: Json) -> Json:
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def path_parameters(address: Address) -> Iterator[Json]:
    if address.path:
        an_id = {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}
        kind = an_id if address.path == "id" else {"type": "string", "pattern": "^[^/]+$"}
        yield {"name": address.path, "in": "path", "required": True, "schema": kind}


def query_parameters(address: Address) -> Iterator[Json]:
    if address.query is not None:
        schema = msgspec.json.schema(address.query)
        fields: Json = schema["$defs"][address.query.__name__]["properties"]
        for name, field in fields.items():
            yield {"name": name, "in": "query", "required": False, "schema": inlined(field, schema["$defs"])}


def inlined(field: Any, definitions: Json) -> Any:
    """The schema without references: parameters stand outside the components of the answers."""
    if isinstance(field, dict) and "$ref" in field:
        return definitions[field["$ref"].rpartition("/")[2]]
    if isinstance(field, dict):
        return {key: inlined(value, definitions) for key, value in field.items()}
    return [inlined(one, definitions) for one in field] if isinstance(field, list) else field
