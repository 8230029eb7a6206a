"""One connection to the primary, opened again after a fault.

All faults of the driver are translated here:

* `DatabaseAway`: no connection, or no answer in time. Another try may succeed.
* `DatabaseNotPrimary`: no server of the URL is the primary.
* `DatabaseUnfit`: schema, index or privilege is wrong. A person has to act.

Each of these faults stops launches and deletes, but never ends the program.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Final

import asyncpg
import structlog
from asyncpg.connect_utils import SessionAttribute
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from dispatcher.model.errors import DatabaseAway, DatabaseError, DatabaseNotPrimary, DatabaseUnfit
from dispatcher.runtime.clock import elapsed

log = structlog.get_logger(component="pg.connect")

CONNECT_SECONDS: Final = 5
ANSWER_SECONDS: Final = 8
"""Longer than the server's statement_timeout, so that a slow query does not look like a silent network."""
SESSION: Final = {
    # Members of a group role do not inherit its settings, so each session sets all that it needs.
    "application_name": "dispatcher",
    # Names are never looked up in schema public or in a schema named after the login: others may create objects there.
    "search_path": "pg_catalog, pg_temp",
    "default_transaction_read_only": "on",
    "statement_timeout": "5000",
    "idle_in_transaction_session_timeout": "10000",
    # Every statement has one good plan for all parameters, and planning costs as much as running it. A plan that was
    # made for a small table is used for a large one until statistics change, so every plan has to use the indexes.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "jit": "off",
    "TimeZone": "UTC",
}
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
    except asyncpg.TargetServerAttributeNotMatched as fault:
        raise DatabaseNotPrimary("no server of DATABASE_URL is the primary: all are in recovery (standbys)") from fault
    except NETWORK_FAULTS as fault:
        raise DatabaseAway(f"the database does not answer: {type(fault).__name__}: {fault}") from fault
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as fault:
        raise DatabaseUnfit(f"the database refuses the login: {fault}") from fault
    except asyncpg.PostgresError as fault:
        raise DatabaseUnfit(f"the database is not as this version needs it: {fault} ({fault.sqlstate})") from fault


Url = Callable[[], str | None]
"""Returns the database URL, or None for libpq's PG* variables. Called at each connect: a file may hold the URL."""


async def open_connection(url: str | None, **settings: str) -> asyncpg.Connection:
    """Opens a session with the primary. `url` may name several hosts. Without a primary, raises the first fault."""
    first: DatabaseError | None = None
    for host in each_host(url):
        try:
            return await connect_to(host, **settings)
        except (DatabaseAway, DatabaseNotPrimary) as fault:
            first = first or fault
    assert first is not None
    raise first


def each_host(url: str | None) -> list[str | None]:
    """One URL for each host. The driver's time limit is for all hosts together, and a dead host would use it up."""
    parts = re.fullmatch(r"([^/]*//(?:[^/?]*@)?)([^/?@]*)(.*)", url or "", re.DOTALL)
    return [f"{parts[1]}{host}{parts[3]}" for host in parts[2].split(",")] if parts else [url]


async def connect_to(url: str | None, **settings: str) -> asyncpg.Connection:
    with translated(), readable_url():
        connection: asyncpg.Connection = await asyncpg.connect(
            url,
            timeout=CONNECT_SECONDS,
            command_timeout=ANSWER_SECONDS,
            server_settings={**SESSION, **settings},
            target_session_attrs=SessionAttribute.primary,
        )
    return connection


@contextlib.contextmanager
def readable_url() -> Iterator[None]:
    """Replaces the driver's message about an unreadable URL, because that message may hold the password."""
    try:
        yield
    except (ValueError, OverflowError):
        raise DatabaseUnfit(
            "DATABASE_URL cannot be read: postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
            "the password's special characters percent-encoded"
        ) from None


class Session:
    """One connection for one role, with one user at a time. `settings` are added to the settings of every session.

    answered_at: monotonic seconds of the last use that ended without a fault.
    """

    def __init__(self, url: Url, settings: Mapping[str, str] = {}) -> None:
        self.answered_at = float("-inf")
        self._url = url
        self._settings = settings
        self._lock = asyncio.Lock()
        self._connection: asyncpg.Connection | None = None

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
                    self._connection = await open_connection(self._url(), **self._settings)
            log.info("connected")
        assert self._connection is not None
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
