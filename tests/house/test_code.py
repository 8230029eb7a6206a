"""Every file of this repository keeps the budgets of CONTRIBUTING. Each rule is tested with source that breaks it."""

import statistics
from collections.abc import Callable

import pytest

from tests.house import rules
from tests.house.tree import python_files, shown

MEDIAN_BODY_LINES = 8
PACKAGES = ("dispatcher/", "demo/")

Rule = Callable[[str], rules.Faults]
IN_THE_PACKAGE: list[Rule] = [
    rules.long_functions,
    rules.many_parameters,
    rules.large_classes,
    rules.sql_text,
    rules.no_docstring,
]
EVERYWHERE: list[Rule] = [
    rules.long_file,
    rules.bare_exceptions,
    rules.broad_excepts,
    rules.borrowed_tests,
    rules.assigned_constants,
]


def faults(rule: Rule, *folders: str) -> list[str]:
    found = [(path, fault) for path in python_files(*folders) for fault in rule(path.read_text(encoding="utf-8"))]
    return [f"{shown(path)}:{fault}" for path, fault in found]


@pytest.mark.parametrize("rule", IN_THE_PACKAGE, ids=lambda rule: rule.__name__)
def test_package_keeps_rule(rule: Rule) -> None:
    assert faults(rule, *PACKAGES) == []


@pytest.mark.parametrize("rule", EVERYWHERE, ids=lambda rule: rule.__name__)
def test_all_code_keeps_rule(rule: Rule) -> None:
    assert faults(rule, *PACKAGES, "tests/", "docs/", "benchmarks/", "deploy/") == []


def test_median_function_is_short() -> None:
    found = [one for path in python_files(*PACKAGES) for one in rules.functions(path.read_text(encoding="utf-8"))]
    assert statistics.median(rules.body_lines(one) for one in found) <= MEDIAN_BODY_LINES


def test_the_embedded_cluster_stays_small() -> None:
    sources = [path.read_text(encoding="utf-8") for path in python_files("demo/dispatcher_demo/cluster/")]
    assert 0 < sum(map(rules.code_lines, sources)) <= rules.MOST_EMBEDDED_LINES


def test_the_library_of_task_authors_does_not_grow() -> None:
    sources = [path.read_text(encoding="utf-8") for path in python_files("dispatcher/task/")]
    assert 0 < sum(map(rules.code_lines, sources)) <= rules.MOST_LIBRARY_LINES


def test_code_lines_leave_out_docstrings_comments_imports_and_blank_lines() -> None:
    source = (
        '"""Why,\nhow."""\nimport os\nfrom a import (\n    b,\n)\n\n# so\nX = 1  # or 2\n"""X."""\ndef f():\n    pass\n'
    )
    assert rules.code_lines(source) == 3


def test_package_names_contain_no_banned_word() -> None:
    found = []
    for path in python_files(*PACKAGES):
        module = path.parent.name if path.name == "__init__.py" else path.stem
        found += [f"{shown(path)}:{one}" for one in rules.banned_names(path.read_text(encoding="utf-8"), module)]
    assert found == []


def lines(count: int) -> str:
    return "def f():\n" + "    x = 1\n" * count


def caught(what: str, comment: str = "") -> str:
    return f"try:\n    f()\nexcept {what}:{comment}\n    pass"


def methods(count: int) -> str:
    """A class with methods of all sorts: plain, async, and decorated ones."""
    sorts = ("    def f{}(self): ...\n", "    async def f{}(self): ...\n", "    @property\n    def f{}(self): ...\n")
    return "class C:\n    x = 1\n" + "".join(sorts[number % 3].format(number) for number in range(count))


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (rules.long_functions, lines(40), lines(41)),
        (rules.long_functions, 'def f():\n    """A\n    B"""\n' + "    x = 1\n" * 40, "async " + lines(41)),
        (rules.many_parameters, "def f(self, a, b, c, d, e): ...", "def f(self, a, b, c, d, *, e, f): ..."),
        (
            rules.many_parameters,
            "def f(a, b, c, d, e, f): ...  # house: the driver calls it so",
            "def f(a,b,c,d,e,f):0",
        ),
        (rules.large_classes, methods(15), methods(16)),
        (rules.large_classes, methods(15) + methods(15), "def f():\n    " + methods(16).replace("\n", "\n    ")),
        (rules.long_file, "x = 1\n" * rules.MOST_FILE_LINES, "x = 1\n" * (rules.MOST_FILE_LINES + 1)),
        (rules.sql_text, '"""SELECT what you like."""\nverb = "DELETE"', 'q = "SELECT 1"'),
        (rules.sql_text, 'said = "Selected 3"', 'q = f"""\n  -- Why.\n  INSERT INTO {table}"""'),
        (rules.bare_exceptions, "x = 1  # noqa: S311  # jitter, not a secret", "x = 1  # noqa: S311"),
        (rules.bare_exceptions, "x = 1  # type: ignore[misc]  # as above", "x = 1  # type: ignore[misc]"),
        (rules.bare_exceptions, "x = '# noqa'", "x = 1  # type: ignore[misc]  # noqa: S311"),
        (rules.bare_exceptions, "x = 1", "x = 1  # noqa: S311  jitter without a mark of its own"),
        (rules.broad_excepts, caught("OSError"), caught("Exception")),
        (rules.broad_excepts, caught("Exception as bug", "  # one bug stops nobody"), caught("Exception as bug")),
        (rules.broad_excepts, caught("(OSError, ValueError)"), caught("(OSError, BaseException)")),
        (rules.broad_excepts, caught("", "  # all ends here"), caught("")),
        (rules.no_docstring, '"""Purpose."""', "x = 1"),
        (rules.borrowed_tests, "from tests.unit.wire import a_pod", "from tests.unit.test_wire import a_pod"),
        (rules.borrowed_tests, "import tests.rig.rows", "from tests.unit import test_wire"),
        (rules.borrowed_tests, "import tests.node.book", "from tests.node.with_scheduler.test_wire import a_pod"),
        (rules.assigned_constants, 'patch.setattr(module, "run", 1)', 'patch.setattr(module, "MOST_ROWS", 1)'),
        (rules.assigned_constants, 'patch.setattr("a.run", 1)', 'patch.setattr("a.MOST", 1, raising=False)'),
        (rules.assigned_constants, 'found["MOST"] = 1', 'vars(module)["MOST"] = 1'),
        (rules.assigned_constants, 'module.__dict__["MOST"]', 'module.__dict__["MOST"] = 1'),
        (rules.assigned_constants, "MOST: int = 1", "module.MOST: int = 1"),
    ],
)
def test_rule_accepts_good_and_rejects_bad_source(rule: Rule, good: str, bad: str) -> None:
    assert list(rule(good)) == []
    assert list(rule(bad))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("utils", ""),
        ("job_helper", ""),
        ("jobs", "class TaskManager: ..."),
        ("jobs", "async def load_data(): ..."),
        ("jobs", "def click_handler(): ..."),
        ("jobs", "class BaseJob: ..."),
        ("jobs", "class HTTPWorkers: ..."),
    ],
)
def test_banned_word_in_a_name_is_found(module: str, source: str) -> None:
    assert list(rules.banned_names(source, module))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("database", "class Based: ..."),
        ("health", "from aiohttp import web\ndef add_handler(): ..."),
        ("cli", "def show_scheduler(): ...  # house: the scheduler of Kubernetes"),
    ],
)
def test_name_without_a_banned_word_is_accepted(module: str, source: str) -> None:
    assert list(rules.banned_names(source, module)) == []
