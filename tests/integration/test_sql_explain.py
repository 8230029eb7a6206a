"""Why a row waits, in SQL: the views `task_explain` and `queue_status`, and the janitor's call that fills them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from dispatcher.model.reasons import ADVICE
from dispatcher.pg.migrate import migrate
from tests.integration.queues import declare
from tests.rig.postgres import Connection, Database
from tests.rig.rows import insert_row

EXPLAIN = "SELECT * FROM dispatch.task_explain WHERE id = $1"
PLACE = "SELECT position, position_of FROM dispatch.task_explain WHERE id = $1"
LATER = datetime(2999, 1, 1, tzinfo=UTC)


async def tell(database: Database, **report: Any) -> int | None:
    """The janitor's call. `seconds`: age of the report."""
    admin = await database.session("admin")
    now: datetime = await admin.fetchval("SELECT now()")
    report["as_of"] = (now - timedelta(seconds=report.pop("seconds", 0))).isoformat()
    janitor = await database.session("janitor")
    changed: int | None = await janitor.fetchval("SELECT dispatch_private.janitor_tell($1::jsonb)", report)
    return changed


def a_queue(name: str = "default", **changes: Any) -> dict[str, Any]:
    facts = {"queue": name, "waiting": 5, "in_flight": 2, "max_jobs": 2, "weight": 1, "share": 0.25,
             "oldest_wait_seconds": 60, "paused_until": None, "reasons": {"QueueCap": 5}}  # fmt: skip
    return {**facts, **changes}


def a_row(id_: int, reason: str = "QueueCap", message: str = "full: 2 of 2", attempt: int = 1) -> list[Any]:
    return [id_, attempt, reason, "2026-01-01T00:00:00Z", message]


async def explained(database: Database, id_: int) -> dict[str, Any]:
    row = await (await database.session("team_a")).fetchrow(EXPLAIN, id_)
    assert row is not None
    return dict(row)


async def seen(connection: Connection, view: str) -> list[Any]:
    return [row[0] for row in await connection.fetch(f"SELECT * FROM dispatch.{view}")]


async def test_table_of_reasons_is_that_of_the_code(database: Database) -> None:
    found = await (await database.session("team_a")).fetch("SELECT * FROM dispatch.reasons")
    assert {tuple(row) for row in found} == {
        (reason.value, advice.whose_turn.value, advice.meaning, advice.next_step) for reason, advice in ADVICE.items()
    }


async def test_migrate_brings_the_reasons_in_step_with_the_code(database: Database) -> None:
    """As if another version had written them: one is gone, one has other words, and one is of no use any more."""
    admin, rows = await database.session("admin"), "SELECT * FROM dispatch_private.reasons"
    before = set(await admin.fetch(rows))
    await admin.execute("""
        DELETE FROM dispatch_private.reasons WHERE reason = 'Paused';
        UPDATE dispatch_private.reasons SET next_step = 'wait' WHERE reason = 'Launched: Starting';
        INSERT INTO dispatch_private.reasons VALUES ('Tired', 'nobody', 'it rests', 'nothing');
        UPDATE dispatch_private.applied_functions SET checksum = 'other' WHERE name = 'reasons';
    """)
    await migrate(database.admin_url)
    assert set(await admin.fetch(rows)) == before


