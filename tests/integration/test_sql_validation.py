"""Values of an INSERT: both sides of every limit. A refusal names the column, and shows names and numbers alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from tests.rig.postgres import Connection, Database, PostgresServer

SECRET = "s3cret-marker-7f1d"
VALUE_LIMIT, ENV_LIMIT, PAYLOAD_LIMIT = 32 * 1024, 128 * 1024, 1024 * 1024
INFINITY, MINUS_INFINITY = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)  # as asyncpg writes them

CONTRACT = [
    *("TASK_ID", "TASK_QUEUE", "TASK_ATTEMPT", "TASK_LAUNCH", "TASK_START_KEY", "TASK_TIMEOUT_SECONDS"),
    *("TASK_CACHE_DIR", "NODE_NAME", "POD_NAME", "POD_NAMESPACE", "JOB_UID"),
]
CLOSED = ["TASK_", "TASK_X", "DISPATCHER_X", "KUBERNETES_SERVICE_HOST", "LD_PRELOAD"]
BAD_NAMES = ["", "1A", "A-B", "A.B", "A B", " A", "A=B", "A\nB", "A\n", "\nA", "Ä", "A$", "A\u200b"]

BAD_ENV: list[tuple[str, object]] = [
    *((f"the name {name!r}", {name: SECRET}) for name in [*BAD_NAMES, *CLOSED, *CONTRACT]),
    ("a name that holds a secret", {f"A={SECRET}": "x"}),
    ("a list", [SECRET]),
    ("a string", SECRET),
    ("a number as value", {"A": 5, "B": SECRET}),
    ("true as value", {"A": True, "B": SECRET}),
    ("null as value", {"A": None, "B": SECRET}),
    ("an object as value", {"A": {"B": SECRET}}),
    ("a list as value", {"A": [SECRET]}),
    ("65 names", {f"A{n}": SECRET for n in range(65)}),
    ("a value over 32 KiB", {"A": SECRET.ljust(VALUE_LIMIT + 1, "x")}),
    ("a value over 32 KiB in UTF-8", {"A": SECRET + "é" * (VALUE_LIMIT // 2)}),
    ("more than 128 KiB in all", {f"A{n}": SECRET.ljust(VALUE_LIMIT, "x") for n in range(5)}),
    ("NULL", None),
]
BAD_SPEC: list[tuple[str, object]] = [
    ("a list", [SECRET]),
    ("a string", SECRET),
    ("an unknown key", {"nodeName": SECRET}),
    ("a key that is no name", {f"a={SECRET}": "1"}),
    ("a key that is no name, of a number", {f"{SECRET} ": 1}),
    ("a nested container", {"containers": [{"image": SECRET}]}),
    *(
        (f"cpu {cpu!r}", {"cpu": cpu, "image": SECRET})
        for cpu in [
            "",
            "0",
            "0m",
            "-1",
            "-500m",
            "1e99",
            "9" * 30,
            "999999999",
            "NaN",
            "Infinity",
            "1 ",
            "1\n",
            "m",
            "٣",
            "0x10",
        ]
    ),
    ("a secret as cpu", {"cpu": SECRET}),
    ("a list as cpu", {"cpu": [SECRET]}),
    ("an object as cpu", {"cpu": {"limit": SECRET}}),
    *(
        (f"memory {memory!r}", {"memory": memory, "image": SECRET})
        for memory in [
            "",
            "0",
            "512",
            "1048575",
            "0Gi",
            "-1Gi",
            "9" * 30,
            "999999Pi",
            "NaN",
            "1 Gi",
            "1Gi\n",
            "Gi",
            "1GiB",
        ]
    ),
    ("a secret as memory", {"memory": SECRET}),
    ("a list as memory", {"memory": [SECRET]}),
    ("a number as image", {"image": 5, "cpu": SECRET}),
    ("an empty image", {"image": "", "args": [SECRET]}),
    ("a list as image", {"image": [SECRET]}),
    *((f"{key} as a string", {key: SECRET}) for key in ["command", "args"]),
    *((f"{key} with a number", {key: [SECRET, 1]}) for key in ["command", "args"]),
    *((f"{key} with a list", {key: [[SECRET]]}) for key in ["command", "args"]),
    *((f"{key} with null", {key: [SECRET, None]}) for key in ["command", "args"]),
    *((f"{key} as an object", {key: {"a": SECRET}}) for key in ["command", "args"]),
    *((f"{key} as a number", {key: 5, "image": SECRET}) for key in ["private_machine", "special_machine"]),
    *((f"{key} as an object", {key: {"a": SECRET}}) for key in ["private_machine", "special_machine"]),
    *((f"{key} over 63 characters", {key: SECRET.ljust(64, "x")}) for key in ["private_machine", "special_machine"]),
    *((f"{key} as a path", {key: f"../{SECRET}"}) for key in ["private_machine", "special_machine"]),
    ("NULL", None),
]
REFUSED = [
    *(pytest.param("DI001", "env", {"env": env}, id=f"env: {what}") for what, env in BAD_ENV),
    *(pytest.param("DI002", "spec", {"spec": spec}, id=f"spec: {what}") for what, spec in BAD_SPEC),
    *(pytest.param(code, column, {column: value}, id=f"{column}: {str(value)[:30]!r}") for code, column, value in [
        *(("DI003", "queue", queue) for queue in
          [f"../{SECRET}", f"a b {SECRET}", "../x", "*", "", "Default", "default ", "default\n", SECRET * 600, None]),
        *(("DI004", "priority", priority) for priority in [-1, 1001, 32768, 2**31 - 1, -(2**31), None]),
        *(("DI004", "run_at", run_at) for run_at in [INFINITY, MINUS_INFINITY]),
        *(("DI004", "timeout_seconds", timeout) for timeout in [-1, 0, 604801, 2**31, 2**63 - 1]),
        *(("DI004", "max_failures", failures) for failures in [-1, 0, 101, 32768, 2**31 - 1]),
        *(("DI005", "cache_key", key) for key in [SECRET.ljust(201, "x"), SECRET + "é" * 200]),
        *(("DI005", "dedupe_key", key) for key in [SECRET.ljust(201, "x")]),
        *(("DI006", "template", template) for template in
          ["", f"../{SECRET}", "a/b", "a\nb", "default\n", SECRET.ljust(300, "x"), None]),
        ("DI007", "payload", SECRET.ljust(PAYLOAD_LIMIT - 1, "x")),
    ]),
]  # fmt: skip

ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("no column", {}),
    ("64 names", {"env": {f"A{n}": "1" for n in range(64)}}),
    ("any good name", {"env": {"_": "1", "a": "2", "A_1": "3", "HTTP_PROXY": "4", "PATH": "5", "TASKS": "6"}}),
    ("a value of 32 KiB", {"env": {"A": "x" * VALUE_LIMIT}}),
    ("a value of 32 KiB in UTF-8", {"env": {"A": "é" * (VALUE_LIMIT // 2)}}),
    ("just under 128 KiB in all", {"env": {f"A{n}": "x" * (VALUE_LIMIT - 32) for n in range(4)}}),
    ("values for no shell", {"env": {"A": "", "B": "$(X) $$ ${Y}", "C": "a\nb\r\tc", "E": "\"'\\"}}),
    ("values in UTF-8", {"env": {"A": "naïve 日本 𝄞"}}),
    ("an empty env and spec", {"env": {}, "spec": {}}),
    ("a whole spec", {"spec": {
        "image": "registry.example:5000/team/app@sha256:" + "0" * 64, "command": ["/bin/sh", "-c"],
        "args": ["$(X)", "", "a\nb", "naïve"], "cpu": "500m", "memory": "1Gi",
        "private_machine": "team-a", "special_machine": "gpu.big_1",
    }}),
    *((f"cpu {cpu}", {"spec": {"cpu": cpu}}) for cpu in ["1", "1m", "0.5", "1.5", "2500m", "64"]),
    *((f"memory {memory}", {"spec": {"memory": memory}}) for memory in
      ["1Mi", "128Mi", "1G", "1.5Gi", "1073741824", "500M", "1Ti"]),
    ("empty lists", {"spec": {"command": [], "args": []}}),
    *((f"priority {priority}", {"priority": priority}) for priority in [0, 1000]),
    *((f"timeout {timeout}", {"timeout_seconds": timeout}) for timeout in [1, 604800, None]),
    *((f"max_failures {failures}", {"max_failures": failures}) for failures in [1, 100]),
    ("run_at long ago", {"run_at": datetime(1970, 1, 1, tzinfo=UTC)}),
    ("run_at far away", {"run_at": datetime(9999, 1, 1, tzinfo=UTC)}),
    ("run_at soon", {"run_at": datetime.now(UTC) + timedelta(hours=1)}),
    ("no run_at", {"run_at": None}),
    ("keys of 200 characters", {"cache_key": "x" * 200, "dedupe_key": "y" * 200}),
    ("keys of 200 wide characters", {"cache_key": "é" * 200, "dedupe_key": "日" * 200}),
    ("no keys", {"cache_key": None, "dedupe_key": None}),
    ("another template", {"template": "team-a-gpu"}),
    ("a payload of 1 MiB", {"payload": "x" * (PAYLOAD_LIMIT - 2)}),
    *((f"the payload {payload!r}", {"payload": payload}) for payload in [{}, [], 0, False, "", {"a": [None]}]),
]  # fmt: skip


UNJUDGED = "INSERT INTO dispatch_private.templates (name) VALUES ('default'), ('team-a-gpu')"
"""Templates with a fault, which refuse no row."""


@pytest_asyncio.fixture(
    scope="module", loop_scope="session", params=["SELECT", UNJUDGED], ids=["no templates", "known templates"]
)
async def shared(postgres: PostgresServer, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """One database for this whole file: a refused row leaves nothing behind.

    A plain row of a known template is judged at a glance, any other one by all rules.
    """
    database = await postgres.create_database()
    await (await database.session("admin")).execute(request.param)
    operator = await database.session("operator")
    await operator.execute("INSERT INTO dispatch.queues (name) VALUES ('reports'), ('ingest-eu'), ('video')")
    yield database
    await database.drop()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def team(shared: Database) -> Connection:
    return await shared.session("team_a")


async def refusal(database: Database, columns: dict[str, Any]) -> asyncpg.PostgresError:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await database.insert_task(**{"payload": {"note": SECRET}, **columns})
    return refused.value


def told(error: asyncpg.PostgresError) -> str:
    """Every field that the server sent."""
    return "\n".join(f"{name}: {value}" for name, value in error.as_dict().items())


@pytest.mark.fault(53, 54, 56, 57)
@pytest.mark.parametrize(("code", "column", "columns"), REFUSED)
async def test_a_bad_value_is_refused_by_code_and_column_without_its_content(
    shared: Database, postgres: PostgresServer, code: str, column: str, columns: dict[str, Any]
) -> None:
    logged_before = postgres.log()
    error = await refusal(shared, columns)

    assert (error.sqlstate, error.column_name) == (code, column)
    assert error.hint
    assert SECRET not in told(error)
    assert SECRET not in postgres.log().removeprefix(logged_before)


@pytest.mark.parametrize("columns", [pytest.param(columns, id=what) for what, columns in ACCEPTED])
async def test_a_good_value_is_kept_as_it_was_written(shared: Database, columns: dict[str, Any]) -> None:
    task = await shared.task(await shared.insert_task(**columns))
    assert {name: task[name] for name in columns} == columns


async def test_a_row_without_any_column_gets_the_defaults(shared: Database) -> None:
    task = await shared.task(await shared.insert_task())
    assert (task["queue"], task["template"], task["env"], task["spec"]) == ("default", "default", {}, {})
    assert (task["priority"], task["max_failures"], task["timeout_seconds"]) == (100, 3, None)
    assert (task["status"], task["attempt"], task["launch"], task["failures"]) == ("waiting", 1, 0, 0)
    assert (task["payload"], task["cache_key"], task["dedupe_key"]) == (None, None, None)
    assert (task["submitted_by"], task["run_digest"], task["finished_at"]) == ("team_a", None, None)
    assert task["created_at"] is not None


async def test_every_row_has_a_start_key_of_its_own(shared: Database) -> None:
    keys = {await shared.start_key(await shared.insert_task()) for _ in range(5)}
    assert len(keys) == 5


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("defualt", "default"),
        ("reprots", "reports"),
        ("Reports", "reports"),
        ("ingest_eu", "ingest-eu"),
        ("vide", "video"),
    ],
)
async def test_hint_names_the_nearest_queue(shared: Database, typed: str, meant: str) -> None:
    assert meant in ((await refusal(shared, {"queue": typed})).hint or "")


@pytest.mark.parametrize("typed", ["qqq", "xyzzy", "production"])
async def test_hint_names_no_queue_if_none_is_near(shared: Database, typed: str) -> None:
    error = await refusal(shared, {"queue": typed})
    assert (error.sqlstate, "nearest" in (error.hint or "")) == ("DI003", False)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"queue": "reprots"}, 'queue "reprots" is not declared'),
        ({"queue": None}, "queue is NULL"),
        ({"template": None}, "template is NULL"),
        ({"priority": 5000}, "priority 5000 is out of range"),
        ({"timeout_seconds": 0}, "timeout_seconds 0 is out of range"),
        ({"max_failures": 101}, "max_failures 101 is out of range"),
        ({"template": "Trian"}, 'template "Trian" is not the name of a template'),
        ({"spec": {"imagee": "x"}}, 'spec has no field "imagee"'),
        ({"spec": {"memory": "2GB"}}, 'spec.memory "2GB" is not usable'),
        ({"env": {"TASK_ID": "x"}}, "env.TASK_ID is closed to rows"),
        ({"env": {"API_KEY=abc": "x"}}, 'env has an illegal name, which begins with "API_KEY"'),
        ({"env": {"SIZE": 5}}, 'the value of "SIZE" in env must be a string'),
        ({"env": {"BIG": "x" * 40_000}}, 'the value of "BIG" in env is larger than 32 KiB'),
        ({"cache_key": "x" * 201}, "cache_key has 201 characters"),
        ({"batch": ""}, "batch has 0 characters"),
        ({"labels": {"month": 7}}, 'the value of "month" in labels must be a string'),
    ],
)
async def test_refusal_names_what_is_wrong_on_one_line_of_context(
    shared: Database, columns: dict[str, Any], message: str
) -> None:
    error = await refusal(shared, columns)
    assert error.message == message
    assert error.hint
    assert (error.context or "").count("\n") == 0, error.context
    assert "RAISE" in (error.context or "")


async def test_row_of_defaults_is_no_queue_and_never_suggested(shared: Database) -> None:
    error = await refusal(shared, {"queue": "**"})
    assert error.sqlstate == "DI003"
    assert "*" not in (error.hint or "")


async def test_statement_with_one_bad_row_is_refused(shared: Database, team: Connection) -> None:
    before = await team.fetchval("SELECT count(*) FROM dispatch.tasks")
    with pytest.raises(asyncpg.PostgresError) as refused:
        await team.execute("INSERT INTO dispatch.tasks (priority) VALUES (1), (2), (5000)")
    assert refused.value.sqlstate == "DI004"
    assert await team.fetchval("SELECT count(*) FROM dispatch.tasks") == before


async def test_a_nul_never_reaches_a_row(team: Connection) -> None:
    """jsonb itself has no NUL, so the type refuses it with its own SQLSTATE."""
    with pytest.raises(asyncpg.UntranslatableCharacterError):
        await team.execute("""INSERT INTO dispatch.tasks (env) VALUES ('{"A": "\\u0000"}')""")


@pytest.mark.parametrize("name", ["", "Reports", "a_b", "-a", "a-", "a.b", "../x", "a" * 64, "a\n", "ä", None])
async def test_queue_name_must_be_a_dns_label(shared: Database, name: str | None) -> None:
    operator = await shared.session("operator")
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await operator.execute("INSERT INTO dispatch.queues (name) VALUES ($1)", name)


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a" * 63])
async def test_queue_name_may_be_any_dns_label(shared: Database, name: str) -> None:
    operator = await shared.session("operator")
    await operator.execute("INSERT INTO dispatch.queues (name) VALUES ($1)", name)
    assert await shared.insert_task(queue=name)
