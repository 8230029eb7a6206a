"""The statements of `sql/queries`, one file per reader. Python files hold no SQL text.

A file is a list of blocks. A line `-- name: candidates` begins a block; its comment and its statement follow. A test
compares the blocks with the calls of `query` (tests/house/test_statements.py).
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

NAME_OF_A_BLOCK: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def sql_folder() -> Traversable:
    """The folder `sql/` in the installed package."""
    return files("dispatcher") / "sql"


def read_sql(name: str) -> str:
    return (sql_folder() / name).read_text(encoding="utf-8")


def query(block: str, file: str) -> str:
    """One statement with its comment, of `sql/queries/{file}.sql`. Raises KeyError if the file has no such block."""
    found = blocks(file).get(block)
    if found is None:
        raise KeyError(f"sql/queries/{file}.sql has no block {block}")
    return found


@cache
def blocks(file: str) -> Mapping[str, str]:
    """The statements of `sql/queries/{file}.sql` by name."""
    return blocks_of(read_sql(f"queries/{file}.sql"))


def blocks_of(text: str) -> Mapping[str, str]:
    """The statements of the text of a file by name."""
    _, *parts = NAME_OF_A_BLOCK.split(text)
    return {name: f"{text.rstrip()}\n" for name, text in zip(parts[::2], parts[1::2], strict=True)}
