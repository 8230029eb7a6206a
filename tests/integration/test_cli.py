"""The commands as a shell sees them: arguments and variables in; output, faults and exit status out."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from dispatcher.commands.options import PROGRAMS
from tests.rig.cli import COULD_NOT, DONE, NOWHERE, WRONG, Answer, dispatcher
from tests.rig.loopback import on_loopback
from tests.rig.postgres import Database, PostgresServer
from tests.rig.postgres_fixtures import one_database

database = one_database
PLACES = ("--url", "http://127.0.0.1:1", "--namespace", "x")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["-h"], ["render", "--help"]])
async def test_help_and_version_need_no_settings(arguments: list[str]) -> None:
    answer = await dispatcher(*arguments)
    assert (answer.status, answer.err) == (DONE, "")


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("config > /dev/full", COULD_NOT, "cannot be written: No space left on device. It is not whole\n"),
        ("config --help > /dev/full", COULD_NOT, "cannot be written: No space left on device. It is not whole\n"),
        ("adopt - <&-", COULD_NOT, ""),
        ("submit --payload @- <&-", WRONG, "--payload @-: the standard input is closed\n"),
    ],
)
def test_output_and_input_that_cannot_be_used_are_told_without_a_trace(line: str, status: int, said: str) -> None:
    child = subprocess.run(  # a shell opens and closes them
        f"{shlex.quote(sys.executable)} -m dispatcher {line}", shell=True, capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert (child.returncode, child.stderr.endswith(said), "Traceback" in child.stderr) == (status, True, False)


def test_sign_that_the_terminal_lacks_is_written_as_an_escape() -> None:
    """A locale such as de_DE has ISO 8859-1."""
    child = subprocess.run(
        [sys.executable, "-m", "dispatcher", "wait", "--help"], capture_output=True, check=False,
        env={"PATH": os.environ["PATH"], "PYTHONIOENCODING": "latin-1"},
    )  # fmt: skip
    assert (child.returncode, b"[ID\\u2026]" in child.stdout, child.stderr) == (DONE, True, b"")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Usage"),
        (["go"], "No such command"),
        (["migrate", "--chek"], "--check"),
        (["migrate", "--check", "--queues", "x"], "--check or --queues"),
        (["render"], "--template NAME"),
        (["render", "1", "--template", "default"], "--template NAME"),
        (["render", "first"], "'first' is no id: give a whole number from 1 on"),
        (["explain", "abc"], "'abc' is no id: give a whole number from 1 on"),
        (["explain", "7", "0"], "'0' is no id: give a whole number from 1 on"),
        (["wait", "9223372036854775808"], "is no id: the largest one is 9223372036854775807"),
        (["logs", "9" * 5000], "is no id: the largest one is 9223372036854775807"),
        (["logs"], "Missing argument 'ID'"),
        (["logs", "1", "--attempt", "0"], "'--attempt': 0 is not in the range"),
        (["logs", "1", *PLACES], "give --url or --namespace, not both"),
        (["explain", "1", *PLACES], "give --url or --namespace, not both"),
        (["status", *PLACES], "give --url or --namespace, not both"),
    ],
)
async def test_wrong_usage_names_the_right_one(arguments: list[str], said: str) -> None:
    answer = await dispatcher(*arguments)
    assert (answer.status, answer.out) == (WRONG, "")
    assert said in answer.err


@pytest.mark.parametrize("arguments", [["status"], ["explain", "1"]])
async def test_command_without_a_dispatcher_says_how_to_reach_one(arguments: list[str]) -> None:
    answer = await dispatcher(*arguments, "--url", "http://127.0.0.1:1")
    assert (answer.status, answer.out) == (COULD_NOT, "")
    assert "no dispatcher answers at http://127.0.0.1:1: " in answer.err
    assert "kubectl -n dispatcher exec deploy/dispatcher" in answer.err


@pytest.mark.parametrize("command", [["run"], ["config"], ["migrate"], ["render", "1"]])
async def test_all_faults_of_the_settings_are_reported_at_once(command: list[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "url")
    answer = await dispatcher(*command, MAX_JOBS="many", LISTEN_ADDRESS="8080", DATABASE_URL_FILE=missing)
    assert (answer.status, answer.out) == (WRONG, "")
    told = answer.err.splitlines()
    assert len(told) == 3
    assert f"DISPATCHER_DATABASE_URL_FILE: [Errno 2] No such file or directory: '{missing}'" in told
    assert "DISPATCHER_MAX_JOBS is 'many': must be a whole number from 0 to 100000" in told
    assert "DISPATCHER_LISTEN_ADDRESS is '8080': must be HOST:PORT" in told


async def test_secret_and_its_file_together_are_refused(tmp_path: Path) -> None:
    answer = await dispatcher("config", DATABASE_URL=NOWHERE, DATABASE_URL_FILE=str(tmp_path))
    assert answer.status == WRONG
    assert "choose one" in answer.err
    assert "hush" not in answer.out + answer.err


async def test_config_shows_each_setting_and_its_source_but_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"{NOWHERE}\n")
    answer = await dispatcher("config", MAX_JOBS="7", DATABASE_URL_FILE=str(file))
    shown = {line.split()[0]: line.split(maxsplit=2)[1:] for line in answer.out.splitlines()}
    assert (answer.status, answer.err) == (DONE, "")
    assert shown["DISPATCHER_MAX_JOBS"] == ["7", "environment"]
    assert shown["DISPATCHER_POLL_SECONDS"] == ["2", "default"]
    assert shown["DISPATCHER_DATABASE_URL"] == ["(hidden)", f"file {file}"]


async def test_config_as_json_has_the_same_and_hides_the_same() -> None:
    answer = await dispatcher("config", "--json", MAX_JOBS="7", DATABASE_URL=NOWHERE)
    shown = {source["name"]: source for source in json.loads(answer.out)}
    assert answer.status == DONE
    assert (shown["MAX_JOBS"]["value"], shown["MAX_JOBS"]["origin"]) == ("7", "environment")
    assert shown["DATABASE_URL"]["value"] == "(hidden)"
    assert "hush" not in answer.out + answer.err


async def test_config_reports_an_unknown_name_and_the_nearest_setting() -> None:
    answer = await dispatcher("config", MAX_JOB="7")
    assert answer.status == WRONG
    assert answer.err == "DISPATCHER_MAX_JOB is not a setting; did you mean DISPATCHER_MAX_JOBS?\n"


async def test_variables_injected_by_kubernetes_are_no_unknown_names() -> None:
    answer = await dispatcher("config", JANITOR_SERVICE_HOST="10.0.0.1", JANITOR_PORT="tcp://10.0.0.1:80")
    assert (answer.status, answer.err) == (DONE, "")


@pytest.mark.parametrize("command", sorted(PROGRAMS))
async def test_program_only_warns_of_an_unknown_name(command: str, tmp_path: Path) -> None:
    answer = await dispatcher(command, LOG_LVEL="debug", KUBECONFIG=str(tmp_path / "kubeconfig"))
    assert answer.status == WRONG
    first, *others = answer.err.splitlines()
    assert json.loads(first)["event"] == "DISPATCHER_LOG_LVEL is not a setting; did you mean DISPATCHER_LOG_LEVEL?"
    assert others, "the next fault ends it"


@pytest.mark.slow
@pytest.mark.parametrize("command", [["migrate"], ["migrate", "--check"], ["render", "1"]])
async def test_absent_database_is_reported_without_its_password(command: list[str]) -> None:
    answer = await dispatcher(*command, DATABASE_URL=NOWHERE, IMAGE="x")
    assert answer.status == COULD_NOT
    assert "the database does not answer" in answer.err
    assert "(host 127.0.0.1, port 1)" in answer.err
    assert "hush" not in answer.out + answer.err


async def test_dry_run_of_the_janitor_tells_its_end_whatever_level_the_pod_logs(
    database: Database, tmp_path: Path
) -> None:
    """In the Pod of a janitor with LOG_LEVEL=warning it told nothing, as if there were nothing to do."""

    async def nothing(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    app = web.Application()
    app.router.add_get("/{path:.*}", nothing)
    async with on_loopback(app) as address:
        config = {
            "current-context": "it", "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
            "clusters": [{"name": "it", "cluster": {"server": f"http://{address}"}}],
            "users": [{"name": "me", "user": {}}],
        }  # fmt: skip
        (tmp_path / "config").write_text(json.dumps(config))
        answer = await dispatcher(
            "janitor", "--dry-run", DATABASE_URL=database.url("janitor"), KUBECONFIG=str(tmp_path / "config"),
            IMAGE="x", RETENTION_DAYS="0", LOG_LEVEL="warning",
        )  # fmt: skip
    assert answer.status == DONE, answer.err
    *_, last = answer.err.splitlines()
    assert json.loads(last)["event"] == "the dry run has ended: nothing was changed"


async def test_login_of_another_command_is_told_which_one_is_needed(database: Database) -> None:
    answer = await dispatcher("render", "1", DATABASE_URL=database.url("team_a"))
    assert answer.err.startswith("the login may not do this: permission denied for ")
    assert "and of dispatch_reader for the others" in answer.err


@pytest.mark.slow
async def test_migrate_checks_applies_and_has_nothing_left(postgres: PostgresServer) -> None:
    empty = await postgres.create_database(migrated=False)
    try:
        pending, applied, current, again = [
            await dispatcher(*command, DATABASE_URL=empty.admin_url)
            for command in (["migrate", "--check"], ["migrate"], ["migrate", "--check"], ["migrate"])
        ]
    finally:
        await empty.drop()
    assert (pending.status, applied.status) == (COULD_NOT, DONE)
    assert "pending 0027_post_tables.sql" in pending.out.splitlines()
    assert applied.out == pending.out.replace("pending", "applied")
    assert current == again == Answer(DONE, "up to date\n", "")


async def test_migrate_declares_queues_and_says_which_exist(database: Database, tmp_path: Path) -> None:
    (tmp_path / "queues.json").write_text('[{"name": "reports"}, {"name": "default"}]')
    admin = await database.session("admin")
    await admin.execute("UPDATE dispatch.queues SET max_jobs = 9 WHERE name = 'default'")
    answer = await dispatcher("migrate", "--queues", str(tmp_path / "queues.json"), DATABASE_URL=database.admin_url)
    told = "up to date\nqueue reports is as declared\nqueue default exists and stays as it is\n"
    assert answer == Answer(DONE, told, "")


async def test_render_shows_the_job_of_a_row_but_not_its_key(database: Database, tmp_path: Path) -> None:
    task_id = await database.insert_task(env={"COLOUR": "blue"})
    file = tmp_path / "url"
    file.write_text(database.url("reader"))
    answer = await dispatcher("render", str(task_id), DATABASE_URL_FILE=str(file), IMAGE="registry/task:1")
    assert answer.status == DONE, answer.err
    (container,) = yaml.safe_load(answer.out)["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert container["image"] == "registry/task:1"
    assert (env["COLOUR"], env["TASK_ID"], env["TASK_START_KEY"]) == ("blue", str(task_id), "(hidden)")
    assert str(await database.start_key(task_id)) not in answer.out + answer.err


async def test_render_of_a_template_asks_no_database() -> None:
    written, as_json = [
        await dispatcher("render", "--template", "default", *form, IMAGE="x", DATABASE_URL=NOWHERE)
        for form in ([], ["--json"])
    ]
    assert (written.status, as_json.status) == (DONE, DONE)
    assert written.err == as_json.err == "", "no log line comes before what was asked for"
    assert json.loads(as_json.out)["kind"] == "Job"
    assert json.loads(as_json.out)["spec"] == yaml.safe_load(written.out)["spec"]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"template": "nightly"}, 'UnknownTemplate: template "nightly" is not known'),
        ({"spec": {"image": "another"}}, "image"),
    ],
)
async def test_render_of_a_held_row_says_why(database: Database, columns: dict[str, Any], reason: str) -> None:
    task_id = await database.insert_task(**columns)
    answer = await dispatcher("render", str(task_id), DATABASE_URL=database.url("reader"), IMAGE="x")
    assert (answer.status, answer.out) == (COULD_NOT, "")
    assert reason in answer.err


@pytest.mark.slow
async def test_render_of_a_missing_row_says_so(database: Database) -> None:
    answer = await dispatcher("render", "4711", DATABASE_URL=database.url("reader"), IMAGE="x")
    assert (answer.status, answer.out) == (COULD_NOT, "")
    assert "there is no task 4711" in answer.err
