"""The pages of the root and of the rooms name files, functions, folders and classes that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT, files, project, python_files, shown

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "GLOSSARY.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROOMS = [
    path
    for path in files()
    if path.name == "README.md" and path.parts[len(ROOT.parts)] in {"dispatcher", "demo", "deploy"}
]
PLACES = ("", "dispatcher/", "demo/")
"""Folders that a path on a page may begin from, beside the page's own."""
MOST_WORDS = 2500
MOST_ROOM_LINES = 150


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def stops(text: str) -> Iterator[tuple[str, str]]:
    """File and function of each line of the table of stops."""
    for row in re.findall(r"^\| [^|]*\| `([^|`]+)` \| ([^|]+) \|", text, re.MULTILINE):
        file, functions = row
        for function in re.findall(r"`([^`]+)`", functions):
            yield file, function


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """Names of classes and functions; a method has the name of its class before it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from definitions(node, f"{node.name}.")


def has_function(file: str, function: str) -> bool:
    path = ROOT / file
    if not path.is_file():
        return False
    text = path.read_text(encoding="utf-8")
    return is_created(text, function) if path.suffix == ".sql" else function in definitions(ast.parse(text))


def is_created(sql: str, function: str) -> bool:
    return bool(re.search(rf"^CREATE OR REPLACE FUNCTION dispatch(_private)?\.{function}\(", sql, re.MULTILINE))


STOPS = list(stops(section("One row's way through the code")))


def test_the_way_of_a_row_has_its_stops() -> None:
    assert len({file for file, _ in STOPS}) >= 6


@pytest.mark.parametrize(("file", "function"), STOPS, ids=str)
def test_each_stop_exists(file: str, function: str) -> None:
    assert has_function(file, function)


@pytest.mark.parametrize(("file", "function"), [stop for stop in STOPS if stop[0].endswith(".sql")], ids=str)
def test_each_sql_stop_is_in_no_other_file(file: str, function: str) -> None:
    sources = [path for path in files() if path.match("sql/**/*.sql")]
    assert [shown(path) for path in sources if is_created(path.read_text(encoding="utf-8"), function)] == [file]


def test_a_name_that_does_not_exist_is_found() -> None:
    row = "| 1 x | `dispatcher/app.py` | `App.run`, `App.fly` | text |\n| | `dispatcher/gone.py` | `run` | text |\n"
    sql = "| | `sql/functions/11_containers.sql` | `task_start`, `task_fly` | text |\n"
    assert [stop for stop in stops(row + sql) if not has_function(*stop)] == [
        ("dispatcher/app.py", "App.fly"),
        ("dispatcher/gone.py", "run"),
        ("sql/functions/11_containers.sql", "task_fly"),
    ]


@pytest.mark.parametrize("page", [ROOT / "ARCHITECTURE.md", *ROOMS], ids=shown)
def test_every_file_on_the_page_exists(page: Path) -> None:
    named = set(re.findall(r"`([\w/.-]+\.(?:py|sql|md|toml))`", page.read_text(encoding="utf-8")))
    places = [*(ROOT / place for place in PLACES), page.parent]
    assert [name for name in sorted(named) if not any((place / name).is_file() for place in places)] == []


def is_defined(name: str, file: str) -> bool:
    """Whether the file defines a constant, class, function or member with this name."""
    path, last = ROOT / file, name.rpartition(".")[2]
    return path.is_file() and bool(re.search(rf"^ *(class |def )?{last}\b", path.read_text("utf-8"), re.MULTILINE))


def test_every_name_that_contributors_are_sent_to_stands_in_its_file() -> None:
    named = re.findall(r"`([\w.]+)`\s+\(`([\w/]+\.py)`\)", CONTRIBUTING)
    assert len(named) > 5
    assert [one for one in named if not is_defined(*one)] == []


def test_page_is_read_in_a_quarter_of_an_hour() -> None:
    assert len(PAGE.split()) <= MOST_WORDS


@pytest.mark.parametrize("page", ROOMS, ids=shown)
def test_page_of_a_room_is_short_and_linked(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= MOST_ROOM_LINES
    assert f"]({shown(page)})" in PAGE or shown(page).startswith("deploy/chart")


def test_every_folder_of_the_package_is_in_the_house() -> None:
    drawing = section("The house").split("```")[1]
    folders = {
        shown(path).split("/")[1] for path in python_files("dispatcher/") if len(path.parts) > len(ROOT.parts) + 2
    }
    assert [folder for folder in sorted(folders) if f" {folder}/ " not in drawing] == []


def importers_on_the_page() -> set[tuple[str, str]]:
    """(driver, file) of the table of drivers."""
    rows = re.findall(r"^\| ([a-z_]+)[^|]* \| ([^|]+) \|$", section("The house"), re.MULTILINE)
    return {(driver, file) for driver, files_ in rows for file in re.findall(r"`([^`]+)`", files_)}


def importers_in_the_contracts(drivers: set[str]) -> Iterator[tuple[str, str]]:
    """(driver, file) of each import that a contract allows, written as on the page."""
    tools = project()["tool"]
    assert isinstance(tools, dict)
    for contract in tools["importlinter"]["contracts"]:
        for allowed in contract.get("ignore_imports", ()):
            module, driver = allowed.split(" -> ")
            file = module.removeprefix("dispatcher.").replace(".", "/")
            if driver in drivers:
                yield driver, file if file.endswith("*") else f"{file}.py"


def test_page_names_the_importers_of_each_driver() -> None:
    named = importers_on_the_page()
    drivers = {driver for driver, _ in named}
    assert drivers == {"asyncpg", "psycopg", "kubernetes_asyncio", "aiohttp"}
    assert named == set(importers_in_the_contracts(drivers))


def test_every_class_in_the_glossary_exists() -> None:
    named = set(re.findall(r"`([A-Z]\w+)`", "\n".join(re.findall(r"^\| ([^|]+) \|", GLOSSARY, re.MULTILINE))))
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in python_files("dispatcher/", "demo/")]
    assert named
    assert named <= {name for tree in trees for name in definitions(tree)}
