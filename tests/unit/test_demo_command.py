"""The demo: its command line, its exit status, what it observes of servers, and what it may leave behind."""

import asyncio
import ctypes
import os
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest
import pytest_asyncio
from msgspec.structs import replace

from dispatcher.kube.client import KubeClient, Reply
from dispatcher.kube.credentials import Login, TokenFile
from dispatcher.model.errors import ClusterAway, DispatcherError
from dispatcher.model.history import ListedRow
from dispatcher.model.reasons import ReasonInWords
from dispatcher.model.verdicts import HoldReason
from dispatcher.views.rows import RowsPage
from dispatcher.views.status import QueueStatus
from dispatcher_demo import exit_status
from dispatcher_demo.environment import ClusterAutoscaler
from dispatcher_demo.observe import (
    CycleReport,
    DemoRow,
    JudgedRow,
    Observer,
    QueueLoad,
    RowState,
    is_fresh,
    judged_on,
    load_of,
    with_cause,
)
from dispatcher_demo.samples import Options, own_command
from tests.controlplane.waiting import wait_for
from tests.rig.remains import Remains
from tests.unit.page_facts import QUIET


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


def test_next_demo_has_the_options_of_this_one() -> None:
    assert Options().words == Options(keep=True).words == []
    given = Options(tasks=5, plain=True, template=Path("a b.yaml"), kubeconfig="k")
    assert given.words == ["--tasks", "5", "--plain", "--template", "a b.yaml", "--kubeconfig", "k"]


async def status(outcome: bool | BaseException, signals: Sequence[int]) -> int:
    """The status of a demo whose run returned or raised so, after these signals."""

    async def run() -> bool:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    running = asyncio.create_task(run())
    await asyncio.wait([running])
    return exit_status(running, signals)


@pytest.mark.parametrize(
    ("outcome", "signals", "expected"),
    [
        (True, [], 0),
        (True, [2], 0),  # it was complete before the signal
        (False, [2, 15], 130),
        (asyncio.CancelledError(), [15], 143),
        (DispatcherError("it could not be started"), [2], 130),
    ],
)
async def test_stopped_demo_has_the_status_of_the_signal(
    outcome: bool | BaseException, signals: Sequence[int], expected: int
) -> None:
    assert await status(outcome, signals) == expected


async def test_fault_after_a_signal_is_still_told(capsys: pytest.CaptureFixture[str]) -> None:
    await status(DispatcherError("no room on the disk"), [2])
    assert capsys.readouterr().err == "no room on the disk\n"


@pytest.mark.parametrize(("fault", "signals"), [(DispatcherError("no"), []), (RuntimeError("a bug"), [2])])
async def test_fault_of_a_demo_that_nobody_stopped_and_every_bug_is_raised(
    fault: Exception, signals: Sequence[int]
) -> None:
    with pytest.raises(type(fault)):
        await status(fault, signals)


class Broken:
    """A connection whose server was killed during an answer. The driver takes it for open."""

    is_terminated = False

    def is_closed(self) -> bool:
        return False

    async def fetch(self, *_: Any, **__: Any) -> list[Any]:
        raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")

    def terminate(self) -> None:
        self.is_terminated = True


async def test_connection_that_broke_during_an_answer_is_closed() -> None:
    client, broken = KubeClient(Login("http://127.0.0.1:1", None, TokenFile(Path("/none")).read, "x")), Broken()

    async def connect() -> Any:
        return broken

    observer = Observer(connect, client, "x", frozenset())
    observer.api_url = "http://127.0.0.1:1"
    view = await observer.observe()
    assert (view.rows, view.queues, view.away) == ([], None, ["the dispatcher", "Postgres", "the cluster"])
    assert broken.is_terminated
    await observer.close()
    await client.close()


class Unsteady:
    """A cluster without Pods. Its first answer does not come, and the second one is a refusal."""

    namespace = "x"

    def __init__(self) -> None:
        self.asked = 0

    async def request(self, *_: Any, **__: Any) -> Reply:
        self.asked += 1
        if self.asked == 1:
            raise ClusterAway("no answer in time")
        return Reply(503, b"") if self.asked == 2 else Reply(200, b'{"items": []}')


async def test_cluster_that_grows_is_looked_at_again_after_a_fault() -> None:
    """Otherwise no node would come any more, and nobody would say so."""
    cluster = Unsteady()
    growing = asyncio.create_task(ClusterAutoscaler(cast("KubeClient", cluster), cast("Any", None), print).run())
    try:
        await wait_for(lambda: cluster.asked > 2, "it looks again", 10)
    finally:
        growing.cancel()


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FULL = ReasonInWords(HoldReason.NO_ROOM_NOW, "the nodes are full")
NO_REPORT = ReasonInWords(HoldReason.EXITED_WITHOUT_REPORT, "its container ended")


def queue(**reasons: int) -> QueueStatus:
    counted = {HoldReason(name): number for name, number in reasons.items()}
    return replace(QUIET, queue="q", waiting=sum(reasons.values()), reasons=counted, in_flight=2, max_jobs=4)


