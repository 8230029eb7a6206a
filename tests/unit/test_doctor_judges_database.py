"""The judgement of the database, its plans and the clocks, without a database."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dispatcher.doctor.check import Part
from dispatcher.doctor.checks import CHECKS
from dispatcher.doctor.clocks import Clocks, judge_clocks
from dispatcher.doctor.database import (
    Facts,
    Function,
    Limit,
    Migration,
    Schema,
    Server,
    judge_database,
    judge_refusal,
    judge_schema,
    wanted_indexes,
)
from dispatcher.doctor.finding import State, fault, ident, line, signature, warning
from dispatcher.doctor.group_rights import READER, ROLE_OF_JANITOR
from dispatcher.doctor.installation import Installation
from dispatcher.doctor.plans import OF_JANITOR, OF_RUN, ONE_ROW, judge_plans
from dispatcher.doctor.rights import Grant, judge_login
from tests.unit.logins import GRANTS, LOGIN

SQL = Path(__file__).parents[2] / "sql"
KNOWN = (Migration(1, "0001_pre_tables.sql", "a"), Migration(2, "0002_pre_more.sql", "b"))
STATEMENTS = {"tasks_ready": "CREATE INDEX tasks_ready ON dispatch.tasks (id)"}
DEFINER = Function("f()", True, ("search_path=pg_catalog, pg_temp",))
SCHEMA = Schema(
    "dispatch_owner", KNOWN, KNOWN, STATEMENTS, {"tasks_ready": True}, (DEFINER, Function("g()", False, ()))
)
SERVER = Server("work", 150_004, "pg_catalog, pg_temp", (Limit("server", "max_connections", 97, 10),), 0.0)
PLAN = {"Node Type": "Limit", "Plans": [{"Node Type": "Index Scan", "Index Name": "tasks_pkey"}]}
FACTS = Facts(SERVER, LOGIN, SCHEMA, {"queries/tasks": PLAN})


def faults(facts: Facts) -> list[tuple[str, str]]:
    return [(one.what, one.where) for one in judge_database(facts) if one.state is State.FAULT]


def changed(what: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(what, **changes)


def test_healthy_database_has_only_good_findings() -> None:
    assert {one.state for one in judge_database(FACTS)} == {State.GOOD}


@pytest.mark.parametrize(
    ("server", "what"),
    [
        ({"version": 140_010}, "PostgresTooOld"),
        ({"search_path": '"$user", public'}, "SearchPath"),
        ({"queue_usage": 0.4}, "NotifyQueue"),
        ({"limits": (Limit("server", "max_connections", 97, 95),)}, "ConnectionRoom"),
        ({"limits": (Limit("database", "work", 10, 9),)}, "ConnectionRoom"),
        ({"limits": (Limit("login", "o'neill", 10, 9),)}, "ConnectionRoom"),
    ],
)
def test_fault_of_the_server_is_named(server: dict[str, Any], what: str) -> None:
    assert [found for found, _ in faults(changed(FACTS, server=changed(SERVER, **server)))] == [what]


def test_limit_below_zero_is_no_limit() -> None:
    assert faults(changed(FACTS, server=changed(SERVER, limits=(Limit("login", "reader", -1, 400),)))) == []


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"owner": "team_a"}, [("SchemaOwner", "schema dispatch")]),
        ({"owner": None, "applied": ()}, [("SchemaOld", "table dispatch.schema_version")]),
        ({"applied": KNOWN[:1]}, [("SchemaOld", "table dispatch.schema_version")]),
        ({"applied": (KNOWN[0], Migration(2, "b", "x"))}, [("SchemaChanged", "table dispatch.schema_version")]),
        ({"indexes": {}}, [("IndexMissing", "index dispatch.tasks_ready")]),
        ({"indexes": {"tasks_ready": False}}, [("IndexInvalid", "index dispatch.tasks_ready")]),
        ({"functions": (Function("f()", True, ("lock_timeout=3s",)),)}, [("SearchPath", "function dispatch.f()")]),
        ({"functions": (Function("f()", True, ("search_path=public",)),)}, [("SearchPath", "function dispatch.f()")]),
        ({"applied": (*KNOWN, Migration(3, "c", "c")), "indexes": {}}, []),
        ({"applied": None}, []),
    ],
)
def test_fault_of_the_schema_is_named_alone(schema: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert faults(changed(FACTS, schema=changed(SCHEMA, **schema))) == expected


def test_migrations_that_may_not_be_read_are_not_checked() -> None:
    (found,) = judge_schema(changed(SCHEMA, applied=None), "work")
    assert (found.what, found.state) == ("SchemaOld", State.NOT_CHECKED)


def test_plan_that_reads_a_table_or_uses_no_index_is_named() -> None:
    scan = {"Node Type": "Seq Scan", "Relation Name": "tasks"}
    both = PLAN | {"Plans": [scan, *PLAN["Plans"]]}
    plans: dict[str, Any] = {"queries/tasks": scan, "queries/contenders": both, "queries/frame": "denied"}
    told = {one.where: (one.state, one.message) for one in judge_plans(READER, plans, {"tasks": 1000}, "work")}
    assert told == {
        "sql/queries/tasks.sql": (State.FAULT, "its plan does not use tasks_pkey and reads all of tasks"),
        "sql/queries/contenders.sql": (State.FAULT, "its plan reads all of tasks"),
        "sql/queries/frame.sql": (State.NOT_CHECKED, "denied"),
    }


def test_any_index_is_right_for_a_small_table() -> None:
    plans: dict[str, Any] = {"janitor/with_cause": PLAN}

    def told(pages: dict[str, int]) -> list[State]:
        return [one.state for one in judge_plans(ROLE_OF_JANITOR, plans, pages, "work")]

    assert told({"tasks": 1000, "task_launches": 100}) == [State.GOOD]
    assert told({"tasks": 0, "task_launches": 101}) == [State.FAULT]
    assert told({}) == [State.GOOD]


def test_every_query_is_judged_or_reads_one_row() -> None:
    """The janitor's other statements call functions, or read all rows of a small table."""
    files = {f"queries/{file.stem}" for file in (SQL / "queries").glob("*.sql")}
    assert set(OF_RUN) | ONE_ROW == files
    calls = {"cancel", "delete", "end", "ended", "return", "tell", "templates"}
    asked = {f"janitor/{file.stem}" for file in (SQL / "janitor").glob("*.sql") if file.stem not in calls}
    assert set(OF_JANITOR) - set(OF_RUN) == asked - {"janitor/told"}


