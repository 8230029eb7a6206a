"""Attacks with plain SQL on the rows of others: invented node names, and labels that the next INSERT has to sort."""

from __future__ import annotations

import pytest

from tests.integration.looking import looking
from tests.rig.postgres import Database
from tests.rig.rows import Pod, Row, insert_row

NAMES = {
    "with blanks": "No Such Node!",
    "empty": "",
    "blank": " ",
    "upper case": "Node-1",
    "one upper case letter in a domain": "node-1.Example",
    "underscore": "node_1",
    "letters beyond ASCII": "nöde-1",
    "letters of another script": "节点",
    "a letter that folds to ASCII": "node-\u212a",
    "a zero-width blank": "node\u200b1",
    "a mark that turns the text": "node\u202e1",
    "fullwidth digits": "node-\uff11",
    "a dot at the end": "node-1.",
    "a dot at the start": ".node-1",
    "two dots": "node..1",
    "a hyphen at the end": "node-1-",
    "a hyphen at the start": "-node-1",
    "a hyphen before a dot": "node-.example",
    "a newline at the end": "node-1\n",
    "a newline at the start": "\nnode-1",
    "a newline within": "node-1\nnode-2",
    "a newline alone": "\n",
    "a carriage return": "node-1\r",
    "a tab": "\tnode-1",
    "a slash": "../node-1",
    "quotes": "node-1'; DROP TABLE dispatch.tasks; --",
    "a selector": "in (node-1, node-2)",
    "254 characters": "a" * 254,
    "254 characters in a domain": f"{'a' * 126}.{'b' * 127}",
    "100,000 characters": "a" * 100_000,
}
GOOD_NAMES = ["node-1", "1", "a", "ip-10-0-0-1.eu-west-1.compute.internal", "a" * 253, f"{'a' * 125}.{'b' * 127}"]


async def report_from(database: Database, name: str | None, cache_key: str = "maps") -> Row:
    """A container that claims to run on this node, as this Pod. It may ask for its start again, and succeeds."""
    row, pod = await insert_row(database, cache_key=cache_key), Pod(name, node=name or "")
    started = await row.started(pod=pod)
    assert await row.start(pod=pod) == started
    assert await row.finish(started, "succeeded") == "succeeded"
    return row


async def histories(database: Database, *keys: tuple[str, str]) -> dict[tuple[str, str], tuple[str, ...]]:
    """The nodes that the dispatcher knows for each (queue, cache key)."""
    async with looking(database) as rows:
        return {key: tuple(nodes) for key, nodes in (await rows.histories(keys)).items()}


# Node names that a container invents


@pytest.mark.parametrize("name", [None, *NAMES.values()], ids=["no name", *NAMES])
async def test_invalid_node_name_is_not_kept(one_database: Database, name: str | None) -> None:
    row = await report_from(one_database, name)
    now, (launch,) = await row.now(), await row.launches()
    assert (now["node_name"], now["pod_name"], launch["node_name"], launch["pod_name"]) == (None,) * 4
    assert await histories(one_database, ("default", "maps")) == {}


@pytest.mark.parametrize("name", GOOD_NAMES, ids=["short", "digit", "letter", "domain", "253", "253 in a domain"])
async def test_valid_node_name_is_kept(one_database: Database, name: str) -> None:
    row = await report_from(one_database, name, "another key")
    now, (launch,) = await row.now(), await row.launches()
    assert (now["node_name"], now["pod_name"], launch["node_name"], launch["pod_name"]) == (name,) * 4


async def test_container_without_a_name_keeps_its_row(one_database: Database) -> None:
    row = await insert_row(one_database)
    started = await row.started(pod=Pod(None))
    assert await row.start(pod=Pod("pod-1")) is None
    assert await row.heartbeat(started) == "continue"


async def test_invalid_node_names_hide_no_true_history(database: Database) -> None:
    await report_from(database, "node-1")
    for name in NAMES.values():
        await report_from(database, name)
    assert await histories(database, ("default", "maps")) == {("default", "maps"): ("node-1",)}


# Labels


MANY_LABELS = """
INSERT INTO dispatch.tasks (labels)
SELECT (SELECT jsonb_object_agg(k, md5(concat(n, k))) FROM generate_series(1, 15) AS k)
FROM generate_series(1, 1500) AS n
"""
LEFT = "SELECT gin_clean_pending_list('dispatch_private.tasks_labels')"


async def test_session_leaves_the_next_insert_few_labels_to_sort_into_the_index(one_database: Database) -> None:
    """A session chooses how many entries it leaves to others: after 60,000 rows, that of another team took 16 s."""
    attacker = await one_database.connect("team_a")
    await attacker.execute("SET gin_pending_list_limit = '2000MB'")
    await attacker.execute(MANY_LABELS)
    assert await (await one_database.session("admin")).fetchval(LEFT) <= 40, "pages of 8 KiB"
