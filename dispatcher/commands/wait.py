"""`dispatcher wait` and `dispatcher submit`: rows from a shell, with a submitter's own database URL.

Waiting needs no cluster. A notification says that rows have ended, and each look asks for those that have not. Without
notifications, or after a lost one, a look comes by itself. While the database is away, waiting goes on.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, Protocol

import click
from msgspec import Raw, Struct

from dispatcher.commands.options import read_env, read_json, read_pairs, read_payload, span, to_json
from dispatcher.model.errors import DatabaseAway, DatabaseError, DatabaseNotPrimary
from dispatcher.model.tasks import TERMINAL, Status, one_line
from dispatcher.pg.connect import Listener, Url
from dispatcher.pg.questions import BatchNow, OwnRows, Reason, RowNow
from dispatcher.runtime.clock import elapsed

QUIET_SECONDS: Final = 30
"""Seconds between looks without a notification."""
BUSY_SECONDS: Final = 1
"""Seconds between looks, at least, however many rows of others end. A slow look is repeated less often."""
SHARE_OF_LOOKS: Final = 0.1
"""Part of the time that looks may take."""
FAILED_SHOWN: Final = 10
"""Failed rows that are named, at most."""
LIVE: Final = (Status.WAITING, Status.PROCESSING)


class Exit(IntEnum):
    """Exit statuses. UNKNOWN: the database did not answer, so nobody knows."""

    SUCCEEDED, NOT_SUCCEEDED, TIME_IS_OVER, UNKNOWN = 0, 1, 3, 4


class Tally(Struct, frozen=True):
    """How far the rows are. `gone`: deleted while we waited, so nobody knows how they ended."""

    rows: int
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    gone: int = 0

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.cancelled + self.gone

    @property
    def left(self) -> int:
        return self.rows - self.ended


class WaitResult(Struct, frozen=True):
    """What `wait --json` prints at its end.

    failed: the first rows that have not succeeded.
    reasons: why rows have not ended, the most frequent first.
    """

    tally: Tally
    left: int
    seconds: int
    failed: Sequence[RowNow] = ()
    reasons: Sequence[Reason] = ()


class AwaitedRows(Protocol):
    """Rows whose end somebody waits for."""

    async def look(self, tell: Callable[[str], None]) -> Tally:
        """Asks for the rows that have not ended, and reports each that has."""

    async def live(self) -> Sequence[int]:
        """Ids of rows that have not ended; of many rows, the first ones."""

    async def failed(self) -> Sequence[RowNow]:
        """The first rows that have failed or were cancelled."""


class AwaitedIds:
    """Rows by their ids. A row that has ended is not asked for again, even if somebody runs it once more."""

    def __init__(self, rows: OwnRows, ids: Sequence[int]) -> None:
        self._rows = rows
        self._left = dict.fromkeys(ids)
        self._ends = dict.fromkeys((*TERMINAL, "gone"), 0)
        self._failed = list[RowNow]()
        self._has_looked = False

    async def look(self, tell: Callable[[str], None]) -> Tally:
        found = {row.id: row for row in await self._rows.rows(list(self._left))}
        if unseen := [str(one) for one in self._left if one not in found]:
            if not self._has_looked:
                raise click.UsageError(f"no row that this login sees has the id {', '.join(unseen[:20])}")
            for one in unseen:
                self._end(int(one), "gone")
                tell(f"{one} gone")
        self._has_looked = True
        for row in found.values():
            if row.status in TERMINAL:
                self._end(row.id, row.status)
                tell(told_of(row))
                if row.status != Status.SUCCEEDED:
                    self._failed = [*self._failed, row][:FAILED_SHOWN]
        return Tally(len(self._left) + sum(self._ends.values()), **{str(how): n for how, n in self._ends.items()})

    async def live(self) -> Sequence[int]:
        return list(self._left)

    async def failed(self) -> Sequence[RowNow]:
        return self._failed

    def _end(self, task_id: int, how: str) -> None:
        self._ends[how] += 1
        del self._left[task_id]


class AwaitedBatch:
    """Rows of this login's batch, also those that are inserted while we wait. `queue`: only this one.

    The counts are of existing rows. The last look knew how a row ended that was deleted since.
    """

    def __init__(self, rows: OwnRows, queue: str | None, batch: str) -> None:
        self._rows = rows
        self._queue = queue
        self._batch = batch
        self._seen = BatchNow(0, 0, 0, 0)
        self._deleted = {"succeeded": 0, "failed": 0, "cancelled": 0, "gone": 0}
        self._last = Tally(0)

    async def look(self, tell: Callable[[str], None]) -> Tally:
        now = await self._rows.batch(await self._queues(), self._batch)
        if not (now.tasks or self._seen.tasks):
            where = f" of the queue {one_line(self._queue)!r}" if self._queue else ""
            raise click.UsageError(f"this login has no row in the batch {one_line(self._batch)!r}{where}")
        self._note_deleted(now)
        ends = {how: getattr(now, how, 0) + number for how, number in self._deleted.items()}
        tally = Tally(now.tasks + sum(self._deleted.values()), **ends)
        if tally != self._last:
            tell(in_words(tally))
        self._seen, self._last = now, tally
        return tally

    async def live(self) -> Sequence[int]:
        return [row.id for row in await self._of(LIVE)]

    async def failed(self) -> Sequence[RowNow]:
        return (await self._of((Status.FAILED, Status.CANCELLED)))[:FAILED_SHOWN]

    def _note_deleted(self, now: BatchNow) -> None:
        """Counts rows that vanished. They had ended as their counts fell; the others were live."""
        vanished = max(0, self._seen.tasks - now.tasks)
        for how in ("succeeded", "failed", "cancelled"):
            fell = min(vanished, max(0, getattr(self._seen, how) - getattr(now, how)))
            self._deleted[how] += fell
            vanished -= fell
        self._deleted["gone"] += vanished

    async def _queues(self) -> Sequence[str]:
        return [self._queue] if self._queue else await self._rows.queues_of_batch(self._batch)

    async def _of(self, statuses: Sequence[str]) -> Sequence[RowNow]:
        return await self._rows.rows_of_batch(await self._queues(), self._batch, statuses)


def told_of(row: RowNow) -> str:
    return f"{row.id} {row.status}{f': {one_line(row.error)}' if row.error else ''}"


def in_words(tally: Tally) -> str:
    ends = {"succeeded": tally.succeeded, "failed": tally.failed, "cancelled": tally.cancelled, "gone": tally.gone}
    told = ", ".join(f"{number} {how}" for how, number in ends.items() if number)
    return f"{tally.ended} of {tally.rows} rows have ended{': ' if told else ''}{told}"


class Display:
    """A bar on a terminal, lines elsewhere. With `as_json`, nothing until the end."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._has_bar = not as_json and sys.stdout.isatty()
        self._bar: Any = None
        self._told = set[str]()

    def tell(self, words: str) -> None:
        if not (self._as_json or self._has_bar):
            click.echo(words)
            self._told.add(words)

    def show(self, tally: Tally) -> None:
        if not self._has_bar:
            return
        if self._bar is None:
            self._bar = click.progressbar(length=tally.rows, label="rows ended", show_pos=True, show_eta=False)
        self._bar.length, self._bar.pos = tally.rows, tally.ended
        self._bar.render_progress()

    def end(self, result: WaitResult) -> None:
        if self._bar is not None:
            self._bar.render_finish()
        if self._as_json:
            click.echo(to_json(result))
            return
        words = in_words(result.tally)
        for line in (*map(told_of, result.failed), words):
            if line not in self._told and not (line == words and result.left):
                click.echo(line)
        if result.left:
            click.echo(f"{words}; {result.left} left after {span(result.seconds)}:")
        for reason in result.reasons:
            click.echo(f"  {reason.rows} {reason.status}: {one_line(reason.message)}")


