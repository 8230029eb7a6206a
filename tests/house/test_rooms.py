"""The package is cut no finer than a reader needs, and a name means one thing."""

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterator

from tests.house.tree import python_files, shown

MOST_WITH_ONE_IMPORTER = 0.18
"""Part of the modules. The pure half of an acting file has one importer, too."""
MOST_FILES = 169
PARTICIPLE = re.compile(r"[A-Z][a-z]+ed")
RAISES = re.compile(r"\b[Rr]aises? ([A-Z]\w+(?:(?:, |,? and |,? or )[A-Z]\w+)*)")


def modules() -> dict[str, ast.Module]:
    """The modules of the product by their dotted names, without those that only document a folder."""
    files = [path for path in python_files("dispatcher/") if path.name != "__init__.py"]
    return {shown(path)[:-3].replace("/", "."): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def imported(tree: ast.Module, known: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                yield name if (name := f"{node.module}.{one.name}") in known else node.module


def with_one_importer(trees: dict[str, ast.Module]) -> list[str]:
    importers = Counter(name for tree in trees.values() for name in set(imported(tree, set(trees))) & set(trees))
    return sorted(name for name, count in importers.items() if count == 1)


def names_of_classes(trees: dict[str, ast.Module]) -> Counter[str]:
    return Counter(node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef))


def raised_in_words(tree: ast.Module) -> set[str]:
    """The exceptions that the docstrings name, also those of fields and constants. A constant may stand for several."""
    texts = [node.value.value for node in ast.walk(tree) if isinstance(node, ast.Expr)
             and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]  # fmt: skip
    named = {name for text in texts for some in RAISES.findall(text) for name in re.findall(r"[A-Z]\w+", some)}
    return {name for name in named if not name.isupper()}


def test_no_name_of_a_class_stands_twice() -> None:
    assert [name for name, count in names_of_classes(modules()).items() if count > 1] == []


def test_a_class_is_named_by_a_noun() -> None:
    """`Failed` is what task authors raise: its name is public."""
    assert [name for name in names_of_classes(modules()) if PARTICIPLE.fullmatch(name) and name != "Failed"] == []


def test_docstrings_name_exceptions_that_exist() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in python_files("dispatcher/", "demo/")]
    known = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    assert sorted({name for tree in trees for name in raised_in_words(tree)} - known - vars(builtins).keys()) == []


def test_few_modules_have_one_importer() -> None:
    trees = modules()
    alone = with_one_importer(trees)
    assert len(alone) / len(trees) <= MOST_WITH_ONE_IMPORTER, alone


def test_the_product_has_few_files() -> None:
    assert len(python_files("dispatcher/")) <= MOST_FILES


def test_no_file_stands_loose_beside_the_suites() -> None:
    assert [shown(path) for path in python_files("tests/") if shown(path).count("/") == 1] == []


def test_rules_find_what_they_forbid() -> None:
    trees = {name: ast.parse(source) for name, source in {
        "a": "class X: ...", "b": "from a import X\nfrom c import y\nclass X: ...", "c": "def y(): ...",
        "d": "import b\nfrom c import y",
    }.items()}  # fmt: skip
    assert names_of_classes(trees)["X"] == 2
    assert with_one_importer(trees) == ["a"]
    words = ast.parse('class X:\n    """Raises Away, Lost and Late. Others raise Gone, or one of FAULTS."""')
    assert raised_in_words(words) == {"Away", "Lost", "Late", "Gone"}
