"""The links from a number of rows with one reason to these rows."""

import html
import re
from datetime import UTC, datetime

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.showing import shown
from tests.rig.steps import insert, looks_again

QUEUES = """
INSERT INTO dispatch.queues (name, max_jobs, paused_until) VALUES ('full', 1, NULL), ('still', NULL, 'infinity')
"""
HREF = re.compile(r'href="/(tasks\?queue=[^"]*reason=(\w+))"')


@pytest.mark.slow
async def test_each_number_of_a_reason_leads_to_its_rows(place: Place) -> None:
    """Of paused and full queues, and of rows that are not due, no cycle judges the rows one by one."""
    await (await place.database.session("admin")).execute(QUEUES)
    async with Dispatcher(place, CHECK_ROOM="false") as dispatcher:
        await dispatcher.ready()
        full, still = await insert(place, 4, queue="full"), await insert(place, 3, queue="still")
        later = await insert(place, 2, run_at=datetime(2100, 1, 1, tzinfo=UTC))
        await wait_for(place.jobs, "a Job of the full queue", 20)
        await looks_again(dispatcher, 2)
        links = dict[str, str]()
        for path in ("/", "/queues/full", "/queues/still", "/queues/default"):
            _, page = await shown(dispatcher, path)
            links |= {reason: html.unescape(link) for link, reason in HREF.findall(page.html)}
        expected = {"Launched": full[:1], "QueueCap": full[1:], "Paused": still, "NotDue": later}
        assert links.keys() == expected.keys()
        for reason, link in links.items():
            _, found = await dispatcher.api(link)
            assert [row["task"] for row in found["tasks"]] == expected[reason][::-1], reason
            assert {row["reason"] for row in found["tasks"]} == {reason}
