"""Faults of the scripted API server: what it does in place of an answer."""

from contextlib import suppress

from aiohttp import web

from tests.contract.scripted_api import Change, Fault, ScriptedApi, accepted, break_off, event, status


def answers(code: int, text: str, **headers: str) -> Fault:
    async def fault(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=code, text=text, headers=named)

    return fault


def refuses(code: int, reason: str) -> Fault:
    async def fault(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
        return status(code, reason, "as the test wants it")

    return fault


def streams(*lines: bytes) -> Fault:
    """A watch of these bytes, then its end."""

    async def fault(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
        stream = await accepted(request)
        for line in lines:
            await stream.write(line)
        return stream

    return fault


def gone() -> Fault:
    return streams(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}))


async def as_usual(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
    """No fault: a normal list, so that the next list is the faulty one."""
    return api.serve_list(request)


async def silent(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
    """Accepts the watch and never sends anything."""
    stream = await accepted(request)
    await api.until(lambda: False)
    return stream


async def reset(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
    """Breaks the connection without an answer."""
    break_off(request)
    return web.Response()


async def out_of_order(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
    """Waits for three changes, sends them in reverse order, and stays open."""
    since = int(request.query["resourceVersion"])
    stream = await accepted(request)

    def news() -> list[Change]:
        return [change for change in api.changes if change.path == request.path and change.version > since]

    await api.until(lambda: len(news()) >= 3)
    with suppress(ConnectionError):  # the client has gone by now
        for change in reversed(news()):
            await stream.write(change.line)
        await api.until(lambda: False)
    return stream
