"""The files of the checkout that git tracks or would add. The tests of this folder check them."""

import subprocess
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PURE_CONTRACT = "Pure files do no I/O, read no clock and write no log"


@cache
def files() -> tuple[Path, ...]:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = (ROOT / name for name in sorted({name for name in names if name}))
    return tuple(path for path in paths if path.is_file())  # no links to folders, no files with an unstaged deletion


def python_files(*folders: str) -> list[Path]:
    return [path for path in files() if path.suffix == ".py" and shown(path).startswith(folders)]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def pure_contract() -> dict[str, list[str]]:
    """The import contract that forbids I/O."""
    tools = project()["tool"]
    assert isinstance(tools, dict)
    (contract,) = [one for one in tools["importlinter"]["contracts"] if one["name"] == PURE_CONTRACT]
    assert isinstance(contract, dict)
    return contract


@cache
def pure_files() -> tuple[str, ...]:
    """The files of the contract, without the files that act."""
    files = (file for module in pure_contract()["source_modules"] for file in files_of(module))
    return tuple(file for file in files if file not in acting_files())


@cache
def acting_files() -> tuple[str, ...]:
    """The files of pure folders that act: the contract ignores all their imports."""
    modules = [ignored.removesuffix(" -> **") for ignored in pure_contract()["ignore_imports"]]
    return tuple(file for module in modules for file in files_of(module))


def files_of(module: str) -> list[str]:
    """The file of a module, or all files of a package."""
    path = ("demo/" if module.startswith("dispatcher_demo") else "") + module.replace(".", "/")
    return sorted(map(shown, python_files(f"{path}/"))) or [f"{path}.py"]


if __name__ == "__main__":  # for the coverage gate of the Makefile
    print(",".join(pure_files()))  # noqa: T201  # the output is the purpose
