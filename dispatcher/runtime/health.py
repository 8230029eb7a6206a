"""HTTP paths `/healthz`, `/readyz` and `/metrics`.

Ready means that the program can do its work. Each request asks every check, and the body names what is missing. Alive
means only that the event loop runs, which any answer proves. A missing database must not cause a restart: a restart
would not bring it back, and would lose the caches.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dispatcher.runtime.listening import listen
from dispatcher.runtime.metrics import READY

Check = Callable[[], str]
"""Returns a text that names what is missing; empty if nothing is."""


def missing(checks: Mapping[str, Check]) -> dict[str, str]:
    """What is missing, by the name of the check."""
    return {name: fault for name, check in checks.items() if (fault := check())}


async def healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


class Exported(Collector):
    """The metrics of this program. `never_set`: those that it does not set, so that their 0 would be no measurement."""

    def __init__(self, never_set: Iterable[MetricWrapperBase]) -> None:
        self._left_out = {family.name for metric in never_set for family in metric.describe()}

    def collect(self) -> Iterable[Metric]:
        return (family for family in REGISTRY.collect() if family.name not in self._left_out)


def build_app(checks: Mapping[str, Check], never_set: Sequence[MetricWrapperBase] = ()) -> web.Application:
    """The three paths of a program. `never_set`: metrics that it does not set."""
    exported = Exported(never_set)
    READY.set_function(lambda: float(not missing(checks)))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(exported), headers={"Content-Type": CONTENT_TYPE_LATEST})

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
