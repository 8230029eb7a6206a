"""`dispatcher exec` as the parent of its command: signals, stops, processes that the command leaves, PID 1."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from dispatcher.container.exec import is_zombie
from tests.controlplane.waiting import wait_for
from tests.faults import postgres_verbs as verbs
from tests.faults.postgres_proxy import PostgresProxy, connects, runs
from tests.faults.rules import Gate
from tests.rig.execing import DONE, FOR_EVER, PROGRAM, PYTHON, TERMINATED, UNTIL_TOLD, execute, one_proxy, sh, wrapped
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import SECOND, Row, insert_row

database, proxy = one_database, one_proxy

# A parent, a child in a process group of its own, and a grandchild in another; each prints the signal that it got.
FAMILY = """
import os, signal
def told(name):
    def ends(number, frame):
        os.write(1, f'{name} told {number}\\n'.encode())
        if name != 'grandchild': os.wait()
        os._exit(0)
    signal.signal(signal.SIGTERM, ends)
    os.write(1, b'begun\\n')
    while True: signal.pause()
if os.fork() == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        os.setpgid(0, 0)
        told('grandchild')
    told('child')
told('parent')
"""
UNTIL_TOLD_AGAIN = "echo begun; while :; do sleep 0.05; done"
EXITS_0 = """trap 'echo 17 > "$TASK_RESULT_FILE"; exit 0' TERM; echo begun; while :; do sleep 0.05; done"""
EXITS_WITH = "trap 'exit {}' TERM; echo begun; while :; do sleep 0.05; done"
IGNORES_SIGTERM = """
(trap 'echo told; exit' TERM; echo begun; while :; do sleep 0.05; done) &
trap '' TERM; echo begun; read -r go; exit 3
"""
"""It goes on until its stdin ends."""
OTHER_ENDS = [
    "trap 'exit 0' TERM; echo begun; sleep 100 & wait",
    "trap ': > \"$TASK_RESULT_FILE\"; exit 0' TERM; echo begun; while :; do sleep 0.05; done",
    f"echo begun; {FOR_EVER}",
    EXITS_WITH.format(1),
    EXITS_WITH.format(75),
    IGNORES_SIGTERM,
]


async def test_sigterm_reaches_every_process_of_the_session(database: Database) -> None:
    row = await insert_row(database)
    async with wrapped(row, *PYTHON, FAMILY) as wrapper:
        await wrapper.says("begun", 3)
        wrapper.terminate()
        ended = await wrapper.has_ended()
    told = {line for line in ended.out.decode().splitlines() if "told" in line}
    assert told == {f"{name} told {signal.SIGTERM:d}" for name in ("parent", "child", "grandchild")}
    assert (ended.status, await row.status()) == (TERMINATED, "processing")


@pytest.mark.parametrize(
    "half",
    ["printf [1,2, >", "echo >", "head -c 70000 /dev/zero >", "printf \\\\200 >", "rm -f", "mkdir"],
    ids=["half of it", "a newline", "too large", "no text", "removed", "a folder"],
)
async def test_half_a_result_after_sigterm_is_no_failure(database: Database, half: str) -> None:
    row = await insert_row(database)
    async with wrapped(row, *sh(f"trap '{half} \"$TASK_RESULT_FILE\"; exit 0' TERM; {UNTIL_TOLD_AGAIN}")) as wrapper:
        await wrapper.says("begun")
        wrapper.terminate()
        ended = await wrapper.has_ended()
    assert (ended.status, await row.status()) == (TERMINATED, "processing")


async def test_command_that_leaves_a_result_after_sigterm_has_succeeded(database: Database) -> None:
    row = await insert_row(database)
    async with wrapped(row, *sh(EXITS_0)) as wrapper:
        await wrapper.says("begun")
        wrapper.terminate()
        ended = await wrapper.has_ended()
    assert (ended.status, await row.status(), (await row.now())["result"]) == (DONE, "succeeded", 17)


async def test_other_end_after_sigterm_is_left_to_the_next_launch(database: Database) -> None:
    rows = [await insert_row(database) for _ in OTHER_ENDS]
    statuses = await asyncio.gather(*(stopped(row, one) for row, one in zip(rows, OTHER_ENDS, strict=True)))
    assert statuses == [TERMINATED] * len(OTHER_ENDS)
    for row in rows:
        assert await row.status() == "processing"
        assert [launch["ended_at"] for launch in await row.launches()] == [None]
    assert (await execute(rows[0], "true", launch=2, pod=SECOND)).status == DONE
    assert await rows[0].status() == "succeeded"


async def stopped(row: Row, script: str) -> int:
    async with wrapped(row, *sh(script)) as wrapper:
        await wrapper.says("begun", script.count("echo begun"))
        wrapper.terminate()
        if script == IGNORES_SIGTERM:
            await wrapper.says("told")  # by its child, which ignores nothing
        return (await wrapper.has_ended()).status


async def test_end_that_comes_together_with_sigterm_is_no_success(database: Database) -> None:
    """A node that reboots gives SIGTERM to all processes of a container. Linux delivers the later signal first."""
    row = await insert_row(database)
    async with wrapped(row, *sh(EXITS_WITH.format(0))) as wrapper:
        await wrapper.says("begun")
        (command,) = children(wrapper.process.pid)
        wrapper.process.send_signal(signal.SIGSTOP)
        os.kill(command, signal.SIGTERM)
        await wait_for(lambda: is_zombie(command), "the command has ended")
        wrapper.terminate()
        wrapper.process.send_signal(signal.SIGCONT)
        ended = await wrapper.has_ended()
    assert (ended.status, await row.status()) == (TERMINATED, "processing"), ended


async def test_sigterm_after_the_end_changes_nothing(database: Database, proxy: PostgresProxy) -> None:
    row = await insert_row(database)
    rule = proxy.add(verbs.drop_before, runs("task_finish"))
    async with wrapped(row, "true", TASK_DATABASE_URL=proxy.url(database.url("task"))) as wrapper:
        await wait_for(lambda: rule.hits, "a report fails", check=wrapper.check)
        wrapper.terminate()
        rule.end()
        ended = await wrapper.has_ended()
    assert (ended.status, await row.status()) == (DONE, "succeeded")


async def test_second_sigterm_does_not_end_exec_before_its_command(database: Database) -> None:
    row = await insert_row(database)
    async with wrapped(row, *sh("trap 'echo told' TERM; echo begun; read -r go; read -r go; exit 4")) as wrapper:
        await wrapper.says("begun")
        wrapper.terminate()
        await wrapper.says("told")
        wrapper.terminate()
        wrapper.go("go\ngo")
        ended = await wrapper.has_ended()
        assert wrapper.living() == []
    assert (ended.status, await row.status()) == (TERMINATED, "processing")


async def test_stop_before_the_start_leaves_the_row_unchanged(database: Database, proxy: PostgresProxy) -> None:
    """The database refuses the connection, or does not answer at all."""
    row = await insert_row(database)
    before = await row.now()
    for verb in (verbs.drop_before, verbs.hold(Gate())):
        rule = proxy.add(verb, connects)
        asked = rule.seen
        async with wrapped(row, "echo", "ran", TASK_DATABASE_URL=proxy.url(database.url("task"))) as wrapper:
            await wait_for(lambda: rule.seen > asked, "connecting", check=wrapper.check)  # noqa: B023  # of this round
            wrapper.terminate()
            ended = await wrapper.has_ended()
        rule.end()
        assert (ended.status, ended.out) == (TERMINATED, b"")
    assert await row.now() == before


async def test_stop_while_exec_still_loads_works(database: Database) -> None:
    """PID 1 has no default action for SIGTERM, and the driver takes a while to load."""
    row = await insert_row(database)
    told = (PROGRAM[0], "-I", "-X", "importtime", *PROGRAM[1:])
    async with wrapped(row, *sh(FOR_EVER), program=told) as wrapper:
        await wait_for(lambda: b"asyncpg" in wrapper.err, "exec loads the driver", check=wrapper.check)
        wrapper.terminate()
        assert (await wrapper.has_ended()).status == TERMINATED


# SIGTERM comes while the interpreter calls a callback of a module that loads, which swallows exceptions.
STOPPED_IN_A_CALLBACK = """
import signal, sys, weakref
from dispatcher import __main__
from dispatcher.container import isolated
class Loading: ...
def start_isolated():
    loading = Loading()
    called = weakref.ref(loading, lambda _: signal.raise_signal(signal.SIGTERM))
    del loading
