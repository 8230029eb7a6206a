"""The statements of `sql/`, by file name. No SQL text stands in Python."""

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable


def sql_folder() -> Traversable:
    """`sql/` as it travels in the package."""
    return files("dispatcher") / "sql"


@cache
def query(name: str, folder: str = "queries") -> str:
    """One statement."""
    return (sql_folder() / folder / f"{name}.sql").read_text(encoding="utf-8")
