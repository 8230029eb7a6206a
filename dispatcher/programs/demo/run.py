"""Runs a demo: inserts rows, shows them until they are at rest, and prints a summary."""

import asyncio
import io
import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from rich.console import Console, Group
from rich.live import Live

from dispatcher.pg.queries import query
from dispatcher.programs.demo import keys
from dispatcher.programs.demo.asked import Options, find_passing, own_command, read_templates, read_text
from dispatcher.programs.demo.breaks import Breaks
from dispatcher.programs.demo.database import SUBMITTER
from dispatcher.programs.demo.environment import DemoEnvironment
from dispatcher.programs.demo.news import News
from dispatcher.programs.demo.observe import AWAY, Observer
from dispatcher.programs.demo.picture import Shown, draw, follow
from dispatcher.programs.demo.story import is_time_to_kill, kills_in_words
from dispatcher.programs.demo.summary import Demo, counts, ending, next_steps, pinned, table
from dispatcher.programs.demo.team import Team
from dispatcher.programs.demo.view import DemoView, State
from dispatcher.programs.demo.words import Moment, moment_of, queue_in_words, seconds_left

EVERY_SECONDS: Final = 0.2
KEPT_NEWS: Final = 50
KEPT_MOMENTS: Final = 100
"""The pace is that of the last twenty seconds."""
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
        """Runs until all rows are at rest, or `stop`. True: it came to its end. DispatcherError: why it cannot run."""
        manifests = read_templates(self._options)
        statements = read_text(self._options.sql) if self._options.sql else ""
        cluster = f"for the cluster of {self._options.kubeconfig}" if self._options.kubeconfig else IN_MEMORY
        self._announce(f"Starting Postgres, the dispatcher and the janitor, {cluster}")
        async with DemoEnvironment(manifests, self._say, self._options.kubeconfig) as environment:
            url, passing = environment.url("observer"), find_passing(manifests)
            observer = Observer(url, environment.client, environment.installation, passing)
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
        with keys.pressed(self._keyboard, self._pressed.append, environment.terminal_note) as self._has_keys:
            if self._has_keys and self._is_plain:
                self._announce(f"Keys: {keys.line(is_paused=False)}")
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
        """Looks once, shows it, and acts. True: something was done, so that the demo is not at rest."""
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
        """Makes the view the present one, and tells its news."""
        self._moves = follow(self._moves, self._view, view)
        self._moments.append(moment_of(view, self._seconds))
        for words in self._changes.take(view):
            self._say(words)
        self._view = view

    def shown(self) -> Shown:
        """What the picture tells at this moment."""
        at_bottom = pinned(self._demo())
        if self._has_keys:
            at_bottom.append(keys.line(is_paused=self._breaks.is_paused))
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
        needs = [row.id for row in view.rows if row.state is State.NEEDS_YOU]
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
            database_url=self._environment.url(SUBMITTER),
            templates=str(self._environment.templates),
            kubeconfig=str(self._environment.kubeconfig),
            api_url=self._environment.api_url,
            statements=query("try", "demo").splitlines()[1:],
            is_kept=self._options.keep,
        )

    def _break_silence(self) -> None:
        """Prints what is waited for, once for each time without news for SILENCE_SECONDS."""
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
        """Prints a line, in a terminal too: the picture comes a moment later."""
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
