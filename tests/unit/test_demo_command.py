"""The command line that the demo names in its last lines: it starts `dispatcher` again from the same folder."""

from pathlib import Path

import pytest

from dispatcher_demo.samples import own_command


@pytest.fixture(name="program")
def make_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program in a virtual environment of the current folder, which is not active."""
    program = tmp_path / "clone" / ".venv" / "bin" / "dispatcher"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.chdir(tmp_path / "clone")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return program


def module_run(program: Path) -> tuple[str, str]:
    """What `python -m dispatcher` knows of itself: its script and its Python."""
    return "/clone/dispatcher/__main__.py", str(program.with_name("python"))


def test_own_command_in_an_inactive_environment_is_a_path_from_the_folder(program: Path) -> None:
    assert own_command(*module_run(program)) == ".venv/bin/dispatcher"
    assert own_command(str(program), "/usr/bin/python3") == ".venv/bin/dispatcher"


def test_own_command_on_path_is_its_name(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    assert own_command(*module_run(program)) == "dispatcher"


def test_own_command_is_a_path_if_another_program_of_that_name_is_on_path(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "dispatcher"
    other.parent.mkdir()
    other.touch(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert own_command(*module_run(program)) == ".venv/bin/dispatcher"


def test_own_command_from_elsewhere_is_an_absolute_path(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b").mkdir()
    monkeypatch.chdir(tmp_path / "a b")
    assert own_command(*module_run(program)) == str(program)


def test_own_command_without_an_installed_program_runs_the_module(program: Path) -> None:
    program.unlink()
    assert own_command(*module_run(program)) == f"{program.with_name('python')} -m dispatcher"
