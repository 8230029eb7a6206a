"""A reflector at the real API server, with the dispatcher's own account: changes, outages and recoveries."""

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec
import pytest

from dispatcher.kube.capacity import Mirror, pods_of_all
from dispatcher.kube.reflector import Reflector, ReflectorPace, Reflectors
from dispatcher.model.errors import ClusterRefused
from dispatcher.model.jobs import Job, Manifest
from dispatcher.model.launches import LABEL_INSTALLATION, MANAGED_BY, MANAGER
from tests.contract.own_jobs import Account
from tests.contract.reflecting import QUICK, content, reflecting, relists
from tests.controlplane.cluster import ControlPlane
from tests.rig.builders import SITE


def suspended_job(account: Account) -> Manifest:
    """A Job that nothing works on, because it is suspended."""
    manifest = account.manifest()
    manifest["spec"]["suspend"] = True
    return manifest


async def settled(account: Account, reflector: Reflector[Job], seconds: float = 10) -> dict[str, str]:
    """Waits until the store equals the server. Returns its content."""

    async def is_so() -> bool:
        listed = await account.plane.admin("GET", account.path("jobs"))
        truth = {job["metadata"]["name"]: job["metadata"]["resourceVersion"] for job in listed["items"]}
        return not reflector.fault and content(reflector) == truth

    await account.plane.wait_for(is_so, "the store equals the server", seconds)
    return content(reflector)


def has_seen(reflector: Reflector[Job], version: int) -> Callable[[], bool]:
    return lambda: int(reflector.store.resource_version) >= version


def lists(account: Account) -> int:
    """The number of lists of Jobs that our account got."""
    prefix = f"system:serviceaccount:{account.namespace}:"
    return len(account.plane.audit(user_prefix=prefix, verb="list", resource="jobs", namespace=account.namespace))


class TestWithoutFaults:
    async def test_creates_changes_and_deletes_arrive(self, account: Account) -> None:
        async with reflecting(account.client, account.path("jobs"), QUICK, "told") as reflector:
            assert await settled(account, reflector) == {}
            made = [await account.created(suspended_job(account)) for _ in range(3)]
            assert set(await settled(account, reflector)) == {job.name for job in made}
            await account.plane.admin("PATCH", account.path("jobs", made[0].name), {"metadata": {"labels": {"a": "b"}}})
            await account.plane.admin("DELETE", account.path("jobs", made[1].name), {"propagationPolicy": "Background"})
            leaves = {"metadata": {"labels": {"dispatcher.internal/installation": "other"}}}
            await account.plane.admin("PATCH", account.path("jobs", made[2].name), leaves)

            async def only_the_first() -> bool:
                return set(content(reflector)) == {made[0].name}

            await account.plane.wait_for(only_the_first, "what was deleted, or is no longer ours, is gone")
        assert relists("told", "fault") == 0
        assert lists(account) == 1

    @pytest.mark.fault(51)
    async def test_job_with_our_labels_and_no_identity_is_not_ours(self, account: Account) -> None:
        manifest = suspended_job(account)
        del manifest["metadata"]["annotations"]
        manifest["metadata"]["name"] = "named-by-somebody"
        async with reflecting(account.client, account.path("jobs"), QUICK, "foreign") as reflector:
            await account.plane.admin("POST", account.path("jobs"), manifest)
            mine = await account.created(suspended_job(account))

            async def is_there() -> bool:
                return set(content(reflector)) == {mine.name}

            await account.plane.wait_for(is_there, "ours alone")

    async def test_bookmarks_move_the_version_where_nothing_happens(self, account: Account) -> None:
        """The server sends one two seconds before it ends a watch, if a foreign Job has moved its version."""
        elsewhere = await account.plane.create_namespace()
        async with reflecting(account.client, account.path("jobs"), ReflectorPace(watch=4), "quiet") as reflector:
            await settled(account, reflector)
            for number in range(3):  # a busy machine may cost a watch, and a list follows
                before, spec = lists(account), suspended_job(account)["spec"]
                foreign = {"metadata": {"name": f"a{number}"}, "spec": spec}
                made = await account.plane.admin("POST", f"/apis/batch/v1/namespaces/{elsewhere}/jobs", foreign)
                version = int(made["metadata"]["resourceVersion"])
                await account.plane.wait_for(has_seen(reflector, version), "a bookmark", 30)
                if lists(account) == before:
                    break
            else:
                pytest.fail("each time a list moved the version, and no bookmark")
        await account.plane.delete_namespace(elsewhere)

    @pytest.mark.slow
    async def test_due_lists_find_no_drift_while_jobs_come_and_go(self, account: Account) -> None:
        chance, names = random.Random(7), list[str]()
        async with reflecting(account.client, account.path("jobs"), ReflectorPace(relist=1), "busy") as reflector:

            async def change() -> bool:
                for _ in range(10):
                    if names and chance.random() < 0.4:
                        name = names.pop(chance.randrange(len(names)))
                        await account.plane.admin(
                            "DELETE", account.path("jobs", name), {"propagationPolicy": "Background"}
                        )
                    else:
                        names.append((await account.created(suspended_job(account))).name)
                return relists("busy", "due") + relists("busy", "drift") >= 2

            await account.plane.wait_for(change, "two lists that were due", 30)
            assert set(await settled(account, reflector)) == set(names)
        assert relists("busy", "drift") == 0
        assert relists("busy", "fault") == 0


