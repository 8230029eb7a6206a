"""The pages of a queue and of nodes: text of people stays text, pages stay small, and empty ones say what to do."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from dispatcher.model.history import Percentiles
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.answers import ApiRequest
from dispatcher.views.first_page import QueueHour
from dispatcher.views.node_room import KeptCaches, NodesPage
from dispatcher.views.nodes import Fits, NodeFit, NodeGroup
from dispatcher.views.queue import QueueTimes
from dispatcher.views.server import Pages
from dispatcher.views.status import InstallationIdentity, QueueHold, ShapeDemand
from tests.rig.builders import NOW, ago, later
from tests.unit.page_facts import EMPTY, ENDED, HOSTILE, NODE, NODES, ROW, SETTINGS
from tests.unit.page_tree import read

SHOWN = HOSTILE.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("'", "&#39;")
SHOWN = SHOWN.replace('"', "&#34;")
PAGES = Pages(InstallationIdentity("dispatcher", "1", "jobs", "me"), "/proxy")
ASKED = ShapeDemand(asks=HOSTILE, pods=2**62, has_grown=True, since=ago(60), answer=HOSTILE)
FITS = Fits(
    cpu=HOSTILE, memory="1Gi", pods=2**62, nodes=1, most=(NodeFit(HOSTILE, 2),),
    answers=(NodeGroup(1, HOSTILE, (HOSTILE,)),),
)  # fmt: skip


def queue(**changes: Any) -> str:
    return PAGES.write("queue.html", replace(EMPTY, **changes), ApiRequest("default"), "/api/v1/queues/default")


def nodes(page: NodesPage, query: Mapping[str, str] = {}) -> str:
    return PAGES.write("nodes.html", page, ApiRequest("", query), "/api/v1/nodes")


def check_text(page: str) -> None:
    """Every hostile text is escaped, and is isolated where it is content."""
    assert "<script>alert" not in page
    page = re.sub(r'href="[^"]*"', "", page)
    assert page.count("w" * 300) == page.count(SHOWN)
    in_attributes = len(re.findall(r'(?:value|title)="[^"]*' + "w" * 300, page))
    isolated = page.count(f"<bdi>{SHOWN}</bdi>")
    assert isolated + in_attributes == page.count(SHOWN)
    assert isolated > 0


def test_hostile_text_of_a_queue_stays_text() -> None:
    behind = QueueHold(HoldReason.QUEUE_CAP, HOSTILE, None)
    settings = replace(SETTINGS, note=HOSTILE)
    page = queue(
        settings=settings, next=(ROW,), ended=(ENDED,), waiting=1, reasons={HoldReason.NO_ROOM_NOW: 1}, behind=behind
    )
    check_text(page)
    assert page.count(SHOWN) == 6
    assert f'<a href="/proxy/tasks/{2**62}">{2**62}</a>' in page


def test_hostile_text_of_nodes_stays_text() -> None:
    page = nodes(replace(NODES, fits=FITS, demand=[ASKED]), {"cpu": HOSTILE})
    check_text(page)
    assert page.count(SHOWN) >= 8
    assert f"{2**62:,}" in page


def test_queue_shows_what_it_inherits_its_pause_and_its_times() -> None:
    settings = replace(SETTINGS, max_jobs=1234, paused_until=later(60), inherited=("max_jobs", "paused_until"))
    hour = QueueHour([None, 2.0], [None, 1.0], [None, 0.0], 30.0)
    times = QueueTimes(1000, Percentiles(9, 1.0, 2.0, 3.0), Percentiles(10, 60.0, 61.0, 3600.0))
    page = queue(settings=settings, paused_until=later(60), hour=hour, counted_since=ago(60), times=times)
    assert page.count("from queue *") == 2
    for told in ("1,234", "2026-03-14 12:01:00 UTC", "1 min 1 s", "1 h", "starts a minute in the last hour"):
        assert told in page
    assert "until somebody clears it" in queue(settings=replace(settings, paused_until=NOW.replace(year=9999)))


def test_order_of_a_fair_queue_is_told() -> None:
    assert "take turns" in queue(settings=replace(SETTINGS, fair_submitters=True), next=(ROW,))


def test_empty_queue_says_what_to_do() -> None:
    page = queue()
    for told in ("INSERT INTO dispatch.tasks", "No due row is without a Job", "No row of this queue has ended yet"):
        assert told in page


@pytest.mark.parametrize(
    ("page", "query", "told"),
    [
        (replace(NODES, demand=[replace(ASKED, asks="cpu 1", answer="")]), {}, "nothing yet"),
        (replace(NODES, nodes=(), total=0), {}, "The cluster has no node"),
        (replace(NODES, nodes=()), {"after": "z"}, "No node has a name behind this one"),
        (replace(NODES, warm_ends=None), {}, "the database cannot be read"),
        (replace(NODES, reservations_are_watched=False), {}, "NodeReservations are not watched"),
        (replace(NODES, next_after="n9"), {"cpu": "1"}, 'href="/proxy/nodes?cpu=1&amp;after=n9"'),
        (NODES, {"after": "a", "cpu": "1"}, 'href="/proxy/nodes?cpu=1"'),
    ],
)
def test_page_of_nodes_says_what_to_do_next(page: NodesPage, query: Mapping[str, str], told: str) -> None:
    assert told in nodes(page, query)


def test_caches_of_a_node_are_those_that_its_keeper_tells() -> None:
    def cell(is_whole: bool) -> str:
        told = replace(NODE, caches=KeptCaches(1200, 3 * 2**30, is_whole))
        return read(nodes(replace(NODES, nodes=(told,)), {})).the("main").rows()[-1]["Warm keys"].words

    assert (cell(is_whole=True), cell(is_whole=False)) == ("1,200 3 GiB", "1,200+ 3 GiB")


def test_page_of_a_hundred_nodes_is_below_100_kb() -> None:
    size = {"cpu": "63500m", "memory": "262144000Ki", "pods": "110", "ephemeral-storage": "1843000000Ki",
            "hugepages-1Gi": "0", "hugepages-2Mi": "0", "nvidia.com/gpu": "8"}  # fmt: skip
    node = replace(
        NODE, name="ip-10-0-123-123.eu-central-1.compute.internal", ready=True, cordoned=False, taints=("team",),
        size=size, free=size, others=size, ours=size, coming={}, reserved={}, kept_for=None, reservations=(),
        warm={"maps": 3, "builds": 2},
    )  # fmt: skip
    assert len(nodes(replace(NODES, nodes=(node,) * 100)).encode()) < 100_000


def test_page_of_a_queue_with_fifty_rows_is_below_100_kb() -> None:
    row = replace(ROW, message="x" * 300, template="a-template", submitted_by="team_a")
    assert len(queue(next=(row,) * 50, ended=(replace(ENDED, node="node-1"),) * 20).encode()) < 100_000
