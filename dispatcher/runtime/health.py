"""HTTP paths `/healthz`, `/readyz` and `/metrics`.

Ready means that the program can do its work. Each request asks every check, and the body names what is missing. Alive
means only that the event loop runs, which any answer proves. A missing database must not cause a restart: a restart
would not bring it back, and would lose the caches.
"""

from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dispatcher.runtime.listening import listen

Check = Callable[[], str]
"""Returns a text that names what is missing; empty if nothing is."""


def missing(checks: Mapping[str, Check]) -> dict[str, str]:
    """What is missing, by the name of the check."""
    return {name: fault for name, check in checks.items() if (fault := check())}


async def healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def metrics(_: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def build_app(checks: Mapping[str, Check]) -> web.Application:
    async def readyz(_: web.Request) -> web.Response:
        faults = missing(checks)
        if not faults:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="".join(f"{name}: {fault}\n" for name, fault in faults.items()))

    app = web.Application(client_max_size=65536)
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return app


async def serve(app: web.Application, address: str) -> web.AppRunner:
    """Serves at DISPATCHER_LISTEN_ADDRESS. Raises SettingsError if it cannot listen there."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2)
    await listen(runner, "DISPATCHER_LISTEN_ADDRESS", address)
    return runner
