"""How much the extender takes in at once: bodies and answers are bounded in size, in number and in time.

    up to 1 MiB                     read at once; all of them and their answers hold at most 16 MiB
    up to 16 MiB, or of a size      one at a time, from its first byte to the last byte of its answer;
    not told (chunked, zipped)      the others wait three seconds for their turn, then 503

kube-scheduler names 5,000 nodes in a quarter of a MiB and waits one second, so such a body never waits for the turn of
a larger one. A slow sender or reader keeps its place for two seconds. A body that was read takes as much memory as it
has values, so they are bounded, too: 16 MiB of `5,` would be half a GiB of objects.

Not guaranteed: an answer for everybody. A flood of small bodies takes answers from others; the memory stays bounded.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

SMALL_BODY: Final = 2**20
LARGEST_NAMES: Final = 4 * 2**20
"""Of a body that names its nodes instead of holding them: 15,000 names of the greatest length."""
LARGEST_BODY: Final = 16 * 2**20
HELD_BYTES: Final = 16 * 2**20
MOST_NODES: Final = 50_000
MOST_VALUES: Final = 2**17
"""Of a body that names its nodes. A JSON text has about as many values as commas, and those are counted quickly."""
MOST_WHOLE_VALUES: Final = 400_000
"""Of a body that holds its nodes, or whole victims: a comma in every 40 bytes."""
MOST_WAITING: Final = 32
JSON: Final = "application/json"
TURN_SECONDS, READ_SECONDS, SEND_SECONDS = 3, 2, 2


class Refused(Exception):
    """A body that is not taken; the message names the limit, and holds nothing of the body."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bodies:
    """Of one server."""

    def __init__(self) -> None:
        self._index = 0
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
            self._index -= place.held

    def hold(self, size: int) -> None:
        """Bytes of a small body or its answer. Refused: there are too many."""
        if self._index + size > HELD_BYTES:
            raise Refused(503, f"small bodies and their answers hold {HELD_BYTES} bytes already: ask again")
        self._index += size

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
    """Of one call. `held`: bytes that count for the small ones together."""

    def __init__(self, bodies: Bodies, most: int) -> None:
        self._bodies = bodies
        self._most = most
        self.held = 0

    async def read(self, request: web.Request) -> bytearray:
        """The whole body. Refused: it is too large, too slow, or too much beside the others."""
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
        """Until the reader has nearly all of it; one that does not read in time is cut off. Refused: as `hold`.

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
            pass  # it has gone, and hears no answer
        return response

    def hold(self, size: int) -> None:
        """So many bytes more. Refused: too much beside the others."""
        if self._most == SMALL_BODY:
            self._bodies.hold(size)
            self.held += size


def size_of(request: web.Request) -> int:
    """As its head tells; the largest where it does not."""
    is_told = request.content_length is not None and "Content-Encoding" not in request.headers
    return (request.content_length or 0) if is_told else LARGEST_BODY


def too_large(most: int) -> Refused:
    return Refused(413, f"more than {most} bytes")


def check_values(body: bytes | bytearray, most: int) -> None:
    if body.count(b",") > most:
        raise Refused(413, f"more than {most} values")


def check_names(body: bytes | bytearray) -> None:
    """Of a body without whole nodes. Refused: it is larger than names can be."""
    if len(body) > LARGEST_NAMES:
        raise Refused(413, f"more than {LARGEST_NAMES} bytes, and no whole nodes: only bodies with these may be larger")
    check_values(body, MOST_VALUES)
