"""`dispatcher status`: one screen for who is on call."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from dispatcher.explain.caches import binary
from dispatcher.explain.reasons import ADVICE
from dispatcher.explain.status import InstallationStatus, ParkedRow, QueueStatus
from dispatcher.model.texts import one_line
from dispatcher.programs.asking_api import Api
from dispatcher.programs.words import at, span

LOOK_SECONDS: Final = 2
COLUMNS: Final = ("QUEUE", "WAITING", "JOBS", "SHARE", "START/END", "OLDEST", "WAITS FOR")
Echo = Callable[[str], None]


async def ask_status(api: Api) -> InstallationStatus:
    """Raises DispatcherError if there is no answer."""
    return await api.ask("status", InstallationStatus)


async def watch(api: Api, tell: Callable[[InstallationStatus], str], echo: Echo) -> None:
    """Prints the status whenever it says something new, until the program is stopped."""
    last = ""
    while True:
        if (told := tell(await ask_status(api))) != last:
            echo(told)
        last = told
        await asyncio.sleep(LOOK_SECONDS)


def in_words(status: InstallationStatus) -> str:
    """The status as lines for people."""
    return in_lines([*heading(status), "", *table(status.queues), *parked_in_words(status, 5)])


def parked_only(status: InstallationStatus) -> str:
    """The parked rows as lines for people."""
    return in_lines(parked_in_words(status, len(status.parked_rows))) or "no row is parked"


def in_lines(lines: Iterable[str]) -> str:
    return "\n".join(map(one_line, lines))


def heading(status: InstallationStatus) -> Iterator[str]:
    role = "leads" if status.leads else "does not lead"
    state = "NOT READY" if status.unhealthy else "ready"
    yield f"{status.installation} {status.version}: {state}, {status.in_flight} of {status.max_jobs} Jobs"
    yield f"  {status.replica} {role}; as of {at(status.as_of)}"
    yield from (f"  {name}: {fault}" for name, fault in status.unhealthy.items())
    if status.not_ready is not None:
        yield f"  {status.not_ready.reason}: {status.not_ready.message}"
    yield from (f"  slowed: {what}" for what in status.slowed)
    yield from (f"  {what}" for what in status.templates_differ)
    if status.caches:
        nodes = "1 node" if status.caches.nodes == 1 else f"{status.caches.nodes:,} nodes"
        yield f"  caches: {status.caches.directories:,} on {nodes}, {binary(status.caches.bytes)}"


def table(queues: Sequence[QueueStatus]) -> Iterator[str]:
    """The queues, the longest wait first. Columns are as wide as their widest cell."""
    ordered = sorted(queues, key=lambda queue: (-(queue.oldest_wait_seconds or 0), queue.queue))
    cells = [COLUMNS, *map(row, ordered)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    for line, queue in zip(cells, [None, *ordered], strict=True):
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        if queue is not None and queue.paused_until is not None:
            yield f"  {paused(queue)}"


def row(queue: QueueStatus) -> tuple[str, ...]:
    cap = "" if queue.max_jobs is None else f" of {queue.max_jobs}"
    reasons = ", ".join(f"{reason} {n:,}" for reason, n in sorted(queue.reasons.items(), key=lambda one: -one[1]))
    share = f"{queue.share:.0%}" if queue.share <= 1 else f"{queue.share:.0f}"
    wait = "-" if queue.oldest_wait_seconds is None else span(queue.oldest_wait_seconds)
    rates = f"{queue.starts_per_minute:g}/{queue.ends_per_minute:g}"  # a minute
    return queue.queue, f"{queue.waiting:,}", f"{queue.in_flight}{cap}", share, rates, wait, reasons or "-"


def paused(queue: QueueStatus) -> str:
    until = queue.paused_until
    end = "until somebody clears it" if until is None or until.year >= 9999 else f"until {at(until)}"
    since = f", since {at(queue.paused_since)} at the latest" if queue.paused_since else ""
    return f"paused {end}{since}" + (f": {queue.note}" if queue.note else "")


def parked_in_words(status: InstallationStatus, most: int) -> Iterator[str]:
    if not status.parked:
        return
    yield ""
    yield (
        "1 parked row: it waits for a person"
        if status.parked == 1
        else f"{status.parked:,} parked rows: each waits for a person"
    )
    for one in status.parked_rows[:most]:
        yield from of_parked(one)
    if status.parked > most:
        yield f"  and {status.parked - most:,} more: dispatcher status --parked"


def of_parked(one: ParkedRow) -> Iterator[str]:
    advice = ADVICE[one.reason]
    yield f"  task {one.task} ({one.queue}), attempt {one.attempt}: {one.reason} since {at(one.since)}"
    yield f"    {one.message}"
    yield f"    {advice.whose_turn}'s turn: {advice.next_step}"
