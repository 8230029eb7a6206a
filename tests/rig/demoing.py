"""`dispatcher demo` under test: the real program, in a terminal of some size or in a pipe.

Each run has a temporary folder of its own. The block around a run ends once nothing of the run is left, or fails with
a list of the remains.
"""

import asyncio
import codecs
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import tempfile
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.remains import Remains, command, read
from tests.rig.screens import Screen, plain

PROGRAM = (sys.executable, "-m", "dispatcher", "demo")
WITH_TERMINAL = ("setsid", "--ctty")
CTRL_C = b"\x03"
GONE_SECONDS = 12
"""The guard gives up after 10 seconds."""
ITS_LAST_WORDS = "docs/install.md to install"
"""The end of the output after all samples have ended, psql line included. With --keep the demo goes on."""
URL = re.compile(r"postgresql://demo:\w+@127\.0\.0\.1:\d+/demo")
ACCOUNT = 65534
"""The account of the demo if we are root: an unprivileged one. Otherwise the demo has our account."""


def as_account(uid: int) -> tuple[str, ...]:
    """A command prefix that changes the account. The account may read our folders, because Python is there."""
    if os.geteuid() != 0:
        return ("unshare", "--map-user", str(uid)) if uid != ACCOUNT else ()
    if uid == ACCOUNT and any(not folder.stat().st_mode & 0o001 for folder in Path(sys.executable).parents):
        return ()  # the checkout is closed: no other account can run Postgres' programs
    who = f"--reuid={uid}", f"--regid={uid}", "--clear-groups"
    return ("setpriv", *who, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


class Output:
    """The output of one stream, read as it comes until its end."""

    def __init__(self, source: int) -> None:
        self.text = ""
        self.is_over = False
        self._modes = list[object]()
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        os.set_blocking(source, False)
        asyncio.get_running_loop().add_reader(source, self._read)

    def _read(self) -> None:
        try:
            piece = os.read(self._source, 1 << 16)
        except BlockingIOError:
            return
        except OSError:  # a terminal without a user
            piece = b""
        self.text += self._decoder.decode(piece)
        if not piece:
            self.close()

    def write(self, keys: bytes) -> None:
        os.write(self._source, keys)

    def modes(self) -> list[object]:
        """The state of the terminal, also after its end: echo, lines, signs for signals."""
        if not self.is_over:
            self._modes = termios.tcgetattr(self._source)
        return self._modes

    def close(self) -> None:
        """Closes the stream from our side, if it is not over yet."""
        if not self.is_over:
            if os.isatty(self._source):
                self.modes()
            self.is_over = True
            asyncio.get_running_loop().remove_reader(self._source)
            os.close(self._source)


class Demo:
    """One run. `demo` makes it."""

    def __init__(
        self, process: asyncio.subprocess.Process, outputs: tuple[Output, ...], remains: Remains, rows: int
    ) -> None:
        self.process, self.remains = process, remains
        self.output, *_ = self._outputs = outputs
        self._rows = rows

    @property
    def said(self) -> str:
        return plain("".join(output.text for output in self._outputs))

    @property
    def screen(self) -> Screen:
        return Screen(self.output.text, self._rows)

    @property
    def run_folder(self) -> Path:
        """The folder of the run, while it exists."""
        found, *_ = *self.remains.folder.glob("dispatcher-demo-*"), self.remains.folder
        return found

    @property
    def database_url(self) -> str:
        found = URL.search(self.said)
        assert found, self.said
        return found[0]

    def pid(self, name: str) -> int:
        """The pid of a process that the demo keeps alive, or 0 while there is none."""
        try:
            pid = int((self.run_folder / "pids" / name).read_text() or 0)
        except (FileNotFoundError, ValueError):
            return 0
        return pid if command(pid) else 0

    def port(self, name: str, of: str = "LISTEN") -> int:
        """A port that a kept program got, by its setting `…_ADDRESS`, or 0 while there is none."""
        found = re.search(rf"DISPATCHER_{of}_ADDRESS=127\.0\.0\.1:(\d+)".encode(), read(self.pid(name), "environ"))
        return int(found[1]) if found else 0

    async def says(self, words: str, seconds: float = 60) -> None:
        await self.until(lambda: words in self.said, f"{words!r} is said", seconds)

    async def until(self, predicate: object, what: str, seconds: float = 60) -> None:
        await wait_for(predicate, what, seconds, check=self.check)  # type: ignore[call-overload]  # any predicate

    async def kills(self, name: str) -> int:
        """Kills a kept process, as a crash does. Returns the pid of the next one."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        await self.until(lambda: self.pid(name) not in {0, pid}, f"{name} was started again")
        return self.pid(name)

    @asynccontextmanager
    async def held(self, name: str, of: str = "LISTEN") -> AsyncIterator[int]:
        """Kills a kept process, and yields a port of the next one, which blocks until the block ends.

        By then its port is chosen, but it does not listen yet.
        """
        config = self.run_folder / "kubeconfig"
        kept = config.rename(config.with_name("kept"))
        os.mkfifo(config)
        await self.kills(name)
        pipe = await wait_for(lambda: writer_of(config), f"{name} asks for its kubeconfig", 20, check=self.check)
        try:
            yield self.port(name, of)
            kept.rename(config)  # it is read again, also by the next process
            os.write(pipe, config.read_bytes())
        finally:
            os.close(pipe)

    async def ends(self, seconds: float = 90) -> int:
        """Waits for its end. Returns the exit status, after all of the output was read."""
        try:
            await wait_for(lambda: self.process.returncode is not None, "it ends", seconds, check=self.remains.look)
        except TimeoutError:
            pytest.fail(f"not over after {seconds} s: {self.remains.living()}; it said {self.said[-2000:]}")
        await wait_for(lambda: all(output.is_over for output in self._outputs), "its output ends")
        assert "Traceback" not in self.said, self.said
        assert self.process.returncode is not None
        return self.process.returncode

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def press(self, keys: bytes) -> None:
        self.output.write(keys)

    def hang_up(self) -> None:
        """Stops reading the output; closes the terminal."""
        self.output.close()

    def check(self) -> None:
        """Fails if it has ended. Records what it has made."""
        self.remains.look()
        assert self.process.returncode is None, f"ended with {self.process.returncode}: {self.said[-3000:]}"

    async def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        try:
            await wait_for(lambda: not self.remains.left(), "nothing is left", GONE_SECONDS)
        except TimeoutError:
            raise AssertionError(f"left behind: {self.remains.left()}; said: {self.said[-2000:]}") from None
        finally:
            for output in self._outputs:
                output.close()
            self.remains.end()


@asynccontextmanager
async def demo(
    *arguments: object,
    terminal: tuple[int, int] | None = None,
    through: tuple[str, ...] = (),
    program: tuple[str, ...] = PROGRAM,
    place: str = "demoing-",
    **environ: str,
) -> AsyncIterator[Demo]:
    """Runs a demo.

    terminal: columns and rows. None: the output is a pipe.
    through: a command prefix.
    program: the command of the demo.
    place: prefix of the name of its folder.
    environ: more environment variables.
    """
    folder = open_folder(place)
    remains = Remains(folder)
    command_line = (*through, *program, *map(str, arguments))
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(folder), "TERM": "xterm-256color", "LANG": "C.UTF-8", **environ}
    ours, its = zip(*([open_terminal(*terminal)] if terminal else [os.pipe(), os.pipe()]), strict=True)
    try:
        process = await asyncio.create_subprocess_exec(
            *(WITH_TERMINAL if terminal else ()), *command_line, cwd="/", env=env,
            stdin=its[0] if terminal else asyncio.subprocess.DEVNULL, stdout=its[0], stderr=its[-1],
        )  # fmt: skip
    finally:
        for stream in its:
            os.close(stream)
    shown = Demo(process, tuple(map(Output, ours)), remains, terminal[1] if terminal else 1)
    try:
        yield shown
    finally:
        await shown.close()


def open_folder(place: str) -> Path:
    """Makes a folder that every account may use."""
    folder = Path(tempfile.mkdtemp(prefix=place))
    folder.chmod(0o777)
    return folder


def open_terminal(columns: int, rows: int) -> tuple[int, int]:
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    return ours, its


async def shows(*arguments: object, seconds: float = 90, **how: object) -> tuple[int, str]:
    """Runs a demo to its end. Returns exit status and output."""
    async with demo(*arguments, **how) as shown:  # type: ignore[arg-type]  # handed through as it came
        return await shown.ends(seconds), shown.said


def writer_of(pipe: Path) -> int:
    """The write end of a pipe, once a reader waits, or 0."""
    with suppress(OSError):
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    return 0
