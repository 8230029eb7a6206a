"""The built wheel contains everything that the program needs, and works without the checkout."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from dispatcher import __version__
from tests.rig.cli import Answer
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import PostgresServer
from tests.rig.steps import reaches

ROOT = Path(__file__).parents[2]
SQL = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "sql").rglob("*.sql"))


class Installed:
    """The wheel in a virtual environment of its own. It sees the dependencies of this one, but not the checkout."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, symlinks=True)
        self.folder = folder
        self.bin = folder / "bin"
        outer = sysconfig.get_paths()["purelib"]
        inner = sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)})
        (Path(inner) / "outer.pth").write_text(
            f"{outer}\n"
        )  # .pth files within `outer`, like the checkout's, are not read
        call(sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "--no-deps", str(wheel))

    async def dispatcher(self, *arguments: str, **settings: str) -> Answer:
        environ = {"PATH": os.environ["PATH"], **{f"DISPATCHER_{name}": setting for name, setting in settings.items()}}
        child = await asyncio.create_subprocess_exec(
            str(self.bin / "dispatcher"),
            *arguments,
            cwd=self.folder,
            env=environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await child.communicate()
        assert child.returncode is not None
        return Answer(child.returncode, out.decode(), err.decode())


def call(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def build(source: Path, target: str, into: Path) -> Path:
    call(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into), cwd=source)
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed") / "venv", wheel)


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def test_wheel_contains_all_sql_and_no_tests(wheel: Path) -> None:
    carried = names(wheel)
    assert SQL
    assert [name.removeprefix("dispatcher/") for name in carried if name.endswith(".sql")] == SQL
    assert {name.split("/")[0] for name in carried} == {"dispatcher", f"pg_job_dispatcher-{__version__}.dist-info"}
    assert not [name for name in carried if "demo" in name]
    assert any(name.endswith("/LICENSE") for name in carried)
    assert {"dispatcher/py.typed", "dispatcher/task/__init__.py"} <= set(carried)


@pytest.mark.slow
async def test_demo_is_a_wheel_of_its_own(installed: Installed, tmp_path: Path) -> None:
    """The image of the product installs the product's wheel: no kubelet of processes is in it."""
    told = await installed.dispatcher("demo")
    assert (told.status, told.err) == (1, "the demo is a package of its own: pip install pg-job-dispatcher-demo\n")
    wheel = build(ROOT / "demo", "wheel", tmp_path / "demo")
    carried = names(wheel)
    assert {name.split("/")[0] for name in carried} == {
        "dispatcher_demo", f"pg_job_dispatcher_demo-{__version__}.dist-info",
    }  # fmt: skip
    assert "dispatcher_demo/demo.sql" in carried
    call(sys.executable, "-m", "pip", "--python", str(installed.bin / "python"), "install", "--no-deps", str(wheel))
    told = await installed.dispatcher("demo", "fly")
    assert "the demo has no command 'fly'; it has one command, psql" in told.err


@pytest.mark.slow
def test_wheel_built_from_the_source_distribution_is_the_same(wheel: Path, tmp_path: Path) -> None:
    packed = build(ROOT, "sdist", tmp_path / "packed")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert names(build(unpacked, "wheel", tmp_path / "wheel")) == names(wheel)


@pytest.mark.slow
async def test_installed_program_runs_without_a_checkout(installed: Installed) -> None:
    where = "import sys, dispatcher; sys.exit(not dispatcher.__file__.startswith(sys.prefix))"
    call(str(installed.bin / "python"), "-c", where, cwd=installed.folder)
    told = await installed.dispatcher("--version")
    assert told == Answer(0, f"dispatcher, version {__version__}\n", "")
    settings = await installed.dispatcher("config", IMAGE="x")
    assert settings.status == 0
    assert "DISPATCHER_IMAGE" in settings.out


@pytest.mark.slow
async def test_installed_program_migrates_a_database(installed: Installed, postgres: PostgresServer) -> None:
    empty = await postgres.create_database(migrated=False)
    try:
        before, applied, after = [
            await installed.dispatcher(*command, DATABASE_URL=empty.admin_url)
            for command in (["migrate", "--check"], ["migrate"], ["migrate", "--check"])
        ]
    finally:
        await empty.drop()
    assert (before.status, applied.status, after.status) == (1, 0, 0), before.err + applied.err + after.err
    names = [line.split()[1] for line in applied.out.splitlines()]
    assert names == [
        *(name.removeprefix("sql/migrations/") for name in SQL if name.startswith("sql/migrations/")),
        *(name.removeprefix("sql/") for name in SQL if name.startswith("sql/functions/")),
        "reasons",
    ]


async def test_installed_program_renders_the_built_in_template(installed: Installed) -> None:
    shown = await installed.dispatcher("render", "--template", "default", IMAGE="registry/task:1")
    assert shown.status == 0, shown.err
    assert "image: registry/task:1" in shown.out


@pytest.mark.slow
async def test_installed_program_runs_a_row_of_the_built_in_template(installed: Installed, place: Place) -> None:
    dispatcher = Dispatcher(place, TEMPLATES_DIR=None, IMAGE="registry.example/task:1", CPU_REQUEST="1", CPU_LIMIT="1")
    dispatcher.program, dispatcher.folder = (str(installed.bin / "dispatcher"),), installed.folder
    async with place.playing(), dispatcher:
        await dispatcher.ready()
        task_id = await place.database.insert_task()
        await reaches(place, dispatcher, task_id, "succeeded")