async def wait_for(awaited: AwaitedRows, rows: OwnRows, display: Display, limit: float | None, url: Url) -> int:
    """Waits until all rows have ended, `limit` seconds at most. Returns the exit status."""
    began = elapsed()
    tally = await awaited.look(display.tell)  # without a database, this ends the command
    display.show(tally)
    notified = asyncio.Event()
    listening = asyncio.create_task(Listener(url, notified.set).run())
    try:
        async with asyncio.timeout(None if limit is None else max(0, limit - (elapsed() - began))):
            pause: float = BUSY_SECONDS
            while tally.left:
                await notified_or_late(notified)
                await asyncio.sleep(pause)  # a notification stands for all ends of the next moment, too
                looked = elapsed()
                tally = await look_again(awaited, display, tally)
                pause = max(BUSY_SECONDS, (elapsed() - looked) / SHARE_OF_LOOKS)
                display.show(tally)
    except TimeoutError:
        tally = await look_again(awaited, display, tally)  # the last look is a while ago
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    failed, reasons = await details(awaited, rows, tally)
    display.end(WaitResult(tally, tally.left, round(elapsed() - began), failed, reasons))
    if tally.left:
        return Exit.TIME_IS_OVER
    return Exit.SUCCEEDED if tally.succeeded == tally.rows else Exit.NOT_SUCCEEDED


