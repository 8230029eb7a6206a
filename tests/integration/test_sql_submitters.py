"""The right to insert into a queue, the bound on waiting rows of one submitter in it, and the scope of dedupe keys."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import asyncpg
import pytest
import pytest_asyncio

from tests.integration.queues import declare, defaults, refusal
from tests.rig.postgres import Connection, Database
from tests.rig.rows import insert_row

MANY = "INSERT INTO dispatch.tasks (queue) SELECT $1 FROM generate_series(1, $2)"
FIRST_BOUND = "UPDATE dispatch.queues SET max_waiting_per_submitter = 5 WHERE name = '*'"
LATER = datetime(9999, 1, 1, tzinfo=UTC)


async def waiting(database: Database, login: str = "team_a", queue: str = "door") -> int:
    admin = await database.session("admin")
    query = "SELECT count(*) FROM dispatch.tasks WHERE queue = $1 AND submitted_by = $2 AND status = 'waiting'"
    return int(await admin.fetchval(query, queue, login))


async def accepted(database: Database, login: str = "team_a", queue: str = "door", most: int = 5) -> int:
    """The number of rows, inserted one by one, that are accepted; fails on any other refusal than by the bound."""
    for number in range(most):
        if error := await refusal(database, login, queue=queue):
            assert (error.sqlstate, error.column_name) == ("DI009", "queue")
            return number
    return most


@pytest.mark.parametrize("bound", [0, 1, 3])
async def test_submitter_has_at_most_the_bound_of_waiting_rows(database: Database, bound: int) -> None:
    await declare(database, max_waiting_per_submitter=bound)
    assert await accepted(database) == await waiting(database) == bound


async def test_queue_without_a_bound_accepts_any_number(database: Database) -> None:
    await declare(database)
    await (await database.session("team_a")).execute(MANY, "door", 2000)
    assert await waiting(database) == 2000


async def test_bound_of_the_defaults_counts_for_queues_without_one(database: Database) -> None:
    await declare(database, "own", max_waiting_per_submitter=3)
    await declare(database, "plain")
    await defaults(database, "max_waiting_per_submitter", 2)
    filled = {queue: await accepted(database, queue=queue) for queue in ("own", "plain", "default")}
    assert filled == {"own": 3, "plain": 2, "default": 2}


async def test_bound_of_zero_in_the_defaults_closes_queues_without_one(database: Database) -> None:
    await declare(database, "own", max_waiting_per_submitter=1)
    await defaults(database, "max_waiting_per_submitter", 0)
    assert (await accepted(database, queue="default"), await accepted(database, queue="own")) == (0, 1)


async def test_an_insert_beyond_the_bound_is_refused_as_a_whole(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=10)
    team = await database.session("team_a")
    with pytest.raises(asyncpg.PostgresError) as refused:
        await team.execute(MANY, "door", 11)
    assert (refused.value.sqlstate, refused.value.column_name) == ("DI009", "queue")
    assert "10" in str(refused.value)
    assert "max_waiting_per_submitter" in (refused.value.hint or "")
    assert await waiting(database) == 0
    await team.execute(MANY, "door", 10)
    assert await waiting(database) == 10


async def test_retry_beyond_the_bound_is_refused_as_a_whole(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=10)
    team, operator = await database.session("team_a"), await database.session("operator")
    for _ in range(3):
        await team.execute("INSERT INTO dispatch.tasks (queue, batch) SELECT 'door', 'b' FROM generate_series(1, 4)")
        assert await team.fetchval("SELECT dispatch.batch_cancel('door', 'b')") == 4
    await team.execute(MANY, "door", 10)
    cancelled = await team.fetchval("SELECT min(id) FROM dispatch.tasks WHERE batch = 'b'")
    for call in (f"task_retry({cancelled})", "batch_retry('door', 'b')"):
        with pytest.raises(asyncpg.PostgresError, match="more than 10 waiting rows") as refused:
            await team.fetchval(f"SELECT dispatch.{call}")
        assert (refused.value.sqlstate, refused.value.column_name) == ("DI009", "queue")
    assert await waiting(database) == 10
    assert await operator.fetchval("SELECT dispatch.task_retry($1)", cancelled) == "waiting"


async def test_one_statement_may_fill_several_queues_each_to_its_bound(database: Database) -> None:
    await declare(database, "one", max_waiting_per_submitter=1)
    await declare(database, "two", max_waiting_per_submitter=2)
    team = await database.session("team_a")
    await team.execute("INSERT INTO dispatch.tasks (queue) VALUES ('one'), ('two'), ('two'), ('default')")
    for queue in ("one", "two"):
        error = await refusal(database, "team_a", queue=queue)
        assert error is not None
        assert (error.sqlstate, f'"{queue}"' in str(error)) == ("DI009", True)
    assert await database.insert_task(queue="default")


async def test_the_rows_of_other_submitters_do_not_count(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=2)
    assert [await accepted(database, login) for login in ("team_a", "team_b")] == [2, 2]


@pytest.mark.parametrize("run_at", [LATER, datetime(1970, 1, 1, tzinfo=UTC)], ids=["of the future", "of the past"])
async def test_rows_with_a_time_count(database: Database, run_at: datetime) -> None:
    await declare(database, max_waiting_per_submitter=2)
    await database.insert_task(queue="door", run_at=run_at)
    assert await accepted(database) == 1
    with pytest.raises(asyncpg.PostgresError, match="more than 2 waiting rows"):
        await database.insert_task(queue="door", run_at=run_at)


async def test_statements_of_one_transaction_count_together(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=2)
    team = await database.connect("team_a")
    async with team.transaction():
        await team.execute(MANY, "door", 1)
        await team.execute(MANY, "door", 1)
        with pytest.raises(asyncpg.PostgresError, match="more than 2 waiting rows"):
            async with team.transaction():
                await team.execute(MANY, "door", 1)
    assert await waiting(database) == 2


async def test_a_row_that_starts_or_ends_makes_room(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=2)
    rows = [await insert_row(database, queue="door") for _ in range(2)]
    await rows[0].started()
    await rows[1].cancel()
    assert await accepted(database) == 2


async def test_a_bound_that_was_lowered_refuses_new_rows_and_keeps_the_others(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=3)
    assert await accepted(database) == 3
    operator = await database.session("operator")
    await operator.execute("UPDATE dispatch.queues SET max_waiting_per_submitter = 1 WHERE name = 'door'")
    assert (await accepted(database), await waiting(database)) == (0, 3)


async def test_largest_possible_bound_works(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=2**31 - 1)
    assert await accepted(database, most=2) == 2


async def test_negative_bound_is_refused(database: Database) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await declare(database, max_waiting_per_submitter=-1)


async def test_first_bound_waits_for_no_insert_and_holds_for_the_next(database: Database) -> None:
    inserting, operator = await database.connect("team_a"), await database.connect("operator")
    async with inserting.transaction():
        await inserting.execute(MANY, "default", 7)
        async with asyncio.timeout(5):
            await operator.execute(FIRST_BOUND)
        with pytest.raises(asyncpg.PostgresError, match="more than 5 waiting rows"):
            async with inserting.transaction():
                await inserting.execute(MANY, "default", 1)
    assert await waiting(database, queue="default") == 7


async def test_record_of_bounded_inserts_is_empty_after_each_statement(database: Database) -> None:
    """The first row is accepted, the second one is beyond the bound, and both are of one transaction."""
    await declare(database, max_waiting_per_submitter=1)
    team, admin = await database.connect("team_a"), await database.session("admin")
    async with team.transaction():
        await team.execute(MANY, "door", 1)
        with contextlib.suppress(asyncpg.PostgresError):
            async with team.transaction():
                await team.execute(MANY, "door", 1)
    assert await waiting(database) == 1
    assert await admin.fetchval("SELECT count(*) FROM dispatch_private.bounded_inserts") == 0


BOTH = ["team_a", "team_b"]
MakeRole = Callable[..., Awaitable[str]]


@pytest_asyncio.fixture(loop_scope="session")
async def role(database: Database) -> AsyncIterator[MakeRole]:
    """A function that makes a role with members: logins, or roles of logins."""
    admin = await database.session("admin")
    made: list[str] = []

    async def make(*members: str) -> str:
        made.append(f"door_{secrets.token_hex(4)}")
        await admin.execute(f"CREATE ROLE {made[-1]}")
        for member in members:
            await admin.execute(f"GRANT {made[-1]} TO {member}")
        return made[-1]

    yield make
    for name in made:
        await admin.execute(f"DROP ROLE {name}")


async def submitters(admin: Connection) -> list[str]:
    return [row[0] for row in await admin.fetch("SELECT DISTINCT submitted_by FROM dispatch_private.tasks")]


async def may(database: Database, login: str, queue: str = "door") -> bool:
    """Whether the INSERT is accepted; fails on a refusal for any other reason than the queue's roles."""
    error = await refusal(database, login, queue=queue)
    assert error is None or (error.sqlstate, error.column_name) == ("DI003", "queue")
    return error is None


