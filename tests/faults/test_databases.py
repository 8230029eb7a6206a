"""A database that lags, loses commits, is away, or changes: no row runs twice, and none is forgotten."""

import pytest

from tests.controlplane.waiting import wait_for
from tests.faults import postgres_verbs
from tests.faults.postgres_proxy import PostgresProxy, runs
from tests.faults.rules import Gate, always, nth
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import PostgresServer
from tests.rig.steps import fails_again, has_jobs, insert, looks_again, no_jobs, succeeded


@pytest.mark.slow
@pytest.mark.fault(1)
async def test_finished_job_is_kept_while_the_database_is_away(place: Place, postgres: PostgresServer) -> None:
    await insert(place, 1)
    async with place.playing(), Dispatcher(place, TOMBSTONE_SECONDS=4) as dispatcher:
        await succeeded(place, dispatcher, 1)
        await postgres.stop()
        try:
            await fails_again(dispatcher, "sweep", 2)  # the tombstone time is over: only the rows are missing
            assert len(await place.jobs()) == 1
        finally:
            await postgres.start()
        await no_jobs(place, dispatcher)


@pytest.mark.slow
@pytest.mark.fault(6)
@pytest.mark.museum("cursor by id")
async def test_row_committed_after_higher_ids_is_launched(place: Place) -> None:
    slow = await place.database.connect("team_a")
    async with place.playing() as player, Dispatcher(place) as dispatcher:
        transaction = slow.transaction()
        await transaction.start()
        early = await slow.fetchval("INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id")
        later = await insert(place, 3)
        await succeeded(place, dispatcher, 3)
        await looks_again(dispatcher)
        assert early < min(later)
        assert player.runs_of(early) == []
        await transaction.commit()
        await succeeded(place, dispatcher, 4)


@pytest.mark.slow
@pytest.mark.fault(7)
async def test_reused_id_is_another_task(place: Place) -> None:
    (first,) = await insert(place, 1)
    async with place.playing() as player, Dispatcher(place) as dispatcher:
        await succeeded(place, dispatcher, 1)
        admin = await place.database.session("admin")
        await admin.execute("TRUNCATE dispatch_private.tasks, dispatch_private.task_launches RESTART IDENTITY")
        await admin.execute("SELECT setval(pg_get_serial_sequence('dispatch.tasks', 'id'), $1, false)", first)
        (second,) = await insert(place, 1)
        assert second == first
        await succeeded(place, dispatcher, 1)
        assert len(player.runs_of(first)) == 2
        names = {str(job["metadata"]["name"]) for job in await has_jobs(place, dispatcher, 2)}
        assert len(names) == 2


@pytest.mark.slow
@pytest.mark.fault(8)
async def test_running_job_stays_when_its_row_is_changed_or_deleted(place: Place) -> None:
    kept, gone = [await place.database.insert_task(env={"PLAY": "hang"}) for _ in range(2)]
    async with place.playing() as player, Dispatcher(place, TOMBSTONE_SECONDS=0) as dispatcher:
        await wait_for(lambda: len([run for run in player.runs if run.calls.heartbeats]) == 2, "both run", 20)
        admin = await place.database.session("admin")
        await admin.execute("DELETE FROM dispatch_private.tasks WHERE id = $1", gone)
        await admin.execute(
            'UPDATE dispatch_private.tasks SET priority = 1, spec = \'{"cpu": "64"}\' WHERE id = $1', kept
        )
        await looks_again(dispatcher, 10)
        jobs = await has_jobs(place, dispatcher, 2)
        assert ["deletionTimestamp" in job["metadata"] for job in jobs] == [False, False]
        assert not place.control_plane.audit(verb="delete", resource="pods", namespace=place.namespace)


@pytest.mark.slow
@pytest.mark.fault(9)
async def test_missing_column_is_named_and_nothing_is_launched(place: Place) -> None:
    admin = await place.database.session("admin")
    await insert(place, 1)
    await admin.execute("ALTER TABLE dispatch_private.tasks RENAME COLUMN submitted_by TO author")
    async with Dispatcher(place) as dispatcher:
        await dispatcher.unready("submitted_by")
        assert not await place.jobs()
        await admin.execute("ALTER TABLE dispatch_private.tasks RENAME COLUMN author TO submitted_by")
        await dispatcher.ready()
        await has_jobs(place, dispatcher, 1)


@pytest.mark.slow
@pytest.mark.fault(9)
async def test_row_with_an_unknown_status_is_neither_launched_nor_swept(place: Place) -> None:
    odd, good = await insert(place, 2)
    admin = await place.database.session("admin")
    await admin.execute("ALTER TABLE dispatch_private.tasks DISABLE TRIGGER guard_task")
    await admin.execute("UPDATE dispatch_private.tasks SET status = 'archived' WHERE id = $1", odd)
    async with place.playing() as player, Dispatcher(place) as dispatcher:
        await succeeded(place, dispatcher, 1)
        await looks_again(dispatcher)
        assert [run.task_id for run in player.runs] == [good]
        await admin.execute("UPDATE dispatch_private.tasks SET status = 'archived' WHERE id = $1", good)
        await looks_again(dispatcher)
        assert len(await place.jobs()) == 1
        assert await dispatcher.metric("dispatcher_faults_total", component="dispatch") == 0


@pytest.mark.slow
@pytest.mark.fault(1, 5)
async def test_lost_session_loses_no_row(place: Place) -> None:
    admin = await place.database.session("admin")
    ends = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'reader' AND datname = $1"
    async with place.playing(), Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        for number in range(1, 4):
            assert await admin.fetchval(ends, place.database.name)
            await insert(place, 1)
            await succeeded(place, dispatcher, number)


@pytest.mark.slow
@pytest.mark.fault(5)
async def test_unanswered_statement_times_out_and_is_repeated(place: Place, postgres_proxy: PostgresProxy) -> None:
    gate = Gate()
    rule = postgres_proxy.add(postgres_verbs.freeze(gate), runs("pg_is_in_recovery"), nth(5))
    url = postgres_proxy.url(place.database.url("reader"))
    async with place.playing(), Dispatcher(place, DATABASE_URL=url) as dispatcher:
        await wait_for(lambda: rule.hits == 1, "a statement without an answer", 20, check=dispatcher.check)
        await insert(place, 3)
        assert (await dispatcher.get("/healthz"))[0] == 200
        await succeeded(place, dispatcher, 3, 40)
        assert rule.hits == 1

        async def is_counted() -> bool:
            return await dispatcher.metric("dispatcher_faults_total") >= 1

        await wait_for(is_counted, "the fault of the cycle's look, or of another one", 30)
        await dispatcher.ready()


@pytest.mark.slow
@pytest.mark.fault(1)
async def test_replica_that_reaches_the_database_takes_the_lead_from_one_that_does_not(
    place: Place, postgres_proxy: PostgresProxy
) -> None:
    url = postgres_proxy.url(place.database.url("reader"))
    async with place.playing(), Dispatcher(place, DATABASE_URL=url, LEASE_SECONDS=2) as first:
        await wait_for(first.leads, "the first one leads", 20, check=first.check)
        async with Dispatcher(place, LEASE_SECONDS=2) as second:
            await second.ready()
            cut = postgres_proxy.add(postgres_verbs.drop_before, lambda _: True, always)
            await insert(place, 1)
            await succeeded(place, second, 1, 90)
            assert cut.hits
            assert not await first.leads()