async def notified_or_late(notified: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(QUIET_SECONDS):
            await notified.wait()
    notified.clear()


async def look_again(awaited: AwaitedRows, display: Display, last: Tally) -> Tally:
    """Asks once more. Rows do not end because their database is away for a while."""
    try:
        return await awaited.look(display.tell)
    except (DatabaseAway, DatabaseNotPrimary) as fault:
        display.tell(f"waiting goes on: {one_line(str(fault))}")
        return last


async def details(awaited: AwaitedRows, rows: OwnRows, tally: Tally) -> tuple[Sequence[RowNow], Sequence[Reason]]:
    """The first rows that have not succeeded, and why others have not ended."""
    try:
        failed = await awaited.failed() if tally.failed or tally.cancelled else ()
        return failed, await rows.why(await awaited.live()) if tally.left else ()
    except (DatabaseAway, DatabaseNotPrimary) as fault:
        return (), [Reason("unknown", str(fault), tally.left)]


async def wait(ids: Sequence[int], batch: str | None, queue: str | None, options: "WaitOptions") -> int:
    """Waits for rows by their ids, or for a batch of this queue or of all queues. Returns the exit status."""
    rows = OwnRows(options.url)
    awaited = AwaitedIds(rows, ids) if batch is None else AwaitedBatch(rows, queue, batch)
    try:
        return await wait_for(awaited, rows, Display(as_json=options.as_json), options.limit, options.url)
    except DatabaseError as fault:
        return unknown(fault)
    finally:
        await rows.close()


def unknown(fault: DatabaseError) -> int:
    """Tells the fault. Its exit status is one of its own, because it says nothing of the rows."""
    click.echo(one_line(str(fault)), err=True)
    return Exit.UNKNOWN


class WaitOptions(Struct, frozen=True):
    """How to wait. `limit`: seconds; None: as long as it takes."""

    url: Url
    limit: float | None = None
    as_json: bool = False


def columns_of(env: Sequence[str], label: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row that the options of `submit` set. UsageError says what is wrong with them."""
    columns = {name: value for name, value in given.items() if value is not None}
    if env:
        columns["env"] = read_env(env)
    if label:
        columns["labels"] = read_pairs("--label", label)
    if "payload" in columns:
        columns["payload"] = Raw(read_payload(columns["payload"]).encode())
    if "spec" in columns:
        columns["spec"] = Raw(read_json("--spec", columns["spec"]).encode())
    return columns


async def submit(columns: Mapping[str, Any], options: WaitOptions, *, waits: bool) -> int:
    """Inserts a row and prints its id; with `waits`, waits for its end. Returns the exit status."""
    rows = OwnRows(options.url)
    try:
        task_id = await rows.submit(columns)
    except DatabaseError as fault:
        if not waits:
            raise
        return unknown(fault)
    finally:
        await rows.close()
    click.echo(to_json(SubmitOutput(task_id)) if options.as_json else task_id)
    return await wait([task_id], None, None, options) if waits else Exit.SUCCEEDED


class SubmitOutput(Struct, frozen=True):
    """What `submit --json` prints."""

    id: int
