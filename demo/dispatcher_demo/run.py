"""Runs a demo: inserts rows, shows them until they are at rest, and prints a summary.

`pressed`: the keys, while the input is a terminal in whose foreground the demo runs. Keys come without Enter and are
not shown. The state of the terminal is restored at every end, after `kill -9` by the guard.

`Breaks`: breaks parts of the demo, by its story or by a key, and says what became of it.
"""

import asyncio
import io
import json
import math
import os
import shlex
import signal
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import asyncpg
from msgspec import Struct
from rich.console import Console, Group
from rich.live import Live

from dispatcher_demo.database import POSTGRES, SUBMITTER, Team
from dispatcher_demo.environment import NODES, DemoEnvironment
from dispatcher_demo.node.guard import plain
from dispatcher_demo.observe import AWAY, ENDED, DemoView, News, Observer, RowState
from dispatcher_demo.observe import POSTGRES as POSTGRES_AWAY
from dispatcher_demo.picture import Shown, draw, follow
from dispatcher_demo.samples import Options, find_passing, own_command, read_templates, read_text
from dispatcher_demo.statements import demo_query
from dispatcher_demo.words import (
    Demo,
    Moment,
    counts,
    ending,
    moment_of,
    next_steps,
    pinned,
    queue_in_words,
    seconds_left,
    table,
)

NAMES: Final = {
    "k": "kill Postgres", "n": "kill a node", "d": "kill dispatcher", "p": "pause", "i": "insert 10", "q": "quit"
}  # fmt: skip
"""The meaning of each key, short enough for one line of 80 columns."""


def line(*, is_paused: bool) -> str:
    """The line that names the keys."""
    names = {**NAMES, "p": "resume"} if is_paused else NAMES
    return "  ".join(f"{key} {what}" for key, what in names.items())


def is_usable(stream: int) -> bool:
    """Whether keys come from there to this process: it is a terminal, and we are in its foreground."""
    try:
        return os.isatty(stream) and os.tcgetpgrp(stream) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def pressed(stream: int, press: Callable[[str], None], note: Path) -> Iterator[bool]:
    """Calls `press` for each known key until the block ends. Yields whether there are keys at all.

    note: the file by which the guard restores the terminal's state if this process is killed.
    """
    if not is_usable(stream):
        yield False
        return
    loop, before = asyncio.get_running_loop(), termios.tcgetattr(stream)

    def read() -> None:
        try:
            typed = os.read(stream, 64)
        except OSError:
            typed = b""
        if not typed:  # the terminal is gone; the signal for it comes, too
            loop.remove_reader(stream)
        for key in typed.decode("ascii", "ignore").lower():
            if key in NAMES:
                press(key)

    def take_keys() -> None:
        with suppress(termios.error):
            tty.setcbreak(stream, termios.TCSADRAIN)

    take_keys()
    note.write_text(json.dumps([os.ttyname(stream), plain(termios.tcgetattr(stream)), plain(before)]))
    loop.add_reader(stream, read)
    loop.add_signal_handler(signal.SIGCONT, take_keys)  # the shell has changed the terminal meanwhile
    try:
        yield True
    finally:
        loop.remove_signal_handler(signal.SIGCONT)
        loop.remove_reader(stream)
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(stream, termios.TCSAFLUSH, before)
        note.unlink(missing_ok=True)


ENOUGH_ROWS: Final = 9
"""With fewer rows nothing runs when Postgres is killed."""
FEWEST_ENDED: Final = 6
FEWEST_LEFT: Final = 2


class Kill(Struct, frozen=True):
    """One `kill -9` of Postgres.

    seconds: its time, since the start of the demo.
    rows: the statuses of all rows before it, by id.
    running: number of rows that ran.
    """

    seconds: float
    rows: dict[int, str]
    running: int


class Recovery(Struct, frozen=True):
    """The rows after a kill.

    seconds: from the kill until the rows could be read again.
    rows: number of rows before.
    lost: ids of rows that are gone, or whose end is lost.
    running: number of rows that ran.
    """

    seconds: float
    rows: int
    lost: Sequence[int]
    running: int


def is_time_to_kill(view: DemoView) -> bool:
    """Whether rows have ended and others run, so that there is something to lose; at the latest near the end."""
    has_begun = len(view.rows) >= ENOUGH_ROWS and view.ended >= FEWEST_ENDED
    left = len(view.rows) - view.ended - view.states[RowState.NEEDS_YOU]
    return has_begun and (bool(view.statuses["processing"]) or left <= FEWEST_LEFT) and not view.away


