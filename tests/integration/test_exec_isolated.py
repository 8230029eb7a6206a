"""`dispatcher exec` ignores variables that a row may have set; its command gets all of them."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.rig.execing import DONE, execute, sh
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import insert_row

database = one_database

ISOLATED = (sys.executable, "-I", "-m", "dispatcher", "exec", "--")
"""As on the author's page: not even the start of the interpreter reads a variable."""
DIVERTING = {
    "PGHOST": "nowhere.invalid", "PGPORT": "1", "PGUSER": "nobody", "PGSSLMODE": "verify-full",
    "PGSSLROOTCERT": "/nothing",
    "PGTARGETSESSIONATTRS": "standby", "PGPASSFILE": "/nothing", "PGSERVICEFILE": "/nothing", "HOME": "/nothing",
    "SSL_CERT_FILE": "/nothing", "LOCPATH": "/nothing", "GCONV_PATH": "/nothing",
}  # fmt: skip
SHOWN = "env | cut -d= -f1 | sort | tr '\\n' ' '"


async def test_variable_of_the_row_runs_nothing_in_exec(database: Database, tmp_path: Path) -> None:
    """PYTHONWARNINGS with BROWSER, and a module that every start of an interpreter would load."""
    ran = tmp_path / "ran"
    (tmp_path / "sitecustomize.py").write_text(f"open({str(ran)!r}, 'w')")
    evil = {"PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "all:0:antigravity.x:0:0", "BROWSER": f"touch {ran} #%s",
            "PYTHONSTARTUP": str(tmp_path / "sitecustomize.py"), "BASH_ENV": str(ran), "ENV": str(ran)}  # fmt: skip
    row = await insert_row(database)
    ended = await execute(row, *sh(SHOWN), program=ISOLATED, **evil)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended
    assert not ran.exists()
    assert evil.keys() <= set(ended.out.decode().split()), "the command gets them"


async def test_connection_uses_only_its_url(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(row, *sh(SHOWN), **DIVERTING)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended
    assert DIVERTING.keys() <= set(ended.out.decode().split())


async def test_command_gets_its_environment_unchanged(database: Database) -> None:
    row = await insert_row(database)
    odd = {"PATH": "/usr/bin:/bin:/odd", "NODE_OPTIONS": "a b\n'c' \\ ü", "HTTP_PROXY": "", "AWS_X": "x" * 100_000}
    script = 'printf "%s|%s|%s|%s" "$PATH" "$NODE_OPTIONS" "${HTTP_PROXY-unset}" "${#AWS_X}"; env | grep -c KEPT; true'
    ended = await execute(row, *sh(script), **odd)
    assert ended.out.decode() == f"{odd['PATH']}|{odd['NODE_OPTIONS']}||1000000\n", ended
