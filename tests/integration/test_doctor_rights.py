"""`dispatcher doctor` judges a login by the role of its program: neither fewer nor more rights, on a real Postgres."""

import pytest

from dispatcher.doctor.finding import FindingState
from dispatcher.doctor.look_at_database import wanted_objects
from dispatcher.doctor.schema import OF_PROGRAM, Grant, is_judged, rights_of
from dispatcher.model.rights import JANITOR, RUN
from dispatcher.pg.migrate import inspect
from tests.integration.doctoring_database import fault_of, faults, findings, mend, planted
from tests.rig.postgres import Database

TASKS, SECRETS = "dispatch_private.tasks", "dispatch_private.secrets"
DIGESTS = f"SELECT (run_digest) ON {TASKS}"
TELL = "function dispatch_private.janitor_tell(jsonb)"
START = "function dispatch.task_start(bigint, uuid, integer, integer, text, text, text, text)"
OF_THE_JANITOR = [
    ("MissingRight", f"table {TASKS}", f"REVOKE {DIGESTS} FROM dispatch_janitor"),
    ("MissingRight", TELL, f"REVOKE EXECUTE ON {TELL} FROM dispatch_janitor"),
    ("MissingRight", "schema dispatch", "REVOKE USAGE ON SCHEMA dispatch FROM dispatch_janitor"),
    ("MissingRight", "schema dispatch_private", "REVOKE USAGE ON SCHEMA dispatch_private FROM dispatch_janitor"),
    ("ExtraRight", f"table {TASKS}", f"GRANT DELETE ON {TASKS} TO dispatch_janitor"),
    ("ExtraRight", f"table {TASKS}", f"GRANT UPDATE (status) ON {TASKS} TO janitor"),
    ("ExtraRight", "view dispatch.tasks", "GRANT SELECT ON dispatch.tasks TO janitor"),
    ("ExtraRight", f"table {SECRETS}", f"GRANT SELECT (start_inner) ON {SECRETS} TO dispatch_janitor"),
    ("ExtraRight", START, f"GRANT EXECUTE ON {START} TO dispatch_janitor"),
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
    assert [one for one in found if one.state is not FindingState.GOOD] == []
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
    found = [one for one in await findings(database.url(login), program) if one.state is FindingState.FAULT]
    assert {(one.what, one.message) for one in found if one.what == "LoginGroups"} == {
        ("LoginGroups", f"it is not a member of dispatch_{role}"),
        ("LoginGroups", f"it is also a member of dispatch_{login}"),
    }


@pytest.mark.parametrize("group", OF_PROGRAM.values())
async def test_list_of_objects_has_every_right_of_a_program(database: Database, group: str) -> None:
    found = await inspect(database.admin_url)
    grants = [
        Grant(row["kind"], row["name"], row["part"], row["grantee"], row["privilege"])
        for row in found.grants
        if row["grantee"] == group
    ]
    assert {grant.key for grant in grants if is_judged(grant)} == rights_of(group, wanted_objects())
