"""Limits of the extender's bodies and answers: in size, in number and in time.

    up to 1 MiB                     read at once; these bodies and their answers hold at most 16 MiB together
    up to 16 MiB, or of a size      one at a time, from the first byte of the body to the last byte of the answer;
    not told (chunked, zipped)      the others wait three seconds for their turn, then get 503

kube-scheduler names 5,000 nodes in a quarter of a MiB and waits one second. So such a body never waits for the turn of
a larger one. A slow sender or reader keeps its place for two seconds. The number of values is limited, too, because a
decoded body takes memory for each of them: 16 MiB of `5,` would be half a GiB of objects.

Not guaranteed: an answer for every caller. A flood of small bodies takes answers from others, but memory stays bounded.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

SMALL_BODY: Final = 2**20
LARGEST_NAMES: Final = 4 * 2**20
"""For a body that names its nodes in place of holding them: 15,000 names of the greatest length."""
LARGEST_BODY: Final = 16 * 2**20
HELD_BYTES: Final = 16 * 2**20
MOST_NODES: Final = 50_000
MOST_VALUES: Final = 2**17
"""For a body that names its nodes. A JSON text has about as many values as commas, and commas are counted quickly."""
MOST_WHOLE_VALUES: Final = 400_000
"""For a body that holds whole nodes or whole victims: a comma in every 40 bytes."""
MOST_WAITING: Final = 32
JSON: Final = "application/json"
TURN_SECONDS, READ_SECONDS, SEND_SECONDS = 3, 2, 2


class Refused(Exception):
    """A body that is not read. The message names the limit, and holds nothing of the body."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bodies:
    """The bodies and answers that one server holds."""

    def __init__(self) -> None:
        self._held_bytes = 0
        """By small bodies and their answers."""
        self._turn = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def place_for(self, request: web.Request) -> AsyncIterator["Place"]:
        """The right to be read and answered. Refused: the body is too large, or its turn does not come in time."""
        size = size_of(request)
        if size > LARGEST_BODY:
            raise too_large(LARGEST_BODY)
        if size > SMALL_BODY:
            await self._take_turn()
            try:
                yield Place(self, LARGEST_BODY)
            finally:
                self._turn.release()
            return
        place = Place(self, SMALL_BODY)
        try:
            yield place
        finally:
            self._held_bytes -= place.held

    def hold(self, size: int) -> None:
        """Counts bytes of a small body or its answer. Refused: HELD_BYTES would be exceeded."""
        if self._held_bytes + size > HELD_BYTES:
            raise Refused(503, f"small bodies and their answers hold {HELD_BYTES} bytes already: ask again")
        self._held_bytes += size

    async def _take_turn(self) -> None:
        if self._waiting >= MOST_WAITING:
            raise Refused(503, f"{MOST_WAITING} bodies over {SMALL_BODY} bytes wait for their turn already: ask again")
        self._waiting += 1
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turn.acquire()
        except TimeoutError as fault:
            told = f"bodies over {SMALL_BODY} bytes are answered one at a time, and {TURN_SECONDS} s were not enough"
            raise Refused(503, f"{told}: ask again") from fault
        finally:
            self._waiting -= 1


class Place:
    """The place of one call. `held`: its bytes that count towards HELD_BYTES."""

    def __init__(self, bodies: Bodies, most: int) -> None:
        self._bodies = bodies
        self._most = most
        self.held = 0

    async def read(self, request: web.Request) -> bytearray:
        """The whole body. Refused: it is too large or too slow, or HELD_BYTES would be exceeded."""
        body = bytearray()
        try:
            async with asyncio.timeout(READ_SECONDS):
                while chunk := await request.content.readany():
                    if len(body) + len(chunk) > self._most:
                        raise too_large(self._most)
                    self.hold(len(chunk))
                    body += chunk
        except TimeoutError as fault:
            raise Refused(408, f"the body did not come within {READ_SECONDS} s") from fault
        check_values(body, MOST_VALUES if self._most == SMALL_BODY else MOST_WHOLE_VALUES)
        return body

    async def send(self, request: web.Request, answer: bytes) -> web.StreamResponse:
        """Sends until the reader has nearly all of it. Cuts off a slow reader. Refused: as `hold`.

        A response that holds its body would be kept by aiohttp until the next request of the connection.
        """
        self.hold(len(answer))
        response = web.StreamResponse(headers={"Content-Type": JSON, "Content-Length": str(len(answer))})
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await response.prepare(request)
                await response.write(answer)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass  # the reader is gone
        return response

    def hold(self, size: int) -> None:
        """Counts bytes, if the body is a small one. Refused: HELD_BYTES would be exceeded."""
        if self._most == SMALL_BODY:
            self._bodies.hold(size)
            self.held += size


def size_of(request: web.Request) -> int:
    """The size of the body as the headers tell it, or LARGEST_BODY if they do not."""
    is_told = request.content_length is not None and "Content-Encoding" not in request.headers
    return (request.content_length or 0) if is_told else LARGEST_BODY


def too_large(most: int) -> Refused:
    return Refused(413, f"more than {most} bytes")


def check_values(body: bytes | bytearray, most: int) -> None:
    if body.count(b",") > most:
        raise Refused(413, f"more than {most} values")


def check_names(body: bytes | bytearray) -> None:
    """Checks a body without whole nodes. Refused: it is larger than names can be."""
    if len(body) > LARGEST_NAMES:
        raise Refused(413, f"more than {LARGEST_NAMES} bytes, and no whole nodes: only bodies with these may be larger")
    check_values(body, MOST_VALUES)
