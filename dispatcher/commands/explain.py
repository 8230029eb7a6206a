"""`dispatcher explain ID…` and `dispatcher status`: ask a running dispatcher, and print its answers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, Final

import click
from msgspec.structs import replace

from dispatcher.commands.options import at, span
from dispatcher.commands.reaching import DispatcherApi, Unknown
from dispatcher.model.errors import DispatcherError
from dispatcher.model.reasons import Turn, advice_by_message
from dispatcher.model.tasks import TERMINAL, one_line
from dispatcher.model.verdicts import HoldReason
from dispatcher.views import launches
from dispatcher.views.explanation import Estimate, Explanation
from dispatcher.views.launches import binary
from dispatcher.views.nodes import NodeGroup
from dispatcher.views.status import BESIDE, InstallationStatus, ParkedRow, QueueStatus, ShapeDemand

LOOK_SECONDS: Final = 2
"""Seconds between two questions of `--watch`."""
ABOUT_NODES: Final = frozenset({HoldReason.NEVER_FITS, HoldReason.NO_ROOM_NOW, HoldReason.PENDING_PODS})
"""Reasons whose explanation lists nodes."""
EVER: Final = datetime.min.replace(tzinfo=UTC)
Echo = Callable[[str], None]
Look = Callable[[DispatcherApi], Awaitable[bool]]
"""Asks once. Returns whether it was the last time."""


async def explain(ids: Sequence[int], api: DispatcherApi, tell: Callable[[Explanation], str], echo: Echo) -> int:
    """Prints the explanation of each row. Returns the exit status; 1: one of the rows does not exist."""
    unknown = 0
    for task_id in ids:
        try:
            echo(tell(await ask_row(api, task_id)))
        except Unknown as fault:
            unknown = 1
            warn(str(fault))
    return unknown


def warn(words: str) -> None:
    """Tells a fault beside the output, which a program may read line by line."""
    click.echo(one_line(words), err=True)


async def watch(
    reach: Callable[[], AbstractAsyncContextManager[DispatcherApi]], look: Look, pause: float = LOOK_SECONDS
) -> None:
    """Looks again and again, until a look says that it was the last one. `pause`: seconds between two looks.

    After the first answer an outage ends nothing: replicas come and go, and with them the port-forward. Raises Unknown,
    which is an answer.
    """
    has_looked, said = False, ""
    while True:
        try:
            async with reach() as api:
                while not await look(api):
                    has_looked, said = True, ""
                    await asyncio.sleep(pause)
                return
        except DispatcherError as fault:
            if isinstance(fault, Unknown) or not has_looked:
                raise
            if str(fault) != said:
                warn(f"asked again until it answers: {fault}")
            said = str(fault)
        await asyncio.sleep(pause)


class RowWatch:
    """Prints the explanation of each row, and then each one that says something new.

    unknown: whether one of the rows does not exist, or not any more.
    """

    def __init__(self, ids: Sequence[int], tell: Callable[[Explanation], str], echo: Echo) -> None:
        self._left = list(dict.fromkeys(ids))
        self._known: dict[int, Explanation] = {}
        self._tell = tell
        self._echo = echo
        self.unknown = False

    async def look(self, api: DispatcherApi) -> bool:
        """Asks for each row once. Returns whether all rows are over."""
        for task_id in list(self._left):
            try:
                found = await ask_row(api, task_id)
            except Unknown as fault:  # the others are watched on
                self.unknown = True
                self._left.remove(task_id)
                warn(str(fault))
                continue
            if task_id not in self._known or what_matters(self._known[task_id]) != what_matters(found):
                self._echo(self._tell(found))
            self._known[task_id] = found
            if found.status in TERMINAL:
                self._left.remove(task_id)
        return not self._left


def what_matters(found: Explanation) -> tuple[Any, ...]:
    """The part of an explanation whose change is printed. Times and places change all the time."""
    return found.status, found.attempt, found.reason, found.message if found.reason != "InLine" else ""


async def ask_row(api: DispatcherApi, task_id: int) -> Explanation:
    """The explanation. Raises Unknown, and DispatcherError if there is no answer."""
    found = await api.ask(f"tasks/{task_id}/explain", Explanation)
    return with_own_logs(found) if api.is_demo else found


def with_own_logs(found: Explanation) -> Explanation:
    """The explanation with our own command for each log: kubectl does not know the cluster of a demo."""
    shown = [
        replace(one, logs=f"dispatcher logs {found.task} --attempt {one.attempt} --launch {one.launch}")
        if one.logs
        else one
        for one in found.launches
    ]
    return replace(found, launches=shown)


def in_words(found: Explanation) -> str:
    """The explanation as lines for people."""
    lines = [f"task {found.task} ({found.queue}), attempt {found.attempt}: {found.status}"]
    lines += [f"  {found.reason}: {found.message}" if found.reason else f"  {found.message}"]
    lines += [f"  {line}" for line in (wait_in_words(found) if found.reason is not None else ())]
    lines += [f"  {line}" for one in found.launches for line in launches.launch_in_words(one)]
    return "\n".join(map(one_line, [*lines, f"  as of {at(found.as_of)}"]))


def wait_in_words(found: Explanation) -> Iterator[str]:
    if found.since is not None:
        yield f"since {at(found.since)}"
    if found.position is not None:
        yield f"place {found.position:,} of {found.position_of:,} in its queue"
    if found.estimate is not None:
        yield f"starts {between(found.estimate, found.as_of)}, as the starts of the last hour tell"
    if found.cache:
        yield f"cache: {found.cache.message}"
    yield turn_in_words(found.whose_turn, found.next_step)
    if found.reason in ABOUT_NODES:
        yield from map(nodes_in_words, found.nodes)
    yield from (f"then {cause.reason}: {cause.message}" for cause in found.also)


def turn_in_words(turn: Turn, step: str) -> str:
    return f"{turn}'s turn: {step.removeprefix('nothing: ')}"


def advice_in_words(reason: HoldReason, message: str) -> str:
    advice = advice_by_message(reason, message)
    return turn_in_words(advice.whose_turn, advice.next_step)


def nodes_in_words(group: NodeGroup) -> str:
    until = f"; run limits free one of them by about {at(group.until)}" if group.until else ""
    return f"nodes: {group.count:,} {group.why} ({', '.join(group.examples)}){until}"


def between(found: Estimate, now: datetime) -> str:
    earliest, latest = (span((moment - now).total_seconds()) for moment in (found.earliest, found.latest))
    return f"in about {latest}" if earliest == latest else f"in {earliest} to {latest}"


COLUMNS: Final = ("QUEUE", "WAITING", "JOBS", "SHARE", "START/END", "OLDEST", "WAITS FOR")


async def ask_status(api: DispatcherApi) -> InstallationStatus:
    """The status. Raises DispatcherError if there is no answer."""
    return await api.ask("status", InstallationStatus)


class StatusWatch:
    """Prints the status whenever it says something new."""

    def __init__(self, tell: Callable[[InstallationStatus], str], echo: Echo) -> None:
        self._last = ""
        self._tell = tell
        self._echo = echo

    async def look(self, api: DispatcherApi) -> bool:
        """Asks once. It is never the last time."""
        found = await ask_status(api)
        if (told := self._tell(without_times(found))) != self._last:
            self._echo(self._tell(found))
        self._last = told
        return False


def without_times(status: InstallationStatus) -> InstallationStatus:
    """The part of a status whose change is printed. Its times change all the time, and so do waits."""
    queues = [replace(one, oldest_wait_seconds=None) for one in status.queues]
    return replace(status, as_of=EVER, counted_at=EVER, queues=queues)


def status_in_words(status: InstallationStatus) -> str:
    """The status as lines for people."""
    parked = parked_in_words(status, 5, "dispatcher status --parked")
    return in_lines([*heading(status), "", *table(status.queues), *parked])


def parked_only(status: InstallationStatus) -> str:
    """The parked rows as lines for people."""
    others = "the pages list those of one reason, below /tasks?reason="
    return in_lines(parked_in_words(status, len(status.parked_rows), others)) or "no row is parked"


def in_lines(lines: Iterable[str]) -> str:
    return "\n".join(map(one_line, lines))


def heading(status: InstallationStatus) -> Iterator[str]:
    role = "leads" if status.leads else "does not lead"
    state = "NOT READY" if status.unhealthy.keys() - BESIDE else "ready"
    yield f"{status.installation} {status.version}: {state}, {status.in_flight} of {status.max_jobs} Jobs"
    yield f"  {status.replica} {role}; as of {at(status.as_of)}"
    yield from (f"  {name}: {fault}" for name, fault in status.unhealthy.items())
    if (why := status.not_ready) is not None:
        yield f"  {why.reason}: {why.message}"
        yield f"    {advice_in_words(why.reason, why.message)}"
    yield from (f"  slowed: {what}" for what in status.slowed)
    yield from (f"  {what}" for what in status.templates_differ)
    yield from (f"  demand: {asks(one)}" for one in status.demand)
    if status.caches:
        nodes = "1 node" if status.caches.nodes == 1 else f"{status.caches.nodes:,} nodes"
        yield f"  caches: {status.caches.directories:,} on {nodes}, {binary(status.caches.bytes)}"


def asks(one: ShapeDemand) -> str:
    pods = "1 Pod asks" if one.pods == 1 else f"{one.pods:,} Pods ask"
    return ", ".join(filter(None, (f"{pods} for {one.asks or 'a node'}", one.answer)))


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
    waiting = (
        f"{queue.waiting:,} + {queue.started:,}" if queue.started else f"{queue.waiting:,}"
    )  # the others wait again
    return queue.queue, waiting, f"{queue.in_flight}{cap}", share, rates, wait, reasons or "-"


def paused(queue: QueueStatus) -> str:
    until = queue.paused_until
    end = "until somebody clears it" if until is None or until.year >= 9999 else f"until {at(until)}"
    since = f", since {at(queue.paused_since)} at the latest" if queue.paused_since else ""
    return f"paused {end}{since}" + (f": {queue.note}" if queue.note else "")


def parked_in_words(status: InstallationStatus, most: int, others: str) -> Iterator[str]:
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
        yield f"  and {status.parked - most:,} more: {others}"


def of_parked(one: ParkedRow) -> Iterator[str]:
    yield f"  task {one.task} ({one.queue}), attempt {one.attempt}: {one.reason} since {at(one.since)}"
    yield f"    {one.message}"
    yield f"    {advice_in_words(one.reason, one.message)}"