isolated.start_isolated = start_isolated
sys.argv[1:] = ["exec", "--", *sys.argv[1:]]
__main__.main()
"""


async def test_stop_in_a_callback_while_exec_still_loads_runs_no_command(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(row, "echo", "ran", program=(sys.executable, "-c", STOPPED_IN_A_CALLBACK))
    assert (ended.status, ended.out, await row.status()) == (TERMINATED, b"", "waiting"), ended


async def test_stop_during_the_start_runs_no_command(database: Database, proxy: PostgresProxy) -> None:
    row, gate = await insert_row(database), Gate()
    rule = proxy.add(verbs.hold(gate), runs("task_start"))
    async with wrapped(row, "echo", "ran", TASK_DATABASE_URL=proxy.url(database.url("task"))) as wrapper:
        await wait_for(lambda: rule.seen, "the start is on its way", check=wrapper.check)
        wrapper.terminate()
        ended = await wrapper.has_ended()
    gate.open()
    assert (ended.status, ended.out) == (TERMINATED, b"")


async def test_success_is_reported_after_a_stop_when_the_database_is_back(
    database: Database, proxy: PostgresProxy
) -> None:
    row = await insert_row(database)
    async with wrapped(row, *sh(UNTIL_TOLD), TASK_DATABASE_URL=proxy.url(database.url("task"))) as wrapper:
        await wrapper.says("begun")
        rules = [proxy.add(verbs.drop_before, matches) for matches in (connects, runs("task_finish"))]
        wrapper.go()
        await wait_for(lambda: sum(rule.hits for rule in rules), "a report fails", check=wrapper.check)
        wrapper.terminate()
        hits = sum(rule.hits for rule in rules)
        await wait_for(lambda: sum(rule.hits for rule in rules) > hits, "exec reports again", check=wrapper.check)
        for rule in rules:
            rule.end()
        ended = await wrapper.has_ended()
    assert (ended.status, await row.status()) == (DONE, "succeeded")


# Orphans go to the nearest process that asked for them; this stays so through exec.
SUBREAPER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1); os.execv(sys.argv[1], sys.argv[1:])"
AS_SUBREAPER = (sys.executable, "-c", SUBREAPER, *PROGRAM)
AS_PID_1 = ("unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--pid", "--fork", "--mount-proc")
# Starts twenty processes in sessions of their own whose parents are gone. Prints the zombies that exec has left.
ORPHANS = """
import os, pathlib, time
def states():
    for stat in pathlib.Path('/proc').glob('[0-9]*/stat'):
        try: yield stat.read_text().rpartition(')')[2].split()[:2]
        except OSError: pass
