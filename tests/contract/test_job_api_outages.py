"""What becomes of a request when the token is refused, rights are missing, or the real API server does not answer."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dispatcher.jobs.answers import Meaning, read_create
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import from_kubeconfig
from dispatcher.kube.job_api import WRITE_SECONDS, JobApi
from dispatcher.model.errors import ClusterAway, SettingsError
from dispatcher.model.jobs import End
from tests.builders import SITE
from tests.contract.own_jobs import Account, dispatcher_account
from tests.controlplane.cluster import ControlPlane

BOUND_SECONDS = WRITE_SECONDS + 2


@pytest_asyncio.fixture(loop_scope="session")
async def ours(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Account]:
    async with dispatcher_account(control_plane, namespace, tmp_path) as account:
        yield account


class TestToken:
    @pytest.mark.fault(22)
    async def test_a_refused_token_is_read_again_at_once(self, ours: Account) -> None:
        """The account was made anew, so the server refuses the tokens of the old one as it refuses an expired one."""
        await ours.plane.admin("DELETE", ours.path("serviceaccounts", "dispatcher"))
        await ours.plane.admin("POST", ours.path("serviceaccounts"), {"metadata": {"name": "dispatcher"}})
        manifest = ours.manifest()
        answer = await ours.api.create(manifest)
        assert (answer.status, answer.reason, read_create(answer)) == (401, "Unauthorized", Meaning.UNAUTHORIZED)
        ours.token_file.write_text(await ours.plane.service_account_token(ours.namespace, "dispatcher"))
        assert (await ours.api.create(manifest)).status == 201

    async def test_a_token_file_that_is_away_is_a_fault_and_no_crash(self, ours: Account) -> None:
        api = JobApi(ours.open_client(ours.token_file.with_name("nothing")), ours.namespace, SITE.installation)
        answer = await api.create(ours.manifest())
        assert answer.status == 0
        assert "nothing" in answer.message

    async def test_a_kubeconfig_that_is_half_written_is_a_fault_and_read_again(self, ours: Account) -> None:
        path, good = ours.token_file.with_name("kubeconfig"), ours.token_file.read_text()
        ours.plane.kubeconfig(path, token="expired", namespace=ours.namespace)
        client = KubeClient(await from_kubeconfig(str(path), None))
        api = JobApi(client, client.namespace, SITE.installation)
        path.write_text("clusters: [")
        answer = await api.create(ours.manifest())
        assert (answer.status, read_create(answer)) == (0, Meaning.UNKNOWN)
        assert f"KUBECONFIG: {path}" in answer.message
        ours.plane.kubeconfig(path, token=good, namespace=ours.namespace)
        assert (await api.create(ours.manifest())).status == 201
        await client.close()

    @pytest.mark.parametrize("text", ["", "clusters: [", "nonsense", "current-context: nowhere"])
    async def test_a_kubeconfig_that_says_nothing_is_a_fault_of_the_settings(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "kubeconfig").write_text(text)
        with pytest.raises(SettingsError, match="KUBECONFIG: "):
            await from_kubeconfig(str(tmp_path / "kubeconfig"), None)


class TestAccess:
    async def test_the_shipped_rights_are_complete(self, ours: Account) -> None:
        access = ours.access()
        assert access.fault
        await access.check()
        assert access.fault == ""

    async def test_exactly_the_missing_verbs_are_named(self, ours: Account) -> None:
        await ours.allow(jobs=["get", "list", "watch"], pods=["get", "list", "delete"])
        access = ours.access()
        told = f"in namespace {ours.namespace} not allowed: create jobs, delete jobs, watch pods"

        async def is_told() -> bool:
            await access.check()
            return access.fault == told

        await ours.plane.wait_for(is_told, told)

    async def test_nodes_are_asked_for_only_where_they_are_looked_at(self, ours: Account) -> None:
        binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/dispatcher-nodes"
        await ours.plane.admin("DELETE", binding)
        with_nodes = ours.access()
        told = "cluster-wide not allowed: list nodes, watch nodes"

        async def is_told() -> bool:
            await with_nodes.check()
            return with_nodes.fault == told

        await ours.plane.wait_for(is_told, told)
        without_nodes = ours.access(with_nodes=False)
        await without_nodes.check()
        assert without_nodes.fault == ""


class TestOutage:
    @pytest.mark.fault(20)
    async def test_a_silent_server_is_given_up_in_bounded_time(self, ours: Account) -> None:
        made, manifest = await ours.created(), ours.manifest()
        access = ours.access()
        began = time.monotonic()
        ours.plane.pause()
        try:
            *answers, listed, _ = await asyncio.gather(
                ours.api.create(manifest),
                ours.api.get(made.name),
                ours.api.delete(End("jobs", made.name, "another", "test")),
                asyncio.gather(ours.api.list_task(made.task_id), return_exceptions=True),
                access.check(),
            )
        finally:
            ours.plane.resume()
        assert time.monotonic() - began < BOUND_SECONDS
        assert [(answer.status, read_create(answer)) for answer in answers] == [(0, Meaning.UNKNOWN)] * 3
        assert isinstance(listed[0], ClusterAway)
        assert "TimeoutError" in access.fault
        again = await ours.api.create(manifest)  # the first may have been done all the same
        found = await ours.api.get(manifest["metadata"]["name"])
        assert read_create(again) in {Meaning.CREATED, Meaning.EXISTS}
        assert found.job is not None

    async def test_a_server_that_is_gone_is_told_at_once_and_used_again_when_it_is_back(self, ours: Account) -> None:
        made = await ours.created()
        await ours.plane.stop_api_server()
        try:
            began = time.monotonic()
            answer = await ours.api.create(ours.manifest())
            assert time.monotonic() - began < 2
            assert (answer.status, read_create(answer)) == (0, Meaning.UNKNOWN)
            with pytest.raises(ClusterAway, match="Cannot connect"):
                await ours.api.list_task(made.task_id)
        finally:
            await ours.plane.start_api_server()
        assert await ours.api.list_task(made.task_id)

    async def test_the_clock_is_the_servers(self, ours: Account) -> None:
        made = await ours.created()
        age = (ours.client.now() - made.created_at).total_seconds()
        assert -1.1 < age < 5
