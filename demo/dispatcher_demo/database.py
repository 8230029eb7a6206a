"""The database of a demo, and the people who use it.

`DemoDatabase`: a Postgres server, migrated, with a login for each program and the queues of the samples.

`Team`: the submitter of the rows, and the operator of the queues. Each act has its own connection: an older one may be
dead, because Postgres may have been started again.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

import asyncpg
import msgspec

from dispatcher.model.errors import DispatcherError
from dispatcher.pg.migrate import migrate
from dispatcher_demo.node.children import Keeper
from dispatcher_demo.postgres import SUPERUSER, Home, Postmaster
from dispatcher_demo.samples import QUEUES, Options, SampleRow, count, samples
from dispatcher_demo.statements import demo_query

POSTGRES: Final = "postgres"
SERVICE: Final = "demo"
SUBMITTER: Final = "demo"
LOGINS: Final = (SUBMITTER, "reader", "task", "janitor", "observer", "operator")
"""Each login has a password of its own: the one that a container knows gives no right that the container lacks."""


class DemoDatabase:
    """The server in the folder `home`. `url` is valid before `open`."""

    def __init__(self, home: Home) -> None:
        self._postmaster = Postmaster(home, "demo")
        self._passwords = {SUPERUSER: home.password, **{login: secrets.token_hex(16) for login in LOGINS}}

    def url(self, login: str) -> str:
        return f"postgresql://{login}:{self._passwords[login]}@127.0.0.1:{self._postmaster.port}/demo"

    def write_service(self, path: Path) -> None:
        """Writes a file of libpq with the submitter's login, for this account alone, so that psql shows no password."""
        path.touch(mode=0o600)
        values = {
            "host": "127.0.0.1", "port": self._postmaster.port, "dbname": "demo", "user": SUBMITTER,
            "password": self._passwords[SUBMITTER], "sslmode": "disable",
        }  # fmt: skip
        path.write_text("".join([f"[{SERVICE}]\n", *(f"{name}={value}\n" for name, value in values.items())]))

    async def open(self, keeper: Keeper) -> None:
        """Starts the server, kept by `keeper`, and fills it."""
        await self._postmaster.initialise()
        await keeper.keep(POSTGRES, self._start)
        admin = await asyncpg.connect(self._postmaster.admin_url)
        try:
            await admin.execute(demo_query("database"))
        finally:
            await admin.close()
        owner_url = self.url(SUPERUSER)
        await migrate(owner_url)
        owner = await asyncpg.connect(owner_url)
        try:
            for login in LOGINS:
                await owner.fetchval(demo_query("password"), login, self._passwords[login])
            await owner.execute(demo_query("logins"))
            for name, (cap, note) in QUEUES.items():
                await owner.execute(demo_query("queue"), name, cap, note)
        finally:
            await owner.close()

    async def _start(self) -> asyncio.subprocess.Process:
        await self._postmaster.start()
        return self._postmaster.process


Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
TEN = 10


class Team:
    """The people around a demo. `submitter`, `operator`: their URLs of the database.

    shows: the purpose of each sample, by the id of its row.
    actions: what the submitter will do with a row, `cancel` or `retry`.
    """

    def __init__(self, submitter: str, operator: str) -> None:
        self._submitter = submitter
        self._operator = operator
        self.shows: dict[int, str] = {}
        self.actions: dict[int, str] = {}

    async def insert(self, options: Options, statements: str) -> None:
        """Inserts the rows of the demo. Raises DispatcherError if the user's statements fail, or leave no row."""
        if options.sql:
            await self._run_own(options, statements)
        elif options.template:
            async with connected(self._submitter) as team:
                await team.execute(demo_query("insert_default"), options.tasks)
        else:
            await self._insert_samples(samples(options.tasks, is_real=bool(options.kubeconfig)))

    async def insert_ten(self, *, is_plain: bool) -> None:
        """Inserts ten more rows: samples that count, or `is_plain`: rows of the default template."""
        if is_plain:
            async with connected(self._submitter) as team:
                await team.execute(demo_query("insert_default"), TEN)
        else:
            await self._insert_samples([count(number) for number in range(TEN)])

    async def act(self, task_id: int) -> str:
        """Does what the submitter planned for the row, and forgets the plan. Returns the act."""
        async with connected(self._submitter) as team:
            statement = demo_query("retry") if self.actions[task_id] == "retry" else demo_query("cancel")
            await team.execute(statement, task_id)
        return self.actions.pop(task_id)

    async def pause(self, queue: str) -> bool:
        """Pauses the queue, or ends its pause. True: it is paused now."""
        async with connected(self._operator) as operator:
            return bool(await operator.fetchval(demo_query("pause"), queue))

    async def _insert_samples(self, rows: list[SampleRow]) -> None:
        async with connected(self._submitter) as team:
            for sample in rows:
                values = sample.queue, sample.template, encode(sample.spec), encode(sample.payload), sample.cache_key
                task_id = await team.fetchval(demo_query("insert"), *values, sample.max_failures)
                self.shows[task_id] = sample.shows
                if sample.action:
                    self.actions[task_id] = sample.action

    async def _run_own(self, options: Options, statements: str) -> None:
        try:
            async with connected(self._submitter) as team:
                with suppress(AttributeError):  # asyncpg raises it for a file of comments only
                    await team.execute(statements)
            async with connected(self._submitter) as team:
                if not await team.fetchval(demo_query("count")):
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
