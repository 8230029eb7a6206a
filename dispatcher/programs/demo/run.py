"""Runs a demo: inserts rows, shows them until they are at rest, and prints a summary."""

import asyncio
import io
import math
import shlex
import shutil
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final, TypeAlias

import asyncpg
import msgspec
from msgspec import Struct
from rich.console import Console
from rich.live import Live

from dispatcher.jobs.templates import parse_template
from dispatcher.local.containers import why_refused
from dispatcher.model.errors import DispatcherError, TemplateError
from dispatcher.model.verdicts import HoldReason
from dispatcher.pg.queries import query
from dispatcher.programs.demo.environment import DemoEnvironment
from dispatcher.programs.demo.observe import AWAY, Observer
from dispatcher.programs.demo.picture import draw
from dispatcher.programs.demo.samples import Sample, samples, templates
from dispatcher.programs.demo.summary import Demo, counts, next_steps, table, why
from dispatcher.programs.demo.view import DemoView, news

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
EVERY_SECONDS: Final = 0.2
KEPT_NEWS: Final = 50
SILENCE_SECONDS: Final = 5
MOST_ASKED: Final = 3
"""Most waiting rows whose reason is asked for at the end: each takes half a second."""
PROGRAM: Final = "dispatcher"
IN_MEMORY: Final = "a cluster in memory and two nodes"


class Terminal(Console):
    """A console that raises BrokenPipeError once its reader is gone. rich itself would end the process."""

    def __init__(self) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # the terminal may know only ASCII
        super().__init__(force_terminal=sys.stdout.isatty())

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Options(Struct, frozen=True):
    """The options of `dispatcher demo`."""

    tasks: int = 20
    keep: bool = False
    plain: bool = False
    sql: Path | None = None
    template: Path | None = None
    kubeconfig: str | None = None


class DemoRun:
    """One demo, in the terminal of `console`."""

    def __init__(self, options: Options, console: Console) -> None:
        self._options = options
        self._console = console
        self._is_plain = (
            options.plain or not console.is_terminal or console.is_dumb_terminal or console.encoding != "utf-8"
        )
        self._news: deque[str] = deque(maxlen=KEPT_NEWS)
        self._shows: dict[int, str] = {}
        self._actions: dict[int, str] = {}
        self._view = DemoView()
        self._began = self._last_news_at = time.monotonic()

    async def run(self, stop: asyncio.Event) -> bool:
        """Runs until all rows are at rest, or `stop`. True: it came to its end. DispatcherError: why it cannot run."""
        manifests = read_templates(self._options)
        statements = read_text(self._options.sql) if self._options.sql else ""
        cluster = f"for the cluster of {self._options.kubeconfig}" if self._options.kubeconfig else IN_MEMORY
        environment = DemoEnvironment(manifests, self._say, self._options.kubeconfig)
        self._announce(f"Starting Postgres, the dispatcher and the janitor, {cluster}")
        async with environment:
            url, passing = environment.url("observer"), find_passing(manifests)
            observer = Observer(url, environment.client, environment.installation, passing)
            try:
                return not stop.is_set() and await self._insert_and_show(environment, observer, stop, statements)
            finally:
                await observer.close()

    async def _insert_and_show(
        self, environment: DemoEnvironment, observer: Observer, stop: asyncio.Event, statements: str
    ) -> bool:
        observer.metrics_url = environment.metrics_url
        self._announce(f"Ready after {time.monotonic() - self._began:.1f} s")
        self._team_url, began = environment.url("demo"), time.monotonic()
        await self._insert(statements)
        is_over = await self._show(environment, observer, stop, is_kept=False)
        if is_over:
            await self._print_summary(environment, time.monotonic() - began)
            if self._options.keep:
                await self._show(environment, observer, stop, is_kept=True)
        return is_over

    @asynccontextmanager
    async def _team(self) -> AsyncIterator[Connection]:
        """A new connection of a submitter. An older one may be dead: Postgres may have been started again."""
        connection = await asyncpg.connect(self._team_url, timeout=5)
        try:
            yield connection
        finally:
            connection.terminate()

    async def _insert(self, statements: str) -> None:
        if self._options.sql:
            await self._run_own(statements)
        elif self._options.template:
            async with self._team() as team:
                await team.execute(query("insert_default", "demo"), self._options.tasks)
        else:
            async with self._team() as team:
                for sample in samples(self._options.tasks, is_real=bool(self._options.kubeconfig)):
                    await self._insert_sample(team, sample)

    async def _run_own(self, statements: str) -> None:
        try:
            async with self._team() as team:
                with suppress(AttributeError):  # asyncpg raises it for a file of comments only
                    await team.execute(statements)
            async with self._team() as team:
                if not await team.fetchval(query("count", "demo")):
                    words = "left no row: INSERT INTO dispatch.tasks, and COMMIT what you BEGIN"
                    raise DispatcherError(f"{self._options.sql} {words}")
        except asyncpg.PostgresError as fault:
            raise DispatcherError(f"{self._options.sql}: {fault.sqlstate}: {fault}") from fault

    async def _insert_sample(self, team: Connection, sample: Sample) -> None:
        values = sample.queue, sample.template, encode(sample.spec), encode(sample.payload), sample.cache_key
        task_id = await team.fetchval(query("insert", "demo"), *values)
        self._shows[task_id] = sample.shows
        if sample.action:
            self._actions[task_id] = sample.action

    async def _show(
        self, environment: DemoEnvironment, observer: Observer, stop: asyncio.Event, *, is_kept: bool
    ) -> bool:
        """Shows the rows until they are at rest, then returns True. `is_kept`: shows them until `stop`."""
        with Live(console=self._console, auto_refresh=False) if not self._is_plain else nullcontext() as live:
            while not stop.is_set():
                environment.check()
                observer.metrics_url = environment.metrics_url
                self._show_view(await observer.observe(), live)
                is_acting = await self._act()
                if self._view.is_over and not is_acting and not is_kept:
                    return True
                await wait(stop, EVERY_SECONDS)
        return is_kept

    def _show_view(self, view: DemoView, live: Live | None) -> None:
        for words in news(self._view, view):
            self._say(words)
        self._view = view
        if self._is_plain:
            self._break_silence()
        if live is not None:
            seconds = time.monotonic() - self._began
            live.update(draw(view, list(self._news), seconds, self._console.width), refresh=True)

    async def _act(self) -> bool:
        """Acts as the submitter: cancels endless tasks, retries failed ones. True: an action was due."""
        moments = {
            "cancel": {"processing", "waiting"} if self._options.kubeconfig else {"processing"},
            "retry": {"failed"},
        }
        due = [row.id for row in self._view.rows if row.status in moments.get(self._actions.get(row.id, ""), ())]
        for task_id in due:
            with suppress(*AWAY):  # the next round tries it again
                async with self._team() as team:
                    await team.execute(query(self._actions[task_id], "demo"), task_id)
                self._say(f"task {task_id}: its submitter asks to {self._actions.pop(task_id)} it")
        return bool(due)

    async def _print_summary(self, environment: DemoEnvironment, seconds: float) -> None:
        waiting = [row for row in self._view.rows if row.status == "waiting"]
        reasons = {row.id: why(self._view, row) for row in waiting}
        for row in waiting[:MOST_ASKED]:
            reasons[row.id] = await environment.reason(row.id) or reasons[row.id]
        self._console.print()
        self._console.print(table(self._view, self._shows, reasons))
        self._console.print(f"\n{counts(self._view, seconds)}\n", style="bold")
        demo = Demo(
            command=own_command(sys.argv[0], sys.executable),
            database_url=environment.url("demo"),
            templates=str(environment.templates),
            kubeconfig=str(environment.kubeconfig),
            api_url=environment.api_url,
            statements=query("try", "demo").splitlines()[1:],
            is_kept=self._options.keep,
        )
        for line in next_steps(demo):
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _break_silence(self) -> None:
        """Prints what is waited for, once for each time without news for SILENCE_SECONDS."""
        left = len(self._view.rows) - self._view.ended
        if left and time.monotonic() - self._last_news_at > SILENCE_SECONDS:
            queues = sorted({row.queue for row in self._view.rows if not row.is_ended})
            reasons = "; ".join(f"{queue}: {self._view.waiting_for(queue) or 'at work'}" for queue in queues)
            self._last_news_at = math.inf
            self._announce(f"{left} left ({reasons}); Ctrl-C ends it")

    def _announce(self, words: str) -> None:
        """Prints a line, in a terminal too: the picture comes a moment later."""
        self._console.print(words, soft_wrap=True, highlight=False, markup=False)

    def _say(self, words: str) -> None:
        self._news.append(words)
        self._last_news_at = time.monotonic()
        if self._is_plain:
            self._announce(words)


