"""The judgement of the database, its plans and the clocks, without a database."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dispatcher.doctor.checks import CHECKS, Part
from dispatcher.doctor.database import (
    Clocks,
    DatabaseFacts,
    GroupLogin,
    HeldSnapshot,
    Limit,
    MigrationState,
    MissingRole,
    PreparedTransaction,
    Schema,
    Server,
    Upkeep,
    judge_clocks,
    judge_database,
    judge_refusal,
    judge_schema,
    judge_server,
    judge_upkeep,
)
from dispatcher.doctor.finding import (
    FindingState,
    Installation,
    fault,
    ident,
    line,
    relation,
    shell,
    signature,
    warning,
)
from dispatcher.doctor.schema import (
    AGAIN,
    OF_JANITOR,
    OF_RUN,
    ONE_ROW,
    READER,
    ROLE_OF_JANITOR,
    Grant,
    Objects,
    indexes_of,
    judge_login,
    judge_objects,
    judge_plans,
    rights_of,
)
from dispatcher.pg.queries import blocks
from tests.rig.statements import OF_READER
from tests.unit.logins import GRANTS, LOGIN

KNOWN = (MigrationState(1, "0001_pre_tables.sql", "a"), MigrationState(2, "0002_pre_more.sql", "b"))
FILES = {"functions/01_texts.sql": "a", "functions/02_keys.sql": "b"}
READY = "dispatch_private.tasks_ready"
INDEX = {"body": "CREATE INDEX tasks_ready ON dispatch_private.tasks (id)", "is valid": "true"}
OBJECTS = {
    f"index {READY}": INDEX,
    "function dispatch.f(text)": {
        "body": "1", "settings": "{a=1}", "right of dispatch_task: EXECUTE": "", "owner": "dispatch_owner",
    },
    "table dispatch_private.tasks": {
        "row security": "on", "constraint tasks_pkey": "PRIMARY KEY (id)", "policy programs": "to {a}: true; ",
        "right of dispatch_reader: SELECT (id)": "", "trigger guard": "on, BEFORE UPDATE", "column id": "bigint",
        "survives a crash": "yes",
    },
}  # fmt: skip
SCHEMA = Schema(
    {"dispatch": "dispatch_owner", "dispatch_private": "dispatch_owner"}, KNOWN, KNOWN, FILES, FILES, OBJECTS, OBJECTS
)
SERVER = Server("work", 150_004, "pg_catalog, pg_temp", (Limit("server", "max_connections", 97, 10),), 0.0, "UTF8")
VERSIONS = "view dispatch.schema_version"
APPLIED = "table dispatch_private.applied_functions"
PLAN = {"Node Type": "Limit", "Plans": [{"Node Type": "Index Scan", "Index Name": "tasks_pkey"}]}
NOW = datetime(2026, 11, 26, tzinfo=UTC)
MEMBERS = (GroupLogin("task", None, ()), GroupLogin("other", NOW + timedelta(days=31), ()))
UPKEEP = Upkeep(NOW, True, members=MEMBERS, last_id=9, largest_id=7)
FACTS = DatabaseFacts(SERVER, LOGIN, SCHEMA, UPKEEP, {"cycle/tasks": PLAN})
TABLE, FUNCTION = "table dispatch_private.tasks", "function dispatch.f(text)"


def with_fact(one: str, fact: str, value: str | None) -> dict[str, dict[str, str]]:
    """The objects with one fact that is another one, or is missing."""
    facts = {name: known for name, known in OBJECTS[one].items() if name != fact}
    return OBJECTS | {one: facts if value is None else facts | {fact: value}}


def faults(facts: DatabaseFacts) -> list[tuple[str, str]]:
    return [(one.what, one.where) for one in judge_database(facts) if one.state is FindingState.FAULT]


def test_healthy_database_has_only_good_findings() -> None:
    assert {one.state for one in judge_database(FACTS)} == {FindingState.GOOD}


@pytest.mark.parametrize(
    ("server", "what"),
    [
        ({"version": 140_010}, "PostgresTooOld"),
        ({"encoding": "SQL_ASCII"}, "DatabaseEncoding"),
        ({"collation_made": "2.28", "collation_now": "2.36"}, "CollationChanged"),
        ({"collation_made": "2.28"}, "CollationChanged"),
        ({"search_path": '"$user", public'}, "SearchPath"),
        ({"queue_usage": 0.4}, "NotifyQueue"),
        ({"limits": (Limit("server", "max_connections", 97, 95),)}, "ConnectionRoom"),
        ({"limits": (Limit("database", "work", 10, 9),)}, "ConnectionRoom"),
        ({"limits": (Limit("login", "o'neill", 10, 9),)}, "ConnectionRoom"),
    ],
)
def test_fault_of_the_server_is_named(server: dict[str, Any], what: str) -> None:
    assert [found for found, _ in faults(replace(FACTS, server=replace(SERVER, **server)))] == [what]


def test_limit_below_zero_is_no_limit() -> None:
    assert faults(replace(FACTS, server=replace(SERVER, limits=(Limit("login", "reader", -1, 400),)))) == []


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"owners": {"dispatch": "team_a"}}, [("SchemaOwner", "schema dispatch")]),
        (
            {"owners": {"dispatch": "dispatch_owner", "dispatch_private": "team_a"}},
            [("SchemaOwner", "schema dispatch_private")],
        ),
        (
            {"owners": {"dispatch": "postgres", "dispatch_private": "postgres"}},
            [("RestoredWithoutRoles", "schemas dispatch, dispatch_private")],
        ),
        ({"owners": {}, "applied": (), "applied_functions": {}}, [("SchemaOld", VERSIONS)]),
        ({"applied": KNOWN[:1], "applied_functions": {}}, [("SchemaOld", VERSIONS)]),
        ({"applied": (KNOWN[0], MigrationState(2, "b", "x"))}, [("SchemaChanged", VERSIONS)]),
        ({"applied_functions": FILES | {"functions/02_keys.sql": "x"}}, [("SchemaOld", APPLIED)]),
        ({"applied_functions": {"functions/01_texts.sql": "a"}}, [("SchemaOld", APPLIED)]),
        ({"applied_functions": FILES | {"03_more.sql": "c"}}, [("SchemaOld", APPLIED)]),
        (
            {"objects": OBJECTS | {f"index {READY}": INDEX | {"is valid": "false"}}},
            [("IndexInvalid", f"index {READY}")],
        ),
        ({"objects": {TABLE: OBJECTS[TABLE], FUNCTION: OBJECTS[FUNCTION]}}, [("IndexMissing", f"index {READY}")]),
        ({"objects": OBJECTS | {"index dispatch_private.of_the_dba": INDEX}}, []),
        ({"applied": (*KNOWN, MigrationState(3, "c", "c")), "applied_functions": {}, "objects": {}}, []),
        ({"applied": None}, []),
        ({"applied_functions": None}, []),
    ],
)
def test_fault_of_the_schema_is_named_alone(schema: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert faults(replace(FACTS, schema=replace(SCHEMA, **schema))) == expected


@pytest.mark.parametrize(("what", "where"), [("applied", VERSIONS), ("applied_functions", APPLIED)])
def test_versions_that_may_not_be_read_are_not_checked(what: str, where: str) -> None:
    found = [one for one in judge_schema(replace(SCHEMA, **{what: None}), "work") if one.state is not FindingState.GOOD]
    assert [(one.what, one.where, one.state) for one in found] == [("SchemaOld", where, FindingState.NOT_CHECKED)]


def test_each_schema_of_another_owner_has_its_command() -> None:
    schema = replace(SCHEMA, owners={"dispatch": "team_a", "dispatch_private": "team_b"})
    assert [one.mend for one in judge_schema(schema, "work")] == [
        f"psql work -c 'ALTER SCHEMA {name} OWNER TO dispatch_owner'" for name in ("dispatch", "dispatch_private")
    ]


def test_files_of_functions_that_differ_are_named() -> None:
    schema = replace(SCHEMA, applied_functions=FILES | {"functions/01_texts.sql": "x", "reasons": "c"})
    (found,) = [one for one in judge_schema(schema, "work") if one.state is FindingState.FAULT]
    assert found.message == "not those of this version: functions/01_texts.sql, reasons"
    assert found.mend.endswith(" dispatcher migrate")


def test_files_of_functions_of_a_newer_schema_are_not_judged() -> None:
    schema = replace(SCHEMA, applied=(*KNOWN, MigrationState(3, "c", "c")), applied_functions={})
    assert [one.state for one in judge_schema(schema, "work") if one.where == APPLIED] == [FindingState.NOT_CHECKED]


OFF = "trigger guard is off, BEFORE UPDATE, not on, BEFORE UPDATE"
LATE = "trigger guard is on, AFTER UPDATE, not on, BEFORE UPDATE"
OF_TASK = "right of dispatch_task: EXECUTE"


@pytest.mark.parametrize(
    ("objects", "message", "statement"),
    [
        (with_fact(TABLE, "row security", "off"), "row security is off, not on",
         "ALTER TABLE dispatch_private.tasks ENABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY"),
        (with_fact(TABLE, "survives a crash", "no"), "survives a crash is no, not yes",
         "ALTER TABLE dispatch_private.tasks SET LOGGED"),
        (with_fact(TABLE, "rule gone", "CREATE RULE …"), "rule gone is too much",
         "DROP RULE gone ON dispatch_private.tasks"),
        (with_fact(TABLE, "policy every", "to {PUBLIC}: true; "), "policy every is too much",
         "DROP POLICY every ON dispatch_private.tasks"),
        (with_fact(TABLE, "policy programs", None), "policy programs is missing", r"\d+ dispatch_private.tasks"),
        (with_fact(TABLE, "trigger guard", "off, BEFORE UPDATE"), OFF,
         "ALTER TABLE dispatch_private.tasks ENABLE TRIGGER guard"),
        (with_fact(TABLE, "trigger guard", "on, AFTER UPDATE"), LATE, AGAIN),
        (with_fact(TABLE, "right of bi: SELECT (id)", ""), "right of bi: SELECT (id) is too much",
         "REVOKE SELECT (id) ON dispatch_private.tasks FROM bi"),
        (with_fact(FUNCTION, "right of PUBLIC: EXECUTE", ""), "right of PUBLIC: EXECUTE is too much",
         "REVOKE EXECUTE ON FUNCTION dispatch.f(text) FROM PUBLIC"),
        (with_fact(FUNCTION, OF_TASK, None), f"{OF_TASK} is missing", AGAIN),
        (with_fact(FUNCTION, "owner", "team_a"), "owner is team_a, not dispatch_owner",
         "ALTER FUNCTION dispatch.f(text) OWNER TO dispatch_owner"),
        (with_fact(FUNCTION, "body", "2"), "its body is another one", AGAIN),
        (with_fact(FUNCTION, "settings", "{}"), "settings is {}, not {a=1}", AGAIN),
        ({TABLE: OBJECTS[TABLE]}, "it is missing", AGAIN),
    ],
)  # fmt: skip
def test_changed_object_is_named_with_a_command_for_it(objects: Objects, message: str, statement: str) -> None:
    (found,) = judge_objects(OBJECTS, objects, {"dispatch_reader"}, "work")
    assert (found.what, found.state, found.message) == ("ObjectChanged", FindingState.FAULT, message)
    assert found.mend == f"psql work -c '{shell(statement)}'  # then: dispatcher migrate"


def test_rights_that_other_checks_compare_and_triggers_of_others_are_no_difference() -> None:
    for fact in ("right of dispatch_reader: SELECT (id)", "right of dispatch_reader: DELETE", "trigger audit"):
        objects = with_fact(TABLE, fact, None if fact in OBJECTS[TABLE] else "on, AFTER UPDATE")
        assert list(judge_objects(OBJECTS, objects, {"dispatch_reader"}, "work")) == []


def test_object_that_this_version_does_not_make_is_named() -> None:
    (found,) = judge_objects(OBJECTS, OBJECTS | {"function dispatch.g()": {"body": "x"}}, set(), "work")
    assert (found.what, found.where, found.state) == ("ObjectUnknown", "function dispatch.g()", FindingState.FAULT)


def test_rights_are_read_from_the_objects() -> None:
    assert rights_of("dispatch_reader", OBJECTS) == {("relation", "dispatch_private.tasks", "id", "SELECT")}
    assert rights_of("dispatch_task", OBJECTS) == {("function", "dispatch.f(text)", "", "EXECUTE")}


SOON = NOW + timedelta(days=29)


@pytest.mark.parametrize(
    ("upkeep", "what", "state", "words"),
    [
        ({"autovacuum": False}, "AutovacuumOff", FindingState.FAULT, "ALTER SYSTEM SET autovacuum = on"),
        ({"last_id": 6}, "SequenceBehind", FindingState.FAULT, "max(id)"),
        ({"last_id": None}, "SequenceBehind", FindingState.FAULT, "max(id)"),
        ({"members": (GroupLogin("task", SOON, ()),)}, "PasswordEnds", FindingState.WARNING,
         "ALTER ROLE task VALID UNTIL"),
        ({"members": (GroupLogin("task", None, ("log_statement=all",)),)}, "LoginTalks", FindingState.FAULT,
         "task RESET log_st"),
        ({"members": (GroupLogin("task", None, ('IN DATABASE "d b" log_statement=all',)),)}, "LoginTalks",
         FindingState.FAULT,
         'ALTER ROLE task IN DATABASE "d b" RESET log_statement'),
        ({"gone": (MissingRole("queue q", "owner_role x is gone", "UPDATE q"),)}, "RoleGone", FindingState.WARNING,
         "-c 'UPDATE q'"),
        ({"snapshots": (HeldSnapshot(47, "team_a", 300, "pg_terminate_backend(47)", 90_000),)}, "OldSnapshot",
         FindingState.WARNING, "SELECT pg_terminate_backend(47)"),
        ({"prepared": (PreparedTransaction("x'; DROP", "a", NOW),)}, "PreparedTransaction", FindingState.WARNING,
         shell("'x''; DROP'")),
    ],
)  # fmt: skip
def test_each_fault_of_upkeep_is_named_with_its_mend(
    upkeep: dict[str, Any], what: str, state: FindingState, words: str
) -> None:
    (found,) = [one for one in judge_upkeep(replace(UPKEEP, **upkeep), "work") if one.state is not FindingState.GOOD]
    assert (found.what, found.state) == (what, state)
    assert words in found.mend


def test_empty_database_is_not_behind_its_sequence() -> None:
    empty = replace(UPKEEP, last_id=None, largest_id=None)
    assert {one.state for one in judge_upkeep(empty, "work")} == {FindingState.GOOD}


def test_database_of_another_encoding_has_the_command_that_makes_a_new_one() -> None:
    server = replace(SERVER, database="Work", encoding="LATIN1")
    (found,) = [one for one in judge_server(server, "reader") if one.state is FindingState.FAULT]
    assert found.message == "its encoding is LATIN1"
    assert found.mend.startswith("""psql Work -c 'CREATE DATABASE "Work_utf8" ENCODING UTF8 TEMPLATE template0'""")


def test_plan_that_reads_a_table_or_uses_no_index_is_named() -> None:
    scan = {"Node Type": "Seq Scan", "Relation Name": "tasks"}
    both = PLAN | {"Plans": [scan, *PLAN["Plans"]]}
    plans: dict[str, Any] = {"cycle/tasks": scan, "cycle/contenders": both, "cycle/frame": "denied"}
    told = {
        one.where: (one.state, one.message)
        for one in judge_plans(READER, plans, {"tasks": 1000}, {"tasks_pkey"}, "work")
    }
    assert told == {
        "query tasks in sql/queries/cycle.sql": (
            FindingState.FAULT,
            "its plan does not use tasks_pkey and reads all of tasks",
        ),
        "query contenders in sql/queries/cycle.sql": (FindingState.FAULT, "its plan reads all of tasks"),
        "query frame in sql/queries/cycle.sql": (FindingState.NOT_CHECKED, "denied"),
    }


def test_any_index_is_right_for_a_small_table() -> None:
    plans: dict[str, Any] = {"janitor/with_cause": PLAN}

    def told(pages: dict[str, int], others: frozenset[str] = frozenset({"task_launches_pkey"})) -> list[FindingState]:
        return [one.state for one in judge_plans(ROLE_OF_JANITOR, plans, pages, others, "work")]

    assert told({"tasks": 1000, "task_launches": 100}) == [FindingState.GOOD]
    assert told({"tasks": 0, "task_launches": 101}) == [FindingState.FAULT]
    assert told({}) == [FindingState.GOOD]
    assert told({"task_launches": 101}, frozenset()) == [FindingState.GOOD], "the statistics choose another one"


def test_every_query_is_judged_or_reads_one_row() -> None:
    """The janitor's other statements call functions, read all rows of a small table, or no table."""
    assert set(OF_RUN) | ONE_ROW == {f"{file}/{block}" for file in {*OF_READER.values()} for block in blocks(file)}
    calls = {"cancel", "delete", "end", "ended", "return", "tell", "templates"}
    assert set(OF_JANITOR) - set(OF_RUN) == {
        f"janitor/{block}" for block in blocks("janitor").keys() - calls - {"told", "oldest_snapshot"}
    }


