"""The people around a demo: the submitter of its rows, and the operator of its queues. Each act has its own connection.

An older connection may be dead: Postgres may have been started again.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import asyncpg
import msgspec

from dispatcher.model.errors import DispatcherError
from dispatcher.pg.queries import query
from dispatcher.programs.demo.asked import Options
from dispatcher.programs.demo.samples import Sample, count, samples

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
TEN = 10


class Team:
    """`submitter`, `operator`: their URLs of the database.

    shows: what each sample is for, by the id of its row.
    actions: what the submitter will do with a row, `cancel` or `retry`.
    """

    def __init__(self, submitter: str, operator: str) -> None:
        self._submitter = submitter
        self._operator = operator
        self.shows: dict[int, str] = {}
        self.actions: dict[int, str] = {}

    async def insert(self, options: Options, statements: str) -> None:
        """Inserts the rows of the demo. DispatcherError: the user's statements fail, or leave no row."""
        if options.sql:
            await self._run_own(options, statements)
        elif options.template:
            async with connected(self._submitter) as team:
                await team.execute(query("insert_default", "demo"), options.tasks)
        else:
            await self._insert_samples(samples(options.tasks, is_real=bool(options.kubeconfig)))

    async def insert_ten(self, *, is_plain: bool) -> None:
        """Inserts ten more rows: samples that count, or `is_plain`: rows of the default template."""
        if is_plain:
            async with connected(self._submitter) as team:
                await team.execute(query("insert_default", "demo"), TEN)
        else:
            await self._insert_samples([count(number) for number in range(TEN)])

    async def act(self, task_id: int) -> str:
        """Does what the submitter planned for the row, and forgets the plan. Returns what it was."""
        async with connected(self._submitter) as team:
            await team.execute(query(self.actions[task_id], "demo"), task_id)
        return self.actions.pop(task_id)

    async def pause(self, queue: str) -> bool:
        """Pauses the queue, or lets it go on. True: it is paused now."""
        async with connected(self._operator) as operator:
            return bool(await operator.fetchval(query("pause", "demo"), queue))

    async def _insert_samples(self, rows: list[Sample]) -> None:
        async with connected(self._submitter) as team:
            for sample in rows:
                values = sample.queue, sample.template, encode(sample.spec), encode(sample.payload), sample.cache_key
                task_id = await team.fetchval(query("insert", "demo"), *values)
                self.shows[task_id] = sample.shows
                if sample.action:
                    self.actions[task_id] = sample.action

    async def _run_own(self, options: Options, statements: str) -> None:
        try:
            async with connected(self._submitter) as team:
                with suppress(AttributeError):  # asyncpg raises it for a file of comments only
                    await team.execute(statements)
            async with connected(self._submitter) as team:
                if not await team.fetchval(query("count", "demo")):
                    words = "left no row: INSERT INTO dispatch.tasks, and COMMIT what you BEGIN"
                    raise DispatcherError(f"{options.sql} {words}")
        except asyncpg.PostgresError as fault:
            raise DispatcherError(f"{options.sql}: {fault.sqlstate}: {fault}") from fault


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(url, timeout=5)
    try:
        yield connection
    finally:
        connection.terminate()


def encode(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