def read_templates(options: Options) -> dict[str, str]:
    """The templates by name. DispatcherError: the user's file is not a usable template."""
    made = templates(is_real=bool(options.kubeconfig))
    if options.template is None:
        return made
    text = read_text(options.template)
    try:
        pod = parse_template("default", text).pod_spec
    except TemplateError as fault:
        raise DispatcherError(f"{options.template}: {fault}") from fault
    if not options.kubeconfig and (words := why_refused({"spec": {**pod, "restartPolicy": "Never"}})):
        raise DispatcherError(f"{options.template}: {words}")
    return {**made, "default": text}


def find_passing(manifests: Mapping[str, str]) -> frozenset[str]:
    """Park reasons that end by themselves. With `report: exit-code` a row is parked until the janitor reports."""
    reports = {parse_template(name, text).report for name, text in manifests.items()}
    return frozenset({HoldReason.EXITED_WITHOUT_REPORT}) if "exit-code" in reports else frozenset()


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as fault:
        raise DispatcherError(f"{path} cannot be read: {fault.strerror}") from fault
    except UnicodeDecodeError as fault:
        raise DispatcherError(f"{path} cannot be read: {fault}") from fault


def encode(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def own_command(script: str, python: str) -> str:
    """The command line that starts `dispatcher` again from this folder. `script`: that of this process.

    The program is not on PATH in a virtual environment that is not active, as after `make demo` in a clone.
    """
    program = Path(script) if Path(script).name == PROGRAM else Path(python).with_name(PROGRAM)
    if not program.exists():
        return f"{shlex.quote(python)} -m {PROGRAM}"
    on_path = shutil.which(PROGRAM)
    if on_path and program.samefile(on_path):
        return PROGRAM
    absolute, here = program.absolute(), Path.cwd()
    is_below = absolute.parent.parent.is_relative_to(here)
    return shlex.quote(str(absolute.relative_to(here) if is_below else absolute))


async def wait(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
