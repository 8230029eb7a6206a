"""The statements of sql/queries and of the demo: each has a name, a purpose and somebody who runs it."""

import re
from collections.abc import Callable

import pytest

from dispatcher.pg.queries import blocks, query
from dispatcher_demo.statements import demo_blocks
from tests.house import rules
from tests.house.tree import ROOT, files, python_files, shown
from tests.rig.statements import FILES, OF_READER

USE = 'from dispatcher.pg.queries import query\nquery("a", "b")\n'
NAMED = re.compile(r"\bdispatch_private\.([a-z_]+)\b")
BLOCKS = "-- Who.\n\n-- name: a\n-- Why.\nSELECT 1\n\n-- name: b\n-- Why.\nSELECT 2\n"


def used(*folders: str) -> set[tuple[str, str]]:
    """(file, block) of each call of `query` in these folders."""
    found = [rules.queries_used(path.read_text(encoding="utf-8")) for path in python_files(*folders)]
    return {one for each in found for one in each}


def there() -> set[tuple[str, str]]:
    return {(file, block) for file in FILES for block in blocks(file)} | {("demo", block) for block in demo_blocks()}


def test_every_statement_is_run_by_a_program_and_is_there() -> None:
    run, present = used("dispatcher/", "demo/", "docs/"), there()
    assert present
    assert (sorted(present - run), sorted(run - present)) == ([], []), "nobody runs it, or it is not in sql/queries"


def test_tests_name_statements_that_are_there() -> None:
    assert sorted(used("tests/", "benchmarks/", "deploy/") - there()) == []


def test_benchmarks_name_objects_that_are_there() -> None:
    """No gate runs them: one that calls a function of before fails weeks later."""
    schema = (ROOT / "sql/schema.sql").read_text(encoding="utf-8")
    named = {one for path in python_files("benchmarks/") for one in NAMED.findall(path.read_text(encoding="utf-8"))}
    assert named
    assert sorted(one for one in named if not re.search(rf"\b{re.escape(one)}\b", schema)) == []


def test_purposes_name_classes_that_are_there() -> None:
    named = {
        one for path in (ROOT / "sql/queries").glob("*.sql") for one in re.findall(r"model\.\w+\.\w+", path.read_text())
    }
    classes = {f"model.{path.stem}.{name}" for path in python_files("dispatcher/model/") for name in
               re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)}  # fmt: skip
    assert named
    assert sorted(named - classes) == []


def test_programs_write_the_names_of_statements() -> None:
    found = [
        f"{shown(path)}:{one}"
        for path in python_files("dispatcher/", "demo/", "docs/")
        for one in rules.hidden_queries(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_files_of_statements_name_their_reader_and_each_block_once() -> None:
    paths = [path for path in files() if path.parent == ROOT / "sql" / "queries"]
    assert sorted(path.stem for path in paths) == FILES
    every = [*paths, ROOT / "demo/dispatcher_demo/demo.sql"]
    found = [f"{shown(path)}:{one}" for path in every for one in rules.unclear_blocks(path.read_text(encoding="utf-8"))]
    assert found == []


def test_readme_names_each_file_of_statements() -> None:
    _, _, rest = (ROOT / "sql/README.md").read_text(encoding="utf-8").partition("| file of `queries/` |")
    rows = rest.partition("\n\n")[0].splitlines()
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == FILES


def test_every_block_has_a_purpose_line_and_ours_have_one_statement() -> None:
    found = [
        f"{file}/{block}:{one}"
        for file in FILES
        for block, text in blocks(file).items()
        for one in (rules.unclear_query if block in OF_READER else rules.unclear_purpose)(text)
    ]
    found += [f"demo/{block}:{one}" for block, text in demo_blocks().items() for one in rules.unclear_purpose(text)]
    assert found == []


def test_a_statement_that_is_not_there_is_named() -> None:
    wrong = ("candidate", "cycle")
    with pytest.raises(KeyError, match=r"sql/queries/cycle\.sql has no block candidate\b"):
        query(*wrong)


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (rules.unclear_query, "-- Why. $1 int.\nSELECT $1", "SELECT 1"),
        (rules.unclear_query, "-- Why.\nSELECT 1;\n", "-- Why.\nSELECT 1;\nSELECT 2"),
        (rules.unclear_query, "-- Why. $1 int, $2 int.\nSELECT $1, $2", "-- Why. $1 int.\nSELECT $1, $2"),
        (rules.unclear_query, "-- Why.\nSELECT 1", "-- Why.\n-- And more.\nSELECT 1"),
        (rules.unclear_blocks, BLOCKS, BLOCKS.replace("name: b", "name: a")),
        (rules.unclear_blocks, BLOCKS, BLOCKS.replace("name: b", "name: b, for c")),
        (rules.unclear_blocks, BLOCKS, BLOCKS.replace("-- name: b", "  --name: b")),
        (rules.unclear_blocks, BLOCKS, BLOCKS.removeprefix("-- Who.\n\n")),
        (rules.hidden_queries, USE, USE.replace('"a"', "a")),
        (rules.hidden_queries, USE, USE.replace('"b"', 'f"{b}"')),
        (rules.hidden_queries, USE.replace('"a", "b")', "a, b)  # house: c names them"), USE.replace(', "b"', "")),
        (rules.hidden_queries, USE.replace("dispatcher.pg", "a"), USE.replace('"a", "b"', "*names")),
    ],
)
def test_rule_accepts_good_and_rejects_bad_source(rule: Callable[[str], rules.Faults], good: str, bad: str) -> None:
    assert list(rule(good)) == []
    assert list(rule(bad))


def test_uses_of_statements_are_found() -> None:
    assert rules.queries_used(USE) == {("b", "a")}
    assert rules.queries_used(USE.replace("query", "other")) == set()
    assert rules.queries_used(USE.replace("import query", "import blocks")) == set()


def test_no_statement_asks_for_md5() -> None:
    """A server that keeps to FIPS refuses it."""
    statements = [path for path in files() if path.suffix == ".sql" and not path.is_relative_to(ROOT / "tests")]
    assert statements
    assert [shown(path) for path in statements if "md5(" in path.read_text(encoding="utf-8")] == []


def test_no_body_of_a_function_changes_with_a_setting_of_its_session() -> None:
    """With `standard_conforming_strings = off` a backslash in a plain literal means another text than in E'…'."""
    functions = sorted((ROOT / "sql" / "functions").glob("*.sql"))
    assert functions
    assert [f"{path.name}: {one}" for path in functions for one in backslashes(path.read_text(encoding="utf-8"))] == []


def backslashes(text: str) -> list[str]:
    plain = re.sub(r"E'(?:[^']|'')*'|--.*", "", text)
    return [line.strip() for line in plain.splitlines() if "\\" in line]


def test_backslash_is_found_in_a_plain_literal_alone() -> None:
    assert backslashes("SELECT E'\\\\.' -- a \\ here") == []
    assert backslashes("SELECT '\\.'") == ["SELECT '\\.'"]
