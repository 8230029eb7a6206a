"""The table of checks, and the judgement of programs, the Lease, cache keepers, logins and their rights."""

import re
import shlex
import string
from typing import Any

import pytest
from msgspec.structs import replace

from dispatcher.doctor.checks import CHECKS, Check, Part
from dispatcher.doctor.cluster import (
    CacheFacts,
    LeaseTerm,
    PodCount,
    RunningFacts,
    UnreadObject,
    judge_caches,
    judge_running,
)
from dispatcher.doctor.finding import Finding, FindingState
from dispatcher.doctor.schema import (
    READER,
    ROLE_OF_JANITOR,
    ForeignRight,
    Grant,
    LoginRights,
    Membership,
    group_of,
    judge_login,
)
from dispatcher.model.rights import CACHE_KEEPER, EXTENDER, JANITOR, RUN, InstallationSite, verbs_of
from tests.rig.planted import PLANTED, named_in, planted_in
from tests.unit.logins import GRANTS, LOGIN, OF_JANITOR

PROGRAMS = {
    "psql", "kubectl", "helm", "dispatcher", "curl", "unset", "chronyc", "pg_upgrade", "kube-controller-manager",
    "DISPATCHER_DATABASE_URL=postgresql://work_dispatcher_migrate:PASSWORD@HOST/DATABASE",
}  # fmt: skip


@pytest.mark.parametrize(("name", "check"), CHECKS.items(), ids=list(CHECKS))
def test_check_has_a_name_a_question_and_a_command(name: str, check: Check) -> None:
    assert re.fullmatch(r"([A-Z][a-z]+)+", name)
    assert check.asks.endswith("?")
    assert check.why.endswith(".")
    words = {field for _, field, _, _ in string.Formatter().parse(check.mend) if field}
    command = shlex.split(check.mend.format(**dict.fromkeys(words, "x")), comments=True)
    assert command[0] in PROGRAMS


def test_every_part_has_checks() -> None:
    assert {check.part for check in CHECKS.values()} == set(Part)


def test_every_check_has_a_test_that_plants_its_fault() -> None:
    assert set(PLANTED) == set(CHECKS)


@pytest.mark.parametrize(("check", "test"), PLANTED.items(), ids=list(PLANTED))
def test_planting_test_expects_the_check_to_be_named(check: str, test: str) -> None:
    assert check in planted_in(test)


TABLE = """
TABLE = [("SchemaOld", State.FAULT), ("SchemaChanged", State.NOT_CHECKED)]

@pytest.mark.parametrize(("what", "state"), TABLE)
def test_it(what, state): {}
"""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('def test_it():\n assert found.what == "SchemaOld"', {"SchemaOld"}),
        ('def test_it():\n assert faults == {"SchemaOld": "there"}', {"SchemaOld"}),
        ('async def test_it():\n await site.names(settings, "SchemaOld")', {"SchemaOld"}),
        (TABLE.format("assert fault_of(url) == (what, state)"), {"SchemaOld"}),
        (TABLE.format("assert fault_of(url)"), set()),
        ('def test_it():\n "SchemaOld"', set()),
        ('def test_it():\n assert "SchemaOld" in found', set()),
        ('def test_it():\n assert found.what != "SchemaOld"', set()),
        ('def test_it():\n assert {one.what for one in all if one.state is State.NOT_CHECKED} == {"SchemaOld"}', set()),
        ('def test_it():\n good = [x for x in all if x.state is State.GOOD]\n assert good == ["SchemaOld"]', set()),
        ('def test_it(): ...\ndef test_other():\n assert found.what == "SchemaOld"', set()),
    ],
)  # fmt: skip
def test_name_counts_where_a_test_expects_it_as_a_fault(text: str, named: set[str]) -> None:
    assert named_in(text, "test_it") == named


def test_missing_test_is_told() -> None:
    with pytest.raises(KeyError, match="test_gone"):
        named_in("", "test_gone")


NAMES = {"namespace": "ours", "installation": "live"}
FORBIDDEN, ABSENT = UnreadObject("403 Forbidden"), UnreadObject("404 NotFound", is_absent=True)
LEADS = LeaseTerm("live-1", 3.0, 15.0)


def told(
    run: PodCount | UnreadObject, janitor: PodCount | UnreadObject, term: LeaseTerm | UnreadObject
) -> list[tuple[str, FindingState, str]]:
    found = judge_running(RunningFacts({"live": run, "live-janitor": janitor}, term), NAMES)
    return [(one.where.split(" in ")[0], one.state, one.message) for one in found]


