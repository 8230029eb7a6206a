"""A reflector at the real API server, as the dispatcher's own account: what comes, goes, breaks and comes back."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from dispatcher.kube.listing import PAGE
from dispatcher.kube.mirror import Mirror
from dispatcher.kube.reflector import Pace, Reflector
from dispatcher.model.errors import ClusterRefused
from dispatcher.model.jobs import Job, Manifest
from tests.builders import SITE
from tests.contract.own_jobs import Account, dispatcher_account
from tests.contract.reflecting import QUICK, content, reflecting, relists
from tests.controlplane.cluster import ControlPlane

MANY = PAGE + 10


@pytest_asyncio.fixture(loop_scope="session")
async def ours(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Account]:
    async with dispatcher_account(control_plane, namespace, tmp_path) as account:
        yield account


def at_rest(ours: Account) -> Manifest:
    """A Job that nobody works on: suspended."""
    manifest = ours.manifest()
    manifest["spec"]["suspend"] = True
    return manifest


async def settled(ours: Account, reflector: Reflector[Job], seconds: float = 10) -> dict[str, str]:
    """Waits until the store is what the server has; what that is."""

    async def is_so() -> bool:
        listed = await ours.plane.admin("GET", ours.path("jobs"))
        truth = {job["metadata"]["name"]: job["metadata"]["resourceVersion"] for job in listed["items"]}
        return not reflector.fault and content(reflector) == truth

    await ours.plane.wait_for(is_so, "the store equals the server", seconds)
    return content(reflector)


def lists(ours: Account) -> int:
    """How many lists of Jobs our account was given."""
    prefix = f"system:serviceaccount:{ours.namespace}:"
    return len(ours.plane.audit(user_prefix=prefix, verb="list", resource="jobs", namespace=ours.namespace))


class TestAtPeace:
    async def test_a_long_list_comes_in_pages(self, ours: Account) -> None:
        places = asyncio.Semaphore(16)

        async def create() -> None:
            async with places:
                await ours.created(at_rest(ours))

        async def are_at_rest() -> bool:
            listed = await ours.plane.admin("GET", ours.path("jobs"))
            return all(job["status"].get("conditions") for job in listed["items"])

        await asyncio.gather(*(create() for _ in range(MANY)))
        # A busy API server ends a watch that it cannot serve at once; here nothing may happen while we watch.
        await ours.plane.wait_for(are_at_rest, "the Job controller has seen to every Job", 60)
        async with reflecting(ours.client, ours.path("jobs"), QUICK, "paged") as reflector:
            assert len(await settled(ours, reflector, 20)) == MANY
            assert lists(ours) == 2

    async def test_what_is_made_changed_and_deleted_arrives(self, ours: Account) -> None:
        async with reflecting(ours.client, ours.path("jobs"), QUICK, "told") as reflector:
            assert await settled(ours, reflector) == {}
            made = [await ours.created(at_rest(ours)) for _ in range(3)]
            assert set(await settled(ours, reflector)) == {job.name for job in made}
            await ours.plane.admin("PATCH", ours.path("jobs", made[0].name), {"metadata": {"labels": {"a": "b"}}})
            await ours.plane.admin("DELETE", ours.path("jobs", made[1].name), {"propagationPolicy": "Background"})
            leaves = {"metadata": {"labels": {"dispatcher.internal/installation": "other"}}}
            await ours.plane.admin("PATCH", ours.path("jobs", made[2].name), leaves)

            async def only_the_first() -> bool:
                return set(content(reflector)) == {made[0].name}

            await ours.plane.wait_for(only_the_first, "what was deleted, or is no longer ours, is gone")
        assert relists("told", "fault") == 0
        assert lists(ours) == 1

    @pytest.mark.fault(51)
    async def test_a_job_with_our_labels_and_no_identity_is_not_ours(self, ours: Account) -> None:
        manifest = at_rest(ours)
        del manifest["metadata"]["annotations"]
        async with reflecting(ours.client, ours.path("jobs"), QUICK, "foreign") as reflector:
            await ours.plane.admin("POST", ours.path("jobs"), manifest)
            mine = await ours.created(at_rest(ours))

            async def is_there() -> bool:
                return set(content(reflector)) == {mine.name}

            await ours.plane.wait_for(is_there, "ours alone")

    async def test_bookmarks_move_the_version_where_nothing_happens(self, ours: Account) -> None:
        """The server sends one two seconds before it ends a watch, if a Job of somebody else has moved its version."""
        elsewhere = await ours.plane.create_namespace()
        async with reflecting(ours.client, ours.path("jobs"), Pace(watch=4), "quiet") as reflector:
            await settled(ours, reflector)
            foreign = {"metadata": {"name": "a"}, "spec": at_rest(ours)["spec"]}
            made = await ours.plane.admin("POST", f"/apis/batch/v1/namespaces/{elsewhere}/jobs", foreign)
            version = int(made["metadata"]["resourceVersion"])
            await ours.plane.wait_for(lambda: int(reflector.store.resource_version) >= version, "a bookmark")
        await ours.plane.delete_namespace(elsewhere)
        assert lists(ours) == 1

    async def test_lists_that_are_due_find_no_drift_while_jobs_come_and_go(self, ours: Account) -> None:
        chance, names = random.Random(7), list[str]()
        async with reflecting(ours.client, ours.path("jobs"), Pace(relist=1), "busy") as reflector:

            async def change() -> bool:
                for _ in range(10):
                    if names and chance.random() < 0.4:
                        name = names.pop(chance.randrange(len(names)))
                        await ours.plane.admin("DELETE", ours.path("jobs", name), {"propagationPolicy": "Background"})
                    else:
                        names.append((await ours.created(at_rest(ours))).name)
                return relists("busy", "due") + relists("busy", "drift") >= 2

            await ours.plane.wait_for(change, "two lists that were due", 30)
            assert set(await settled(ours, reflector)) == set(names)
        assert relists("busy", "drift") == 0
        assert relists("busy", "fault") == 0


class TestOutage:
    async def test_a_restarted_server_is_followed_again_with_the_same_content(self, ours: Account) -> None:
        mirror = Mirror(ours.client, ours.namespace, SITE.installation, with_nodes=True, pace=QUICK)
        running = asyncio.create_task(mirror.run())
        made = {(await ours.created(at_rest(ours))).name for _ in range(3)}
        await ours.plane.wait_for(lambda: set(mirror.view().jobs) == made and not mirror.stale(), "three Jobs")
        await ours.plane.stop_api_server()
        try:
            await ours.plane.wait_for(lambda: mirror.stale().count("; ") == 2, "jobs, pods and nodes are stale")
            assert set(mirror.view().jobs) == made
        finally:
            await ours.plane.start_api_server()
        await ours.plane.wait_for(lambda: not mirror.stale(), "nothing is stale")
        assert set(mirror.view().jobs) == made
        made.add((await ours.created(at_rest(ours))).name)
        await ours.plane.wait_for(lambda: set(mirror.view().jobs) == made, "the fourth Job")
        running.cancel()

    @pytest.mark.fault(24)
    async def test_a_frozen_server_is_given_up_after_the_silence_limit(self, ours: Account) -> None:
        client = ours.open_client(silence=1.2)
        async with reflecting(client, ours.path("jobs"), QUICK, "frozen") as reflector:
            await settled(ours, reflector)
            ours.plane.pause()
            try:
                await ours.plane.wait_for(lambda: reflector.store.age(time.monotonic()) > 2.5, "the store grows old")
                before = relists("frozen", "quiet")
            finally:
                ours.plane.resume()
            await ours.plane.wait_for(lambda: relists("frozen", "quiet") > before, "a list after the silence")
            made = await ours.created(at_rest(ours))
            assert set(await settled(ours, reflector)) == {made.name}

    @pytest.mark.fault(25)
    @pytest.mark.museum("no relist on 410")
    async def test_what_was_compacted_is_expired_and_listed_anew(self, ours: Account) -> None:
        made = {(await ours.created(at_rest(ours))).name}
        async with reflecting(ours.client, ours.path("jobs"), QUICK, "compacted") as reflector:
            await settled(ours, reflector)
            old = reflector.store.resource_version
            made.add((await ours.created(at_rest(ours))).name)
            await settled(ours, reflector)
            await compact(ours.plane, int(reflector.store.resource_version))
            await ours.plane.stop_api_server()  # its watch cache would serve what etcd has forgotten
            await ours.plane.start_api_server()
            assert set(await settled(ours, reflector)) == made
            asleep = Reflector(ours.client, reflector.resource, lambda: None)
            asleep.store.replace((), old, time.monotonic())
            with pytest.raises(ClusterRefused, match="too old resource version") as refusal:
                await asleep._follow()
            assert refusal.value.status == 410


async def compact(plane: ControlPlane, revision: int) -> None:
    """etcd forgets what was before, as the API server has it do every five minutes."""
    address = f"http://127.0.0.1:{plane._layout.etcd_port}/v3/kv/compaction"
    async with (
        aiohttp.ClientSession() as session,
        session.post(address, data=msgspec.json.encode({"revision": str(revision), "physical": True})) as answer,
    ):
        assert answer.status == 200, await answer.text()
