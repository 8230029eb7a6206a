"""The statements of `sql/`, by file name. Python files hold no SQL text."""

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable


def sql_folder() -> Traversable:
    """The folder `sql/` in the installed package."""
    return files("dispatcher") / "sql"


@cache
def query(name: str, folder: str = "queries") -> str:
    """Text of one statement."""
    return (sql_folder() / folder / f"{name}.sql").read_text(encoding="utf-8")
