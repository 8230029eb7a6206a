"""`dispatcher doctor` judges a login by the role of its program: neither fewer nor more rights, on a real Postgres."""

import pytest

from dispatcher.doctor.finding import State
from dispatcher.doctor.group_rights import GROUPS
from dispatcher.doctor.rights import Grant, is_judged
from dispatcher.doctor.verbs import JANITOR, RUN
from dispatcher.pg.inspection import inspect
from tests.integration.doctoring_database import fault_of, faults, findings, mend, planted
from tests.postgres import Database

DIGESTS = "SELECT (run_digest) ON dispatch.tasks"
TELL = "function dispatch.janitor_tell(jsonb)"
START = "task_start(bigint, uuid, integer, integer, text, text, text)"
OF_THE_JANITOR = [
    ("MissingRight", "table dispatch.tasks", f"REVOKE {DIGESTS} FROM dispatch_janitor"),
    ("MissingRight", TELL, f"REVOKE EXECUTE ON {TELL} FROM dispatch_janitor"),
    ("MissingRight", "schema dispatch", "REVOKE USAGE ON SCHEMA dispatch FROM dispatch_janitor"),
    ("ExtraRight", "table dispatch.tasks", "GRANT DELETE ON dispatch.tasks TO dispatch_janitor"),
    ("ExtraRight", "table dispatch.tasks", "GRANT UPDATE (status) ON dispatch.tasks TO janitor"),
    ("ExtraRight", "table dispatch.secrets", "GRANT SELECT (start_inner) ON dispatch.secrets TO dispatch_janitor"),
    ("ExtraRight", f"function dispatch.{START}", f"GRANT EXECUTE ON FUNCTION dispatch.{START} TO dispatch_janitor"),
]
"""Name of the fault, where it is, and the statement that plants it in the database of the test."""
AGAIN = "REVOKE dispatch_janitor FROM janitor; GRANT dispatch_janitor TO janitor"
OF_ITS_LOGIN = [
    ("LoginAttributes", "ALTER ROLE janitor CREATEDB", "ALTER ROLE janitor NOCREATEDB"),
    ("LoginGroups", "GRANT dispatch_operator TO janitor", "REVOKE dispatch_operator FROM janitor"),
    ("LoginInherits", f"ALTER ROLE janitor NOINHERIT; {AGAIN}", f"ALTER ROLE janitor INHERIT; {AGAIN}"),
]
"""The same with the statement that removes the fault again: logins belong to the whole server."""


@pytest.mark.parametrize("program", [None, JANITOR])
async def test_login_of_the_janitor_has_no_fault_and_everything_is_checked(
    database: Database, program: str | None
) -> None:
    found = await findings(database.url("janitor"), program)
    assert [one for one in found if one.state is not State.GOOD] == []
    assert ("LoginGroups", "login janitor, of dispatch_janitor") in {(one.what, one.where) for one in found}


@pytest.mark.parametrize(("what", "where", "plant"), OF_THE_JANITOR)
async def test_right_that_the_janitor_lacks_or_has_too_much_is_named_alone(
    database: Database, what: str, where: str, plant: str
) -> None:
    await (await database.session("admin")).execute(plant)
    assert await fault_of(database.url("janitor")) == (what, where)
    await mend(database, "janitor")
    assert await faults(database.url("janitor")) == []


@pytest.mark.parametrize(("what", "plant", "remove"), OF_ITS_LOGIN)
async def test_fault_of_the_login_of_the_janitor_is_named_alone(
    database: Database, what: str, plant: str, remove: str
) -> None:
    async with planted(database, plant, remove):
        assert await fault_of(database.url("janitor")) == (what, "login janitor")
        await mend(database, "janitor")
        assert await faults(database.url("janitor")) == []


@pytest.mark.parametrize(("program", "login", "role"), [(RUN, "janitor", "reader"), (JANITOR, "reader", "janitor")])
async def test_login_of_another_program_is_named_in_a_pod(
    database: Database, program: str, login: str, role: str
) -> None:
    found = [one for one in await findings(database.url(login), program) if one.state is State.FAULT]
    assert {(one.what, one.message) for one in found if one.what == "LoginGroups"} == {
        ("LoginGroups", f"it is not a member of dispatch_{role}"),
        ("LoginGroups", f"it is also a member of dispatch_{login}"),
    }


@pytest.mark.parametrize("group", GROUPS)
async def test_table_of_rights_is_what_the_migrations_grant(database: Database, group: str) -> None:
    found = await inspect(database.admin_url)
    grants = [
        Grant(row["kind"], row["name"], row["part"], row["grantee"], row["privilege"])
        for row in found.grants
        if row["grantee"] == group
    ]
    assert {grant.key for grant in grants if is_judged(grant)} == GROUPS[group].rights
