"""Names of people change: a login that is renamed keeps its rows, and a new login of an old name gets none."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest
import pytest_asyncio

from tests.integration.queues import declare
from tests.rig.postgres import Connection, Database, connect, url_with
from tests.rig.postgres_fixtures import one_database

database = one_database
People = Callable[[str], Awaitable[Connection]]


@pytest_asyncio.fixture(loop_scope="session")
async def log_in(database: Database) -> AsyncIterator[People]:
    """Makes a submitter of this name if there is none, and opens a session of it."""
    admin, made = await database.session("admin"), list[Connection]()

    async def session(name: str) -> Connection:
        if not await admin.fetchval("SELECT to_regrole(quote_ident($1)) IS NOT NULL", name):
            await admin.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'x' IN ROLE dispatch_submitter")
        await admin.execute(f"ALTER ROLE \"{name}\" PASSWORD 'x'")  # a rename clears one of an old form
        made.append(
            await connect(url_with(database.url("team_a"), login=name).replace(f"{name}:{name}@", f"{name}:x@"))
        )
        return made[-1]

    yield session
    for one in made:
        await one.close()


@pytest.fixture
def team() -> str:
    return f"team_{secrets.token_hex(4)}"


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_first_row_of_a_login_holds_no_other_row_of_it_back(log_in: People, team: str, end: str) -> None:
    first, second = await log_in(team), await log_in(team)
    await first.execute("BEGIN")
    begun = await insert(first)
    async with asyncio.timeout(5):
        meanwhile = await insert(second)
    await first.execute(end)
    later = await insert(second)
    assert await seen(second) == {meanwhile, later} | ({begun} if end == "COMMIT" else set())


async def renamed(database: Database, before: str, after: str) -> None:
    await (await database.session("admin")).execute(f"ALTER ROLE {before} RENAME TO {after}")


async def seen(session: Connection) -> set[int]:
    return {row["id"] for row in await session.fetch("SELECT id FROM dispatch.tasks")}


async def insert(session: Connection, **columns: str) -> int:
    names = ", ".join(columns) or "queue"
    values = ", ".join(f"'{value}'" for value in columns.values()) or "DEFAULT"
    return int(await session.fetchval(f"INSERT INTO dispatch.tasks ({names}) VALUES ({values}) RETURNING id"))


async def test_renamed_login_keeps_its_rows_and_adds_to_them(database: Database, log_in: People, team: str) -> None:
    first = await log_in(team)
    old = await insert(first, batch="b", dedupe_key="k")
    await first.close()
    await renamed(database, team, f"{team}_x")
    now = await log_in(f"{team}_x")
    assert await insert(now, batch="b", dedupe_key="k") == old
    new = await insert(now, batch="b")
    assert await seen(now) == {old, new}
    assert await now.fetchval("SELECT dispatch.own_name()") == team
    assert (await database.task(new))["submitted_by"] == team
    assert await now.fetchval("SELECT dispatch.task_cancel($1)", old) == "cancelled"
    assert await now.fetchval("SELECT dispatch.batch_cancel('default', 'b')") == 1
    assert await now.fetchval("SELECT sum(cancelled) FROM dispatch.batch_status") == 2
    ended = {row["id"] for row in await now.fetch("SELECT id FROM dispatch.task_ended_since(now() - interval '1 h')")}
    assert ended == {old, new}


@pytest.mark.parametrize("way", ["renamed", "dropped"])
async def test_new_login_of_an_old_name_gets_no_row_of_it(
    database: Database, log_in: People, team: str, way: str
) -> None:
    first = await log_in(team)
    old = await insert(first, batch="b", dedupe_key="k", payload='"secret"')
    await first.close()
    if way == "renamed":
        await renamed(database, team, f"{team}_x")
    else:
        await (await database.session("admin")).execute(f"DROP OWNED BY {team}; DROP ROLE {team}")
    new = await log_in(team)
    assert await seen(new) == set()
    assert await new.fetchval("SELECT dispatch.own_name()") is None, "it has no row, and its name is taken"
    assert await new.fetch("SELECT * FROM dispatch.task($1)", old) == []
    assert await new.fetchval("SELECT dispatch.task_cancel($1)", old) is None
    assert await new.fetchval("SELECT dispatch.batch_cancel('default', 'b')") == 0
    own = await insert(new, batch="b", dedupe_key="k")
    assert own != old
    assert await seen(new) == {own}
    assert (await database.task(own))["submitted_by"].startswith(f"{team} (")
    assert await new.fetchval("SELECT dispatch.own_name()") == (await database.task(own))["submitted_by"]
    assert await new.fetchval("SELECT tasks FROM dispatch.batch_status") == 1


@pytest.mark.parametrize("column", ["owner_role", "submit_role"])
async def test_role_of_a_queue_is_known_by_its_oid(database: Database, log_in: People, team: str, column: str) -> None:
    queue = team.replace("_", "-")
    admin, theirs = await database.session("admin"), await log_in(team)
    await admin.execute(f"INSERT INTO dispatch.queues (name, {column}) VALUES ('{queue}', '{team}')")
    await insert(theirs, queue=queue)
    await theirs.close()
    await renamed(database, team, f"{team}_x")
    await insert(await log_in(f"{team}_x"), queue=queue)
    assert await admin.fetchval(f"SELECT {column} FROM dispatch.queues WHERE name = $1", queue) == f"{team}_x"
    stranger = await log_in(team)
    with pytest.raises(asyncpg.PostgresError, match="may not insert"):
        await insert(stranger, queue=queue)
    assert await seen(stranger) == set()
    await admin.execute(f"DROP OWNED BY {team}_x; DROP ROLE {team}_x")
    with pytest.raises(asyncpg.PostgresError) as refused:
        await insert(stranger, queue=queue)
    assert "and that role is gone" in str(refused.value.hint)


@pytest.mark.parametrize(("column", "other"), [("owner_role", "submit_role"), ("submit_role", "owner_role")])
async def test_role_of_a_queue_stays_known_while_its_other_role_changes(
    database: Database, log_in: People, team: str, column: str, other: str
) -> None:
    """A role that was renamed would lose the queue, and a new role of its old name get it."""
    queue, operator = team.replace("_", "-"), await database.session("operator")
    await (await log_in(team)).close()
    await operator.execute(f"INSERT INTO dispatch.queues (name, {column}) VALUES ('{queue}', '{team}')")
    await renamed(database, team, f"{team}_x")
    await log_in(team)
    await operator.execute(f"UPDATE dispatch.queues SET {other} = 'team_b' WHERE name = '{queue}'")
    roles = await operator.fetchrow(f"SELECT {column}, {other} FROM dispatch.queues WHERE name = '{queue}'")
    assert tuple(roles or ()) == (f"{team}_x", "team_b")


async def test_call_looks_up_no_role_of_a_queue_of_others(database: Database) -> None:
    """Each look-up costs 20 µs, so that 300 queues of other teams made each call of a submitter ten times as dear."""
    await declare(database, "theirs", owner_role="team_b")
    assert [await looked_up(database, login) > 0 for login in ("team_a", "team_b")] == [False, True]


async def looked_up(database: Database, login: str) -> int:
    """The number of roles that a call of this login looks up."""
    admin = await database.connect()
    async with admin.transaction():
        await admin.execute(f"SET LOCAL track_functions = 'all'; SET LOCAL SESSION AUTHORIZATION {login}")
        await admin.fetch("SELECT * FROM dispatch.task(1)")
        await admin.execute("SET LOCAL SESSION AUTHORIZATION DEFAULT")
        calls = "SELECT sum(calls) FROM pg_stat_xact_user_functions WHERE funcname = 'role_now'"
        return int(await admin.fetchval(calls) or 0)


async def test_operator_moves_rows_to_another_login(database: Database, log_in: People, team: str) -> None:
    old, new = await log_in(team), await log_in(f"{team}_new")
    rows = {await insert(old) for _ in range(3)}
    double, living = await insert(old, dedupe_key="k"), await insert(new, dedupe_key="k")
    operator = await database.session("operator")
    call = "SELECT dispatch.rows_move($1, $2)"
    assert await operator.fetchval(call, team, f"{team}_new") == 3
    assert await operator.fetchval(call, team, f"{team}_new") == 0
    assert (await seen(old), await seen(new)) == ({double}, {*rows, living})
    await new.fetchval("SELECT dispatch.task_cancel($1)", living)
    assert await operator.fetchval(call, team, f"{team}_new") == 1
    assert await operator.fetchval(call, team, f"{team}_new") == 0
    assert await seen(old) == set()
    begun = await insert(old)
    assert (await database.task(begun))["submitted_by"] == team


async def test_moves_that_move_nothing_say_why(database: Database) -> None:
    """`0` alone would mean: it is done, drop the login."""
    row, operator, said = await database.insert_task("team_b"), await database.connect("operator"), list[str]()
    operator.add_log_listener(lambda _, message: said.append(message.message))
    move = "SELECT dispatch.rows_move($1, 'team_a')"
    theirs = await database.connect("team_b")
    async with theirs.transaction():
        await theirs.execute("SELECT dispatch.task_set_priority($1, 7)", row)
        assert await operator.fetchval(move, "team_b") == 0
    assert await operator.fetchval(move, "team_odd") == 0
    assert [words.partition(":")[0] for words in said] == ['rows of "team_b" are left', 'no row is of "team_odd"']
    assert [await operator.fetchval(move, "team_b") for _ in range(2)] == [1, 0]
    assert len(said) == 2


async def test_rows_move_to_no_role_that_is_not_there(database: Database) -> None:
    with pytest.raises(asyncpg.UndefinedObjectError, match='there is no role "nobody"'):
        await (await database.session("operator")).fetchval("SELECT dispatch.rows_move('team_b', 'nobody')")


async def test_rows_move_to_a_group_with_a_notice(database: Database) -> None:
    """Rows have a login and no group, so the team that the group stands for would miss them without a sign."""
    operator, said = await database.connect("operator"), list[str]()
    operator.add_log_listener(lambda _, message: said.append(message.message))
    await operator.fetchval("SELECT dispatch.rows_move('team_odd', 'dispatch_submitter')")
    assert said[0] == 'the role "dispatch_submitter" may not log in: its members do not see the rows as their own'