async def allowed(database: Database, queue: str = "door") -> list[str]:
    """The teams that may insert."""
    return [login for login in BOTH if await may(database, login, queue)]


@pytest.mark.parametrize(
    ("owner", "submit", "teams"),
    [
        (None, None, BOTH),
        (None, "team_a", ["team_a"]),
        ("team_b", None, ["team_b"]),
        ("team_b", "team_a", ["team_a"]),
        ("team_b", "dispatch_submitter", BOTH),
    ],
    ids=["no role", "a submit role alone", "an owner role alone", "both roles", "an owner, and every submitter"],
)
async def test_a_queue_is_open_to_its_submit_role_or_else_to_its_owner_role(
    database: Database, role: MakeRole, owner: str | None, submit: str | None, teams: list[str]
) -> None:
    submit_role = submit and (await role(submit) if submit in BOTH else submit)
    await declare(database, owner_role=owner and await role(owner), submit_role=submit_role)
    assert await allowed(database) == teams


async def test_submit_role_of_the_defaults_counts_for_queues_without_roles(database: Database, role: MakeRole) -> None:
    await declare(database, "plain")
    await declare(database, "owned", owner_role=await role("team_b"))
    await declare(database, "open", submit_role="dispatch_submitter")
    await defaults(database, "submit_role", await role("team_a"))
    assert await allowed(database, "plain") == ["team_a"]
    assert await allowed(database, "default") == ["team_a"]
    assert await allowed(database, "owned") == ["team_b"]
    assert await allowed(database, "open") == BOTH


