"""A database that loses answers, and tasks that succeed once beside it."""

from __future__ import annotations

from tests.faults import postgres_verbs as verbs
from tests.faults.postgres_proxy import Matches, PostgresProxy, Verb, connects, runs, syncs
from tests.rig.rows import Row

LOSSES: dict[str, tuple[Verb, Matches]] = {
    "the connection": (verbs.drop_before, connects),
    "the start": (verbs.drop_before, runs("task_start")),
    "the start's commit": (verbs.drop_before, syncs("task_start")),
    "the start's answer": (verbs.drop_after, runs("task_start")),
    "half of the start's answer": (verbs.truncate, runs("task_start")),
    "the report": (verbs.drop_before, runs("task_finish")),
    "the report's commit": (verbs.drop_before, syncs("task_finish")),
    "the report's answer": (verbs.drop_after, runs("task_finish")),
    "half of the report's answer": (verbs.truncate, runs("task_finish")),
}
NOWHERE = "127.0.0.1:1"
UNREADABLE = {
    "no URL": "hush",
    "another database": "mysql://task:hush@127.0.0.1:3306/rows",
    "a port that is none": "postgresql://task:hush@127.0.0.1:port/rows",
    "a bracket": "postgresql://task:hush@[127.0.0.1/rows",
    "keywords": "host=127.0.0.1 password=hush dbname=rows",
    "nothing": "",
}


def through(proxy: PostgresProxy, row: Row) -> str:
    return proxy.url(row.database.url("task"))


async def succeeded_once(row: Row) -> bool:
    now = await row.now()
    (launch,) = await row.launches()
    return (now["status"], now["result"], now["failures"], launch["outcome"]) == ("succeeded", 17, 0, "succeeded")