def waiting(number: int, cause: ReasonInWords | None = None) -> list[DemoRow]:
    return [DemoRow(id_, "q", "waiting", cause=cause) for id_ in range(number)]


def test_reasons_of_rows_count_more_than_an_older_count() -> None:
    load = load_of(queue(JobCap=14), [*waiting(2, FULL), DemoRow(9, "q", "succeeded")])
    assert load == QueueLoad("q", {HoldReason.NO_ROOM_NOW: 2}, 2, 4)


def test_count_of_the_dispatcher_is_made_to_fit_the_rows() -> None:
    rows = waiting(300)
    assert load_of(queue(InLine=280, JobCap=10), rows).reasons == {HoldReason.IN_LINE: 290, HoldReason.JOB_CAP: 10}
    assert load_of(queue(InLine=310, JobCap=10), rows).reasons == {HoldReason.IN_LINE: 290, HoldReason.JOB_CAP: 10}


@pytest.mark.parametrize("counted", [{}, {"InLine": 3, "JobCap": 2}])
def test_rows_are_not_judged_yet_if_no_count_fits_them(counted: dict[str, int]) -> None:
    assert load_of(queue(**counted), waiting(1)) == QueueLoad("q", {}, 2, 4, unjudged=1)


def test_reason_is_told_only_of_the_row_that_was_judged() -> None:
    told = CycleReport(cast("Any", None), {1: JudgedRow("waiting", 2, FULL), 2: JudgedRow("waiting", 1, NO_REPORT)})
    rows = [
        DemoRow(1, "q", "waiting", 2),
        DemoRow(1, "q", "waiting", 3),
        DemoRow(1, "q", "processing", 2),
        DemoRow(7, "q", "waiting"),
    ]
    assert [with_cause(row, told, frozenset()).cause for row in rows] == [FULL, None, None, None]
    ended = DemoRow(2, "q", "waiting")
    assert with_cause(ended, told, frozenset()).state is RowState.NEEDS_YOU
    assert with_cause(ended, told, frozenset({NO_REPORT.reason})).state is RowState.WAITING


def test_row_that_came_after_the_cycle_is_not_judged_yet() -> None:
    rows = [
        listed(1, NOW, HoldReason.IN_LINE),
        listed(2, NOW + timedelta(seconds=1), HoldReason.IN_LINE),
        listed(3, NOW, None),
    ]
    assert [id_ for id_, _ in judged_on(RowsPage(NOW + timedelta(seconds=9), NOW, rows, None))] == [1]


def listed(id_: int, created_at: datetime, reason: HoldReason | None) -> ListedRow:
    return ListedRow(
        task=id_, queue="q", status="waiting", attempt=1, priority=1, template="t", submitted_by="s",
        created_at=created_at, run_at=None, started_at=None, finished_at=None, reason=reason, message=None, error=None,
    )  # fmt: skip


def test_cycle_of_some_seconds_ago_tells_no_reason() -> None:
    assert [is_fresh(NOW, NOW + timedelta(seconds=age)) for age in (-1, 0, 5, 6)] == [True, True, True, False]


PRIVATE, MODE, REMOVE = 0, 0o600, 0
ATTACHES = """
import ctypes, sys, time
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
assert libc.shmat(int(sys.argv[1]), None, 0) != ctypes.c_void_p(-1).value
print(libc.shmget(0, 4096, 0o600), flush=True)
time.sleep(600)
"""
"""It attaches the segment, and makes another one that it does not attach."""


def removed(segment: int) -> None:
    ctypes.CDLL(None).shmctl(segment, REMOVE, None)


@pytest_asyncio.fixture(name="segment")
async def make_segment() -> AsyncIterator[int]:
    """A real segment of System V that this process has made. Its id."""
    id_ = ctypes.CDLL(None).shmget(PRIVATE, 4096, MODE)
    assert id_ >= 0
    yield id_
    removed(id_)


async def a_postgres(folder: Path, segment: int) -> tuple[asyncio.subprocess.Process, int]:
    """A process that looks like Postgres, works in the folder and has attached the segment; and the one it has made."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "postgres"
    shutil.copy(sys._base_executable, program)  # type: ignore[attr-defined]  # the Python of the venv
    process = await asyncio.create_subprocess_exec(
        program, "-S", "-c", ATTACHES, str(segment), cwd=folder, stdout=asyncio.subprocess.PIPE,
        env={"PYTHONHOME": sys.base_prefix},
    )  # fmt: skip
    assert process.stdout is not None
    return process, int(await process.stdout.readline())


async def test_segment_that_its_postgres_has_attached_is_its_own_until_it_is_gone(tmp_path: Path, segment: int) -> None:
    """The pid of a maker tells nothing: it may be that of an ended process of somebody else."""
    found = Remains(tmp_path)
    process, made_by_it = await a_postgres(tmp_path, segment)
    found.look()
    process.kill()
    await process.wait()
    shutil.rmtree(tmp_path / "bin")
    try:
        assert found.left() == [f"System V segment {(str(segment), str(os.getpid()))}"]
        removed(segment)
        assert found.left() == []
    finally:
        removed(made_by_it)
