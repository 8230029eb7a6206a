"""Who is on call asks a dispatcher that has lost the API server."""

import pytest

from tests.controlplane.waiting import wait_for
from tests.faults import http_verbs
from tests.faults.http_proxy import KubeProxy
from tests.rig.commands import command
from tests.rig.dispatching import Place
from tests.rig.steps import behind, shows


@pytest.mark.slow
async def test_status_tells_what_is_missing_while_the_api_server_is_away(place: Place, kube_proxy: KubeProxy) -> None:
    async with behind(place, kube_proxy, LEASE_SECONDS=5) as dispatcher:
        await dispatcher.ready()
        await place.database.insert_task()
        await shows(dispatcher, "dispatcher_job_creates_total")
        kube_proxy.add(http_verbs.drop_before, lambda _: True, name="every request")

        async def is_told() -> bool:
            _, found = await dispatcher.api("status")
            return "leader" in found["unhealthy"] and bool(found["not_ready"])

        await wait_for(is_told, "status tells that there is no leader", 30, check=dispatcher.check)
        code, said = await command(dispatcher, "status")
        assert (code, "NOT READY" in said, "does not lead" in said) == (0, True, True)
