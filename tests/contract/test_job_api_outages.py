"""Requests when the token is refused, rights are missing, or the real API server does not answer."""

import asyncio
import time
from pathlib import Path

import pytest

from dispatcher.jobs.refusals import CreateOutcome, read_create
from dispatcher.kube.client import Access, KubeClient
from dispatcher.kube.credentials import from_kubeconfig
from dispatcher.kube.job_api import JobApi
from dispatcher.model.errors import ClusterAway, SettingsError
from dispatcher.model.jobs import ObjectWrite
from tests.contract.own_jobs import Account
from tests.rig.builders import SITE

BOUND_SECONDS = 20
"""Our limit is 10 s, and the client's own limit is 30 s. The rest is for a busy machine."""


class TestToken:
    @pytest.mark.fault(22)
    async def test_refused_token_is_read_again_at_once(self, account: Account) -> None:
        """The account was made anew, so the server refuses the tokens of the old one like an expired token."""
        await account.plane.admin("DELETE", account.path("serviceaccounts", "dispatcher"))
        await account.plane.admin("POST", account.path("serviceaccounts"), {"metadata": {"name": "dispatcher"}})
        manifest = account.manifest()
        answer = await account.api.create(manifest)
        assert (answer.status, answer.reason, read_create(answer)) == (401, "Unauthorized", CreateOutcome.UNAUTHORIZED)
        account.token_file.write_text(await account.plane.service_account_token(account.namespace, "dispatcher"))
        assert (await account.api.create(manifest)).status == 201

    async def test_missing_token_file_is_a_fault_and_no_crash(self, account: Account) -> None:
        api = JobApi(account.open_client(account.token_file.with_name("nothing")), account.namespace, SITE.installation)
        answer = await api.create(account.manifest())
        assert answer.status == 0
        assert "nothing" in answer.message

    async def test_half_written_kubeconfig_is_a_fault_and_read_again(self, account: Account) -> None:
        path, good = account.token_file.with_name("kubeconfig"), account.token_file.read_text()
        account.plane.kubeconfig(path, token="expired", namespace=account.namespace)
        client = KubeClient(await from_kubeconfig(str(path), None))
        api = JobApi(client, client.namespace, SITE.installation)
        path.write_text("clusters: [")
        answer = await api.create(account.manifest())
        assert (answer.status, read_create(answer)) == (0, CreateOutcome.UNKNOWN)
        assert f"KUBECONFIG: {path}" in answer.message
        account.plane.kubeconfig(path, token=good, namespace=account.namespace)
        assert (await api.create(account.manifest())).status == 201
        await client.close()

    @pytest.mark.parametrize("text", ["", "clusters: [", "nonsense", "current-context: nowhere"])
    async def test_useless_kubeconfig_is_a_fault_of_the_settings(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "kubeconfig").write_text(text)
        with pytest.raises(SettingsError, match="KUBECONFIG: "):
            await from_kubeconfig(str(tmp_path / "kubeconfig"), None)


async def says(account: Account, access: Access, fault: str) -> None:
    """Waits until the check of the rights finds this fault."""

    async def is_so() -> bool:
        await access.check()
        return access.fault == fault

    await account.plane.wait_for(is_so, fault)


class TestAccess:
    async def test_shipped_rights_are_complete(self, account: Account) -> None:
        access = account.access()
        assert access.fault
        await access.check()
        assert access.fault == ""

    async def test_fault_names_exactly_the_missing_verbs(self, account: Account) -> None:
        await account.allow(jobs=["get", "list", "watch"], pods=["get", "list"])
        told = f"in namespace {account.namespace} not allowed: create jobs, delete jobs, patch jobs, delete pods"
        await says(account, account.access(), told)

    async def test_rights_on_the_cluster_are_needed_only_to_judge_room(self, account: Account) -> None:
        binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/dispatcher-nodes.dispatcher"
        await account.plane.admin("DELETE", binding)
        verbs = [
            f"{verb} {resource}" for resource in ("nodes", "pods", "priorityclasses") for verb in ("list", "watch")
        ]
        await says(account, account.access(), f"cluster-wide not allowed: {', '.join(verbs)}")
        without_nodes = account.access(with_nodes=False)
        await says(account, without_nodes, f"in namespace {account.namespace} not allowed: list pods, watch pods")
        await account.allow(pods=["list", "watch", "delete"])
        await says(account, without_nodes, "")


class TestOutage:
    @pytest.mark.slow
    @pytest.mark.fault(20)
    async def test_silent_server_is_given_up_in_bounded_time(self, account: Account) -> None:
        made, manifest = await account.created(), account.manifest()
        access = account.access()
        began = time.monotonic()
        account.plane.pause()
        try:
            *answers, listed, _ = await asyncio.gather(
                account.api.create(manifest),
                account.api.get(made.name),
                account.api.end(ObjectWrite("jobs", made.name, "another", "test")),
                asyncio.gather(account.api.list_task(made.task_id), return_exceptions=True),
                access.check(),
            )
        finally:
            account.plane.resume()
        assert time.monotonic() - began < BOUND_SECONDS
        assert [(answer.status, read_create(answer)) for answer in answers] == [(0, CreateOutcome.UNKNOWN)] * 3
        assert isinstance(listed[0], ClusterAway)
        assert not access.fault, "no answer is not a no"
        again = await account.api.create(manifest)  # the first create may have been carried out
        found = await account.api.get(manifest["metadata"]["name"])
        assert read_create(again) in {CreateOutcome.CREATED, CreateOutcome.EXISTS}
        assert found.job is not None

    @pytest.mark.slow
    async def test_absent_server_is_a_fault_at_once_and_used_again_later(self, account: Account) -> None:
        made = await account.created()
        await account.plane.stop_api_server()
        try:
            began = time.monotonic()
            answer = await account.api.create(account.manifest())
            assert time.monotonic() - began < 2
            assert (answer.status, read_create(answer)) == (0, CreateOutcome.UNKNOWN)
            with pytest.raises(ClusterAway, match="Cannot connect"):
                await account.api.list_task(made.task_id)
        finally:
            await account.plane.start_api_server()
        assert await account.api.list_task(made.task_id)

    async def test_clock_is_that_of_the_server(self, account: Account) -> None:
        made = await account.created()
        age = (account.client.now() - made.created_at).total_seconds()
        assert -1.1 < age < 5