def kill_of(view: DemoView, seconds: float) -> Kill:
    return Kill(seconds, {row.id: row.status for row in view.rows}, view.statuses["processing"])


def recovery_of(kill: Kill, view: DemoView, seconds: float) -> Recovery:
    """Compares the rows before the kill with the rows of `view`, which were read after it."""
    now = {row.id: row for row in view.rows}
    lost = [
        id_
        for id_, status in kill.rows.items()
        if id_ not in now or (status in ENDED and now[id_].status != status and now[id_].attempt == 1)
    ]
    return Recovery(seconds - kill.seconds, len(kill.rows), lost, kill.running)


def killed_in_words(kill: Kill) -> str:
    running = {0: "none of them runs", 1: "1 of them runs"}.get(kill.running, f"{kill.running} of them run")
    return f"Postgres is killed now (kill -9), with {len(kill.rows):,} rows: {running}"


def recovery_in_words(recovery: Recovery) -> str:
    return f"Postgres is back after {recovery.seconds:.1f} s: {counted(recovery)}"


def counted(recovery: Recovery) -> str:
    kept = recovery.rows - len(recovery.lost)
    if recovery.lost:
        return f"{kept:,} of {recovery.rows:,} rows are there. Lost: {', '.join(map(str, recovery.lost))}"
    return f"{kept:,} of {recovery.rows:,} rows are there, nothing is lost"


def kills_in_words(recoveries: Sequence[Recovery]) -> list[str]:
    """One line at the end, if Postgres was killed."""
    if not recoveries:
        return []
    times = "once" if len(recoveries) == 1 else f"{len(recoveries)} times"
    last = recoveries[-1]
    running = {0: "while no row ran", 1: "while 1 row ran"}.get(last.running, f"while {last.running} rows ran")
    return [f"Postgres was killed {times} (kill -9), {running}: {counted(last)}"]


PAUSED: Final = "default"
"""The queue that the key pauses."""
NOT_NOW: Final = "{} does not run at the moment"


class Breaks:
    """What breaks the demo. `say` prints a line. `is_plain`: the user's template does not fit the samples' rows.

    recoveries: the rows after each `kill -9` of Postgres.
    is_paused: a key has paused the queue PAUSED.
    """

    def __init__(self, environment: DemoEnvironment, team: Team, say: Callable[[str], None], *, is_plain: bool) -> None:
        self._environment = environment
        self._team = team
        self._say = say
        self._is_plain = is_plain
        self._kill: Kill | None = None
        self._starts = self._nodes_killed = 0
        self.recoveries: list[Recovery] = []
        self.is_paused = False

    @property
    def is_waiting(self) -> bool:
        """Whether Postgres was killed, and the rows were not compared yet."""
        return self._kill is not None

    @property
    def has_killed(self) -> bool:
        """Whether Postgres was killed at all."""
        return self.is_waiting or bool(self.recoveries)

    @property
    def has_restarted(self) -> bool:
        """Whether Postgres runs again after the kill."""
        return self.is_waiting and self._environment.keeper.starts(POSTGRES) > self._starts

    async def press(self, key: str, view: DemoView, seconds: float) -> None:
        """Does what a key asks for."""
        acts: dict[str, Callable[[], Awaitable[None]]] = {
            "n": self._kill_node, "d": self._kill_dispatcher, "p": self._pause, "i": self._insert
        }  # fmt: skip
        if key == "k":
            self.kill_postgres(view, seconds)
        else:
            try:
                await acts[key]()
            except AWAY:
                self._say("Postgres is away: press the key again when it is back")

    def kill_postgres(self, view: DemoView, seconds: float) -> None:
        starts = self._environment.keeper.starts(POSTGRES)
        if self.is_waiting or not self._environment.keeper.kill(POSTGRES):
            self._say(NOT_NOW.format("Postgres"))
            return
        self._kill, self._starts = kill_of(view, seconds), starts
        self._say(killed_in_words(self._kill))

    def look(self, view: DemoView, seconds: float) -> None:
        """Compares the rows, if `view` was read from a Postgres that was started after the kill."""
        if self._kill is not None and POSTGRES_AWAY not in view.away:
            self.recoveries.append(recovery_of(self._kill, view, seconds))
            self._kill = None
            self._say(recovery_in_words(self.recoveries[-1]))

    async def _kill_node(self) -> None:
        if not self._environment.has_nodes:
            self._say("the nodes of your own cluster are not killed")
            return
        name = NODES[self._nodes_killed % len(NODES)]
        containers = self._environment.kill_node(name)
        if containers is None:
            self._say(NOT_NOW.format(f"node {name}"))
            return
        self._nodes_killed += 1
        gone = "1 container" if containers == 1 else f"{containers} containers"
        self._say(f"node {name} is killed (kill -9), with {gone}; it comes back, and their rows run again")

    async def _kill_dispatcher(self) -> None:
        killed = self._environment.keeper.kill("dispatcher")
        words = "the dispatcher is killed (kill -9), and starts again; what runs goes on"
        self._say(words if killed else NOT_NOW.format("the dispatcher"))

    async def _pause(self) -> None:
        self.is_paused = await self._team.pause(PAUSED)
        rest = "is paused: what runs goes on, nothing new starts" if self.is_paused else "goes on"
        self._say(f"queue {PAUSED} {rest}")

    async def _insert(self) -> None:
        await self._team.insert_ten(is_plain=self._is_plain)


