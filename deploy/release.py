"""Makes a release: all that can be done without a network. `make release VERSION=0.2.0`.

It writes the version and the changelog, commits them, shows that an installation of the last version upgrades, builds
everything into build/release/VERSION, and puts the tag vVERSION onto the commit. Nothing is pushed. If a step fails,
the commit is taken back, and the same command may run again.
"""

import datetime as dt
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.controlplane.binaries import HELM, programs

ROOT: Final = Path(__file__).parents[1]
VERSION_FILE: Final = Path("dispatcher") / "__init__.py"
ASSIGNED: Final = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
UNRELEASED: Final = "## [Unreleased]\n"
WHAT_TO_DO: Final = "### What you must do"
DEMO: Final = Path("demo")
"""A distribution of its own. Each version of it needs the same version of the dispatcher."""
EXAMPLE: Final = Path("docs") / "examples" / "without-python.yaml"
PYTEST: Final = ("-m", "pytest", "-q", "-p", "tests.house.no_skips")
UPGRADES: Final = (
    (*PYTEST, "tests/contract/test_helm.py"),
    ("-m", "tests.node", sys.executable, *PYTEST, "tests/node/test_upgrade.py"),
)
"""Tests of the way from the last version to this one, as arguments of Python. None of them may be skipped."""


class ReleaseFault(Exception):
    """The release cannot be made. The message says why, and what to do."""


def main(version: str, root: Path = ROOT) -> None:
    before = check(root, version)
    to = root / "build" / "release" / version
    shutil.rmtree(to, ignore_errors=True)
    try:
        prepare(root, version, dt.datetime.now(dt.UTC).date())
        run(root, "git", "commit", "--quiet", "--all", "--message", f"Release {version}")
        for words in UPGRADES:
            run(root, sys.executable, *words)
        build(root, to)
        run(root, "git", "tag", "--annotate", f"v{version}", "--message", f"Release {version}")
    except BaseException:  # also Ctrl-C: a release that is half made must not stay
        run(root, "git", "reset", "--quiet", "--hard", before)  # `check` has found no other changes
        shutil.rmtree(to, ignore_errors=True)
        raise
    print(f"{to} is complete. To publish: git push origin HEAD v{version}, and push both images and the chart.")


def check(root: Path, version: str) -> str:
    """The commit of the checkout. Raises ReleaseFault if it cannot become this version."""
    if run(root, "git", "status", "--porcelain"):
        raise ReleaseFault("the checkout has changes that are not committed: commit or remove them")
    if run(root, "git", "tag", "--list", f"v{version}"):
        raise ReleaseFault(f"the tag v{version} exists: choose the next version")
    check_version(last_version(root), version, is_first=not run(root, "git", "tag", "--list", "v*"))
    return run(root, "git", "rev-parse", "HEAD").strip()


def last_version(root: Path) -> str:
    return str(ASSIGNED.findall((root / VERSION_FILE).read_text(encoding="utf-8"))[0])


def prepare(root: Path, version: str, day: dt.date) -> None:
    """Writes the version wherever it stands, and moves the changes of the changelog below it."""
    changes, last = root / "CHANGELOG.md", last_version(root)
    changes.write_text(released(changes.read_text(encoding="utf-8"), version, day), encoding="utf-8")
    for name, before, after in (
        (VERSION_FILE, f'__version__ = "{last}"', f'__version__ = "{version}"'),
        (DEMO / "dispatcher_demo" / "__init__.py", f'__version__ = "{last}"', f'__version__ = "{version}"'),
        (DEMO / "pyproject.toml", f"pg-job-dispatcher[demo]=={last}", f"pg-job-dispatcher[demo]=={version}"),
        (EXAMPLE, f"/dispatcher-exec:{last}\n", f"/dispatcher-exec:{version}\n"),
    ):
        text = (root / name).read_text(encoding="utf-8")
        if before not in text:
            raise ReleaseFault(f"{name} has no `{before.strip()}`: write the last version there")
        (root / name).write_text(text.replace(before, after), encoding="utf-8")
    for page in ("make_chart", "make_rendered"):
        run(root, sys.executable, "-m", f"docs.{page}")


def check_version(last: str, version: str, *, is_first: bool) -> None:
    """Raises ReleaseFault unless the version may follow the last one. The first release may have it, too."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseFault(f"{version} is not a version: three numbers with dots, such as 0.2.0")
    if number(version) < number(last) or (version == last and not is_first):
        raise ReleaseFault(f"{version} does not come after {last}")


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def released(changelog: str, version: str, day: dt.date) -> str:
    """The changelog with a new part for the version. Raises ReleaseFault if nothing stands there to release."""
    head, found, rest = changelog.partition(UNRELEASED)
    changes, next_part, older = rest.partition("\n## [")
    if not found or not re.search(r"^- ", changes, re.MULTILINE):
        raise ReleaseFault(f"CHANGELOG.md has no changes below `{UNRELEASED.strip()}`: say what has changed")
    if WHAT_TO_DO not in changes:
        raise ReleaseFault(f"CHANGELOG.md has no part `{WHAT_TO_DO}`: say there what an upgrade needs, or `Nothing.`")
    return f"{head}{UNRELEASED}\n{WHAT_TO_DO}\n\nNothing.\n\n## [{version}] - {day}\n{changes}{next_part}{older}"


def build(root: Path, to: Path) -> None:
    """Everything that is published, with its checksums."""
    to.mkdir(parents=True)
    build_packages(root, to)
    run(root, sys.executable, "-m", "deploy.image.make_image", "--to", str(to), *os.environ.get("OPTIONS", "").split())
    (to / "SHA256SUMS").write_text("".join(checksums(to)), encoding="utf-8")


def build_packages(root: Path, to: Path) -> None:
    """Wheels, sdists and the package of the chart. The same commit gives the same wheel and sdist."""
    seconds = run(root, "git", "log", "-1", "--format=%ct").strip()
    for folder in (root, root / DEMO):
        run(folder, sys.executable, "-m", "hatchling", "build", "--directory", str(to), SOURCE_DATE_EPOCH=seconds)
    run(root, str(programs(HELM)["helm"]), "package", "deploy/chart", "--destination", str(to))


def checksums(folder: Path) -> Iterable[str]:
    """A line of `sha256sum` for each file, with the list of contents of the images among them."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"


def run(root: Path, *words: str, **environ: str) -> str:
    """The output of a command. Raises ReleaseFault if it fails; its errors are on the terminal."""
    env = os.environ | environ
    done = subprocess.run(words, cwd=root, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ReleaseFault(f"`{' '.join(words)}` ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except ReleaseFault as fault:
        sys.exit(str(fault))