async def test_owner_role_of_the_defaults_does_not_limit_inserts(database: Database, role: MakeRole) -> None:
    await declare(database)
    await defaults(database, "owner_role", await role("team_b"))
    assert await allowed(database) == BOTH


@pytest.mark.parametrize("name", ["never_made", 'with "quotes"', "a; DROP", "Upper", "", "public", "none"])
async def test_a_role_that_does_not_exist_has_no_members(database: Database, name: str) -> None:
    await declare(database, submit_role=name)
    assert await allowed(database) == []


async def test_a_role_that_was_dropped_has_no_members_nor_has_a_new_one_of_its_name(
    database: Database, role: MakeRole
) -> None:
    name, admin = await role("team_a"), await database.session("admin")
    await declare(database, submit_role=name)
    await admin.execute(f"DROP ROLE {name}")
    assert await allowed(database) == []
    await admin.execute(f"CREATE ROLE {name}")
    assert await allowed(database) == []
    await admin.execute(f"GRANT {name} TO team_b")
    assert await allowed(database) == []
    for written in (None, name):  # an operator names the new one
        await admin.execute("UPDATE dispatch.queues SET submit_role = $1 WHERE name = 'door'", written)
    assert await allowed(database) == ["team_b"]


async def test_a_member_through_another_role_is_a_member(database: Database, role: MakeRole) -> None:
    inner = await role("team_a")
    middle = await role(inner)
    await declare(database, submit_role=await role(middle))
    assert await allowed(database) == ["team_a"]


async def test_a_login_may_itself_be_the_role(database: Database) -> None:
    await declare(database, submit_role="team_b")
    assert await allowed(database) == ["team_b"]


async def test_change_of_membership_holds_for_the_next_insert(database: Database, role: MakeRole) -> None:
    name, admin = await role("team_a"), await database.session("admin")
    await declare(database, submit_role=name)
    assert await allowed(database) == ["team_a"]
    await admin.execute(f"REVOKE {name} FROM team_a")
    assert await allowed(database) == []


async def test_a_refusal_names_the_column_and_the_role(database: Database, role: MakeRole) -> None:
    name = await role("team_b")
    await declare(database, owner_role=name)
    error = await refusal(database, "team_a", queue="door", payload="secret-payload")
    assert error is not None
    assert (error.sqlstate, error.schema_name, error.table_name) == ("DI003", "dispatch", "tasks")
    assert error.column_name == "queue"
    assert f'"{name}"' in (error.hint or "")
    assert "secret-payload" not in str(error.as_dict())