def test_index_of_a_constraint_is_made_with_it() -> None:
    key = {"index dispatch_private.tasks_pkey": {"body": "CREATE UNIQUE INDEX …"}}
    assert indexes_of(OBJECTS | key) == {
        READY: INDEX["body"],
        "dispatch_private.tasks_pkey": "ALTER TABLE dispatch_private.tasks ADD CONSTRAINT tasks_pkey PRIMARY KEY (id)",
    }


def test_command_for_an_index_quotes_its_condition_for_the_shell() -> None:
    made = "CREATE INDEX a ON dispatch_private.tasks (id) WHERE s = 'w'"
    schema = replace(SCHEMA, objects={}, wanted={"index dispatch_private.a": {"body": made}})
    (found,) = [one for one in judge_database(replace(FACTS, schema=schema)) if one.state is FindingState.FAULT]
    assert found.mend.endswith(r"-c 'CREATE INDEX a ON dispatch_private.tasks (id) WHERE s = '\''w'\'''")


@pytest.mark.parametrize("what", ["ConnectionRoom", "DatabaseAway", "DatabaseNotPrimary", "LoginRefused"])
def test_database_without_a_connection_is_one_fault(what: str) -> None:
    found = judge_refusal(what, "why", Installation("ours"))
    assert (found.what, found.state, found.message) == (what, FindingState.FAULT, "why")


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
    found = [one for one in judge_clocks(clocks) if one.state is FindingState.FAULT]
    assert [(one.where, one.message, one.part) for one in found] == wrong


