"""The right to insert into a queue: for members of its submit_role, else of its owner_role, else for everybody."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest
import pytest_asyncio

from tests.integration.queues import declare, defaults, refusal
from tests.rig.postgres import Connection, Database
from tests.rig.rows import insert_row

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
        ("team_b", None, ["team_b"]),
        ("team_b", "team_a", ["team_a"]),
        ("team_b", "dispatch_submitter", BOTH),
    ],
    ids=["no role", "an owner role alone", "both roles", "an owner, and every submitter"],
)
async def test_a_queue_is_open_to_its_submit_role_or_else_to_its_owner_role(
    database: Database, role: MakeRole, owner: str | None, submit: str | None, teams: list[str]
) -> None:
    submit_role = submit and (await role(submit) if submit in BOTH else submit)
    await declare(database, owner_role=owner and await role(owner), submit_role=submit_role)
    assert await allowed(database) == teams


async def test_a_queue_with_a_submit_role_is_open_to_its_members(database: Database, role: MakeRole) -> None:
    await declare(database, submit_role=await role("team_a"))
    assert await allowed(database) == ["team_a"]


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


async def test_login_that_takes_its_right_by_set_role_alone_inserts(database: Database, role: MakeRole) -> None:
    """PostgREST's authenticator is NOINHERIT, and sets the role of each request."""
    session, login = await database.connect("admin"), await role()
    web = await role(login)
    await session.execute(f"GRANT dispatch_submitter TO {web}; ALTER ROLE {login} NOINHERIT")
    await session.execute(f"SET SESSION AUTHORIZATION {login}; SET ROLE {web}")
    await session.execute("INSERT INTO dispatch.tasks (queue) VALUES ('default')")
    await session.execute("""SELECT dispatch.submit('[{"queue": "default"}]')""")
    await session.execute("RESET SESSION AUTHORIZATION")
    assert await submitters(session) == [login]