async def test_statement_with_one_row_for_a_closed_queue_is_refused(database: Database, role: MakeRole) -> None:
    await declare(database, submit_role=await role("team_b"))
    team = await database.session("team_a")
    with pytest.raises(asyncpg.PostgresError, match="you may not insert"):
        await team.execute("INSERT INTO dispatch.tasks (queue) VALUES ('default'), ('door')")
    assert await team.fetchval("SELECT count(*) FROM dispatch.tasks") == 0


async def test_set_role_gives_no_right_to_insert(database: Database, role: MakeRole) -> None:
    """Only the login counts, not a role that it sets."""
    await declare(database, submit_role=await role("team_b"))
    team = await database.connect("team_a")
    await team.execute("SET ROLE dispatch_submitter")
    with pytest.raises(asyncpg.PostgresError, match="you may not insert"):
        await team.execute("INSERT INTO dispatch.tasks (queue) VALUES ('door')")


async def test_existing_rows_of_a_closed_queue_go_on(database: Database, role: MakeRole) -> None:
    await declare(database)
    row = await insert_row(database, queue="door")
    operator = await database.session("operator")
    await operator.execute("UPDATE dispatch.queues SET submit_role = $1 WHERE name = 'door'", await role("team_b"))
    assert await row.finish(await row.started(), "retry") == "waiting"
    assert await row.cancel() == "cancelled"
    assert await row.retry() == "waiting"


DOORS = {
    "view": "CREATE VIEW doors.door AS SELECT * FROM dispatch.tasks",
    "rule": """
        CREATE TABLE doors.door (queue text);
        CREATE RULE r AS ON INSERT TO doors.door DO ALSO INSERT INTO dispatch.tasks (queue) VALUES (new.queue)
    """,
    "function": """
        CREATE TABLE doors.door (queue text);
        CREATE FUNCTION doors.enter() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
            AS $$ BEGIN INSERT INTO dispatch.tasks (queue) VALUES (new.queue); RETURN new; END $$;
        CREATE TRIGGER t BEFORE INSERT ON doors.door FOR EACH ROW EXECUTE FUNCTION doors.enter()
    """,
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
async def test_login_that_may_not_insert_finds_no_door_of_one_that_may(database: Database, door: str) -> None:
    """A view and a rule have the rights of their owner. The rows would belong to whoever connected: a container."""
    admin, theirs = await database.session("admin"), await database.session("team_b")
    enter = "INSERT INTO doors.door (queue) VALUES ('default')"
    await admin.execute("CREATE SCHEMA doors AUTHORIZATION team_b; GRANT USAGE ON SCHEMA doors TO PUBLIC")
    try:
        await theirs.execute(f"{door}; GRANT INSERT ON doors.door TO PUBLIC; {enter}")
        for login in ("task", "reader", "operator", "janitor"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match=f'"{login}"'):
                await (await database.connect(login)).execute(enter)
        assert await submitters(admin) == ["team_b"]
    finally:
        await admin.execute("DROP SCHEMA doors CASCADE")


async def test_login_that_takes_its_right_by_set_role_alone_inserts_and_does_not_read(
    database: Database, role: MakeRole
) -> None:
    """PostgREST's authenticator is NOINHERIT, and sets the role of each request."""
    session, login, web = await database.connect("admin"), await role(), await role()
    grant = (
        f"REVOKE {web} FROM {login}; ALTER ROLE {login} %s; GRANT {web} TO {login}; SET SESSION AUTHORIZATION {login}"
    )
    count = "SELECT count(*) FROM dispatch.tasks"
    await session.execute(f"GRANT dispatch_submitter TO {web}; {grant % 'NOINHERIT'}; SET ROLE {web}")
    await session.execute("INSERT INTO dispatch.tasks (queue) VALUES ('default')")
    await session.execute("""SELECT dispatch.submit('[{"queue": "default"}]')""")
    assert await session.fetchval(count) == 0
    await session.execute("RESET ROLE")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await session.fetchval(count)
    await session.execute("RESET SESSION AUTHORIZATION")
    assert await submitters(session) == [login]
    await session.execute(grant % "INHERIT")
    assert await session.fetchval(count) == 2
    await session.execute(f"RESET SESSION AUTHORIZATION; UPDATE dispatch.queues SET owner_role = '{web}'")
    await session.execute(f"{grant % 'NOINHERIT'}; SET ROLE {web}")
    assert await session.fetchval(count) == 2
    await session.execute("RESET SESSION AUTHORIZATION")
