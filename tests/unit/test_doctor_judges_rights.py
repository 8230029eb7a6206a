"""The judgement of a login: attributes, roles, and exactly the rights of its program's role."""

from typing import Any

import msgspec
import pytest

from dispatcher.doctor.finding import Finding, State
from dispatcher.doctor.group_rights import READER, ROLE_OF_JANITOR, group_of
from dispatcher.doctor.rights import Grant, Login, Member, judge_login
from dispatcher.doctor.verbs import EXTENDER, JANITOR, RUN
from tests.unit.logins import GRANTS, LOGIN, OF_JANITOR


def changed(what: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(what, **changes)


def of_login(**changes: Any) -> list[Finding]:
    return [one for one in judge_login(changed(LOGIN, **changes), "work") if one.state is State.FAULT]


def test_administrator_is_one_fault_whatever_it_may() -> None:
    (found,) = of_login(attributes=("SUPERUSER", "BYPASSRLS"), groups=(), grants=())
    assert found.mend == "psql work -c 'ALTER ROLE reader NOSUPERUSER NOBYPASSRLS'"


@pytest.mark.parametrize(
    ("groups", "what", "mend"),
    [
        ((), "LoginGroups", "GRANT dispatch_reader TO reader"),
        (
            (Member(READER, False),),
            "LoginInherits",
            f"ALTER ROLE reader INHERIT' -c 'REVOKE {READER} FROM reader' -c 'GRANT {READER} TO reader",
        ),
        ((Member(READER, True), Member("dispatch_task", True)), "LoginGroups", "REVOKE dispatch_task FROM reader"),
    ],
)
def test_wrong_groups_of_a_login_are_named_with_their_command(groups: tuple[Member, ...], what: str, mend: str) -> None:
    assert [(one.what, one.mend) for one in of_login(groups=groups)] == [(what, f"psql work -c '{mend}'")]


def test_missing_columns_are_named_together() -> None:
    (found,) = of_login(grants=tuple(one for one in GRANTS if one.name != "tasks"))
    assert (found.what, found.where) == ("MissingRight", "table dispatch.tasks")
    assert "and 22 more" in found.message
    assert "GRANT SELECT (attempt, batch, cache_key," in found.mend
    assert "more" not in found.mend


def test_right_on_the_whole_table_is_a_right_on_each_column() -> None:
    whole = Grant("relation", "secrets", "", READER, "SELECT")
    found = of_login(grants=(*(one for one in GRANTS if one.name != "secrets"), whole))
    assert [one.what for one in found] == ["ExtraRight"]


@pytest.mark.parametrize(
    ("grant", "end"),
    [
        (Grant("relation", "tasks", "id", "reader", "UPDATE"), "UPDATE (id) ON dispatch.tasks FROM reader'"),
        (Grant("relation", "tasks", "", "PUBLIC", "SELECT"), "SELECT ON dispatch.tasks FROM PUBLIC'"),
        (Grant("function", "f(int)", "", "reader", "EXECUTE"), "EXECUTE ON FUNCTION dispatch.f(int) FROM reader'"),
        (Grant("schema", "dispatch", "", "reader", "CREATE"), "REVOKE CREATE ON SCHEMA dispatch FROM reader'"),
        (Grant("database", "x", "", "reader", "CREATE"), "REVOKE CREATE ON DATABASE work FROM reader'"),
    ],
)  # fmt: skip
def test_extra_right_is_named_with_the_command_that_revokes_it(grant: Grant, end: str) -> None:
    (found,) = of_login(grants=(*GRANTS, grant))
    assert found.what == "ExtraRight"
    assert found.mend.endswith(end)


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
    def told(login: Login) -> list[tuple[str, str]]:
        return [(one.what, one.message) for one in judge_login(login, "work") if one.state is State.FAULT]

    assert told(OF_JANITOR) == []
    assert told(changed(OF_JANITOR, group=READER)) == [
        ("LoginGroups", "it is not a member of dispatch_reader"),
        ("LoginGroups", "it is also a member of dispatch_janitor"),
    ]
    fewer = tuple(one for one in OF_JANITOR.grants if one.name != "janitor_tell(jsonb)")
    assert told(changed(OF_JANITOR, grants=fewer)) == [("MissingRight", "dispatch_janitor lacks EXECUTE")]
    more = Grant("relation", "secrets", "start_inner", ROLE_OF_JANITOR, "SELECT")
    assert told(changed(OF_JANITOR, grants=(*OF_JANITOR.grants, more))) == [
        ("ExtraRight", "dispatch_janitor has SELECT (start_inner)")
    ]


@pytest.mark.parametrize(
    "grant",
    [
        Grant("relation", "tasks", "", "dispatch_owner", "DELETE"),
        Grant("database", "x", "", "reader", "CONNECT"),
        Grant("type", "t", "", "PUBLIC", "USAGE"),
    ],
)
def test_right_of_others_and_harmless_right_are_no_fault(grant: Grant) -> None:
    assert of_login(grants=(*GRANTS, grant)) == []


def test_object_that_the_login_owns_is_named() -> None:
    (found,) = of_login(elsewhere=("owns table public.x",))
    assert (found.what, found.message) == ("RightElsewhere", "it owns table public.x")
