"""What the scripted API server does in place of an answer, when a test wants it to."""

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
    """A watch of these bytes, and its end."""

    async def fault(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
        stream = await accepted(request)
        for line in lines:
            await stream.write(line)
        return stream

    return fault


def gone() -> Fault:
    return streams(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}))


async def as_usual(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
    """No fault: a list, so that the next one is the faulty one."""
    return api.serve_list(request)


async def silent(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
    """Takes the watch and never says a word."""
    stream = await accepted(request)
    await api.until(lambda: False)
    return stream


async def reset(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
    """Breaks the connection off without an answer."""
    break_off(request)
    return web.Response()


async def out_of_order(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
    """Waits for three changes, tells them the wrong way round, and stays."""
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
