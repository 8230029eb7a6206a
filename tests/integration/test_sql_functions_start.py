"""task_start: at most one accepted start per (attempt, launch), and numbers only grow (docs/protocol.md, section 3)."""

from __future__ import annotations

import uuid
from dataclasses import replace

import asyncpg
import pytest

from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import FIRST, SECOND, Pod, insert_row

database = one_database


async def test_a_start_makes_the_row_processing_and_hands_out_the_payload(database: Database) -> None:
    row = await insert_row(database, payload={"file": "naïve.csv", "lines": [1, None]})

    started = await row.started(pod=Pod("pod-x", "job-x", "node-x"))

    assert started.payload == {"file": "naïve.csv", "lines": [1, None]}
    now = await row.now()
    assert (now["status"], now["attempt"], now["launch"]) == ("processing", 1, 1)
    assert (now["job_uid"], now["node_name"], now["pod_name"]) == ("job-x", "node-x", "pod-x")
    assert now["run_digest"] == started.run_digest
    assert now["started_at"] == now["heartbeat_at"]


async def test_a_row_without_payload_starts_with_none(database: Database) -> None:
    assert (await (await insert_row(database)).started()).payload is None


async def test_start_is_recorded_as_an_open_launch(database: Database) -> None:
    row = await insert_row(database)
    started = await row.started(launch=2)

    (launch,) = await row.launches()

    assert (launch["task_id"], launch["attempt"], launch["launch"]) == (row.id, 1, 2)
    assert (launch["job_uid"], launch["node_name"], launch["pod_name"]) == ("job-1", "node-1", "pod-1")
    assert launch["run_digest"] == started.run_digest
    assert launch["started_at"] is not None
    assert (launch["ended_at"], launch["outcome"]) == (None, None)


@pytest.mark.fault(13)
async def test_an_earlier_attempt_is_refused_after_a_retry(database: Database) -> None:
    row = await insert_row(database)
    await row.started()
    await row.retry()
    assert await row.start(attempt=1, launch=2) is None
    assert await row.start(attempt=2, launch=1) is not None


async def test_an_unknown_task_is_refused(database: Database) -> None:
    row = await insert_row(database)
    task = await database.session("task")
    gone = "SELECT * FROM dispatch.task_start($1::bigint, $2, 1, 1, 'job-1')"
    assert await task.fetch(gone, row.id + 1000, row.start_key) == []


@pytest.mark.parametrize("lacking", ["task_id", "start_key", "attempt", "launch", "job_uid"])
async def test_call_that_lacks_what_names_its_launch_is_an_error(database: Database, lacking: str) -> None:
    """No row would mean that the task is somebody else's, so the container would exit with 0."""
    given = {"task_id": "1", "start_key": f"'{uuid.uuid4()}'", "attempt": "1", "launch": "1", "job_uid": "'job-1'"}
    named = ", ".join(f"{name} => {value}" for name, value in (given | {lacking: "NULL"}).items())
    with pytest.raises(asyncpg.InvalidParameterValueError, match=f"task_start lacks {lacking}\nHINT: .*TASK_ATTEMPT"):
        await (await database.session("task")).fetch(f"SELECT * FROM dispatch.task_start({named})")


async def test_uid_that_a_container_made_up_is_kept_without_what_controls_a_terminal(database: Database) -> None:
    row, pod = await insert_row(database), Pod(job_uid="job\x1b[2J\n\u202e" + "x" * 300)
    assert await row.start(pod=pod) == await row.start(pod=pod) is not None
    assert (await row.now())["job_uid"] == f"job [2J {'x' * 192}"


async def test_node_and_pod_may_be_left_out(database: Database) -> None:
    row = await insert_row(database)
    task = await database.session("task")
    short = "SELECT run_token FROM dispatch.task_start($1::bigint, $2, 1, 1, 'job-1')"
    token = await task.fetchval(short, row.id, row.start_key)
    assert token is not None
    assert await task.fetchval(short, row.id, row.start_key) == token
    assert (await row.now())["pod_name"] is None


async def test_repeated_start_of_a_pod_gets_the_same_token_and_payload(database: Database) -> None:
    row = await insert_row(database, payload=[1])
    first = await row.started()
    assert await row.start() == first
    assert len(await row.launches()) == 1


