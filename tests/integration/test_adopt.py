"""`dispatcher adopt`: files in, templates and a list out. What each field becomes is in tests/unit/test_adoption.py."""

import itertools
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dispatcher.commands.adopt import written
from dispatcher.commands.adoption import Statement
from dispatcher.jobs.catalog import read_file
from dispatcher.jobs.template_text import write_document
from dispatcher.jobs.templates import Template
from tests.rig.cli import COULD_NOT, DONE, WRONG, dispatcher
from tests.rig.corpus import CORPUS, alone, cron_job, job, manifest, pod
from tests.rig.pages import ADOPTING, read_page
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database

database = one_database
CONFIG: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}


def given(folder: Path, *documents: dict[str, Any], name: str = "work.yaml") -> Path:
    file = folder / name
    file.write_text("---\n".join(map(write_document, documents)))
    return file


async def test_each_document_becomes_a_template_beside_a_list(tmp_path: Path) -> None:
    file, out = given(tmp_path, job(backoffLimit=2), CONFIG, cron_job()), tmp_path / "new" / "templates"
    answer = await dispatcher("adopt", str(file), "--out", str(out))
    assert (answer.status, answer.err) == (COULD_NOT, ""), "who inserts at three at night is left to a person"
    assert sorted(one.name for one in out.iterdir()) == ["load.yaml", "nightly.yaml"]
    assert all(isinstance(read_file(one), Template) for one in out.iterdir())
    lines = answer.out.splitlines()
    assert lines[0] == f"{file}:1: Job load → {out}/load.yaml"
    assert "  translated  spec.backoffLimit: dispatcher.internal/max-failures: 3" in lines
    beside = "ConfigMap c is no work, and no Pod that is adopted with it names it: leave it as it is"
    assert f"  left out    {beside}" in lines
    pasted = [
        "  SQL:",
        "  -- One row, whatever else is alive. A login with dispatch_submitter runs it.",
        "  INSERT INTO dispatch.tasks (template) VALUES ('nightly');",
        "  CronJob that inserts the row:",
    ]
    at = lines.index("  SQL:")
    assert lines[at : at + 4] == pasted
    (made,) = yaml.safe_load_all("\n".join(lines[at + 4 :]))
    assert (made["kind"], made["spec"]["schedule"]) == ("CronJob", "0 3 * * *")


async def test_job_that_leaves_nothing_to_decide_is_done(tmp_path: Path) -> None:
    answer = await dispatcher("adopt", str(given(tmp_path, job())), "--out", str(tmp_path / "t"))
    assert (answer.status, answer.err) == (DONE, "")


async def test_check_writes_nothing(tmp_path: Path) -> None:
    answer = await dispatcher("adopt", str(given(tmp_path, job())), "--check", "--out", str(tmp_path / "t"))
    assert (answer.status, (tmp_path / "t").exists()) == (DONE, False)
    assert "→" not in answer.out
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "load.yaml").write_text("mine")
    answer = await dispatcher("adopt", str(tmp_path / "work.yaml"), "--check", "--out", str(tmp_path / "t"))
    assert (answer.status, "load.yaml exists" in answer.out) == (COULD_NOT, True), "it tells what a call would"


async def test_folder_of_templates_is_not_read_again(tmp_path: Path) -> None:
    given(tmp_path, job())
    out = tmp_path / "templates"
    for status in (DONE, COULD_NOT):
        answer = await dispatcher("adopt", str(tmp_path), "--out", str(out))
        assert (answer.status, [one.name for one in out.iterdir()]) == (status, ["load.yaml"])
    assert f"{out}:0: folder\n  left out    templates are written there" in answer.out
    answer = await dispatcher("adopt", str(out), "--out", str(out))
    assert (answer.status, "give another --out" in answer.err) == (WRONG, True)


