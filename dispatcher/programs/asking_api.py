"""Asks the API of a running dispatcher (DISPATCHER_DASHBOARD_ADDRESS) and reads its answers."""

from typing import Final, TypeVar

import aiohttp
import msgspec

from dispatcher.model.errors import DispatcherError

ANSWER_SECONDS: Final = 10
MOST_BYTES: Final = 4 << 20
T = TypeVar("T")


class Unknown(DispatcherError):
    """The dispatcher does not know what was asked for."""


def opened(url: str) -> aiohttp.ClientSession:
    """A session with the dispatcher at `url`."""
    return aiohttp.ClientSession(base_url=url, timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS), trust_env=False)


async def ask(session: aiohttp.ClientSession, url: str, path: str, what: type[T]) -> T:
    """The answer of GET /api/v1/`path`. Raises Unknown, and DispatcherError if there is no answer."""
    try:
        async with session.get(f"/api/v1/{path}") as reply:
            body = await reply.content.read(MOST_BYTES)
    except (aiohttp.ClientError, TimeoutError) as fault:
        why = str(fault) or type(fault).__name__
        raise DispatcherError(f"no dispatcher answers at {url}: {why}; {HOW_TO_REACH}") from fault
    if reply.status == 200:
        return read(body, what, url)
    told = error_of(body)
    if reply.status == 404 and told:
        raise Unknown(told)
    raise DispatcherError(f"{url} answers {reply.status}: {told or 'it is not the API of a dispatcher'}")


def read(body: bytes, what: type[T], url: str) -> T:
    try:
        return msgspec.json.decode(body, type=what)
    except msgspec.DecodeError as fault:
        raise DispatcherError(f"the answer of {url} is not from a dispatcher of this version: {fault}") from fault


def error_of(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return ""
    return str(found["error"])[:500] if isinstance(found, dict) and "error" in found else ""


HOW_TO_REACH: Final = (
    "run the same command in its Pod (`kubectl exec deploy/dispatcher -- dispatcher …`), or give --url "
    "(`kubectl port-forward deploy/dispatcher 8081`)"
)