@pytest.mark.parametrize(
    ("program", "state", "message"),
    [
        (PodCount(2, 2), FindingState.GOOD, ""),
        (PodCount(2, 1), FindingState.GOOD, ""),
        (PodCount(2, 0), FindingState.FAULT, "0 of 2 Pods are ready"),
        (PodCount(0, 0), FindingState.WARNING, "it is scaled to 0"),
        (ABSENT, FindingState.FAULT, "there is none"),
        (FORBIDDEN, FindingState.NOT_CHECKED, "403 Forbidden"),
    ],
)
def test_program_is_judged_by_its_ready_pods(
    program: PodCount | UnreadObject, state: FindingState, message: str
) -> None:
    _, janitor, _ = told(PodCount(1, 1), program, LEADS)
    assert janitor == ("Deployment live-janitor", state, message)


def test_janitor_that_the_values_leave_out_is_not_missed() -> None:
    facts = RunningFacts({"live": PodCount(1, 1), "live-janitor": ABSENT}, LEADS)
    _, janitor, _ = judge_running(facts, NAMES, wants_janitor=False)
    assert (janitor.state, janitor.mend) == (FindingState.NOT_CHECKED, "")
    assert "janitor.enabled=false" in janitor.message
    there = RunningFacts({"live": PodCount(1, 1), "live-janitor": PodCount(1, 0)}, LEADS)
    assert [one.state for one in judge_running(there, NAMES, wants_janitor=False)][1] is FindingState.FAULT


def test_log_of_a_program_that_is_not_ready_is_the_next_step() -> None:
    """It names the database, the setting or the image. A description of the Deployment names none of them."""
    found = [*judge_running(RunningFacts({"live": PodCount(2, 0), "live-janitor": PodCount(1, 0)}, LEADS), NAMES)]
    log = "kubectl -n ours logs --prefix --tail=20 -l app.kubernetes.io/instance=live,app.kubernetes.io/component={}"
    assert [one.mend.partition("  #")[0] for one in found[:2]] == [log.format("run"), log.format("janitor")]
    (absent,) = [one for one in judge_running(RunningFacts({"live": PodCount(1, 1)}, ABSENT), NAMES) if one.mend]
    assert absent.mend == log.format("run"), "kubectl 1.31 has no --all-pods"


@pytest.mark.parametrize(
    ("term", "state", "message"),
    [
        (LEADS, FindingState.GOOD, ""),
        (LeaseTerm("live-1", 16.0, 15.0), FindingState.FAULT, "it was renewed 16 s ago, and counts for 15 s"),
        (LeaseTerm("", 1.0, 15.0), FindingState.FAULT, "it was renewed 1 s ago, and counts for 15 s"),
        (LeaseTerm("live-1", float("inf"), 15.0), FindingState.FAULT, "it was never renewed, and counts for 15 s"),
        (ABSENT, FindingState.FAULT, "there is none: no replica has led yet"),
        (FORBIDDEN, FindingState.NOT_CHECKED, "403 Forbidden"),
    ],
)
def test_leader_is_judged_by_its_lease(term: LeaseTerm | UnreadObject, state: FindingState, message: str) -> None:
    assert told(PodCount(1, 1), PodCount(1, 1), term)[2] == ("Lease live-leader", state, message)


def test_absent_lease_is_no_fault_for_a_reader_without_the_deployment() -> None:
    assert told(FORBIDDEN, FORBIDDEN, ABSENT)[2] == ("Lease live-leader", FindingState.NOT_CHECKED, "404 NotFound")
    assert told(FORBIDDEN, FORBIDDEN, LeaseTerm("live-1", 99.0, 15.0))[2][1] is FindingState.FAULT


def test_programs_that_run_elsewhere_or_were_stopped_are_not_judged_further() -> None:
    assert told(ABSENT, ABSENT, ABSENT) == []
    assert told(PodCount(0, 0), ABSENT, ABSENT) == [("Deployment live", FindingState.WARNING, "it is scaled to 0")]


