"""Outages and wrong rights: /readyz names them, nothing is written meanwhile, and work resumes by itself afterwards."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime

import pytest

from dispatcher.pg.migrate import NEWEST
from tests.controlplane.waiting import wait_for
from tests.rig.deployed import rendered
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import PostgresServer, standby_of
from tests.rig.steps import has_jobs, insert

Breakage = Callable[[Place, PostgresServer], AbstractAsyncContextManager[str]]


@asynccontextmanager
async def database_away(place: Place, postgres: PostgresServer) -> AsyncIterator[str]:
    await postgres.stop()
    try:
        yield "the database does not answer"
    finally:
        await postgres.start()


@asynccontextmanager
async def missing_privilege(place: Place, postgres: PostgresServer) -> AsyncIterator[str]:
    admin = await place.database.session("admin")
    await admin.execute("REVOKE SELECT ON dispatch_private.queues FROM dispatch_reader")
    yield "permission denied for table queues"
    await admin.execute("GRANT SELECT ON dispatch_private.queues TO dispatch_reader")


@asynccontextmanager
async def old_schema(place: Place, postgres: PostgresServer) -> AsyncIterator[str]:
    admin = await place.database.session("admin")
    await admin.execute("UPDATE dispatch_private.schema_version SET version = -1 WHERE version = $1", NEWEST)
    yield "run `dispatcher migrate`"
    await admin.execute("UPDATE dispatch_private.schema_version SET version = $1 WHERE version = -1", NEWEST)


@asynccontextmanager
async def dropped_index(place: Place, postgres: PostgresServer) -> AsyncIterator[str]:
    admin = await place.database.session("admin")
    made = await admin.fetchval("SELECT pg_get_indexdef('dispatch_private.tasks_ready'::regclass)")
    await admin.execute("DROP INDEX dispatch_private.tasks_ready")
    yield "index tasks_ready is missing"
    await admin.execute(made)


@asynccontextmanager
async def api_server_away(place: Place, postgres: PostgresServer) -> AsyncIterator[str]:
    await place.control_plane.stop_api_server()
    try:
        yield "cluster: jobs: "
    finally:
        await place.control_plane.start_api_server()


@asynccontextmanager
async def missing_verb(place: Place, postgres: PostgresServer) -> AsyncIterator[str]:
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}/roles/dispatcher-jobs"
    rules = (await place.control_plane.admin("GET", role))["rules"]
    fewer = [{**rule, "verbs": [verb for verb in rule["verbs"] if verb != "create"]} for rule in rules]
    await place.control_plane.admin("PATCH", role, {"rules": fewer})
    yield "create jobs"
    await place.control_plane.admin("PATCH", role, {"rules": rules})


@asynccontextmanager
async def login_of_tasks_away(place: Place, postgres: PostgresServer) -> AsyncIterator[str]:
    admin = await place.database.session("admin")
    await admin.execute("ALTER ROLE task NOLOGIN")
    yield 'TasksRefused: login "task" may not log in'
    await admin.execute("ALTER ROLE task LOGIN")


@asynccontextmanager
async def frozen_database(place: Place, postgres: PostgresServer) -> AsyncIterator[str]:
    admin = await place.database.session("admin")
    await admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    await admin.execute("SELECT pg_reload_conf()")
    yield 'TasksRefused: login "task" has default_transaction_read_only on'
    await admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
    await admin.execute("SELECT pg_reload_conf()")


RUNNING = [
    login_of_tasks_away,
    frozen_database,
    database_away,
    missing_privilege,
    old_schema,
    dropped_index,
    api_server_away,
    missing_verb,
]


async def writes_since(place: Place, since: datetime) -> list[str]:
    """Creates and deletes of Jobs and Pods that the API server got from any dispatcher after `since`."""
    events = place.control_plane.audit(user_prefix=f"system:serviceaccount:{place.namespace}:")
    return [
        f"{event.verb} {event.uri}"
        for event in events
        if event.verb in {"create", "delete"} and event.object_ref.resource in {"jobs", "pods"}
        and event.received_at > since
    ]  # fmt: skip


async def launches(place: Place, dispatcher: Dispatcher) -> None:
    """Inserts a row and waits for its Job."""
    task_id = await place.database.insert_task()

    async def has_job() -> bool:
        return any(f"dispatcher-{task_id}-" in str(job["metadata"]) for job in await place.jobs())

    await wait_for(has_job, "work goes on", 40, check=dispatcher.check)


@pytest.mark.slow
@pytest.mark.fault(1, 9)
@pytest.mark.museum("unknown count = 0")
@pytest.mark.parametrize("breakage", RUNNING, ids=lambda breakage: breakage.__name__)
async def test_outage_is_named_stops_writes_and_work_resumes(
    place: Place, postgres: PostgresServer, breakage: Breakage
) -> None:
    async with Dispatcher(place, TOMBSTONE_SECONDS=0) as dispatcher:
        await dispatcher.ready()
        await launches(place, dispatcher)
        async with breakage(place, postgres) as words:
            if breakage is missing_verb:  # rights are asked once a minute, and after a refusal
                await place.database.insert_task()
            await dispatcher.unready(words)
            broken_at = datetime.now(UTC)
            if breakage not in {database_away, frozen_database}:
                await place.database.insert_task()
            status, _ = await dispatcher.get("/healthz")
            assert status == 200
            assert not await writes_since(place, broken_at)
        await dispatcher.ready()
        await launches(place, dispatcher)


@pytest.mark.slow
@pytest.mark.fault(2)
@pytest.mark.fault(3)
@pytest.mark.museum("GC on replica row")
async def test_standby_is_named_and_used_once_promoted(place: Place, postgres: PostgresServer) -> None:
    await insert(place, 1)
    async with (
        standby_of(postgres) as standby,
        Dispatcher(place, DATABASE_URL=standby.url(place.database, "reader")) as dispatcher,
    ):
        await dispatcher.unready("primary")
        assert not await place.jobs()
        await standby.promote()
        await dispatcher.ready()
        await has_jobs(place, dispatcher, 1)


@pytest.mark.fault(22)
async def test_refused_token_is_named_and_read_again(place: Place) -> None:
    good = (place.folder / "kubeconfig").read_text()
    place.control_plane.kubeconfig(place.folder / "kubeconfig", token="nonsense", namespace=place.namespace)
    async with Dispatcher(place) as dispatcher:
        await dispatcher.unready("401")
        (place.folder / "kubeconfig").write_text(good)
        await dispatcher.ready()
        await launches(place, dispatcher)


@pytest.mark.slow
async def test_namespace_without_rights_is_named_and_used_once_granted(place: Place) -> None:
    other = await place.control_plane.create_namespace()
    async with Dispatcher(place, NAMESPACE=other) as dispatcher:
        body = await dispatcher.unready(other)
        assert "create jobs" in body or "forbidden" in body
        await place.control_plane.apply(rendered("one-namespace", only="rbac"), namespace=other)
        bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{other}/rolebindings"
        ours = {"kind": "ServiceAccount", "name": "dispatcher", "namespace": place.namespace}
        for name in ("dispatcher", "dispatcher-jobs"):
            await place.control_plane.admin("PATCH", f"{bindings}/{name}", {"subjects": [ours]})
        cluster_wide = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/dispatcher-nodes.dispatcher"
        await place.control_plane.admin("PATCH", cluster_wide, {"subjects": [ours]})
        await dispatcher.ready()
    await place.control_plane.delete_namespace(other)
