"""The table of templates: what INSERT refuses by it, who may read and write it, and that it agrees with the launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import asyncpg
import pytest

from dispatcher.jobs.env import NAMES, PREFIXES, SUFFIXES, is_trusted
from dispatcher.jobs.offered import offered_templates
from dispatcher.jobs.row_check import why_denied
from dispatcher.pg.connect import Session, open_connection
from dispatcher.pg.questions import questions
from tests.integration.bringing import PASSED, TEMPLATES, bring, some_rows
from tests.integration.queues import declare, refusal
from tests.rig.builders import a_kind, a_template
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database

database = one_database
SECRET = "s3cret-marker"


@pytest.mark.parametrize(
    ("columns", "failures"),
    [
        ({"template": "once"}, 1),
        ({"template": "once", "max_failures": None}, 1),
        ({"template": "once", "max_failures": 7}, 7),
        ({"template": "once", "timeout_seconds": 60}, 1),  # not by the way of plain rows
        ({"template": "once", "dedupe_key": "k"}, 1),
        ({"template": "mute"}, 1),
        ({"template": "mute", "max_failures": 2}, 2),
        ({"template": "mute-again"}, 4),
        ({"template": "default"}, 3),
        ({"template": "default", "timeout_seconds": 60}, 3),
    ],
    ids=str,
)
async def test_template_gives_max_failures_to_rows_that_set_none(
    database: Database, columns: dict[str, Any], failures: int
) -> None:
    mute = {"report": "exit-code"}
    await bring(database, {
        "default": a_template(), "once": a_template("once", bounds={"max-failures": "1"}),
        "mute": a_template("mute", bounds=mute),
        "mute-again": a_template("mute-again", bounds=mute | {"max-failures": "4"}),
    })  # fmt: skip
    team = await database.session("team_a")
    names, places = ", ".join(columns), ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    insert = f"INSERT INTO dispatch.tasks ({names}) VALUES ({places}) RETURNING id, max_failures"
    row = await team.fetchrow(insert, *columns.values())
    assert row is not None
    assert row["max_failures"] == failures, "what RETURNING shows"
    assert (await database.task(row["id"]))["max_failures"] == failures
    # As one of several plain rows, and beside one that is none.
    for more in ({}, {"labels": {"a": "b"}}):
        given = [{name: value for name, value in columns.items() if name != "dedupe_key"}, more]
        ids = [one["submit"] for one in await team.fetch("SELECT dispatch.submit($1)", given)]
        assert [(await database.task(id_))["max_failures"] for id_ in ids] == [failures, 3]


MISTAKES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "unknown template": ({"template": "trian"}, "DI006", 'template "trian" is not known', 'nearest name is "train"'),
    "template like no other": ({"template": "zzz"}, "DI006", 'template "zzz" is not known', "SELECT name"),
    "closed field": ({"spec": {"image": "x"}}, "DI002", 'template "default" does not open spec.image', "env"),
    "closed command": ({"template": "train", "spec": {"command": [SECRET]}}, "DI002", "spec.command", "args, cpu"),
    "foreign image": (
        {"template": "train", "spec": {"image": "evil/x:1"}}, "DI002",
        'spec.image "evil/x:1" is none of the images of template "train"', "registry/team-a/*",
    ),
    "image that leaves its folder": (
        {"template": "train", "spec": {"image": "registry/team-a/../b"}}, "DI002", "is none of the images", "exact:1",
    ),
    "no image": (
        {"template": "bare", "spec": {}}, "DI002", 'template "bare" has no image, so spec.image is needed',
        "It allows: exact:1",
    ),
    "too much cpu": ({"template": "train", "spec": {"cpu": "3"}}, "DI002", "spec.cpu 3 is over the 2500m", "less"),
    "too much memory": (
        {"template": "train", "spec": {"memory": "4097Mi"}}, "DI002", "spec.memory 4097Mi is over the 4Gi", "less",
    ),
    "foreign machine": (
        {"template": "train", "spec": {"private_machine": "team-b-1"}}, "DI002",
        'spec.private_machine "team-b-1" is none of the machines', "team-a-*",
    ),
    "too long": (
        {"template": "train", "timeout_seconds": 601}, "DI004", 'timeout_seconds 601 is over the 600', "Leave it out",
    ),
    "too much text": (
        {"template": "train", "env": {"MODE": "$" * 511}}, "DI001",
        'env, command and args have 1026 bytes, more than the 1024 of template "train"', "payload",
    ),
    "variable of the template": (
        {"template": "train", "env": {"OWN": SECRET}}, "DI001", "env.OWN is set by", "env.MODE",
    ),
    "variable of the installation": ({"env": {"S3_HOST": SECRET}}, "DI001", "env.S3_HOST is set by", "env"),
    "variable that runs code": ({"env": {"PATH": SECRET}}, "DI001", "env.PATH changes what programs run", "env"),
    "proxy in any case": ({"env": {"Http_Proxy": SECRET}}, "DI001", "env.Http_Proxy changes what programs", "env"),
    "closed variable": (
        {"template": "closed", "env": {"MONTH": SECRET}}, "DI001",
        'template "closed" does not open env.MONTH', "env.DATE",
    ),
    "template that opens nothing": (
        {"template": "nothing", "env": {"MONTH": SECRET}}, "DI001", "does not open env.MONTH", "nothing",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("columns", "code", "message", "hint"), MISTAKES.values(), ids=MISTAKES.keys())
async def test_row_that_its_template_refuses_is_refused_at_insert(
    database: Database, columns: dict[str, Any], code: str, message: str, hint: str
) -> None:
    await bring(database, TEMPLATES)
    error = await refusal(database, "team_a", **columns)
    assert error is not None
    column = "template" if code == "DI006" else "timeout_seconds" if code == "DI004" else next(reversed(columns))
    assert (error.sqlstate, error.column_name) == (code, column)
    assert message in error.message
    assert hint in (error.hint or "")
    assert SECRET not in str(error.as_dict())
    assert (error.context or "").count("\n") == 0


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("trains", "train"), ("defualt", "default"), ("close", "closed"), ("zzz", ""), ("production", ""), ("td", "")],
)
async def test_hint_names_a_template_only_if_it_is_near(database: Database, typed: str, meant: str) -> None:
    await bring(database, TEMPLATES)
    error = await refusal(database, "team_a", template=typed)
    assert error is not None
    hint = error.hint or ""
    assert (error.sqlstate, "nearest" in hint, f'nearest name is "{meant}"' in hint) == (
        "DI006",
        bool(meant),
        bool(meant),
    )


RIGHT: dict[str, dict[str, Any]] = {
    "no column": {},
    "usual variable": {"env": {"MONTH": "2026-07", "B": "x"}},
    "value that looks like a name": {"env": {"A": '"PATH": ', "B": "HOME"}},
    "opened fields": {"template": "train", "spec": {"args": ["x"], "image": "exact:1", "cpu": "2.5", "memory": "4Gi"}},
    "letters of LIKE in a pattern": {"template": "train", "spec": {"image": "reg_istry/v2"}},
    "opened variables": {"template": "train", "env": {"MODE": "slow", "PYTHONPATH": "/app"}},
    "machine of its team": {"template": "train", "spec": {"special_machine": "team-a-7"}, "timeout_seconds": 600},
    "variables opened by name alone": {"template": "closed", "env": {"DATE": "x", "PATH": "/bin"}},
    "image of a template without one": {"template": "bare", "spec": {"image": "exact:1"}},
    "template with a fault": {"template": "broken", "env": {"PATH": "x"}, "spec": {"image": "any"}},
}


@pytest.mark.parametrize("columns", RIGHT.values(), ids=RIGHT.keys())
async def test_row_that_its_template_accepts_is_accepted(database: Database, columns: dict[str, Any]) -> None:
    await bring(database, TEMPLATES)
    assert await refusal(database, "team_a", **columns) is None


async def test_empty_table_refuses_nothing(database: Database) -> None:
    row = {"template": "any", "spec": {"image": "any"}, "env": {"PATH": "x"}}
    await bring(database, {})
    assert await refusal(database, "team_a", **row) is None
    await bring(database, TEMPLATES)
    assert await refusal(database, "team_a", **row) is not None
    await bring(database, {})
    assert await refusal(database, "team_a", **row) is None


def denied(row: Mapping[str, Any]) -> str:
    """Why the launch would be refused."""
    template = TEMPLATES.get(row["template"])
    if isinstance(template, str):
        return ""
    spec = {name: value for name, value in row["spec"].items() if isinstance(value, str)}
    kind = a_kind(
        template=row["template"], spec=spec, spec_names=frozenset(row["spec"]), env_names=frozenset(row["env"]),
        timeout_seconds=row["timeout_seconds"],
    )  # fmt: skip
    return why_denied(kind, template, PASSED) if template else "unknown"


async def test_insert_refuses_what_a_launch_would_be_refused_for(database: Database) -> None:
    await bring(database, TEMPLATES)
    refused = 0
    for row in some_rows(1500, seed=19):
        error = await refusal(database, "team_a", **row)
        assert (error is not None) == bool(denied(row)), (row, denied(row), error)
        refused += error is not None
    assert 300 < refused < 1200, refused


async def test_both_lists_of_trusted_variables_are_the_same(database: Database) -> None:
    admin = await database.session("admin")
    names = [
        *NAMES,
        *(name.lower() for name in NAMES),
        *(f"{name}_" for name in NAMES),
        *(f"{prefix}X" for prefix in PREFIXES),
        *(f"{prefix}x".lower() for prefix in PREFIXES),
        *(f"X{prefix}" for prefix in PREFIXES),
        *(f"ANY{suffix}" for suffix in SUFFIXES),
        *(f"any{suffix}".lower() for suffix in SUFFIXES),
        *(f"{suffix}_" for suffix in SUFFIXES),
        "node_name",
        "NODE_NAME",
        "MONTH",
        "PAT",
        "XPATH",
    ]
    assert {name: await admin.fetchval("SELECT dispatch_private.is_trusted($1)", name) for name in names} == {
        name: is_trusted(name) for name in names
    }


async def test_table_follows_the_templates_and_nothing_is_written_without_a_change(database: Database) -> None:
    await bring(database, {})
    assert await bring(database, TEMPLATES) == len(TEMPLATES)
    assert await bring(database, TEMPLATES) == 0
    changed = {**TEMPLATES, "closed": a_template("closed", opens="env")}
    assert await bring(database, changed) == 1
    assert await bring(database, {"default": TEMPLATES["default"]}, are_all=False) == 0
    assert await bring(database, {"default": TEMPLATES["default"]}) == len(TEMPLATES) - 1
    session = Session(lambda: database.url("reader"))
    try:
        async with questions(session) as rows:
            assert await rows.templates() == offered_templates({"default": TEMPLATES["default"]}, PASSED)
    finally:
        await session.close()


async def test_table_that_was_edited_by_hand_is_put_right(database: Database) -> None:
    await bring(database, TEMPLATES)
    admin = await database.session("admin")
    await admin.execute(
        "UPDATE dispatch_private.templates SET row_may_set = '{}', images = '{evil/*}' WHERE name = 'train'"
    )
    await admin.execute("INSERT INTO dispatch_private.templates (name, row_may_set) VALUES ('planted', '{env}')")
    await admin.execute("DELETE FROM dispatch_private.templates WHERE name = 'default'")
    assert await bring(database, TEMPLATES) == 3
    assert await bring(database, TEMPLATES) == 0


@pytest.mark.parametrize("report", ["{}", "null", '"x"', "[1]", '[{"row_may_set": []}]'])
async def test_report_that_is_none_changes_nothing(database: Database, report: str) -> None:
    await bring(database, TEMPLATES)
    connection = await open_connection(database.url("janitor"), writes=True)
    try:
        with pytest.raises(asyncpg.PostgresError):
            await connection.execute("SELECT dispatch_private.janitor_templates($1::jsonb, true)", report)
    finally:
        await connection.close()
    admin = await database.session("admin")
    assert await admin.fetchval("SELECT count(*) FROM dispatch.templates") == len(TEMPLATES)


async def test_submitter_sees_templates_and_the_queues_that_are_open_to_it(database: Database) -> None:
    await bring(database, TEMPLATES)
    await declare(database, "theirs", submit_role="team_b")
    await declare(database, "open")
    team = await database.session("team_a")
    assert len(await team.fetch("SELECT * FROM dispatch.templates")) == len(TEMPLATES)
    assert {row["name"] for row in await team.fetch("SELECT * FROM dispatch.queues")} == {"*", "default", "open"}


async def test_hint_names_no_queue_of_others(database: Database) -> None:
    await declare(database, "secret-plans", submit_role="team_b")
    error = await refusal(database, "team_a", queue="secret-plan")
    assert error is not None
    assert "secret-plans" not in (error.hint or "")
