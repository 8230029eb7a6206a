"""Connections to the primary: one that is opened again after a fault, LISTEN, times, and the faults of the driver.

`read_time`: Postgres has times for which Python has none: years to 294276, and infinity. The functions of the schema
write no such time, but an administrator can. One row must not end the look at all others.

`translated`: all faults of the driver are translated here:

* `DatabaseAway`: no connection, or no answer in time. Another try may succeed.
* `DatabaseNotPrimary`: no server of the URL is the primary.
* `DatabaseUnfit`: schema, index or privilege is wrong. A person has to act.

Each of these faults stops launches and deletes, but never ends the program.

`Listener`: a notification only means that rows should be read; it carries no work. Not guaranteed: that a notification
arrives. Notifications are debounced, and are lost while the connection is away. The safety poll finds such rows. While
LISTEN does not work, `is_listening` is false and the caller polls faster.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import asyncpg
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_delay, wait_random_exponential

from dispatcher.container.contract import NewestServer, OldPrimary, described
from dispatcher.container.dial import UnreadableUrl, dial
from dispatcher.model.errors import DatabaseAway, DatabaseError, DatabaseNotPrimary, DatabaseUnfit
from dispatcher.pg.queries import query
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.logs import LastingFault

EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Postgres counts microseconds from this time."""
FIRST, LAST = datetime(1, 1, 8, tzinfo=UTC), datetime(9999, 12, 24, tzinfo=UTC)
"""With room for a week before and after, so that sums do not overflow."""
FEWEST, MOST = ((one - EPOCH) // timedelta(microseconds=1) for one in (FIRST, LAST))


def read_time(written: tuple[int]) -> datetime:
    """The time; the first or the last one of Python for a time beyond them."""
    return EPOCH + timedelta(microseconds=min(max(written[0], FEWEST), MOST))


def write_time(time: datetime) -> tuple[int]:
    return ((time - EPOCH) // timedelta(microseconds=1),)


log = structlog.get_logger(component="pg.connect")
ANSWER_SECONDS: Final = 8
"""Limit of an answer, above the server's statement_timeout: a slow query must not look like a silent network."""


SESSION: Final = {
    # Members of a group role do not inherit its settings, so each session sets all that it needs.
    "application_name": "dispatcher",
    # Names are never looked up in schema public or in a schema named after the login: others may create objects there.
    "search_path": "pg_catalog, pg_temp",
    "statement_timeout": "5000",
    "idle_in_transaction_session_timeout": "10000",
    # In a stricter transaction a call of the janitor, or an INSERT of a dedupe_key, may fail with 40001 beside others.
    "default_transaction_isolation": "read committed",
    # Every statement has one good plan for all parameters, and planning costs as much as running it. A plan that was
    # made for a small table is used for a large one until statistics change, so every plan has to use the indexes.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    # A sort looks cheap in a small table, and reads a whole queue in a large one. The orders name the index to be read.
    # A sort remains where no index has the order.
    "enable_sort": "off",
    "enable_incremental_sort": "off",
    "jit": "off",
    # Text that the server makes of dates and of its own objects is compared, and statements are checked by it.
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    "row_security": "on",
}


DIRECTLY: Final = (
    "A pooler such as PgBouncer refuses settings of a session, or drops them (ignore_startup_parameters). Connect "
    "directly, or through a pooler that keeps them"
)


WHOSE: Final = (
    "DISPATCHER_DATABASE_URL has to name a login of dispatch_submitter for wait and submit, of dispatch_janitor for "
    "the janitor, of dispatch_owner for migrate, and of dispatch_reader for the others; `dispatcher doctor` tells "
    "rights that are lost"
)


LIFE_SECONDS: Final = 300
"""The longest life of a connection, in seconds. After a fail-over the old primary may live on behind the same address,
and an open connection would stay with it for ever.
"""


NETWORK_FAULTS: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.TransactionRollbackError,
    asyncpg.exceptions.LockNotAvailableError,
    asyncpg.exceptions.IdleInTransactionSessionTimeoutError,
)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Translates faults of the driver. Messages name the fault, never a parameter or a row."""
    try:
        yield
    except UnreadableUrl as fault:
        raise DatabaseUnfit(f"DISPATCHER_DATABASE_URL cannot be used: {fault}") from fault
    except OldPrimary as fault:
        raise DatabaseNotPrimary(str(fault)) from fault
    except asyncpg.exceptions.ProtocolViolationError as fault:
        raise DatabaseUnfit(f"the server takes no session of ours: {fault}. {DIRECTLY}") from fault
    except asyncpg.TargetServerAttributeNotMatched as fault:
        raise DatabaseNotPrimary(
            "no server of DISPATCHER_DATABASE_URL is the primary: all are in recovery (standbys)"
        ) from fault
    except NETWORK_FAULTS as fault:
        raise DatabaseAway(f"the database does not answer: {described(fault)}") from fault
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as fault:
        raise DatabaseUnfit(f"the database refuses the login: {fault}") from fault
    except asyncpg.PostgresError as fault:
        raise DatabaseUnfit(unfit(fault)) from fault


def unfit(fault: asyncpg.PostgresError) -> str:
    if isinstance(fault, asyncpg.InsufficientPrivilegeError):
        return f"the login may not do this: {fault} (42501). {WHOSE}"
    if isinstance(fault, asyncpg.ReadOnlySQLTransactionError):
        return f"the session may only read (default_transaction_read_only of its login, database or server): {fault}"
    return f"the database is not as this version needs it: {fault} ({fault.sqlstate})"


NAMED_BY: Final = ("PGHOST", "PGHOSTADDR", "PGSERVICE")
UNNAMED: Final = (
    "set DISPATCHER_DATABASE_URL to postgresql://USER:PASSWORD@HOST:PORT/DATABASE: nothing names a database, "
    "and no server answers on this machine"
)
Url = Callable[[], str | None]
"""Returns the database URL, or None for libpq's PG* variables. Called at each connect: a file may hold the URL."""


async def open_connection(
    url: str | None, settings: Mapping[str, str] = {}, *, writes: bool = False, newest: NewestServer | None = None
) -> asyncpg.Connection:
    """Opens a session with the primary. `url` may name several hosts. Without a primary, raises the first fault.

    settings: added to the settings of every session.
    writes: whether transactions may write, if the server lets them. Nobody overrides its default.
    newest: the newest server that was seen. An older server is not taken.
    """
    wanted = {**SESSION, **settings}
    with translated():
        try:
            connection = await dial(url, wanted, newest or NewestServer(), answer_seconds=ANSWER_SECONDS)
        except NETWORK_FAULTS as fault:
            if url is None and not any(map(os.environ.get, NAMED_BY)):
                raise DatabaseAway(f"{UNNAMED}: {described(fault)}") from fault
            raise
        except asyncpg.exceptions.ObjectNotInPrerequisiteStateError as fault:  # ALLOW_CONNECTIONS false: a maintenance
            raise DatabaseAway(f"the database takes no connection now: {fault}") from fault
        except (asyncpg.FeatureNotSupportedError, asyncpg.InternalServerError) as fault:  # RDS Proxy, Neon
            raise DatabaseUnfit(f"the server takes no session of ours: {fault}. {DIRECTLY}") from fault
        try:
            await connection.set_type_codec(
                "timestamptz", schema="pg_catalog", encoder=write_time, decoder=read_time, format="tuple"
            )
            await check_settings(connection, wanted)
            if not writes:  # set afterwards, so that the session still knows the server's own default
                await connection.execute(query("read_only", "connect"))
        except BaseException:  # cancellation, too: no caller has the connection yet
            connection.terminate()
            raise
    return connection


async def check_settings(connection: asyncpg.Connection, wanted: Mapping[str, str]) -> None:
    """Raises DatabaseUnfit if something on the way to the server has dropped a setting that our statements need."""
    if lost := await connection.fetchval(query("lost", "connect"), json.dumps(wanted)):
        raise DatabaseUnfit(f"the session has lost {lost}. {DIRECTLY}")


class Session:
    """One connection for one role, with one user at a time. It is opened anew after `life_seconds`.

    settings: added to the settings of every session.
    writes: whether its transactions may write.
    newest: the newest server that the sessions of this program saw; None: only this session remembers it.
    answered_at: monotonic seconds of the last use that ended without a fault.
    """

    def __init__(
        self,
        url: Url,
        settings: Mapping[str, str] = {},
        *,
        writes: bool = False,
        life_seconds: float = LIFE_SECONDS,
        newest: NewestServer | None = None,
    ) -> None:
        self.answered_at = float("-inf")
        self._url = url
        self._settings = settings
        self._writes = writes
        self._life_seconds = life_seconds
        self._lock = asyncio.Lock()
        self._connection: asyncpg.Connection | None = None
        self._opened_at = float("-inf")
        self._newest = newest or NewestServer()

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[asyncpg.Connection]:
        """Gives the connection. Any fault drops it, because the state of the session is then unknown."""
        async with self._lock:
            connection = await self._opened()
            try:
                with translated():
                    yield connection
                self.answered_at = elapsed()
            except BaseException:  # cancellation, too: the answer of a query may still be under way
                self._drop()
                raise

    async def close(self) -> None:
        async with self._lock:
            self._drop()

    async def _opened(self) -> asyncpg.Connection:
        if elapsed() - self._opened_at >= self._life_seconds:
            self._drop()
        if self._connection is None or self._connection.is_closed():
            # A fail-over takes a second or two. During a longer outage the caller tries again in its next round.
            attempts = AsyncRetrying(
                retry=retry_if_exception_type(DatabaseAway),
                wait=wait_random_exponential(multiplier=0.2, max=1),
                stop=stop_after_delay(2),
                reraise=True,
            )
            async for attempt in attempts:
                with attempt:
                    self._connection, self._opened_at = await self._opened_anew(), elapsed()
            log.info("connected")
        assert self._connection is not None
        return self._connection

    async def _opened_anew(self) -> asyncpg.Connection:
        return await open_connection(self._url(), self._settings, writes=self._writes, newest=self._newest)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


CHANNELS: Final = ("dispatch_tasks", "dispatch_done")
PING_SECONDS: Final = 10
"""Seconds between two pings."""
PONG_SECONDS: Final = 5
"""Limit of the answer to a ping, in seconds."""
AGAIN_SECONDS: Final = 0.2
"""Seconds before a reconnect. The pause prevents a hot loop if a server accepts connections and ends them at once."""


class Listener:
    """LISTEN on its own connection. Calls `wake` on every notification and after every reconnect: none is repeated."""

    def __init__(self, url: Url, wake: Callable[[], None], newest: NewestServer | None = None) -> None:
        self._url = url
        self._newest = newest or NewestServer()
        self._wake = wake
        self._lasting = LastingFault()
        self.is_listening = False

    async def run(self) -> None:
        """Runs until it is cancelled."""
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(DatabaseError),
            wait=wait_random_exponential(multiplier=0.4, max=10),
            before_sleep=self._tell,
        )
        while True:
            async for attempt in attempts:
                with attempt:
                    connection = await self._listen()
            await self._keep(connection)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _listen(self) -> asyncpg.Connection:
        connection = await open_connection(self._url(), {"application_name": "dispatcher/listen"}, newest=self._newest)
        try:
            with translated():
                for channel in CHANNELS:
                    await connection.add_listener(channel, self._heard)
        except BaseException:  # cancellation, too: no caller has the connection yet, so no caller can close it
            connection.terminate()
            raise
        self.is_listening = True
        self._lasting.end()
        self._wake()
        log.info("listening", channels=CHANNELS)
        return connection

    def _tell(self, state: RetryCallState) -> None:
        fault = str(state.outcome.exception()) if state.outcome else ""
        if self._lasting.is_due(fault):
            log.warning("cannot listen", fault=fault, tries=state.attempt_number)

    async def _keep(self, connection: asyncpg.Connection) -> None:
        """Sends pings until the connection breaks or is old. A dead TCP connection is silent."""
        closed, began = asyncio.Event(), elapsed()
        connection.add_termination_listener(lambda _: closed.set())
        try:
            while not closed.is_set() and elapsed() - began < LIFE_SECONDS:
                with translated():
                    await connection.fetchval(query("ping", "cycle"), timeout=PONG_SECONDS)
                await wait_quietly(closed, PING_SECONDS)
        except DatabaseError as fault:
            log.warning("listening stopped", fault=str(fault))
        finally:
            self.is_listening = False
            connection.terminate()
            self._wake()

    def _heard(self, *_: object) -> None:
        self._wake()


async def wait_quietly(event: asyncio.Event, seconds: float) -> None:
    """Waits until the event is set or the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