async def test_template_that_is_refused_blocks_no_correction(tmp_path: Path) -> None:
    out = tmp_path / "t"
    answer = await dispatcher("adopt", str(given(tmp_path, job(pod({"name": "a", "image": 5})))), "--out", str(out))
    assert (answer.status, "refused" in answer.out, "→" in answer.out) == (COULD_NOT, True, False)
    answer = await dispatcher("adopt", str(given(tmp_path, job())), "--out", str(out))
    assert (answer.status, [one.name for one in out.iterdir()]) == (DONE, ["load.yaml"])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "kind: Job\nspec: {{ .Values.spec }}\n", "`helm template CHART | dispatcher adopt -`"),
        ("kustomization.yaml", "resources: [job.yaml]\n", "`kubectl kustomize DIR | dispatcher adopt -`"),
        ("a.yaml", "kind: Job\nmetadata: {name: a}\nspec: {backoffLimit: 3}\n", "`kubectl kustomize DIR"),
        ("a.yaml", "{kind: List, items: []}\n", "the List has no items"),
    ],
)
async def test_source_of_manifests_says_the_next_step(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    answer = await dispatcher("adopt", str(tmp_path / name), "--out", str(tmp_path / "t"))
    assert (words in answer.out, (tmp_path / "t").exists()) == (True, False), answer.out


async def test_file_that_is_there_stays(tmp_path: Path) -> None:
    file, out = given(tmp_path, job()), tmp_path / "t"
    out.mkdir()
    (out / "load.yaml").write_text("mine")
    answer = await dispatcher("adopt", str(file), "--out", str(out))
    assert (answer.status, (out / "load.yaml").read_text()) == (COULD_NOT, "mine")
    assert "load.yaml exists, and stays as it is" in answer.out


async def test_folder_is_read_and_equal_names_get_numbers(tmp_path: Path) -> None:
    """A pipe in it is passed over: a read of it might never end."""
    given(tmp_path, job(completions=2), name="a.yaml")
    given(tmp_path, {"apiVersion": "v1", "kind": "List", "items": [alone(), job(completions=3)]}, name="b.yml")
    (tmp_path / "c.txt").write_text("no manifest")
    os.mkfifo(tmp_path / "d.yaml")
    answer = await dispatcher("adopt", str(tmp_path), "--out", str(tmp_path / "t"))
    assert sorted(one.name for one in (tmp_path / "t").iterdir()) == ["alone.yaml", "load-2.yaml", "load.yaml"]
    assert "SELECT 'load-2', 'load-2', 'load-2' || to_char(now(), '-YYYYMMDD-HH24MISS') FROM" in answer.out


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("kind: Job\nspec: {{ .Values.spec }}\n", 2, "a key must be a text"),
        ("kind: Job\n\tx: 1\n", 2, "a tab: YAML indents by spaces"),
        ("- kind: Job\n- a\n", 1, "the document is not an object"),
        ("kind: Job\nkind: Pod\n", 2, "stands twice"),
    ],
)
async def test_text_that_is_no_manifest_is_told_with_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    answer = await dispatcher("adopt", str(file), "--out", str(tmp_path / "t"))
    assert (answer.status, (tmp_path / "t").exists()) == (COULD_NOT, False)
    assert answer.out.startswith(f"{file}:{line}: no manifest")
    assert words in answer.out


async def test_document_that_is_no_manifest_spoils_no_other_of_its_file(tmp_path: Path) -> None:
    """As a chart writes them: notes, a template that was not filled in, a value that is no object."""
    bad = ["Thank you", "kind: Job\nspec: {{ .Values.spec }}", "- a", "kind: Job\n\tx: 1", "# nothing", "a: [1"]
    good = f"# Source\n{json.dumps(job())}"
    text = "%YAML 1.1\n---\n" + "\n---\n".join(one for each in bad for one in (each, good))
    file = tmp_path / "all.yaml"
    file.write_text(text)
    answer = await dispatcher("adopt", str(file), "--check", "--json")
    told = [(one["what"], text.splitlines()[one["line"] - 1]) for one in json.loads(answer.out)]
    assert [line for what, line in told if what == "Job load"] == [json.dumps(job())] * len(bad)
    wrong = ["Thank you", "spec: {{ .Values.spec }}", "- a", "\tx: 1", "---"]
    assert [line for what, line in told if what == "no manifest"] == wrong


async def test_many_documents_that_are_none_take_no_time(tmp_path: Path) -> None:
    """Each would be read behind the lines of all others."""
    file = tmp_path / "all.yaml"
    file.write_text("---\na\n" * 200_000)
    answer = await dispatcher("adopt", str(file), "--check", "--json")
    assert [(one["line"], one["what"]) for one in json.loads(answer.out)] == [(2, "no manifest")]


async def test_metadata_that_is_no_object_is_no_traceback(tmp_path: Path) -> None:
    answer = await dispatcher("adopt", str(given(tmp_path, {"kind": "Job", "metadata": "x", "spec": 3})), "--check")
    assert (answer.status, answer.err) == (COULD_NOT, "")


async def test_template_that_the_dispatcher_would_refuse_is_told(tmp_path: Path) -> None:
    spoilt = job()
    spoilt["spec"]["template"]["spec"]["containers"][0]["imag"] = spoilt["spec"]["template"]["spec"]["containers"][
        0
    ].pop("image")
    answer = await dispatcher("adopt", str(given(tmp_path, spoilt)), "--check")
    assert answer.status == COULD_NOT
    assert "  refused     spec.template.spec.containers[0].imag is no field of Kubernetes: is it image?" in answer.out


