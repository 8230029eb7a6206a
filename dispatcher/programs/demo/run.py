"""The play: rows are inserted, looked at until they are at rest, and told about."""

import asyncio
import io
import math
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
from dispatcher.programs.demo.observe import AWAY, Looker
from dispatcher.programs.demo.picture import draw
from dispatcher.programs.demo.samples import Sample, samples, templates
from dispatcher.programs.demo.summary import GoOn, counts, go_on, table, why
from dispatcher.programs.demo.view import DemoView, news

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
EVERY_SECONDS: Final = 0.2
KEPT_NEWS: Final = 50
SILENCE_SECONDS: Final = 5
MOST_ASKED: Final = 3
"""Rows whose Job is asked for at the end: each takes half a second."""
IN_MEMORY: Final = "a cluster in memory and two nodes"


class Terminal(Console):
    """Where nobody reads any more, that is a fault like others, and not the end of the process."""

    def __init__(self) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a name of somebody's in a terminal that knows ASCII alone
        super().__init__(force_terminal=sys.stdout.isatty())

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Options(Struct, frozen=True):
    """As `dispatcher demo` was asked."""

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
        self._told: deque[str] = deque(maxlen=KEPT_NEWS)
        self._tells: dict[int, str] = {}
        self._then: dict[int, str] = {}
        self._scene = DemoView()
        self._began = self._said_at = time.monotonic()

    async def run(self, stop: asyncio.Event) -> bool:
        """Until all is at rest, or `stop`. Whether it came to its end. DispatcherError: it cannot be shown, and why."""
        manifests = read_templates(self._options)
        statements = read_text(self._options.sql) if self._options.sql else ""
        cluster = f"for the cluster of {self._options.kubeconfig}" if self._options.kubeconfig else IN_MEMORY
        stage = DemoEnvironment(manifests, self._say, self._options.kubeconfig)
        self._announce(f"Starting Postgres, the dispatcher and the janitor, {cluster}")
        async with stage:
            looker = Looker(stage.url("observer"), stage.client, stage.installation, passing(manifests))
            try:
                return not stop.is_set() and await self._perform(stage, looker, stop, statements)
            finally:
                await looker.close()

    async def _perform(self, stage: DemoEnvironment, looker: Looker, stop: asyncio.Event, statements: str) -> bool:
        looker.metrics_url = stage.metrics_url
        self._announce(f"Ready after {time.monotonic() - self._began:.1f} s")
        self._team_url, began = stage.url("demo"), time.monotonic()
        await self._insert(statements)
        is_over = await self._show(stage, looker, stop, is_kept=False)
        if is_over:
            await self._tell_end(stage, time.monotonic() - began)
            if self._options.keep:
                await self._show(stage, looker, stop, is_kept=True)
        return is_over

    @asynccontextmanager
    async def _team(self) -> AsyncIterator[Connection]:
        """As a submitter, on a new connection: Postgres may have been started again meanwhile."""
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
                with suppress(AttributeError):  # asyncpg's answer to what is a comment from beginning to end
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
        self._tells[task_id] = sample.tells
        if sample.then:
            self._then[task_id] = sample.then

    async def _show(self, stage: DemoEnvironment, looker: Looker, stop: asyncio.Event, *, is_kept: bool) -> bool:
        """True: all is at rest."""
        with Live(console=self._console, auto_refresh=False) if not self._is_plain else nullcontext() as live:
            while not stop.is_set():
                stage.check()
                looker.metrics_url = stage.metrics_url
                self._see(await looker.look(), live)
                is_acting = await self._act()
                if self._scene.is_over and not is_acting and not is_kept:
                    return True
                await wait(stop, EVERY_SECONDS)
        return is_kept

    def _see(self, view: DemoView, live: Live | None) -> None:
        for words in news(self._scene, view):
            self._say(words)
        self._scene = view
        if self._is_plain:
            self._break_silence()
        if live is not None:
            seconds = time.monotonic() - self._began
            live.update(draw(view, list(self._told), seconds, self._console.width), refresh=True)

    async def _act(self) -> bool:
        """As their submitter would: cancels what runs for ever, retries what has failed. True: it is not over."""
        moments = {
            "cancel": {"processing", "waiting"} if self._options.kubeconfig else {"processing"},
            "retry": {"failed"},
        }
        due = [row.id for row in self._scene.rows if row.status in moments.get(self._then.get(row.id, ""), ())]
        for task_id in due:
            with suppress(*AWAY):  # it is asked again
                async with self._team() as team:
                    await team.execute(query(self._then[task_id], "demo"), task_id)
                self._say(f"task {task_id}: its submitter asks to {self._then.pop(task_id)} it")
        return bool(due)

    async def _tell_end(self, stage: DemoEnvironment, seconds: float) -> None:
        waiting = [row for row in self._scene.rows if row.status == "waiting"]
        reasons = {row.id: why(self._scene, row) for row in waiting}
        for row in waiting[:MOST_ASKED]:
            reasons[row.id] = await stage.reason(row.id) or reasons[row.id]
        self._console.print()
        self._console.print(table(self._scene, self._tells, reasons))
        self._console.print(f"\n{counts(self._scene, seconds)}\n", style="bold")
        statements = query("try", "demo").splitlines()[1:]
        place = GoOn(stage.url("demo"), str(stage.templates), str(stage.kubeconfig), statements, self._options.keep)
        for line in go_on(place):
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _break_silence(self) -> None:
        """Once each time that nothing happens for a while: what is waited for."""
        left = len(self._scene.rows) - self._scene.ended
        if left and time.monotonic() - self._said_at > SILENCE_SECONDS:
            queues = sorted({row.queue for row in self._scene.rows if not row.is_ended})
            told = "; ".join(f"{queue}: {self._scene.waiting_for(queue) or 'at work'}" for queue in queues)
            self._said_at = math.inf
            self._console.print(f"{left} left ({told}); Ctrl-C ends it", soft_wrap=True, highlight=False, markup=False)

    def _announce(self, words: str) -> None:
        """In a terminal, too: the picture comes a moment later."""
        self._console.print(words, soft_wrap=True, highlight=False, markup=False)

    def _say(self, words: str) -> None:
        self._told.append(words)
        self._said_at = time.monotonic()
        if self._is_plain:
            self._console.print(words, soft_wrap=True, highlight=False, markup=False)


def read_templates(options: Options) -> dict[str, str]:
    """DispatcherError: what stands in a file cannot serve."""
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


def passing(manifests: Mapping[str, str]) -> frozenset[str]:
    """Where the exit status is the report, the janitor makes it: such rows are parked until it comes round."""
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


async def wait(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
