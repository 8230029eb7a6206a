"""The judgement of a login: attributes, roles, and exactly the rights of its program's role."""

from typing import Any

import msgspec
import pytest

from dispatcher.doctor.finding import Finding, FindingState
from dispatcher.doctor.schema import (
    READER,
    ROLE_OF_JANITOR,
    Elsewhere,
    Grant,
    LoginRights,
    Membership,
    group_of,
    judge_login,
)
from dispatcher.model.rights import EXTENDER, JANITOR, RUN
from tests.unit.logins import GRANTS, LOGIN, OF_JANITOR

TASKS, SECRETS, VIEW = "dispatch_private.tasks", "dispatch_private.secrets", "dispatch.tasks"
CALL = "dispatch_private.in_view(dispatch_private.tasks)"


def changed(what: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(what, **changes)


def of_login(**changes: Any) -> list[Finding]:
    return [one for one in judge_login(changed(LOGIN, **changes), "work") if one.state is FindingState.FAULT]


def test_administrator_is_one_fault_whatever_it_may() -> None:
    (found,) = of_login(attributes=("SUPERUSER", "BYPASSRLS"), groups=(), grants=())
    assert found.mend == "psql work -c 'ALTER ROLE reader NOSUPERUSER NOBYPASSRLS'"


@pytest.mark.parametrize(
    ("groups", "what", "mend"),
    [
        ((), "LoginGroups", "GRANT dispatch_reader TO reader"),
        (
            (Membership(READER, False),),
            "LoginInherits",
            f"ALTER ROLE reader INHERIT' -c 'REVOKE {READER} FROM reader' -c 'GRANT {READER} TO reader",
        ),
        (
            (Membership(READER, True), Membership("dispatch_task", True)),
            "LoginGroups",
            "REVOKE dispatch_task FROM reader",
        ),
    ],
)
def test_wrong_groups_of_a_login_are_named_with_their_command(
    groups: tuple[Membership, ...], what: str, mend: str
) -> None:
    assert [(one.what, one.mend) for one in of_login(groups=groups)] == [(what, f"psql work -c '{mend}'")]


def test_missing_columns_are_named_together() -> None:
    (found,) = of_login(grants=tuple(one for one in GRANTS if one.name != TASKS))
    assert (found.what, found.where) == ("MissingRight", f"table {TASKS}")
    assert "and 23 more" in found.message
    assert "GRANT SELECT (attempt, batch, cache_key," in found.mend
    assert found.mend.endswith(f" ON {TASKS} TO dispatch_reader'")
    assert "more" not in found.mend


def test_right_on_the_whole_table_is_a_right_on_each_column() -> None:
    whole = Grant("relation", SECRETS, "", READER, "SELECT")
    found = of_login(grants=(*(one for one in GRANTS if one.name != SECRETS), whole))
    assert [one.what for one in found] == ["ExtraRight"]


@pytest.mark.parametrize(
    ("grant", "where", "end"),
    [
        (Grant("relation", TASKS, "id", "reader", "UPDATE"), f"table {TASKS}", f"UPDATE (id) ON {TASKS} FROM reader'"),
        (Grant("relation", VIEW, "", "PUBLIC", "SELECT"), f"view {VIEW}", f"SELECT ON {VIEW} FROM PUBLIC'"),
        (Grant("function", CALL, "", "reader", "EXECUTE"), f"function {CALL}", f"ON FUNCTION {CALL} FROM reader'"),
        (Grant("schema", "dispatch_private", "", "reader", "CREATE"), "schema dispatch_private",
         "REVOKE CREATE ON SCHEMA dispatch_private FROM reader'"),
        (Grant("database", "x", "", "reader", "CREATE"), "database work", "CREATE ON DATABASE work FROM reader'"),
    ],
)  # fmt: skip
def test_extra_right_is_named_with_the_command_that_revokes_it(grant: Grant, where: str, end: str) -> None:
    (found,) = of_login(grants=(*GRANTS, grant))
    assert (found.what, found.where) == ("ExtraRight", where)
    assert found.mend.endswith(end)


@pytest.mark.parametrize("schema", ["dispatch", "dispatch_private"])
def test_missing_usage_of_a_schema_is_named(schema: str) -> None:
    (found,) = of_login(grants=tuple(one for one in GRANTS if one.name != schema))
    assert (found.what, found.where) == ("MissingRight", f"schema {schema}")
    assert found.mend.endswith(f"-c 'GRANT USAGE ON SCHEMA {schema} TO dispatch_reader'")


@pytest.mark.parametrize(
    ("roles", "program", "group"),
    [
        ([READER], None, READER),
        ([ROLE_OF_JANITOR], None, ROLE_OF_JANITOR),
        ([READER, ROLE_OF_JANITOR], None, READER),
        ([], None, READER),
        ([ROLE_OF_JANITOR], RUN, READER),
        ([READER], JANITOR, ROLE_OF_JANITOR),
        ([ROLE_OF_JANITOR], EXTENDER, ROLE_OF_JANITOR),
    ],
)
def test_group_of_a_login_is_that_of_its_program_or_else_of_its_membership(
    roles: list[str], program: str | None, group: str
) -> None:
    assert group_of(roles, program) == group


def test_login_of_the_janitor_is_judged_by_the_rights_of_its_own_role() -> None:
    def told(login: LoginRights) -> list[tuple[str, str]]:
        return [(one.what, one.message) for one in judge_login(login, "work") if one.state is FindingState.FAULT]

    assert told(OF_JANITOR) == []
    assert told(changed(OF_JANITOR, group=READER)) == [
        ("LoginGroups", "it is not a member of dispatch_reader"),
        ("LoginGroups", "it is also a member of dispatch_janitor"),
    ]
    fewer = tuple(one for one in OF_JANITOR.grants if one.name != "dispatch_private.janitor_tell(jsonb)")
    assert told(changed(OF_JANITOR, grants=fewer)) == [("MissingRight", "dispatch_janitor lacks EXECUTE")]
    more = Grant("relation", SECRETS, "start_inner", ROLE_OF_JANITOR, "SELECT")
    assert told(changed(OF_JANITOR, grants=(*OF_JANITOR.grants, more))) == [
        ("ExtraRight", "dispatch_janitor has SELECT (start_inner)")
    ]


@pytest.mark.parametrize(
    "grant",
    [
        Grant("relation", TASKS, "", "dispatch_owner", "DELETE"),
        Grant("database", "x", "", "reader", "CONNECT"),
        Grant("type", "dispatch_private.t", "", "PUBLIC", "USAGE"),
    ],
)
def test_right_of_others_and_harmless_right_are_no_fault(grant: Grant) -> None:
    assert of_login(grants=(*GRANTS, grant)) == []


@pytest.mark.parametrize(
    ("elsewhere", "message", "statement"),
    [
        (Elsewhere(True, "function f()", "DROP FUNCTION f()"), "it owns function f()", "DROP FUNCTION f()"),
        (Elsewhere(False, "table x", "REVOKE ALL ON public.x FROM r"), "it has rights on table x",
         "REVOKE ALL ON public.x FROM r"),
        (Elsewhere(False, "default privileges", None), "it has rights on default privileges", r"\ddp"),
    ],
)  # fmt: skip
def test_right_elsewhere_is_named_with_a_command_for_it(elsewhere: Elsewhere, message: str, statement: str) -> None:
    (found,) = of_login(elsewhere=(elsewhere,))
    assert (found.what, found.message) == ("RightElsewhere", message)
    assert found.mend == f"psql work -c '{statement}'  # look at the object first"


@pytest.mark.parametrize("mend", ["DROP TABLE x\ny", "DROP TABLE " + "x" * 2000])
def test_command_with_a_name_that_cannot_be_shown_is_left_out(mend: str) -> None:
    """A command that is cut, or has another character in a name, could do something else."""
    (found,) = of_login(elsewhere=(Elsewhere(True, "table", mend),))
    assert found.mend == "psql  # no command is shown: a name has control characters, or is too long"