async def test_names_of_a_file_reach_no_terminal_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text('kind: Job\nmetadata: {name: "a\\e[2Jb\\nc"}\nspec: {"odd\\e[0m": 1}\n')
    answer = await dispatcher("adopt", str(file), "--check")
    assert (answer.status, "\x1b" in answer.out + answer.err) == (COULD_NOT, False)


async def test_answer_as_json(tmp_path: Path) -> None:
    answer = await dispatcher("adopt", str(given(tmp_path, job(), CONFIG)), "--check", "--json")
    first, second = json.loads(answer.out)
    assert (first["what"], first["line"], second["what"]) == ("Job load", 1, "ConfigMap c")
    assert ["moved", "metadata.name", "the name of the template"] in first["fields"]


async def test_folder_without_manifests_is_wrong(tmp_path: Path) -> None:
    answer = await dispatcher("adopt", str(tmp_path))
    assert (answer.status, "no manifest here" in answer.err) == (WRONG, True)


async def test_whole_corpus_is_adopted_at_once(tmp_path: Path) -> None:
    file = given(tmp_path, *map(manifest, CORPUS))
    answer = await dispatcher("adopt", str(file), "--out", str(tmp_path / "t"))
    assert (answer.status, "refused" in answer.out) == (COULD_NOT, False)
    assert all(isinstance(read_file(one), Template) for one in (tmp_path / "t").iterdir())


@pytest.mark.parametrize(
    ("file", "values", "rows"),
    [
        ("rows", {"count": 3}, 3), ("indexed_rows", {"count": 4}, 4), ("again", {}, 1), ("one_at_a_time", {}, 1),
        ("again_with_env", {"env": '{"DAY": "o\'clock :count"}'}, 1), ("one_at_a_time_with_env", {"env": "{}"}, 1),
        ("row", {"queue": "default"}, 1),
    ],
)  # fmt: skip
async def test_statements_insert_rows(database: Database, file: str, values: dict[str, str | int], rows: int) -> None:
    team, template = await database.session("team_a"), file.replace("_", "-")
    for _ in range(2):
        await team.execute(written(Statement(file, values), template))
    found = await team.fetch("SELECT env, queue, batch FROM dispatch.tasks WHERE template = $1 ORDER BY id", template)
    assert all(one["queue"] == "default" for one in found)
    assert all((one["batch"] or "").startswith(f"{template}-2") is file.endswith("rows") for one in found)
    assert len(found) == (1 if file.startswith("one_at_a_time") else 2 * rows)
    if file == "indexed_rows":
        assert [one["env"] for one in found[:4]] == [{"JOB_COMPLETION_INDEX": str(n)} for n in range(4)]
    if file == "again_with_env":
        assert found[0]["env"] == {"DAY": "o'clock :count"}


async def test_queue_is_made_by_an_operator(database: Database) -> None:
    operator = await database.session("operator")
    await operator.execute(written(Statement("queue", {"count": 20}, has_own_queue=True), "scaled"))
    assert await operator.fetchval("SELECT max_jobs FROM dispatch.queues WHERE name = 'scaled'") == 20
    team = await database.session("team_a")
    await team.execute(written(Statement("rows", {"count": 2}, has_own_queue=True), "scaled"))
    assert await team.fetchval("SELECT tasks FROM dispatch.batch_status WHERE queue = 'scaled'") == 2


def test_texts_in_statements_are_quoted() -> None:
    assert written(Statement("again", {}), "o'brien").endswith("VALUES ('o''brien');")


async def test_page_shows_what_the_command_says(tmp_path: Path, database: Database) -> None:
    blocks = re.findall(r"```(yaml|text|sql)\n(.*?)```", read_page(ADOPTING), re.DOTALL)
    shown = [(found, words) for (_, found), (kind, words) in itertools.pairwise(blocks) if kind == "text"]
    said = ""
    for number, (found, words) in enumerate(shown):
        file = tmp_path / f"{number}.yaml"
        file.write_text(found)
        answer = await dispatcher("adopt", str(file), "--out", str(tmp_path / "templates"))
        assert [line for line in words.splitlines() if line not in answer.out.splitlines()] == []
        said += answer.out
    assert len(shown) == 4, "CronJob, ScaledJob, Airflow, Argo"
    inserting = next(text for kind, text in blocks if kind == "yaml" and "psql" in text)
    assert "".join(f"  {line}\n" for line in inserting.splitlines()) in said
    statements = [line for kind, text in blocks if kind == "sql" for line in text.splitlines()]
    assert f"  {statements[0]}" in said.splitlines()
    for statement in sorted(statements, key=lambda one: "queues" not in one):
        who = "operator" if "queues" in statement else "team_a"
        await (await database.session(who)).execute(statement)