EVERY_SECONDS: Final = 0.2
KEPT_NEWS: Final = 50
KEPT_MOMENTS: Final = 100
"""Moments by which the pace is measured: the last twenty seconds."""
SILENCE_SECONDS: Final = 5
IN_MEMORY: Final = "a cluster in memory and two nodes"
QUIT: Final = "q"


class Terminal(Console):
    """A console that raises BrokenPipeError once its reader is gone. rich itself would end the process."""

    def __init__(self) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # the terminal may know only ASCII
        super().__init__(force_terminal=sys.stdout.isatty())

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class DemoRun:
    """One demo, in the terminal of `console`, with keys from the stream `keyboard`."""

    def __init__(self, options: Options, console: Console, keyboard: int = 0) -> None:
        self._options = options
        self._console = console
        self._keyboard = keyboard
        self._is_plain = (
            options.plain or not console.is_terminal or console.is_dumb_terminal or console.encoding != "utf-8"
        )
        self._news: deque[str] = deque(maxlen=KEPT_NEWS)
        self._moments: deque[Moment] = deque(maxlen=KEPT_MOMENTS)
        self._moves: dict[int, int] = {}
        self._pressed: list[str] = []
        self._has_keys = False
        self._view, self._changes = DemoView(), News()
        self._began = self._last_news_at = time.monotonic()

    async def run(self, stop: asyncio.Event) -> bool:
        """Runs until all rows are at rest, or `stop`. True: it came to its end. DispatcherError: it cannot run."""
        manifests = read_templates(self._options)
        statements = read_text(self._options.sql) if self._options.sql else ""
        cluster = f"for the cluster of {self._options.kubeconfig}" if self._options.kubeconfig else IN_MEMORY
        self._announce(f"Starting Postgres, the dispatcher and the janitor, {cluster}")
        async with DemoEnvironment(manifests, self._say, self._options.kubeconfig, self._options.grows) as environment:
            url, passing = environment.url("observer"), find_passing(manifests)
            connect = partial(asyncpg.connect, url, timeout=5)
            observer = Observer(connect, environment.client, environment.installation, passing)
            try:
                return not stop.is_set() and await self._insert_and_show(environment, observer, stop, statements)
            finally:
                await observer.close()

    async def _insert_and_show(
        self, environment: DemoEnvironment, observer: Observer, stop: asyncio.Event, statements: str
    ) -> bool:
        self._announce(f"Ready after {self._seconds:.1f} s. In a browser: {environment.api_url}/")
        self._environment, self._observer, began = environment, observer, time.monotonic()
        self._team = Team(environment.url(SUBMITTER), environment.url("operator"))
        is_plain = bool(self._options.template or self._options.kubeconfig)
        self._breaks = Breaks(environment, self._team, self._say, is_plain=is_plain)
        with pressed(self._keyboard, self._pressed.append, environment.terminal_note) as self._has_keys:
            if self._has_keys and self._is_plain:
                self._announce(f"Keys: {line(is_paused=False)}")
            await self._team.insert(self._options, statements)
            if await self._show(stop, is_kept=False):
                self._print_summary(time.monotonic() - began)
                if self._options.keep:
                    await self._show(stop, is_kept=True)
                return True
            return QUIT in self._pressed

    async def _show(self, stop: asyncio.Event, *, is_kept: bool) -> bool:
        """Shows the rows until they are at rest, then returns True. `is_kept`: shows them until `stop`, or a key."""
        with self._live() as live:
            while not stop.is_set() and QUIT not in self._pressed:
                self._environment.keeper.check()
                is_acting = await self._turn(live)
                if self._view.is_over and not is_acting and not is_kept:
                    return True
                await wait(stop, EVERY_SECONDS)
        return is_kept

    @contextmanager
    def _live(self) -> Iterator[Live | None]:
        """The picture in the terminal; None: there is no picture."""
        if self._is_plain:
            yield None
        else:
            with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
                yield live

    async def _turn(self, live: Live | None) -> bool:
        """Looks once, shows the view, and acts. True: something was done, so that the demo is not at rest."""
        has_restarted = self._breaks.has_restarted
        self._observer.api_url = self._environment.api_url
        self._take(await self._observer.observe())
        if has_restarted:
            self._breaks.look(self._view, self._seconds)
        if self._is_plain:
            self._break_silence()
        if live is not None:
            lines = draw(self.shown(), self._console.width, self._console.height)
            live.update(Group(*lines), refresh=True)
        is_acting = await self._act()
        if self._options.has_samples and not self._breaks.has_killed and is_time_to_kill(self._view):
            self._breaks.kill_postgres(self._view, self._seconds)
        for key in [key for key in self._pressed if key != QUIT]:
            self._pressed.remove(key)
            await self._breaks.press(key, self._view, self._seconds)
        return is_acting or self._breaks.is_waiting

    def _take(self, view: DemoView) -> None:
        """Makes the view the present one, and shows its news."""
        self._moves = follow(self._moves, self._view, view)
        self._moments.append(moment_of(view, self._seconds))
        for words in self._changes.take(view):
            self._say(words)
        self._view = view

    def shown(self) -> Shown:
        """The content of the picture at this moment."""
        at_bottom = pinned(self._demo())
        if self._has_keys:
            at_bottom.append(line(is_paused=self._breaks.is_paused))
        left = seconds_left(list(self._moments), self._view)
        return Shown(self._view, self._seconds, list(self._news), self._moves, self._team.shows, left, at_bottom)

    async def _act(self) -> bool:
        """Acts as the submitter: cancels endless tasks, retries failed ones. True: an action was due."""
        moments = {
            "cancel": {"processing", "waiting"} if self._options.kubeconfig else {"processing"},
            "retry": {"failed"},
        }
        actions = self._team.actions
        due = [row.id for row in self._view.rows if row.status in moments.get(actions.get(row.id, ""), ())]
        for task_id in due:
            with suppress(*AWAY):  # the next round tries it again
                self._say(f"task {task_id}: its submitter asks to {await self._team.act(task_id)} it")
        return bool(due)

    def _print_summary(self, seconds: float) -> None:
        view, demo = self._view, self._demo()
        needs = [row.id for row in view.rows if row.state is RowState.NEEDS_YOU]
        self._console.print()
        self._console.print(table(view, self._team.shows))
        self._console.print(f"\n{counts(view, seconds)}", style="bold", highlight=False)
        for line in (*kills_in_words(self._breaks.recoveries), ending(view, demo), ""):
            self._console.print(line, style="bold", soft_wrap=True, highlight=False, markup=False)
        for line in next_steps(demo, next(iter(needs), view.rows[-1].id if view.rows else 1)):
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _demo(self) -> Demo:
        return Demo(
            command=own_command(sys.argv[0], sys.executable),
            again=shlex.join(["demo", *self._options.words]),
            database_url=self._environment.url(SUBMITTER),
            templates=str(self._environment.templates),
            kubeconfig=str(self._environment.kubeconfig),
            api_url=self._environment.api_url,
            statements=demo_query("try").splitlines()[1:],
            is_kept=self._options.keep,
        )

    def _break_silence(self) -> None:
        """Prints what rows wait for, once for each time without news for SILENCE_SECONDS."""
        view = self._view
        left = len(view.rows) - view.ended
        if left and time.monotonic() - self._last_news_at > SILENCE_SECONDS:
            told = [(load.queue, queue_in_words(load, view, None)) for load in view.queues or ()]
            reasons = "; ".join(f"{queue}: {words}" for queue, words in told if words)
            self._last_news_at = math.inf
            self._announce(f"{left:,} left ({reasons or 'at work'}); Ctrl-C ends it")

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _announce(self, words: str) -> None:
        """Prints a line, also in a terminal: the picture comes a moment later."""
        self._console.print(words, soft_wrap=True, highlight=False, markup=False)

    def _say(self, words: str) -> None:
        self._news.append(words)
        self._last_news_at = time.monotonic()
        if self._is_plain:
            self._announce(words)


async def wait(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
