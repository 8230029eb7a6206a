"""`/healthz`, `/readyz`, `/metrics`.

Ready means "can do its work": each check is asked when the question comes, and the body names what is missing. Alive
means only that the loop turns, which an answer proves by itself: a restart would not bring a database back, and would
take the caches away.
"""

from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dispatcher.runtime.listening import listen

Check = Callable[[], str]
"""What is missing; empty: nothing."""


async def healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def metrics(_: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def build_app(checks: Mapping[str, Check]) -> web.Application:
    async def readyz(_: web.Request) -> web.Response:
        missing = {name: fault for name, check in checks.items() if (fault := check())}
        if not missing:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="".join(f"{name}: {fault}\n" for name, fault in missing.items()))

    app = web.Application(client_max_size=65536)
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return app


async def serve(app: web.Application, address: str) -> web.AppRunner:
    """At DISPATCHER_LISTEN_ADDRESS. SettingsError: it cannot listen there."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2)
    await listen(runner, "DISPATCHER_LISTEN_ADDRESS", address)
    return runner