@pytest.mark.parametrize(
    ("keepers", "state", "message"),
    [
        (PodCount(3, 3), FindingState.GOOD, ""),
        (PodCount(0, 0), FindingState.GOOD, ""),
        (PodCount(3, 2), FindingState.FAULT, "2 of 3 Pods are ready"),
        (ABSENT, FindingState.WARNING, "there is none: nobody removes cache directories"),
        (FORBIDDEN, FindingState.NOT_CHECKED, "403 Forbidden"),
    ],
)
def test_keepers_are_judged_by_their_ready_pods(
    keepers: PodCount | UnreadObject, state: FindingState, message: str
) -> None:
    (found, disks) = judge_caches(CacheFacts(keepers, {}), NAMES)
    assert (found.what, found.state, found.message) == ("CacheKeeperAbsent", state, message)
    assert found.where == "DaemonSet live-cache-keeper in namespace ours"
    assert (disks.what, disks.state) == ("CacheDiskFull", FindingState.GOOD)


def test_each_full_disk_is_a_fault_with_the_words_of_its_event() -> None:
    _, *found = judge_caches(CacheFacts(PodCount(1, 1), {"b": "full of logs", "a": "full"}), NAMES)
    assert [(one.where, one.state, one.message) for one in found] == [
        ("node a", FindingState.FAULT, "full"), ("node b", FindingState.FAULT, "full of logs"),
    ]  # fmt: skip
    assert ["spec.nodeName=a " in one.mend for one in found] == [True, False], "the keeper of the node is asked"
    _, unread = judge_caches(CacheFacts(PodCount(1, 1), FORBIDDEN), NAMES)
    assert (unread.what, unread.state) == ("CacheDiskFull", FindingState.NOT_CHECKED)


def test_caches_need_more_verbs() -> None:
    without, with_caches = (
        InstallationSite("live", "ours", "jobs"),
        InstallationSite("live", "ours", "jobs", has_caches=True),
    )
    more = {*verbs_of(RUN, with_caches)} - {*verbs_of(RUN, without)}
    assert {(one.namespace, str(one)) for one in more} == {("ours", "list configmaps"), ("ours", "watch configmaps")}
    asked = {(one.namespace, str(one)) for one in verbs_of(CACHE_KEEPER, with_caches)}
    assert ("default", "create events") in asked
    assert ("ours", "get configmaps live-cache-orders") in asked


TASKS, SECRETS, VIEW = "dispatch_private.tasks", "dispatch_private.secrets", "dispatch.tasks"
CALL = "dispatch_private.in_view(dispatch_private.tasks)"


def of_login(**changes: Any) -> list[Finding]:
    return [one for one in judge_login(replace(LOGIN, **changes), "work") if one.state is FindingState.FAULT]


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


def test_role_that_says_how_a_login_proves_itself_is_no_fault() -> None:
    """Revoked, as the doctor would say, the managed server refuses the login."""
    assert of_login(groups=(Membership(READER, True), Membership("rds_iam", True))) == []


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
    assert told(replace(OF_JANITOR, group=READER)) == [
        ("LoginGroups", "it is not a member of dispatch_reader"),
        ("LoginGroups", "it is also a member of dispatch_janitor"),
    ]
    fewer = tuple(one for one in OF_JANITOR.grants if one.name != "dispatch_private.janitor_tell(jsonb)")
    assert told(replace(OF_JANITOR, grants=fewer)) == [("MissingRight", "dispatch_janitor lacks EXECUTE")]
    more = Grant("relation", SECRETS, "start_inner", ROLE_OF_JANITOR, "SELECT")
    assert told(replace(OF_JANITOR, grants=(*OF_JANITOR.grants, more))) == [
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
        (ForeignRight(True, "function f()", "DROP FUNCTION f()"), "it owns function f()", "DROP FUNCTION f()"),
        (ForeignRight(False, "table x", "REVOKE ALL ON public.x FROM r"), "it has rights on table x",
         "REVOKE ALL ON public.x FROM r"),
        (ForeignRight(False, "default privileges", None), "it has rights on default privileges", r"\ddp"),
    ],
)  # fmt: skip
def test_right_elsewhere_is_named_with_a_command_for_it(elsewhere: ForeignRight, message: str, statement: str) -> None:
    (found,) = of_login(elsewhere=(elsewhere,))
    assert (found.what, found.message) == ("RightElsewhere", message)
    assert found.mend == f"psql work -c '{statement}'  # look at the object first"


@pytest.mark.parametrize("mend", ["DROP TABLE x\ny", "DROP TABLE " + "x" * 2000])
def test_command_with_a_name_that_cannot_be_shown_is_left_out(mend: str) -> None:
    """A command that is cut, or has another character in a name, could do something else."""
    (found,) = of_login(elsewhere=(ForeignRight(True, "table", mend),))
    assert found.mend == "psql  # no command is shown: a name has control characters, or is too long"
