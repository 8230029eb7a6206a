"""`make release` in a checkout of its own: what is written, committed and built. The images are built in tests/node."""

import datetime as dt
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from deploy.release import ReleaseFault, build_packages, check, checksums, prepare
from tests.house.tree import ROOT

DAY = dt.date(2026, 12, 1)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone with the files as they are here."""
    folder = tmp_path / "checkout"
    git(ROOT, "clone", "--quiet", "--shared", str(ROOT), str(folder))
    changed = git(ROOT, "ls-files", "--modified", "--others", "--exclude-standard").split()
    for name in changed:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            (folder / name).write_bytes((ROOT / name).read_bytes())
    git(folder, "add", "--all")
    commit(folder)
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(folder: Path) -> None:
    who = ("-c", "user.name=tests", "-c", "user.email=tests@example")
    git(folder, *who, "commit", "--quiet", "--all", "--allow-empty", "--message", "state")


@pytest.mark.slow
def test_release_writes_one_version_everywhere_and_builds_from_it(checkout: Path, tmp_path: Path) -> None:
    prepare(checkout, "7.8.9", DAY)
    changed = {line[3:] for line in git(checkout, "status", "--porcelain").splitlines()}
    rendered = {f"deploy/rendered/{name}.yaml" for name in ("default", "everything", "namespaced", "one-namespace")}
    example = "docs/examples/without-python.yaml"
    demo = {"demo/pyproject.toml", "demo/dispatcher_demo/__init__.py"}
    assert changed == {"CHANGELOG.md", "dispatcher/__init__.py", "deploy/chart/Chart.yaml", example, *demo, *rendered}
    assert "dispatcher-exec:7.8.9\n" in (checkout / example).read_text()
    commit(checkout)
    for to in ("first", "second"):
        build_packages(checkout, tmp_path / to)
    names = {path.name for path in (tmp_path / "first").iterdir()}
    wheel, sdist, chart = (
        "pg_job_dispatcher-7.8.9-py3-none-any.whl", "pg_job_dispatcher-7.8.9.tar.gz", "dispatcher-7.8.9.tgz",
    )  # fmt: skip
    show = ("pg_job_dispatcher_demo-7.8.9-py3-none-any.whl", "pg_job_dispatcher_demo-7.8.9.tar.gz")
    assert names == {wheel, sdist, chart, *show}
    for name in (wheel, sdist, *show):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    with ZipFile(tmp_path / "first" / wheel) as made:
        assert '__version__ = "7.8.9"' in made.read("dispatcher/__init__.py").decode()
    with tarfile.open(tmp_path / "first" / chart) as packed:
        assert {"dispatcher/Chart.yaml", "dispatcher/files/rules.yaml"} <= set(packed.getnames())
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("".join(checksums(tmp_path / "first")))
    subprocess.run(["sha256sum", "--check", "--quiet", sums], cwd=tmp_path / "first", check=True)


def test_changed_checkout_is_refused(checkout: Path) -> None:
    page = checkout / "README.md"
    before = page.read_text()
    page.write_text("x")
    with pytest.raises(ReleaseFault, match="not committed"):
        check(checkout, "8.0.0")
    page.write_text(before)


def test_version_with_a_tag_is_refused_by_the_command(checkout: Path) -> None:
    commit(checkout)
    git(checkout, "tag", "v9.0.0")
    done = release(checkout, "9.0.0")
    assert (done.returncode, done.stderr) == (1, "the tag v9.0.0 exists: choose the next version\n")


def release(checkout: Path, version: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.release", version]
    identity = {f"GIT_{who}_{what}": "tests@example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**os.environ, **identity, **environ}
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False, env=env)


PASSES, SKIPS = "import pytest\n\n\ndef test_it() -> None:\n    {}\n".format, "pytest.skip('no nodes here')"
BUILDER = """import sys
from pathlib import Path

(Path(sys.argv[2]) / "dispatcher.tar").write_text("an image")
"""


@pytest.mark.slow
def test_release_whose_upgrade_is_not_shown_is_taken_back_and_may_be_made_again(checkout: Path) -> None:
    """The node suite and the builder take minutes, so this checkout has short ones. tests/node runs the real ones."""
    (checkout / "tests/contract/test_helm.py").write_text(PASSES("pass"))
    (checkout / "tests/node/conftest.py").write_text("")
    (checkout / "tests/node/__main__.py").write_text(
        "import subprocess, sys\n\nsys.exit(subprocess.run(sys.argv[1:]).returncode)\n"
    )
    (checkout / "tests/node/test_upgrade.py").write_text(PASSES(SKIPS))
    (checkout / "deploy/image/make_image.py").write_text(BUILDER)
    commit(checkout)
    before = git(checkout, "rev-parse", "HEAD")
    failed = release(checkout, "9.1.0")
    assert failed.returncode == 1
    assert "no test may be skipped" in failed.stderr
    assert (git(checkout, "rev-parse", "HEAD"), git(checkout, "tag", "--list", "v9.1.0")) == (before, "")
    assert not (checkout / "build" / "release" / "9.1.0").exists()
    (checkout / "tests/node/test_upgrade.py").write_text(PASSES("pass"))
    commit(checkout)
    done = release(checkout, "9.1.0")
    assert done.returncode == 0, done.stderr
    assert git(checkout, "log", "-1", "--format=%s", "v9.1.0") == "Release 9.1.0\n"
    made = checkout / "build" / "release" / "9.1.0"
    listed = {line.split("  ")[1] for line in (made / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in made.iterdir()} - {"SHA256SUMS"}
    assert "dispatcher.tar" in listed