async def test_row_is_explained_as_the_dispatcher_told_it(database: Database) -> None:
    rows = [(await insert_row(database)).id for _ in range(3)]
    assert await tell(database, queues=[a_queue()], rows=[a_row(rows[1])]) == 1
    found = await explained(database, rows[1])
    assert (found["reason"], found["message"], found["whose_turn"]) == ("QueueCap", "full: 2 of 2", "operator")
    assert (found["position"], found["position_of"]) == (2, 3)
    assert found["since"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert found["as_of"] is not None


async def test_row_without_an_entry_is_explained_by_itself_and_its_queue(database: Database) -> None:
    ids = {
        "InLine": (await insert_row(database)).id,
        "NotDue": (await insert_row(database, run_at=LATER)).id,
    }
    await declare(database, "quiet")
    ids["Paused"] = (await insert_row(database, queue="quiet")).id
    quiet = a_queue("quiet", paused_until=LATER.isoformat(), reasons={"Paused": 1})
    await tell(database, queues=[a_queue(), quiet])
    told = {reason: await explained(database, id_) for reason, id_ in ids.items()}
    assert {reason: found["reason"] for reason, found in told.items()} == {one: one for one in ids}
    messages = {reason: found["message"] for reason, found in told.items()}
    assert messages["InLine"] == "other rows come first; rows of its queue wait for QueueCap (5)"
    assert messages["NotDue"].startswith("it is not due yet: it runs at 2999-01-01")
    assert messages["Paused"].startswith("its queue is paused until 2999-01-01")
    assert told["NotDue"]["position"] is None
    await tell(database, queues=[a_queue(), {**quiet, "paused_until": "9999-12-31T00:00:00Z"}])
    found = await explained(database, ids["Paused"])
    assert found["message"] == "its queue is paused"


async def test_row_behind_the_judged_ones_is_explained_by_what_holds_its_queue(database: Database) -> None:
    id_ = (await insert_row(database)).id
    behind = {
        "reason": "JobCap",
        "message": "there are as many Jobs as there may be: 9 of 9",
        "since": LATER.isoformat(),
    }
    await tell(database, queues=[a_queue(behind=behind)])
    found = await explained(database, id_)
    assert (found["reason"], found["message"], found["whose_turn"]) == ("JobCap", behind["message"], "operator")
    assert found["since"] <= datetime.now(UTC), "a time of the future is cut"
    odd: tuple[object, ...] = (None, "x", 7, [], {"reason": None})
    for nonsense in odd:
        await tell(database, queues=[a_queue(behind=nonsense)])
        assert (await explained(database, id_))["reason"] == "InLine"


async def test_row_that_does_not_wait_has_no_reason(database: Database) -> None:
    running, failed, done, cancelled = [await insert_row(database, max_failures=1) for _ in range(4)]
    await running.started()
    await failed.finish(await failed.started(), "failed", error="disk full")
    await done.finish(await done.started(), "succeeded")
    await cancelled.cancel()
    rows = [a_row(row.id, "Launched") for row in (running, failed, done, cancelled)]
    await tell(database, queues=[a_queue()], rows=rows)
    told = [await explained(database, row.id) for row in (running, failed, done, cancelled)]
    assert [(found["reason"], found["message"]) for found in told] == [
        (None, "its container runs"), (None, "it has failed: disk full"), (None, "it has succeeded"),
        (None, "it has been cancelled"),
    ]  # fmt: skip
    await tell(database, rows=[a_row(running.id, "NodeLost", "node n1 is lost")])
    found = await explained(database, running.id)
    assert (found["reason"], found["whose_turn"]) == ("NodeLost", "operator"), "a run that is lost"


@pytest.mark.parametrize(
    ("past", "words"),
    [
        ("heartbeat_at = now() - interval '59 s'", "its container runs"),
        ("heartbeat_at = now() - interval '61 s'", "its container has not been heard since "),
        ("started_at = now() - interval '61 s', timeout_seconds = 60", "and its run limit of 60 s is over"),
    ],
)
async def test_row_whose_container_is_silent_is_not_said_to_run(database: Database, past: str, words: str) -> None:
    row = await insert_row(database)
    await row.started()
    admin = await database.session("admin")
    await admin.execute(f"UPDATE dispatch_private.tasks SET {past} WHERE id = $1", row.id)
    assert words in (await explained(database, row.id))["message"]


async def test_reason_of_an_earlier_attempt_is_not_told(database: Database) -> None:
    row = await insert_row(database, max_failures=5)
    await tell(database, queues=[a_queue()], rows=[a_row(row.id, attempt=2)])
    found = await explained(database, row.id)
    assert found["reason"] == "InLine"


async def test_dispatcher_that_does_not_report_is_told(database: Database) -> None:
    id_ = (await insert_row(database)).id
    found = await explained(database, id_)
    assert found["message"].startswith("the dispatcher has not reported yet; ")
    await tell(database, seconds=91, queues=[a_queue()], rows=[a_row(id_)])
    found = await explained(database, id_)
    assert found["message"].startswith("the dispatcher has not reported since ")
    assert found["message"].endswith("; full: 2 of 2")
    assert found["reason"] == "QueueCap", "its last word"
    await tell(database, seconds=0)
    found = await explained(database, id_)
    assert found["message"] == "full: 2 of 2"


async def test_submitter_sees_nothing_of_other_teams(database: Database) -> None:
    """Not their reasons, not their queues, and not the place of their rows."""
    await declare(database, "theirs", submit_role="team_b")
    await declare(database, "owned", owner_role="team_b", submit_role="dispatch_submitter")
    mine, other = (await insert_row(database)).id, (await insert_row(database, "team_b", queue="theirs")).id
    owned = (await insert_row(database, queue="owned")).id
    secret = "planted-name-of-team-b"
    queues = [a_queue(), a_queue("theirs"), a_queue("owned")]
    await tell(database, queues=queues, rows=[a_row(id_, message=secret) for id_ in (mine, other, owned)])
    a, b = await database.session("team_a"), await database.session("team_b")
    assert sorted(await seen(a, "task_explain")) == sorted(await seen(a, "task_reasons")) == [mine, owned]
    assert sorted(await seen(b, "task_explain")) == sorted(await seen(b, "task_reasons")) == [other, owned]
    assert sorted(await seen(a, "queue_status")) == ["default", "owned"]
    assert sorted(await seen(b, "queue_status")) == ["default", "owned", "theirs"]
    assert await a.fetchrow(PLACE, other) is None
    assert tuple(await b.fetchrow(PLACE, other) or ()) == (1, 1)
    for login in ("operator", "observer"):
        everybody = await database.session(login)
        assert len(await seen(everybody, "task_explain")) == 3
        assert len(await seen(everybody, "queue_status")) == 3


async def test_queue_status_tells_the_queue(database: Database) -> None:
    await tell(database, queues=[a_queue(), a_queue("gone", reasons="nonsense")])
    await tell(database, queues=[a_queue(max_jobs=None)])
    (row,) = await (await database.session("team_a")).fetch("SELECT * FROM dispatch.queue_status")
    assert (row["queue"], row["waiting"], row["in_flight"], row["max_jobs"], row["share"]) == (
        "default",
        5,
        2,
        None,
        0.25,
    )
    assert 60 <= row["oldest_wait_seconds"] < 90
    assert row["reasons"] == {"QueueCap": 5}


async def test_queue_status_names_roles_that_are_gone(database: Database) -> None:
    admin, operator = await database.session("admin"), await database.session("operator")
    await admin.execute("CREATE ROLE leaving_queue_owner")
    await declare(database, "owned", owner_role="leaving_queue_owner")
    await tell(database, queues=[a_queue("owned"), a_queue()])
    seen_by_operator = "SELECT roles_gone FROM dispatch.queue_status ORDER BY queue = 'owned'"
    assert [row[0] for row in await operator.fetch(seen_by_operator)] == [[], []]
    await admin.execute("DROP ROLE leaving_queue_owner; CREATE ROLE leaving_queue_owner")
    assert [row[0] for row in await operator.fetch(seen_by_operator)] == [[], ["leaving_queue_owner"]]
    await admin.execute("DROP ROLE leaving_queue_owner")


async def test_queue_that_the_config_map_has_no_room_for_stays(database: Database) -> None:
    await tell(database, queues=[a_queue(), a_queue("large")])
    await tell(database, queues=[a_queue()], queues_left_out=1)
    assert len(await seen(await database.session("observer"), "queue_status")) == 2


async def test_older_report_changes_nothing(database: Database) -> None:
    """A second janitor may be late. A report of the future counts as one of now."""
    id_ = (await insert_row(database)).id
    assert await tell(database, seconds=-3600, rows=[a_row(id_, "Poison")]) == 1
    assert await tell(database, seconds=5, rows=[a_row(id_, "Backoff")]) is None
    assert await tell(database, rows=[a_row(id_, "Backoff")]) == 1
    admin = await database.session("admin")
    await admin.execute("UPDATE dispatch_private.reported SET as_of = now() + interval '1 h'")
    assert await tell(database, gone=[id_]) == 1, "the database's clock was set back"
    found = await explained(database, id_)
    assert found["reason"] == "InLine"


async def test_reason_has_no_control_characters(database: Database) -> None:
    """A ConfigMap that somebody else wrote must not move the cursor of who reads the row in a terminal."""
    id_ = (await insert_row(database)).id
    assert await tell(database, rows=[a_row(id_, "Back\x1b[2Joff\u202e", "wait\x1b[8m")]) == 1
    found = await explained(database, id_)
    assert (found["reason"], found["message"]) == ("Back?[2Joff?", "wait?[8m")


async def test_reason_of_a_row_that_is_gone_is_left_out(database: Database) -> None:
    assert await tell(database, rows=[a_row(10**9)]) == 0


@pytest.mark.parametrize(
    "report", [{}, {"as_of": None}, {"as_of": "-infinity"}, {"as_of": "2026-01-01T00:00:00Z", "x": "x" * 300_000}]
)
async def test_report_without_a_time_or_too_large_is_refused(database: Database, report: dict[str, Any]) -> None:
    janitor = await database.session("janitor")
    with pytest.raises(asyncpg.InvalidParameterValueError, match="a report has as_of, and at most 256 KiB"):
        await janitor.execute("SELECT dispatch_private.janitor_tell($1::jsonb)", report)


async def test_change_of_reasons_is_announced(database: Database) -> None:
    """Debounced, without payload; a report without a changed row announces nothing."""
    id_ = (await insert_row(database)).id
    listening, heard = await database.connect("team_a"), list[tuple[str, object]]()
    await listening.add_listener("dispatch_reasons", lambda *told: heard.append((told[2], told[3])))
    await tell(database, queues=[a_queue()])
    await tell(database, rows=[a_row(id_)])
    await listening.fetchval("SELECT 1")
    assert heard == [("dispatch_reasons", "")]


@pytest.mark.slow
async def test_place_stops_at_ten_thousand(database: Database) -> None:
    """With ties by id, behind ready rows and rows that became due, and before rows that are not due."""
    admin = await database.session("admin")
    await admin.execute("INSERT INTO dispatch.tasks (run_at) SELECT $1 FROM generate_series(1, 5)", LATER)
    first = (await insert_row(database, priority=500)).id
    past = datetime(2020, 1, 1, tzinfo=UTC)
    await insert_row(database, priority=0, run_at=past)
    second = (await insert_row(database, priority=500, run_at=past)).id
    a = await database.session("team_a")
    assert [tuple(await a.fetchrow(PLACE, one) or ()) for one in (first, second)] == [(2, 3), (3, 3)]
    await admin.execute("INSERT INTO dispatch.tasks (priority) SELECT 100 FROM generate_series(1, 12000)")
    assert tuple(await a.fetchrow(PLACE, second) or ()) == (10_001, 10_000)


REPORTS = "SELECT dispatch_private.janitor_tell(jsonb_build_object('as_of', clock_timestamp(), 'queues', '[]'::jsonb))"


async def test_row_that_the_dispatcher_has_not_seen_is_told_so(database: Database) -> None:
    """Until the next report, and within the transaction of its own INSERT."""
    why = "SELECT concat_ws(' ', reason, message) FROM dispatch.task_explain WHERE id = $1"
    janitor, team = await database.session("janitor"), await database.connect("team_a")
    await janitor.execute(REPORTS)
    async with team.transaction():
        task_id = await team.fetchval("INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id")
        own = await team.fetchval(why, task_id)
    later = await team.fetchval(why, task_id)
    await janitor.execute(REPORTS)
    seen = await team.fetchval(why, task_id)
    await team.close()
    assert own == "Unjudged the dispatcher has not looked at it yet: is your INSERT committed?"
    assert later == "Unjudged the dispatcher has not looked at it yet"
    assert seen.startswith("InLine ")
