"""Images of other versions than that of the checkout: the last release, and two that come after it.

The versions to come are the checkout's own with one more migration each, because only the schema can tell them apart.
"""

import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Final

from dispatcher import __version__
from dispatcher.pg.migrate import NEWEST
from tests.node.cache import cached, digest_of
from tests.node.images import ROOT, base, build, images, run, unpack
from tests.node.oci import Image
from tests.node.place import REGISTRY

TABLES: Final = "sql/migrations/0027_post_tables.sql"
"""The commit that added this file is the first with the tables in dispatch_private, which refuse earlier programs."""
OF_BASELINE: Final = ("dispatcher", "sql", "pyproject.toml", "LICENSE", "README.md")
CHART: Final = "deploy/chart"
OF_CHECKOUT: Final = ("deploy/image", "requirements-run.lock", ".dockerignore")
"""How an image is made, which the first baseline did not know."""
LAST: Final = f"{__version__}-last"
NEXT: Final = f"{__version__}-next"
AFTER: Final = f"{__version__}-after"
ADDS: Final = (f"{NEWEST + 1:04}_pre_adds.sql", "ALTER TABLE dispatch_private.queues ADD COLUMN of_next text;\n")
REMOVES: Final = (f"{NEWEST + 2:04}_post_removes.sql", "ALTER TABLE dispatch_private.queues DROP COLUMN of_next;\n")
MIGRATIONS: Final[Mapping[str, Mapping[str, str]]] = {NEXT: dict([ADDS]), AFTER: dict([ADDS, REMOVES])}
"""The migrations of each version to come that the checkout does not have."""


def baseline() -> Path:
    """A folder with the last release, or the first baseline: the OCI layout `image`, and `chart` if it has one."""
    commit = newest_tag() or first_baseline()
    made = [path.read_bytes() for path in (Path(__file__), *sorted(files_of_checkout()))]
    return cached("baseline", digest_of((base().name, commit, *made)), lambda to: make_baseline(commit, to))


def last_chart() -> Path:
    """The chart of the last release. The first baseline has none, and this one installs it."""
    chart = baseline() / CHART
    return chart if chart.exists() else ROOT / CHART


def newest_tag() -> str:
    return next(iter(run("git", "tag", "--list", "v*", "--sort=-version:refname").split()), "")


def first_baseline() -> str:
    """The commit that counts until the first release has a tag."""
    return run("git", "log", "--diff-filter=A", "--format=%H", "-1", "--", TABLES).strip()


def files_of_checkout() -> Iterator[Path]:
    for name in OF_CHECKOUT:
        path = ROOT / name
        yield from (path.rglob("*.*") if path.is_dir() else (path,))


def make_baseline(commit: str, to: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="baseline-") as name:
        source = Path(name)
        run("git", "archive", "--output", source / "source.tar", commit, *OF_BASELINE)
        with tarfile.open(source / "source.tar") as archive:
            archive.extractall(source, filter="data")
        for each in OF_CHECKOUT:
            path = ROOT / each
            (shutil.copytree if path.is_dir() else shutil.copy)(path, source / each)
        build("run", to, source)
    unpack(to, "image")
    if run("git", "ls-tree", commit, CHART):
        run("git", "archive", "--output", to / "chart.tar", commit, CHART)
        with tarfile.open(to / "chart.tar") as archive:
            archive.extractall(to, filter="data")


def layer_of(migrations: Mapping[str, str]) -> bytes:
    """A layer with these files beside the migrations of the image."""
    last = f"{NEWEST:04}_"
    names = [one.name for one in Image(images() / "dispatcher").members()]
    (place,) = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2].startswith(last)}
    written = BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, text in migrations.items():
            member = tarfile.TarInfo(f"{place}/{name}")
            member.size = len(text)
            archive.addfile(member, BytesIO(text.encode()))
    return written.getvalue()


def reference(version: str) -> str:
    return f"{REGISTRY}/dispatcher:{version}"
