"""`dispatcher explain ID…`: asks a running dispatcher why rows wait, and prints its answers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from dispatcher.explain import launches
from dispatcher.explain.estimate import Estimate
from dispatcher.explain.explanation import Explanation
from dispatcher.explain.nodes import NodeGroup
from dispatcher.model.tasks import TERMINAL
from dispatcher.model.texts import one_line
from dispatcher.model.verdicts import HoldReason
from dispatcher.programs.asking_api import Api, Unknown
from dispatcher.programs.words import at, span

LOOK_SECONDS: Final = 2
ABOUT_NODES: Final = frozenset({HoldReason.NEVER_FITS, HoldReason.NO_ROOM_NOW, HoldReason.PENDING_PODS})
Echo = Callable[[str], None]


async def explain(ids: Sequence[int], api: Api, tell: Callable[[Explanation], str], echo: Echo) -> int:
    """Prints the explanation of each row. Returns the exit status; 1: one of the rows does not exist."""
    unknown = 0
    for task_id in ids:
        try:
            echo(tell(await ask_row(api, task_id)))
        except Unknown as fault:
            unknown = 1
            echo(one_line(str(fault)))
    return unknown


async def watch(ids: Sequence[int], api: Api, tell: Callable[[Explanation], str], echo: Echo) -> None:
    """Prints the explanation of each row whenever it changes, until all rows are over. Raises Unknown."""
    async for found in changes(ids, api):
        echo(tell(found))


async def changes(ids: Sequence[int], api: Api) -> AsyncIterator[Explanation]:
    """The explanations of the rows, then each one that says something new."""
    known: dict[int, Explanation] = {}
    left = list(dict.fromkeys(ids))
    while left:
        for task_id in list(left):
            found = await ask_row(api, task_id)
            if task_id not in known or what_matters(known[task_id]) != what_matters(found):
                yield found
            known[task_id] = found
            if found.status in TERMINAL:
                left.remove(task_id)
        await asyncio.sleep(LOOK_SECONDS if left else 0)


def what_matters(found: Explanation) -> tuple[Any, ...]:
    """Times and places change all the time."""
    return found.status, found.attempt, found.reason, found.message if found.reason != "InLine" else ""


async def ask_row(api: Api, task_id: int) -> Explanation:
    """Raises Unknown, and DispatcherError if there is no answer."""
    try:
        return await api.ask(f"tasks/{task_id}/explain", Explanation)
    except Unknown as fault:
        raise Unknown(f"task {task_id}: {fault}") from fault


def in_words(found: Explanation) -> str:
    """The explanation as lines for people."""
    lines = [f"task {found.task} ({found.queue}), attempt {found.attempt}: {found.status}"]
    lines += [f"  {found.reason}: {found.message}" if found.reason else f"  {found.message}"]
    lines += [f"  {line}" for line in (wait_in_words(found) if found.reason is not None else ())]
    lines += [f"  {line}" for one in found.launches for line in launches.in_words(one)]
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
    yield f"{found.whose_turn}'s turn: {found.next_step}"
    if found.reason in ABOUT_NODES:
        yield from map(nodes_in_words, found.nodes)
    yield from (f"then {cause.reason}: {cause.message}" for cause in found.also)


def nodes_in_words(group: NodeGroup) -> str:
    until = f"; run limits free one of them by about {at(group.until)}" if group.until else ""
    return f"nodes: {group.count:,} {group.why} ({', '.join(group.examples)}){until}"


def between(found: Estimate, now: datetime) -> str:
    earliest, latest = (span((moment - now).total_seconds()) for moment in (found.earliest, found.latest))
    return f"in about {latest}" if earliest == latest else f"in {earliest} to {latest}"
