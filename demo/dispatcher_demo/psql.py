"""`dispatcher demo psql`: psql as the submitter's login of the demo that runs.

The login is in a file of the demo's folder, which libpq reads: no argument or variable shows its password.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from dispatcher.commands.reaching import living_folders
from dispatcher.model.errors import DispatcherError
from dispatcher_demo.database import SERVICE
from dispatcher_demo.environment import SERVICE_FILE
from dispatcher_demo.postgres import PostgresFault, binaries
from dispatcher_demo.samples import own_command

NO_PSQL: Final = "psql is missing: install Postgres' client programs, or pip install pg-job-dispatcher-demo"


def run(arguments: Sequence[str]) -> NoReturn:
    """Becomes psql. Raises DispatcherError if no demo of this account runs, or several do, or there is no psql."""
    program, file = find_psql(), find_service()
    sys.stdout.flush()
    os.execve(program, [program, *arguments], {**os.environ, "PGSERVICEFILE": str(file), "PGSERVICE": SERVICE})  # noqa: S606  # psql, with the user's own arguments


def find_service() -> Path:
    """The file with the login of the one demo that runs."""
    where, command = tempfile.gettempdir(), own_command(sys.argv[0], sys.executable)
    found = living_folders()
    if not found:
        raise DispatcherError(
            f"no demo of this account runs in {where}: start one with `{command} demo --keep`, "
            "or set TMPDIR as it was set for the demo"
        )
    if len(found) > 1:
        names = ", ".join(folder.name for folder in found)
        raise DispatcherError(
            f"{len(found)} demos run in {where} ({names}): end all but one, or use the URL that each of them prints"
        )
    file = found[0] / SERVICE_FILE
    if not file.exists():
        raise DispatcherError(f"the demo in {found[0]} still starts: try again when it takes rows")
    return file


def find_psql() -> str:
    """The psql of the PATH, or that of the Postgres package."""
    if known := shutil.which("psql"):
        return known
    try:
        own = binaries() / "psql"
    except PostgresFault as fault:
        raise DispatcherError(NO_PSQL) from fault
    if not own.exists():
        raise DispatcherError(NO_PSQL)
    return str(own)
