"""`dispatcher render --file`: the Job of a template's file and a row, or every fault with its line."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from structlog.testing import capture_logs

from dispatcher.commands.render import LocatedFault, preview_template, read_catalog, render_file
from dispatcher.doctor import look_at_templates
from dispatcher.jobs.catalog import read_file
from dispatcher.model.jobs import Manifest
from dispatcher.settings.definition import Settings
from dispatcher.settings.loading import load
from tests.rig.cli import COULD_NOT, DONE, NOWHERE, WRONG, dispatcher
from tests.rig.pages import AUTHOR, read_page

GOOD = """\
apiVersion: batch/v1
kind: Job
metadata:
  annotations:
    dispatcher.internal/row-may-set: env.MODE,cpu,args
    dispatcher.internal/max-cpu: "4"
    dispatcher.internal/max-seconds: "600"
spec:
  template:
    spec:
      containers:
        - name: task
          image: app:1
          env: [{name: OWN, value: x}]
"""
BAD = """\
apiVersion: batch/v2
kind: Job
metadata:
  annotations:
    dispatcher.internal/max-cpus: "4"
spec:
  suspend: true
  template:
    spec:
      initContainers: [3]
      containers:
        - name: task
          env:
            - {name: A}
            - {name: A}
            - {value: x}
"""
FAULTS = {
    "": (1, "the document is not an object"),
    "a: 1\n---\nb: 2\n": (3, "not one YAML document"),
    "kind: Job\n\tx: 1\n": (2, "a tab: YAML indents by spaces"),
    "kind: [\n": (2, "not one YAML document, line 2, column 1"),
    "a: &a [*a]\n": (1, "an alias leads to a part that contains it"),
    GOOD.replace("max-cpu:", "max-mem:"): (6, "is it dispatcher.internal/max-memory? known are"),
    GOOD + "x" * (256 << 10): (1, "more than 256 KiB"),
}


def written(folder: Path, text: str | bytes, name: str = "team-a.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rendered(path: Path, row: dict[str, Any] | str | None = None) -> dict[str, Any]:
    found = render_file(path, json.dumps(row) if isinstance(row, dict) else row, load({}, str).settings)
    assert isinstance(found, dict), [str(one) for one in found]
    return found


def faults(path: Path, row: dict[str, Any] | str | None = None) -> list[LocatedFault]:
    found = render_file(path, json.dumps(row) if isinstance(row, dict) else row, load({}, str).settings)
    assert isinstance(found, list)
    return found


@pytest.mark.slow
async def test_command_prints_the_job_of_a_file_without_a_database(tmp_path: Path) -> None:
    path = str(written(tmp_path, GOOD))
    row = '{"env": {"MODE": "$x"}, "spec": {"cpu": "2"}, "timeout_seconds": 60, "queue": "q", "payload": {"a": 1}}'
    as_yaml = await dispatcher("render", "--file", path, "--row", row, DATABASE_URL=NOWHERE)
    as_json = await dispatcher("render", "--file", path, "--row", row, "--json")
    assert (as_yaml.status, as_json.status) == (DONE, DONE)
    assert as_yaml.err == as_json.err
    assert "not checked, because only the database knows: whether the queue is declared" in as_yaml.err
    job = json.loads(as_json.out)
    assert yaml.safe_load(as_yaml.out) == job
    pod = job["spec"]["template"]["spec"]
    env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert (env["MODE"], env["OWN"], env["TASK_START_KEY"], env["TASK_QUEUE"]) == ("$$x", "x", "(hidden)", "q")
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "2"}
    assert pod["activeDeadlineSeconds"] == 60
    assert job["metadata"]["labels"]["dispatcher.internal/template"] == "team-a"


async def test_command_prints_every_fault_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, BAD)
    answer = await dispatcher("render", "--file", str(path), "--row", '{"priority": 2000, "colour": 1}')
    assert (answer.status, answer.out) == (COULD_NOT, "")
    told = answer.err.splitlines()
    assert [line.removeprefix(f"{path}:").split(": ")[:2] for line in told[:7]] == [
        ["1", "apiVersion"],
        ["5", "metadata.annotations[dispatcher.internal/max-cpus]"],
        ["7", "spec.suspend"],
        ["10", "spec.template.spec.initContainers[0]"],
        ["12", "spec.template.spec.containers[0].image"],
        ["15", "spec.template.spec.containers[0].env[1]"],
        ["16", "spec.template.spec.containers[0].env[2].name"],
    ]
    assert told[7].startswith("--row: colour: not among the columns that a row may set; they are queue, priority, ")
    assert told[8:] == ["--row: priority: Expected `int` <= 1000"]


async def test_command_prints_faults_as_json(tmp_path: Path) -> None:
    path = written(tmp_path, BAD)
    answer = await dispatcher("render", "--file", str(path), "--json")
    told = json.loads(answer.out)["faults"]
    assert (answer.status, answer.err, len(told)) == (COULD_NOT, "", 7)
    assert told[0] == {"file": str(path), "line": 1, "path": "apiVersion", "words": "is 'batch/v2': must be batch/v1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--file", "/no/such.yaml"), "does not exist"),
        (("--file", "/"), "is a directory"),
        (("--row", "{}"), "--file FILE"),
        (("1", "--file", "pyproject.toml"), "--file FILE"),
        (("--template", "x", "--file", "pyproject.toml"), "--file FILE"),
        (("--template", "x", "--row", "{}"), "--file FILE"),
    ],
)
async def test_wrong_usage_is_named(words: tuple[str, ...], said: str) -> None:
    answer = await dispatcher("render", *words)
    assert (answer.status, answer.out, said in answer.err) == (WRONG, "", True), answer.err


@pytest.mark.parametrize(("text", "told"), FAULTS.items(), ids=lambda one: str(one)[:20])
def test_file_that_is_no_template_has_a_fault_with_a_line(tmp_path: Path, text: str, told: tuple[int, str]) -> None:
    found = faults(written(tmp_path, text))
    assert (found[0].line, told[1] in found[0].words) == (told[0], True), found


def test_binary_file_has_the_line_of_its_first_byte(tmp_path: Path) -> None:
    (found,) = faults(written(tmp_path, b"kind: Job\nx: \xff\n"))
    assert (found.line, found.words) == (2, "no UTF-8 text: byte 0xff")
    (found,) = faults(written(tmp_path, b"kind: Job\0"))
    assert "a character that YAML does not allow" in found.words


@pytest.mark.parametrize("name", ["Team.yaml", "a.b.yaml", "a_b.yaml", f"{'a' * 64}.yaml", "team-a.yml", "team-a"])
def test_name_that_is_no_templates_name_is_a_fault(tmp_path: Path, name: str) -> None:
    found = faults(written(tmp_path, GOOD, name))
    assert [(one.line, "name" in one.words) for one in found] == [(1, True)]


@pytest.mark.parametrize("text", [GOOD, BAD, *FAULTS])
def test_dispatcher_reads_the_file_with_the_same_verdict(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    read, found = read_file(path), render_file(path, None, load({}, str).settings)
    assert isinstance(read, str) == isinstance(found, list)
    if isinstance(read, str) and isinstance(found, list):
        assert sum(one.words in read for one in found) == min(len(found), 5)


SECRET = "envFrom: [{secretRef: {name: keys}}]"
TOKEN = "env: []\n      volumes: [{name: keys, projected: {sources: [{serviceAccountToken: {path: t}}]}}]"
STORE = "env: []\n      volumes: [{name: a, csi: {driver: b, volumeAttributes: {secretProviderClass: keys}}}]"


@pytest.mark.parametrize(
    ("opened", "source", "is_told"),
    [("env", SECRET, True), ("env.MODE", SECRET, False), ("env", "", False),
     ("env", STORE, True), ("env", TOKEN, True),
     ("env", "env: [{name: X, valueFrom: {secretKeyRef: {name: keys, key: TASK_DATABASE_URL}}}]", False)],
)  # fmt: skip
async def test_open_variables_beside_a_secret_are_a_warning(
    tmp_path: Path, opened: str, source: str, is_told: bool
) -> None:
    text = GOOD.replace("env.MODE,cpu,args", opened).replace("env: [{name: OWN, value: x}]", source)
    told = await dispatcher("render", "--file", str(written(tmp_path, text)), DATABASE_URL=NOWHERE)
    assert (told.status, "next to Secret keys" in told.err) == (DONE, is_told), told.err


MAY_SET = "rows of it may set: args, cpu, env.MODE"


def test_row_is_judged_by_the_bounds_of_the_template(tmp_path: Path) -> None:
    row = {"env": {"PATH": "/x", "B": "1"}, "spec": {"cpu": "9", "image": "x"}, "timeout_seconds": 601}
    assert [str(one) for one in faults(written(tmp_path, GOOD), row)] == [
        f'--row: template "team-a" does not open spec.image; {MAY_SET}',
        '--row: timeout_seconds 601 is over the 600 of template "team-a"',
        '--row: spec.cpu 9 is over the 4 of template "team-a"',
        f'--row: template "team-a" does not open env.B; {MAY_SET}',
        "--row: env.PATH changes what programs run or trust: the template has to open it by name",
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("", "--row: no JSON that Postgres stores: invalid input syntax for type json, line 1, column 1"),
        ("{'a': 1}", "line 1, column 2"),
        ('{"payload": "\\u0000"}', "unsupported Unicode escape sequence"),
        ("[" * 4000 + "]" * 4000, "--row: not an object of columns"),
        ("3", "--row: not an object of columns"),
        ('{"template": "b"}', "--row: template: 'b' is another template than the file's, team-a"),
        ('{"timeout": 1}', "did you mean timeout_seconds?"),
    ],
)
def test_row_that_cannot_be_read_is_a_fault(tmp_path: Path, row: str, said: str) -> None:
    (found,) = faults(written(tmp_path, GOOD), row)
    assert said in str(found)


def settings_of(folder: Path) -> Settings:
    return load({"DISPATCHER_TEMPLATES_DIR": str(folder)}, str).settings


def previewed(folder: Path) -> Manifest:
    settings = settings_of(folder)
    return preview_template("team-a", settings, read_catalog(settings))


def test_row_of_a_template_without_an_image_names_one(tmp_path: Path) -> None:
    """The doctor tries the template with an image that rows may name: it is no faulty one."""
    bare = GOOD.replace("          image: app:1\n", "").replace("cpu,args", "image")
    path = written(tmp_path, bare.replace('max-cpu: "4"', "images: registry/[ab]/*"))
    (told,) = faults(path)
    assert str(told) == '--row: template "team-a" has no image, so spec.image is needed: one of registry/[ab]/*'
    row = {"spec": {"image": "registry/a/x:1"}}
    assert rendered(path, row)["spec"]["template"]["spec"]["containers"][0]["image"] == "registry/a/x:1"
    (container,) = previewed(tmp_path)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry/a/x"


def test_template_of_the_row_may_be_named(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    assert rendered(path, {"template": "team-a", "spec": {"args": ["$A"]}}) == rendered(
        path, '{"spec": {"args": ["$A"]}}'
    )


def test_value_of_a_fault_stays_on_one_line(tmp_path: Path) -> None:
    for one in faults(written(tmp_path, GOOD), {"env": {"A\n\x1b[2J": "x"}, "x\ny": 1}):
        assert "\n" not in str(one)
        assert "\x1b" not in str(one)


@pytest.mark.slow
async def test_command_on_the_authors_page_shows_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = re.findall(r"`dispatcher (render --file [^`]+ --row [^`]+)`", read_page(AUTHOR))
    written(tmp_path, GOOD)
    monkeypatch.chdir(tmp_path)
    answer = await dispatcher(*shlex.split(command))
    assert (answer.status, "value: fast" in answer.out) == (DONE, True), answer


def test_job_is_the_one_of_a_template_of_the_dispatcher(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    assert msgspec.json.encode(rendered(path)) == msgspec.json.encode(previewed(tmp_path))


def test_doctor_reads_the_files_once_for_all_templates(tmp_path: Path) -> None:
    """Not once for each: two hundred templates took a minute."""
    for number in range(3):
        (tmp_path / f"t{number}.yaml").write_text(GOOD)
    with capture_logs() as told:
        jobs = look_at_templates.rendered(settings_of(tmp_path), "jobs")
    assert (len(jobs), [one["event"] for one in told]) == (3, ["templates read"])