wrapper = str(os.getppid())
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid(); mother = os.getppid()
            while os.getppid() != int(wrapper): time.sleep(0.01)
            os.write(1, b'orphan\\n')
        os._exit(0)
    os.wait()
until = time.monotonic() + 5
def mine(): return [state for state, parent in states() if parent == wrapper]
while len(mine()) > 1 and time.monotonic() < until: time.sleep(0.02)
print('left', mine())
"""
# Processes that ignore SIGTERM, in process groups of their own, with names that are hard to parse.
LEAVES_THREE = """
import ctypes, os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for name in (b'a) S 1 1 1', b') R (', b'plain'):
    if os.fork() == 0:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(15, name)
        os.closerange(0, 3)
        time.sleep(600)
print('left', flush=True)
"""


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def blocked_or_ignored(status: bytes) -> int:
    """Signals that a process blocks or ignores, as a mask."""
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith((b"SigBlk", b"SigIgn"))]
    return masks[0] | masks[1]


def inherited() -> int:
    """Signals that the tests' own starter ignores (e.g. `nohup`), without those that every Python ignores."""
    python = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    return blocked_or_ignored(Path("/proc/self/status").read_bytes()) & ~python


async def test_command_starts_with_clean_signals_and_no_open_files(database: Database) -> None:
    row, other = await insert_row(database), await insert_row(database)
    ended = await execute(row, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    assert blocked_or_ignored(ended.out) & ~inherited() == 0
    shows = "import os; print([n for n in range(3, 99) if os.path.exists(f'/proc/self/fd/{n}')])"
    assert (await execute(other, *PYTHON, shows)).out == b"[]\n"


async def test_end_of_the_command_is_seen_with_sigchld_ignored(database: Database) -> None:
    row = await insert_row(database)
    ignores_sigchld = (*sh("""trap "" CHLD; exec "$@" """), "sh", *PROGRAM)
    ended = await execute(row, *sh("exit 65"), program=ignores_sigchld)
    assert (ended.status, await row.status()) == (65, "failed")


async def test_processes_left_by_the_command_are_gone_before_the_report(
    database: Database, proxy: PostgresProxy
) -> None:
    row, gate = await insert_row(database), Gate()
    rule = proxy.add(verbs.hold(gate), runs("task_finish"))
    url = proxy.url(database.url("task"))
    async with wrapped(row, *PYTHON, LEAVES_THREE, TASK_DATABASE_URL=url) as wrapper:
        await wait_for(lambda: rule.seen, "the report is on its way", check=wrapper.check)
        assert wrapper.out == b"left\n"
        assert wrapper.living() == [wrapper.process.pid]
        gate.open()
        ended = await wrapper.has_ended()
    assert (ended.status, await row.status()) == (DONE, "succeeded")


async def test_process_that_ignores_sigterm_ends_with_its_command(database: Database) -> None:
    row = await insert_row(database)
    script = f"(trap '' TERM; exec {FOR_EVER}) & trap 'exit 0' TERM; echo begun; while :; do sleep 0.05; done"
    async with wrapped(row, *sh(script)) as wrapper:
        await wrapper.says("begun")
        wrapper.terminate()
        ended = await wrapper.has_ended()
        assert wrapper.living() == []
    assert (ended.status, await row.status()) == (TERMINATED, "processing")


async def test_orphans_leave_no_zombies(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(row, *PYTHON, ORPHANS, program=AS_SUBREAPER)
    assert ended.out.count(b"orphan\n") == 20
    assert ended.out.endswith(b"left ['R']\n")
    assert (ended.status, await row.status()) == (DONE, "succeeded")


async def test_exec_as_pid_1_reaps_and_reports(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(
        row, *PYTHON, f"import os; print(os.getppid(), flush=True){ORPHANS}", program=(*AS_PID_1, *PROGRAM)
    )
    assert ended.out.startswith(b"1\n")
    assert ended.out.count(b"orphan\n") == 20
    assert ended.out.endswith(b"left ['R']\n")
    assert (ended.status, await row.status()) == (DONE, "succeeded")


async def test_exec_as_pid_1_forwards_sigterm(database: Database) -> None:
    row = await insert_row(database)
    script = "trap 'echo told; exit 5' TERM; echo begun; while :; do sleep 0.05; done"
    async with wrapped(row, *sh(script), program=(*AS_PID_1, *PROGRAM)) as wrapper:
        await wrapper.says("begun")
        (program,) = children(wrapper.process.pid)
        os.kill(program, signal.SIGTERM)
        ended = await wrapper.has_ended()
    assert (ended.status, ended.out) == (TERMINATED, b"begun\ntold\n")
    assert await row.status() == "processing"


async def test_earlier_children_do_not_disturb_exec(database: Database) -> None:
    """A shell that started a child and then became exec."""
    row, other = await insert_row(database), await insert_row(database)
    with_a_child = (*sh('true & exec "$@"'), "sh", *PROGRAM)
    assert (await execute(row, *sh("exit 5"), program=with_a_child)).status == 5
    assert (await execute(other, "/no/such/file", program=with_a_child)).status == 127


@pytest.mark.parametrize("program", [PROGRAM, AS_SUBREAPER])
async def test_many_ending_children_do_not_hide_the_end_of_the_command(
    database: Database, program: tuple[str, ...]
) -> None:
    row = await insert_row(database)
    storm = "for n in 1 2 3 4 5 6 7 8 9; do (setsid sh -c 'exit 1' &); (exit 2) & done; exit 75"
    ended = await execute(row, *sh(storm), program=program)
    assert (ended.status, await row.status()) == (75, "waiting")
