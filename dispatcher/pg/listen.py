"""LISTEN on a separate connection. A notification only means that rows should be read; it carries no work.

Not guaranteed: that a notification arrives. Notifications are debounced, and are lost while the connection is away. The
safety poll finds such rows. While LISTEN does not work, `is_listening` is false and the caller polls faster.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import asyncpg
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from dispatcher.model.errors import DatabaseError
from dispatcher.pg.connect import Url, open_connection, translated
from dispatcher.pg.queries import query

log = structlog.get_logger(component="pg.listen")

CHANNELS: Final = ("dispatch_tasks", "dispatch_done")
PING_SECONDS: Final = 10
PONG_SECONDS: Final = 5
AGAIN_SECONDS: Final = 0.2
"""Pause before a reconnect. It prevents a hot loop if a server accepts connections and ends them at once."""


class Listener:
    """Calls `wake` on every notification, and after every reconnect, because notifications are not repeated."""

    def __init__(self, url: Url, wake: Callable[[], None]) -> None:
        self._url = url
        self._wake = wake
        self.is_listening = False

    async def run(self) -> None:
        """Runs until it is cancelled."""
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(DatabaseError),
            wait=wait_random_exponential(multiplier=0.4, max=10),
            before_sleep=tell,
        )
        while True:
            async for attempt in attempts:
                with attempt:
                    connection = await self._listen()
            await self._keep(connection)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _listen(self) -> asyncpg.Connection:
        connection = await open_connection(self._url(), application_name="dispatcher/listen")
        try:
            with translated():
                for channel in CHANNELS:
                    await connection.add_listener(channel, self._heard)
        except BaseException:  # cancellation, too: no caller has the connection yet, so no caller can close it
            connection.terminate()
            raise
        self.is_listening = True
        self._wake()
        log.info("listening", channels=CHANNELS)
        return connection

    async def _keep(self, connection: asyncpg.Connection) -> None:
        """Sends pings until the connection breaks, because a dead TCP connection is silent."""
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _: closed.set())
        try:
            while not closed.is_set():
                with translated():
                    await connection.fetchval(query("ping"), timeout=PONG_SECONDS)
                await wait_quietly(closed, PING_SECONDS)
        except DatabaseError as fault:
            log.warning("listening stopped", fault=str(fault))
        finally:
            self.is_listening = False
            connection.terminate()
            self._wake()

    def _heard(self, *_: object) -> None:
        self._wake()


def tell(state: RetryCallState) -> None:
    fault = state.outcome.exception() if state.outcome else None
    log.warning("cannot listen", fault=str(fault), tries=state.attempt_number)


async def wait_quietly(event: asyncio.Event, seconds: float) -> None:
    """Waits until the event is set or the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
