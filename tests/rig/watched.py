"""A whole installation under a real Prometheus, which evaluates the shipped alerts on a shorter scale.

The expressions are those of the rule file. Only lengths of time are shorter: `for` is FOR, and SHORTER has windows and
limits. `tests/prometheus/promtool` tests the true lengths.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.controlplane.cluster import ControlPlane
from tests.prometheus.promtool import RULES
from tests.prometheus.server import PrometheusServer, Target
from tests.rig.dispatching import Dispatcher, Place, QuickDispatcher
from tests.rig.janitoring import Janitor
from tests.rig.postgres import Database
from tests.scheduling.certificates import OF_SERVERS, Authority
from tests.scheduling.own_extender import OwnExtender, account

INSTALLATION: Final = "dispatcher"
NOBODY: Final = "nobody"
PARK_SECONDS: Final = 6
SCRAPE_SECONDS: Final = 1  # it is also the limit of a scrape, and the machine may be busy
FOR: Final[Mapping[str, str]] = {"DispatcherNoLeader": "3s"}
"""0 for the others. This alert takes a scrape that failed for a program that is gone."""
SHORTEST_TOKEN_SECONDS: Final = 600
SHORTER: Final[Mapping[str, Mapping[str, str]]] = {
    "DispatcherNothingLaunched": {"[10m]": "[6s]"},
    "DispatcherOldestWait": {"> 1800": "> 4"},
    "DispatcherCreateErrors": {"[5m]": "[20s]"},
    "DispatcherRelaunches": {"[30m]": "[20s]"},
    "DispatcherJanitorSilent": {"> 900": "> 10"},
    "DispatcherExtenderLate": {"[5m]": "[4s]"},
    "DispatcherTokenEnds": {"< 300": f"< {SHORTEST_TOKEN_SECONDS}"},
}


def shorter_rules() -> str:
    """The shipped rules on the scale of a test."""
    content = yaml.safe_load(RULES.read_text())
    for rule in (rule for group in content["groups"] for rule in group["rules"]):
        rule["for"] = FOR.get(rule["alert"], "0s")
        for long, short in SHORTER.get(rule["alert"], {}).items():
            assert long in rule["expr"], f"{rule['alert']} has no {long}"
            rule["expr"] = rule["expr"].replace(long, short)
    return yaml.safe_dump(content)


class Watched(NamedTuple):
    """An installation.

    odd: an extender beside it, whose account has no rights, whose token ends soon, and whose certificate ends in a day.
    """

    place: Place
    dispatcher: Dispatcher
    janitor: Janitor
    extender: OwnExtender
    odd: OwnExtender
    prometheus: PrometheusServer

    async def alerts(self) -> list[Any]:
        """The alerts of this installation that fire now."""
        return [one for one in await self.prometheus.alerts() if one["labels"]["namespace"] == self.place.namespace]

    async def firing(self, alert: str) -> list[Any]:
        return [one for one in await self.alerts() if one["labels"]["alertname"] == f"Dispatcher{alert}"]

    async def fires(self, alert: str, seconds: float = 30, **labels: str) -> None:
        """Waits until the alert fires with these labels. Checks that it names the installation and its runbook."""

        async def is_told() -> Any:
            return next((one for one in await self.firing(alert) if labels.items() <= one["labels"].items()), None)

        found = await self.prometheus.wait_for(is_told, f"{alert} {labels} fires", seconds)
        said, name = found["annotations"], f"{self.place.namespace}/{INSTALLATION}"
        assert name in said["summary"]
        assert not any("<" in text for text in said.values()), f"a template with a fault: {said}"
        assert Path(said["runbook_url"]).stem == f"Dispatcher{alert}"

    async def start_again(self, program: Dispatcher) -> None:
        """Ends the program, if it runs, and starts it with nothing in its memory. The tests run in any order."""
        await ended(program)
        if program is self.dispatcher:
            await self.place.end_term()
        await program.start()
        await program.ready()

    async def fired_since(self, began: float) -> list[Any]:
        """This installation's alerts that have fired since then, in seconds of the loop's clock, even for a moment."""
        seconds = math.floor(asyncio.get_running_loop().time() - began)  # none of those before `began`
        assert seconds
        fired = f'ALERTS{{alertstate="firing",namespace="{self.place.namespace}"}}'
        return await self.prometheus.query(f"max_over_time({fired}[{seconds}s])")

    async def ends(self, alert: str, seconds: float = 30) -> None:
        async def is_silent() -> bool:
            return not await self.firing(alert)

        await self.prometheus.wait_for(is_silent, f"{alert} ends", seconds)


@asynccontextmanager
async def watching(plane: ControlPlane, database: Database, folder: Path) -> AsyncIterator[Watched]:
    """Runs the programs. A test may end and start each of them."""
    namespace = await plane.create_namespace()
    place = Place(plane, namespace, database, folder)
    await place.prepare()
    janitor = Janitor(place, PARK_SECONDS=PARK_SECONDS)
    janitor.program = (sys.executable, "-m", "tests.rig.quick")
    dispatcher = QuickDispatcher(place, LEASE_SECONDS=15)  # a busy machine must not end the term
    extender, odd = OwnExtender(await account(plane, namespace, folder)), await odd_extender(plane, namespace, folder)
    programs = (dispatcher, janitor, extender, odd)
    labels = {"namespace": namespace, "installation": INSTALLATION}
    targets = [Target(f"127.0.0.1:{one.port}", labels) for one in programs]
    try:
        async with PrometheusServer(*targets, rules=shorter_rules(), scrape_seconds=SCRAPE_SECONDS) as prometheus:
            for program in programs[:3]:
                await program.start()
            async with place.playing():
                yield Watched(place, dispatcher, janitor, extender, odd, prometheus)
    finally:
        await asyncio.gather(*(ended(program) for program in programs))
        await plane.empty_namespace(namespace)


async def ended(program: Dispatcher) -> None:
    with contextlib.suppress(AssertionError, ProcessLookupError):  # it was never started, or has ended
        await program.kill()


async def odd_extender(plane: ControlPlane, namespace: str, folder: Path) -> OwnExtender:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await plane.admin("POST", accounts, {"metadata": {"name": NOBODY}})
    asked = {"spec": {"expirationSeconds": SHORTEST_TOKEN_SECONDS}}
    token = (await plane.admin("POST", f"{accounts}/{NOBODY}/token", asked))["status"]["token"]
    kubeconfig = plane.kubeconfig(folder / "odd.kubeconfig", token=token, namespace=namespace)
    authority, tls = Authority(folder, "authority"), folder / "tls"
    pair = authority.pair("server", usage=OF_SERVERS)
    tls.mkdir()
    for source, name in ((pair.key, "tls.key"), (pair.certificate, "tls.crt"), (authority.certificate, "ca.crt")):
        os.link(source, tls / name)
    return OwnExtender(kubeconfig, EXTENDER_TLS_DIR=tls)
