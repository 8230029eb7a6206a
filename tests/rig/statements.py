"""The blocks of `sql/queries`, for tests that try them all."""

from dispatcher.pg.queries import blocks, query, sql_folder

OF_OTHERS = {"connect", "janitor", "doctor", "migrate", "rights", "wait"}
FILES = sorted(file.name.removesuffix(".sql") for file in (sql_folder() / "queries").iterdir())
OF_READER = {block: file for file in FILES if file not in OF_OTHERS for block in blocks(file)}
"""The file of each query that the dispatcher asks with a login of `dispatch_reader`."""


def of_reader(block: str) -> str:
    """A query of the dispatcher, whichever file it is in."""
    return query(block, OF_READER[block])