def test_indexes_are_read_from_migrations_with_the_newest_definition() -> None:
    first = "CREATE INDEX a ON tasks (id)\n    WHERE status = 'waiting';\nCREATE UNIQUE INDEX b ON tasks (x);\n"
    found = wanted_indexes(
        [first, "DROP INDEX dispatch.b;\nCREATE UNIQUE INDEX b ON dispatch.tasks (y);\n"],
        ["-- Why.\nADD CONSTRAINT tasks_pkey PRIMARY KEY (id)\n"],
    )
    assert found == {
        "tasks_pkey": "ADD CONSTRAINT tasks_pkey PRIMARY KEY (id)",
        "a": "CREATE INDEX a ON dispatch.tasks (id) WHERE status = 'waiting'",
        "b": "CREATE UNIQUE INDEX b ON dispatch.tasks (y)",
    }


def test_renamed_index_is_wanted_by_its_new_name() -> None:
    found = wanted_indexes(["CREATE UNIQUE INDEX a ON tasks (id);\n", "ALTER INDEX dispatch.a RENAME TO b;\n"], [])
    assert found == {"b": "CREATE UNIQUE INDEX b ON dispatch.tasks (id)"}


def test_command_for_an_index_quotes_its_condition_for_the_shell() -> None:
    schema = changed(SCHEMA, indexes={}, wanted_indexes={"a": "CREATE INDEX a ON dispatch.tasks (id) WHERE s = 'w'"})
    (found,) = [one for one in judge_database(changed(FACTS, schema=schema)) if one.state is State.FAULT]
    assert found.mend.endswith(r"-c 'CREATE INDEX a ON dispatch.tasks (id) WHERE s = '\''w'\'''")


@pytest.mark.parametrize("what", ["ConnectionRoom", "DatabaseAway", "DatabaseNotPrimary", "LoginRefused"])
def test_database_without_a_connection_is_one_fault(what: str) -> None:
    found = judge_refusal(what, "why", Installation("ours"))
    assert (found.what, found.state, found.message) == (what, State.FAULT, "why")


@pytest.mark.parametrize(
    ("clocks", "wrong"),
    [
        (Clocks(0.4, -1.0), []),
        (Clocks(None, None), []),
        (Clocks(-60.0, 0.5), [("clock of database", "60 s behind", Part.DATABASE)]),
        (Clocks(1.0, 60.0), [("clock of API server", "60 s ahead", Part.CLUSTER)]),
        (Clocks(60.0, None), [("clock of database", "60 s ahead", Part.DATABASE)]),
        (Clocks(-60.0, -61.0), [("clock of this machine", "60 s ahead", Part.DATABASE)]),
        (
            Clocks(60.0, -60.0),
            [("clock of database", "60 s ahead", Part.DATABASE), ("clock of API server", "60 s behind", Part.CLUSTER)],
        ),
    ],
)
def test_wrong_clock_is_told_from_the_right_ones(clocks: Clocks, wrong: list[tuple[str, str, Part]]) -> None:
    found = [one for one in judge_clocks(clocks) if one.state is State.FAULT]
    assert [(one.where, one.message, one.part) for one in found] == wrong


def test_words_of_others_are_cut_and_stay_on_one_line() -> None:
    assert line("a\nb\x1b[0m") == "a b\N{REPLACEMENT CHARACTER}[0m"
    assert len(line("x" * 5000)) == 1001


def test_names_are_quoted_for_sql_and_shell() -> None:
    assert ident("team_a") == "team_a"
    assert ident('O\'Neill "x"') == '"O\'\\\'\'Neill ""x"""'
    found = fault("NamespaceMissing", "namespace", "gone", namespace="a; rm -rf x")
    assert found.mend == "kubectl create namespace 'a; rm -rf x'"


def test_name_of_a_function_brings_no_sql_of_its_own_into_a_command() -> None:
    assert signature("task_start(bigint, uuid[])") == "task_start(bigint, uuid[])"
    evil = 'x() RESET ALL; DROP TABLE t; --"()'
    assert signature(evil) == '"x() RESET ALL; DROP TABLE t; --""()"'
    functions = (Function(evil, True, ()),)
    (found,) = [
        one
        for one in judge_database(changed(FACTS, schema=changed(SCHEMA, functions=functions)))
        if one.state is State.FAULT
    ]
    assert "-c 'ALTER FUNCTION dispatch.\"x() RESET ALL;" in found.mend
    granted = (*GRANTS, Grant("function", evil, "", "reader", "EXECUTE"))
    (found,) = [one for one in judge_login(changed(LOGIN, grants=granted), "work") if one.state is State.FAULT]
    assert 'REVOKE EXECUTE ON FUNCTION dispatch."x() RESET ALL;' in found.mend


def test_warning_has_the_command_of_its_check() -> None:
    found = warning("JobControllerSlow", "Jobs", "slow")
    assert (found.state, found.mend, found.part) == (
        State.WARNING,
        CHECKS["JobControllerSlow"].mend,
        Part.CLUSTER,
    )
