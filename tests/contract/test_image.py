"""The folder that is the image: it works by itself, and is the same each time."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from deploy.image import copy_to, make_image
from dispatcher.cli import commands
from tests.house.tree import ROOT

pytestmark = pytest.mark.slow  # the image is built
IMAGE = ROOT / "deploy" / "image"
LOCK = ROOT / "requirements-run.lock"
IMPORTS = """
import aiohttp, asyncpg, msgspec, uvloop, kubernetes_asyncio.config, ssl, yaml
print(*{line.split()[-1] for line in open("/proc/self/maps") if ".so" in line})
"""
PROGRAMS = sorted(commands.commands.keys() - {"exec"})
"""All commands but `exec`, which other tests run."""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What builds an image: the programs of deploy/image/requirements.lock."""
    folder = tmp_path_factory.mktemp("tools")
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "pip", "install", "--quiet", "--require-hashes", "-r", IMAGE / "requirements.lock")
    return folder / "bin"


@pytest.fixture(scope="module")
def tree(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tools, tmp_path_factory.mktemp("image") / "dispatcher")


@pytest.fixture(scope="module")
def small(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a task image without Python gets."""
    return built(tools, tmp_path_factory.mktemp("exec") / "dispatcher", "asyncpg")


def run(*words: object, **environ: str) -> str:
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, env={**os.environ, **environ}, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def built(tools: Path, to: Path, *names: str) -> Path:
    run(tools / "python", IMAGE / "tree.py", to, LOCK, ROOT, *names, PATH=f"{tools}:{os.environ['PATH']}")
    return to


def alone(*words: object) -> str:
    """The output of a program of the folder that gets no variable."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, env={}, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


def contents(tree: Path) -> dict[str, str]:
    return {
        str(path.relative_to(tree)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(tree.rglob("*"))
        if path.is_file()
    }


def test_folder_runs_every_program_with_its_own_libraries_alone(tree: Path) -> None:
    for command in PROGRAMS:
        assert f"Usage: dispatcher {command}" in alone(tree / "bin" / "dispatcher", command, "--help")
    loaded = alone(tree / "bin" / "python3", "-I", "-c", IMPORTS).split()
    assert [path for path in loaded if not path.startswith(str(tree))] == []


def test_container_without_python_or_libraries_runs_exec(small: Path, tmp_path: Path) -> None:
    """The folder stands in a root file system that has nothing else, as a volume in a task's container does."""
    made = shutil.copytree(small, tmp_path / "image", symlinks=True)
    shutil.copy(IMAGE / "copy_to.py", made)
    root = tmp_path / "root"
    target = root / small.relative_to("/")
    target.mkdir(parents=True)
    for _ in "once", "again over the first copy":
        alone(made / "bin" / "python3", "-I", made / "copy_to.py", target)
    assert not (target / "copy_to.py").exists()
    enter = ("unshare", "--user", "--map-root-user", "--root", root, small / "bin" / "dispatcher")
    done = subprocess.run(
        [*map(str, enter), "exec", "--", "/bin/true"], capture_output=True, text=True, check=False, env={}
    )
    assert (done.returncode, "TASK_ID" in done.stderr) == (2, True), done.stderr


def test_copy_has_contents_links_and_modes_and_no_label(tmp_path: Path) -> None:
    """A label is an extended attribute. SELinux lets no container set one."""
    image, target = tmp_path / "image", tmp_path / "volume"
    (image / "bin").mkdir(parents=True)
    target.mkdir()
    program = image / "bin" / "program"
    program.write_text("1")
    program.chmod(0o555)
    (image / "bin" / "link").symlink_to("program")
    for path in (program, program.parent):
        os.setxattr(path, "user.label", b"of the image")
    for _ in "once", "again over the first copy":
        copy_to.copy(image, target)
    copied = target / "bin" / "program"
    assert (copied.read_text(), copied.stat().st_mode & 0o777) == ("1", 0o555)
    assert (copied.parent / "link").readlink() == Path("program")
    assert [os.listxattr(path) for path in (copied, copied.parent)] == [[], []]


def test_copy_into_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, IMAGE / "copy_to.py", tmp_path / "none"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, f"{tmp_path / 'none'} is no folder: mount an emptyDir there\n")


def test_program_compiles_nothing_when_it_starts(tree: Path) -> None:
    sources = {path for path in tree.rglob("*.py") if "licences" not in path.parts}
    compiled = {path.parent.parent / f"{path.name.split('.')[0]}.py" for path in tree.rglob("__pycache__/*.pyc")}
    assert {path for path in sources - compiled if path.parent != tree} == set()
    told = alone(tree / "bin" / "python3", "-I", "-v", "-c", "import dispatcher.cli")
    assert "wrote" not in told


def test_folder_has_no_shell_no_compiler_and_no_package_manager(tree: Path) -> None:
    assert {path.name for path in (tree / "bin").iterdir()} == {"dispatcher", "python3", "python3.11"}
    names = {path.name for path in tree.rglob("*") if path.is_dir()}
    assert names.isdisjoint({"pip", "setuptools", "ensurepip", "venv", "hatchling"})
    assert [path for path in tree.rglob("*") if path.stat().st_mode & 0o6022] == []


def test_same_source_makes_the_same_bytes(tools: Path, small: Path, tmp_path: Path) -> None:
    first = contents(small)
    small.rename(tmp_path / "before")
    assert contents(built(tools, small, "asyncpg")) == first


def test_list_of_packages_names_all_of_the_lock_file_with_their_licences(tree: Path, tools: Path) -> None:
    told = json.loads(run(tools / "python", IMAGE / "sbom.py", tree))
    named = {one["name"].lower().replace("_", "-"): one["versionInfo"] for one in told["packages"]}
    locked = dict(line.split(" ")[0].split("==") for line in LOCK.read_text().splitlines() if line[0].isalpha())
    assert locked.items() <= named.items()
    assert {"python", "pg-job-dispatcher", "libc6", "ca-certificates"} <= named.keys()
    ids = [one["SPDXID"] for one in told["packages"]]
    assert len(ids) == len(set(ids))
    assert (tree / "licences" / "asyncpg" / "LICENSE").exists()
    assert "PYTHON SOFTWARE FOUNDATION LICENSE" in (tree / "licences" / "python").read_text()
    assert [path for path in (tree / "licences" / "debian").iterdir() if not path.read_text()] == []


def test_list_of_packages_has_what_spdx_asks_for(tree: Path, tools: Path) -> None:
    """SPDX 2.3: ids of letters, digits, dots and hyphens; the fields that a package and a document must have."""
    told = json.loads(run(tools / "python", IMAGE / "sbom.py", tree))
    assert told.keys() >= {"spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo"}
    assert told["creationInfo"].keys() >= {"created", "creators"}
    packages = told["packages"]
    assert [one for one in packages if not re.fullmatch(r"SPDXRef-[a-zA-Z0-9.-]+", one["SPDXID"])] == []
    assert [one for one in packages if not {"name", "SPDXID", "downloadLocation"} <= one.keys()] == []
    known = {one["SPDXID"] for one in packages} | {told["SPDXID"]}
    ends = {one[end] for one in told["relationships"] for end in ("spdxElementId", "relatedSpdxElement")}
    assert ends <= known


@pytest.mark.parametrize("lock", [LOCK, IMAGE / "requirements.lock"], ids=["programs", "tools"])
def test_every_package_of_the_image_exists_for_arm64(lock: Path, tmp_path: Path) -> None:
    """The image itself is built for the machine of the tests alone."""
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 28, 34)]
    wanted = ["--only-binary=:all:", "--require-hashes", "--python-version=3.11", "--implementation=cp", *platforms]
    run(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--target", tmp_path, *wanted, "-r", lock)


def test_docker_is_asked_for_an_image_without_the_time_of_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker` is a script here: an engine does not run in every test."""
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    of = make_image.Commit("1.2.3", "abc", "1700000000")
    (command,) = make_image.commands(["--target", "run"], "dispatcher:1.2.3", of, tmp_path / "x.tar")
    assert command[:3] == ["docker", "buildx", "build"]
    assert {"--provenance=false", "--sbom=false", "SOURCE_DATE_EPOCH=1700000000"} <= set(command)
    (output,) = [word for word in command if word.startswith("type=oci")]
    assert f"dest={tmp_path / 'x.tar'}" in output
    assert "rewrite-timestamp=true" in output


def test_layers_are_found_below_an_index_of_indexes(tmp_path: Path) -> None:
    """So docker writes it with the containerd store, and buildah without."""

    def blob(content: bytes) -> dict[str, str]:
        digest = hashlib.sha256(content).hexdigest()
        add(f"blobs/sha256/{digest}", content)
        return {"digest": f"sha256:{digest}"}

    def add(name: str, content: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))

    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w") as layer:
        layer.addfile(tarfile.TarInfo("dispatcher/file"))
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        manifest = blob(json.dumps({"layers": [blob(inner.getvalue())]}).encode())
        nested = blob(json.dumps({"manifests": [manifest]}).encode())
        add("index.json", json.dumps({"manifests": [nested]}).encode())
    assert [layer.getnames() for layer in make_image.layers(tmp_path / "image.tar")] == [["dispatcher/file"]]


def test_commit_of_a_checkout_is_told_by_git_and_changes_are_marked() -> None:
    told = make_image.commit(None)
    revision, _, mark = told.revision.partition("-")
    assert (revision, told.seconds) == tuple(run("git", "log", "-1", "--format=%H %ct").split())
    assert (mark == "changed") == bool(run("git", "status", "--porcelain"))


def test_source_without_git_is_told_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert make_image.commit("abc")[1:] == ("abc", "1700000000")


def test_lock_file_of_run_time_has_the_versions_of_the_tests() -> None:
    def versions(path: Path) -> set[str]:
        return {line.split(" ")[0] for line in path.read_text().splitlines() if line[0].isalpha()}

    assert versions(LOCK) <= versions(ROOT / "requirements.lock")
