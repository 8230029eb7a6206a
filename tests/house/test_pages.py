"""The reference pages are made from the code and up to date. The other pages name only what the code has."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from dispatcher.cli import commands
from dispatcher.jobs.templates import parse_template
from dispatcher.model.errors import TemplateError
from dispatcher.model.verdicts import PARKED, NotReady, Stage
from dispatcher.settings.loading import known_names
from dispatcher.views.answers import ADDRESSES, API
from docs import (
    make_board,
    make_chart,
    make_doctor,
    make_faults,
    make_metrics,
    make_reasons,
    make_settings,
    make_variables,
)
from tests.house.tree import ROOT, python_files, shown
from tests.rig.pages import (
    AUTHOR,
    INSTALL,
    OPERATOR,
    PAGES,
    SUBMITTER,
    commands_for_nodes,
    find_block,
    read_page,
    without_comment,
)

WRITTEN = ["README.md", "ARCHITECTURE.md", AUTHOR, INSTALL, OPERATOR, SUBMITTER, "docs/embedded.md", "docs/protocol.md"]


@pytest.mark.parametrize(
    ("page", "made"),
    [
        (make_settings.PAGE, make_settings.settings_page()),
        (make_variables.PAGE, make_variables.variables_page()),
        (make_metrics.PAGE, make_metrics.metrics_page()),
        *make_chart.made().items(),
        (make_faults.PAGE, make_faults.faults_page()),
        (make_reasons.PAGE, make_reasons.reasons_page()),
        (make_doctor.PAGE, make_doctor.doctor_page()),
        (make_board.BOARD, make_board.board()),
    ],
    ids=lambda one: one.name if isinstance(one, Path) else "",
)
def test_reference_page_is_up_to_date(page: Path, made: str) -> None:
    assert page.read_text(encoding="utf-8") == made, "run `make docs`"


def details_in_text(source: str) -> Iterator[int]:
    """Lines with a Hold of `Launched` or `DispatcherNotReady` whose detail begins with a text of its own."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(ast.Name("Hold"), [ast.Attribute(attr="LAUNCHED" | "DISPATCHER_NOT_READY"), detail]):
                first = detail.values[0] if isinstance(detail, ast.JoinedStr) else detail
                if isinstance(first, ast.Constant):
                    yield node.lineno


def test_every_detail_of_a_reason_is_on_the_page_of_reasons() -> None:
    page = read_page("docs/reasons.md")
    assert [one for one in (*Stage, *NotReady) if f"\n| `{one}` | " not in page] == []
    package = {shown(path): path.read_text(encoding="utf-8") for path in python_files("dispatcher/", "demo/")}
    assert [(name, line) for name, source in package.items() for line in details_in_text(source)] == []


@pytest.mark.parametrize(
    ("detail", "is_told"),
    [("'soon'", True), ("f'soon: {x}'", True), ("f'{Stage.ENDING}: x'", False), ("Stage.ENDING", False)],
)
def test_detail_with_a_beginning_of_its_own_is_found(detail: str, is_told: bool) -> None:
    assert bool([*details_in_text(f"Hold(HoldReason.LAUNCHED, {detail})")]) is is_told


def test_every_setting_is_on_its_page() -> None:
    assert set(re.findall(r"`(DISPATCHER_\w+[A-Z])`", make_settings.settings_page())) == known_names()


def test_metrics_page_has_every_metric_by_its_scraped_name() -> None:
    shown = set(re.findall(r"^\| `(\w+)`", make_metrics.metrics_page(), re.MULTILINE))
    assert shown == {name for name in scraped_names() if not name.endswith("_created")}


def scraped_names() -> set[str]:
    return set(re.findall(r"^# TYPE (dispatcher_\w+) ", generate_latest().decode(), re.MULTILINE))


@pytest.mark.parametrize("page", WRITTEN)
def test_page_names_only_settings_and_metrics_that_exist(page: str) -> None:
    text = read_page(page)
    assert set(re.findall(r"\b(DISPATCHER_\w*[A-Z])\b", text)) <= known_names()
    assert set(re.findall(r"`(dispatcher_\w+_\w+)(?=[`{])", text)) <= scraped_names()


@pytest.mark.parametrize("page", [*PAGES, "llms.txt"])
def test_links_of_a_page_lead_to_files(page: str) -> None:
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)", read_page(page)) if "://" not in target]
    assert [target for target in targets if not ((ROOT / page).parent / target).exists()] == []


def test_addresses_that_programs_are_told_of_are_those_of_the_api() -> None:
    told = {address.partition("?")[0] for address in re.findall(r"`(?:GET )?(/api/v1/[^`]+)`", read_page("llms.txt"))}
    known = {re.sub(r"{\w+}", "42", API + path) for path in ADDRESSES}
    assert told <= known | {f"{API}/openapi.json"}
    assert len(told) >= 5


def test_template_on_the_page_of_installation_is_valid_and_sets_only_open_fields() -> None:
    (values,) = re.findall(r"^```yaml\n(# values.yaml.*?)^```$", read_page(INSTALL), re.MULTILINE | re.DOTALL)
    text = yaml.safe_dump(yaml.safe_load(values)["templates"]["gpu.yaml"])
    assert parse_template("gpu", text).opened == {"env.MODE", "cpu"}
    for field in ("ttlSecondsAfterFinished: 1", "activeDeadlineSeconds: 1", "backoffLimit: 1", "podFailurePolicy: {}"):
        with pytest.raises(TemplateError, match=field.split(":")[0]):
            parse_template("gpu", text.replace("\nspec:\n", f"\nspec:\n  {field}\n"))


def test_operators_page_explains_every_reason_for_which_rows_are_parked() -> None:
    rows = read_page(OPERATOR).split("| parked for |")[1].split("\n\n")[0]
    explained = [
        name for names in re.findall(r"^\| ([A-Z][\w, ]+) \|", rows, re.MULTILINE) for name in names.split(", ")
    ]
    assert sorted(explained) == sorted(PARKED)


def test_five_lines_of_the_readme_are_those_of_the_page_of_installation() -> None:
    """Without comments: the node suite runs the lines of that page."""
    beginning = "# needs a cluster\nkubectl create namespace dispatcher\n"
    readme, page = (commands_of(find_block(one, beginning)) for one in ("README.md", INSTALL))
    assert readme == page
    assert len(page) == 5


PLACEHOLDER = re.compile(r"\b(NAME|ID|POD|NODE|NAMESPACE|TASK|QUEUE|JOB)\b|<[a-z-]+>")


@pytest.mark.parametrize("line", commands_for_nodes())
def test_command_for_a_cluster_names_examples_and_has_its_arguments(line: str) -> None:
    """The node suite runs each of them, and takes a quarter of an hour to say so."""
    assert PLACEHOLDER.search(line) is None
    ours = re.search(r"^(?:kubectl -n dispatcher exec .* -- )?dispatcher (.*)", line)
    name, *rest = shlex.split(ours[1]) if ours else [""]
    if name in commands.commands:
        commands.commands[name].make_context(name, rest)


def commands_of(block: str) -> list[str]:
    return [line for line in map(without_comment, block.splitlines()) if line]


def test_help_says_what_each_command_does_in_a_line_of_80_columns() -> None:
    told = {name: command.get_short_help_str(1000) for name, command in commands.commands.items()}
    assert {name: words for name, words in told.items() if not 0 < len(words) <= 60} == {}