@pytest.mark.parametrize("max_failures", [1, 3])
async def test_same_process_gets_its_token_again_and_another_one_gets_none(
    database: Database, max_failures: int
) -> None:
    row = await insert_row(database, max_failures=max_failures)
    first, other = replace(FIRST, run_id="x" * 300 + "a"), replace(FIRST, run_id="b")
    started = await row.started(pod=first)
    held = dict(await row.now())
    assert [await row.start(pod=pod) for pod in (first, other, first)] == [started, None, started]
    assert dict(await row.now()) == held | {"second_process": True}
    assert (len(await row.launches()), await row.heartbeat(started)) == (1, "continue")


async def test_second_process_of_the_pod_that_holds_the_row_is_noted_until_the_next_start(database: Database) -> None:
    row = await insert_row(database)
    for launch, pod, noted in (
        (1, replace(FIRST, run_id="a"), False),
        (1, replace(FIRST, run_id="a"), False),
        (1, replace(SECOND, run_id="b"), False),  # another Pod
        (1, replace(FIRST, run_id="b"), True),
        (1, replace(FIRST, run_id="a"), True),
        (2, replace(SECOND, run_id="b"), False),
    ):
        await row.start(launch=launch, pod=pod)
        assert (await row.now())["second_process"] == noted


@pytest.mark.parametrize("run_id", ["a", None])
@pytest.mark.parametrize(("max_failures", "given"), [(1, False), (3, True)])
async def test_call_without_run_id_gets_no_token_again_where_one_run_is_the_most(
    database: Database, max_failures: int, *, given: bool, run_id: str | None
) -> None:
    row = await insert_row(database, max_failures=max_failures)
    started = await row.started(pod=replace(FIRST, run_id=run_id))
    again = [await row.start(pod=replace(FIRST, run_id=none)) for none in (None, "")]
    assert again == [started if given else None] * 2


async def test_process_cannot_name_itself_after_one_that_sent_no_run_id(database: Database) -> None:
    row = await insert_row(database)
    await row.started()
    assert await row.start(pod=replace(FIRST, run_id="a")) is None


async def test_next_launch_is_accepted_whatever_its_run_id(database: Database) -> None:
    row = await insert_row(database)
    await row.started(pod=replace(FIRST, run_id="a"))
    taken = await row.started(launch=2, pod=replace(SECOND, run_id="a"))
    assert await row.start(launch=2, pod=replace(SECOND, run_id="a")) == taken


@pytest.mark.parametrize(
    "pod",
    [Pod("pod-9", FIRST.job_uid), Pod(FIRST.name, "job-9"), Pod(None, FIRST.job_uid)],
    ids=["another Pod of the Job", "another Job", "a Pod without name"],
)
async def test_another_pod_of_the_same_launch_is_refused(database: Database, pod: Pod) -> None:
    row = await insert_row(database)
    started = await row.started()
    assert await row.start(pod=pod) is None
    assert (await row.now())["run_digest"] == started.run_digest


async def test_a_higher_launch_takes_over(database: Database) -> None:
    row = await insert_row(database, payload="p")
    old = await row.started(launch=1)

    new = await row.started(launch=2, pod=SECOND)

    assert new.run_token != old.run_token
    assert new.payload == "p"
    now = await row.now()
    assert (now["launch"], now["job_uid"], now["run_digest"]) == (2, "job-2", new.run_digest)
    assert await row.heartbeat(old) == "lost"
    assert await row.heartbeat(new) == "continue"


@pytest.mark.fault(13)
@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
async def test_start_of_a_row_that_is_over_is_refused(database: Database, outcome: str) -> None:
    row = await insert_row(database, max_failures=2)
    await row.finish(await row.started(), outcome)
    assert await row.start(launch=2, pod=SECOND) is None
    assert await row.start(attempt=2, launch=1, pod=SECOND) is None
    assert await row.status() == outcome


async def test_heartbeat_is_recorded(database: Database) -> None:
    row = await insert_row(database)
    started = await row.started()
    await row.silent_for(50)
    before = (await row.now())["heartbeat_at"]
    assert await row.heartbeat(started) == "continue"
    assert (await row.now())["heartbeat_at"] > before


async def test_heartbeat_with_an_unknown_token_is_lost(database: Database) -> None:
    task = await database.session("task")
    assert await task.fetchval("SELECT dispatch.task_heartbeat($1)", uuid.uuid4()) == "lost"
    assert await task.fetchval("SELECT dispatch.task_heartbeat(NULL)") == "lost"