def test_words_of_others_are_cut_and_stay_on_one_line() -> None:
    assert line("a\nb\x1b[0m") == "a b\N{REPLACEMENT CHARACTER}[0m"
    assert len(line("x" * 5000)) == 1001


def test_names_are_quoted_for_sql_and_shell() -> None:
    assert ident("team_a") == "team_a"
    assert relation('dispatch.My "t"') == 'dispatch."My ""t"""'
    assert ident('O\'Neill "x"') == '"O\'\\\'\'Neill ""x"""'
    found = fault("NamespaceMissing", "namespace", "gone", namespace="a; rm -rf x")
    assert found.mend == "kubectl create namespace 'a; rm -rf x'"


def test_name_of_a_function_brings_no_sql_of_its_own_into_a_command() -> None:
    plain = "dispatch.f(bigint, uuid[], dispatch_private.tasks)"
    assert signature(plain) == plain
    evil = 'dispatch.x() RESET ALL; DROP TABLE t; --"()'
    assert signature(evil) == 'dispatch."x() RESET ALL; DROP TABLE t; --""()"'
    objects = {f"function {evil}": {"right of team_a: EXECUTE": ""}}
    (taken,) = judge_objects({f"function {evil}": {}}, objects, set(), "work")
    assert "-c 'REVOKE EXECUTE ON FUNCTION dispatch.\"x() RESET ALL;" in taken.mend
    granted = (*GRANTS, Grant("function", evil, "", "reader", "EXECUTE"))
    (extra,) = [one for one in judge_login(replace(LOGIN, grants=granted), "work") if one.state is FindingState.FAULT]
    assert 'REVOKE EXECUTE ON FUNCTION dispatch."x() RESET ALL;' in extra.mend


def test_warning_has_the_command_of_its_check() -> None:
    found = warning("JobControllerSlow", "Jobs", "slow")
    assert (found.state, found.mend, found.part) == (
        FindingState.WARNING,
        CHECKS["JobControllerSlow"].mend,
        Part.CLUSTER,
    )