class TestSharedReflectors:
    async def test_own_pods_are_taken_from_the_pods_of_all_namespaces(self, account: Account, tmp_path: Path) -> None:
        """A mirror that follows all Pods has the same Pods as one that follows ours. Others do not wake it."""
        token = tmp_path / "admin"
        token.write_text(account.plane.admin_token)
        reflectors = Reflectors(account.open_client(token), QUICK)
        every = pods_of_all(account.namespace, SITE.installation)
        selected, shared = (
            Mirror(reflectors, account.namespace, SITE.installation, with_nodes=False, all_pods=pods)
            for pods in (None, every)
        )
        told: list[str] = []
        shared.on_change(lambda: told.append("again"))
        running = asyncio.create_task(reflectors.run())
        await account.plane.wait_for(lambda: not (selected.stale() or shared.stale()), "all is listed")
        await account.create_pod("ours", {MANAGED_BY: MANAGER, LABEL_INSTALLATION: SITE.installation})
        await account.plane.wait_for(lambda: set(shared.view().pods) == {"ours"}, "our Pod")
        await account.plane.wait_for(lambda: shared.view().pods == selected.view().pods, "the same Pods")
        before, others = len(told), reflectors.of(every).store
        await account.create_pod("theirs", {}, nodeName="nowhere")
        await account.plane.wait_for(lambda: f"{account.namespace}/theirs" in others, "the Pod of somebody else")
        assert (set(shared.view().pods), len(told)) == ({"ours"}, before)
        await account.plane.admin("DELETE", account.path("pods", "ours"), {"gracePeriodSeconds": 0})
        await account.plane.wait_for(lambda: not shared.view().pods, "our Pod is gone")
        shared.relist()
        assert shared.stale() == "jobs: a new list is under way; pods: a new list is under way"
        running.cancel()


class TestOutage:
    @pytest.mark.slow
    async def test_restarted_server_is_followed_again_with_the_same_content(self, account: Account) -> None:
        reflectors = Reflectors(account.client, QUICK)
        mirror = Mirror(reflectors, account.namespace, SITE.installation, with_nodes=True)
        running = asyncio.create_task(reflectors.run())
        made = {(await account.created(suspended_job(account))).name for _ in range(3)}
        await account.plane.wait_for(lambda: set(mirror.view().jobs) == made and not mirror.stale(), "three Jobs")
        await account.plane.stop_api_server()
        try:
            await account.plane.wait_for(lambda: mirror.stale().count("; ") == 2, "jobs, pods and nodes are stale")
            assert set(mirror.view().jobs) == made
        finally:
            await account.plane.start_api_server()
        await account.plane.wait_for(lambda: not mirror.stale(), "nothing is stale")
        assert set(mirror.view().jobs) == made
        made.add((await account.created(suspended_job(account))).name)
        await account.plane.wait_for(lambda: set(mirror.view().jobs) == made, "the fourth Job")
        running.cancel()

    @pytest.mark.fault(24)
    async def test_frozen_server_is_given_up_after_the_silence_limit(self, account: Account) -> None:
        client = account.open_client(silence=1.2)
        async with reflecting(client, account.path("jobs"), QUICK, "frozen") as reflector:
            await settled(account, reflector)
            account.plane.pause()
            try:
                await account.plane.wait_for(lambda: reflector.store.age(time.monotonic()) > 2.5, "the store grows old")
                before = relists("frozen", "quiet")
            finally:
                account.plane.resume()
            await account.plane.wait_for(lambda: relists("frozen", "quiet") > before, "a list after the silence")
            made = await account.created(suspended_job(account))
            assert set(await settled(account, reflector)) == {made.name}

    @pytest.mark.slow
    @pytest.mark.fault(25)
    @pytest.mark.museum("no relist on 410")
    async def test_compacted_version_is_expired_and_listed_anew(self, account: Account) -> None:
        made = {(await account.created(suspended_job(account))).name}
        async with reflecting(account.client, account.path("jobs"), QUICK, "compacted") as reflector:
            await settled(account, reflector)
            old = reflector.store.resource_version
            made.add((await account.created(suspended_job(account))).name)
            await settled(account, reflector)
            await compact(account.plane, int(reflector.store.resource_version))
            await account.plane.stop_api_server()  # the server's watch cache would still have what etcd has forgotten
            await account.plane.start_api_server()
            assert set(await settled(account, reflector)) == made
            asleep = Reflector(account.client, reflector.resource)
            asleep.store.replace((), old, time.monotonic())
            with pytest.raises(ClusterRefused, match="too old resource version") as refusal:
                await asleep._follow()
            assert refusal.value.status == 410


async def compact(plane: ControlPlane, revision: int) -> None:
    """Makes etcd forget all revisions before this one, as the API server does every five minutes."""
    address = f"http://127.0.0.1:{plane._layout.etcd_port}/v3/kv/compaction"
    async with (
        aiohttp.ClientSession() as session,
        session.post(address, data=msgspec.json.encode({"revision": str(revision), "physical": True})) as answer,
    ):
        assert answer.status == 200, await answer.text()
