"""The addresses of the API below /api/v1. Most of them have a page, too, which shows the same."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from dispatcher.dashboard.about import AboutPage
from dispatcher.dashboard.queue_view import QueuePage
from dispatcher.dashboard.row_page import RowPage
from dispatcher.dashboard.view import OverviewPage
from dispatcher.explain.batches import BatchesPage
from dispatcher.explain.explanation import Explanation
from dispatcher.explain.failures import FailuresPage
from dispatcher.explain.listing import Page
from dispatcher.explain.node_room import NodesPage, WantedNodes
from dispatcher.explain.status import QueueStatus
from dispatcher.model.history import Wanted, WantedBatch

API: Final = "/api/v1"


class Fault(Struct, frozen=True):
    """Why there is no answer, and what to do."""

    error: str


class Address(Struct, frozen=True):
    """One address, and the type of its answer.

    body: type of the answer.
    refusals: why there is a Fault instead, by status.
    path: the parameter in the path; empty: none.
    query: type of the parameters in the query; None: there are none.
    page: path of the same as a page; empty: there is none.
    template: the file of the page.
    """

    summary: str
    body: Any
    refusals: Mapping[int, str]
    path: str = ""
    query: type[Struct] | None = None
    page: str = ""
    template: str = ""


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
        "A page of rows, the newest first.", Page, {400: "no such filter", **AWAY},
        query=Wanted, page="/tasks", template="tasks.html",
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
