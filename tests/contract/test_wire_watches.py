"""Watches of an API server: what comes, in which order, under which selector, and how a watch ends."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.wire import HELD, Event, Wire, a_job, a_pod, a_secret, opened, version
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

APP = {"labelSelector": "app=y"}
NEVER = 1_000_000


@pytest_asyncio.fixture(loop_scope="session")
async def wire(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Wire]:
    async with opened(control_plane, namespace) as made:
        yield made


async def live(wire: Wire, name: str = "a") -> None:
    """A secret comes, changes twice and goes."""
    await wire.made("secrets", a_secret(name, {"app": "x"}))
    await wire.changed(f"secrets/{name}", {"metadata": {"labels": {"app": "y"}}})
    await wire.changed(f"secrets/{name}", {"metadata": {"labels": {"app": "x"}}})
    await wire.delete(f"secrets/{name}")


def apps(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.type, event.object["metadata"]["labels"]["app"]) for event in events]


LIFE = [("ADDED", "x"), ("MODIFIED", "y"), ("MODIFIED", "x"), ("DELETED", "x")]


class TestEvents:
    async def test_what_happens_after_the_list_comes_in_order(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("before"))
        async with wire.watch("secrets", resourceVersion=await wire.now("secrets")) as watch:
            await live(wire)
            events = await watch.take(4)
        assert apps(events) == LIFE
        versions = [event.version for event in events]
        assert versions == sorted(set(versions))

    async def test_what_happened_before_the_watch_began_is_told_too(self, wire: Wire) -> None:
        since = await wire.now("secrets")
        await live(wire)
        async with wire.watch("secrets", resourceVersion=since) as watch:
            assert apps(await watch.take(4)) == LIFE

    async def test_it_goes_on_from_any_event(self, wire: Wire) -> None:
        since = await wire.now("secrets")
        await live(wire)
        async with wire.watch("secrets", resourceVersion=since) as watch:
            events = await watch.take(4)
        async with wire.watch("secrets", resourceVersion=str(events[1].version)) as watch:
            assert await watch.take(2) == events[2:]

    async def test_an_event_has_the_object_as_it_then_was(self, wire: Wire) -> None:
        since = await wire.now("secrets")
        made = await wire.made("secrets", a_secret("a"))
        changed = await wire.changed("secrets/a", {"data": {"a": "YQ=="}})
        async with wire.watch("secrets", resourceVersion=since) as watch:
            assert [event.object for event in await watch.take(2)] == [made, changed]

    async def test_what_is_deleted_comes_once_more_with_a_new_version(self, wire: Wire) -> None:
        last = await wire.made("secrets", a_secret("a", data={"a": "YQ=="}))
        await wire.delete("secrets/a")
        async with wire.watch("secrets", resourceVersion=last["metadata"]["resourceVersion"]) as watch:
            event = await watch.next()
        assert (event.type, event.object["data"]) == ("DELETED", {"a": "YQ=="})
        assert event.object["metadata"]["uid"] == last["metadata"]["uid"]
        assert event.version > version(last)

    async def test_what_is_held_by_a_finalizer_is_modified_and_then_deleted(self, wire: Wire) -> None:
        await wire.made("secrets", {"metadata": {"name": "a", "finalizers": [HELD]}})
        async with wire.watch("secrets", resourceVersion=await wire.now("secrets")) as watch:
            await wire.delete("secrets/a")
            await wire.changed("secrets/a", {"metadata": {"finalizers": None}})
            modified, deleted = await watch.take(2)
        assert (modified.type, deleted.type) == ("MODIFIED", "DELETED")
        assert "deletionTimestamp" in modified.object["metadata"]
        assert deleted.object["metadata"]["finalizers"] == [HELD], "the state that was stored last"
        assert deleted.version > modified.version

    async def test_two_watchers_are_told_the_same(self, wire: Wire) -> None:
        since = {"resourceVersion": await wire.now("secrets")}
        async with wire.watch("secrets", **since) as first, wire.watch("secrets", **since) as second:
            await live(wire)
            assert await first.take(4) == await second.take(4)

    async def test_other_resources_and_other_namespaces_are_not_told(self, wire: Wire) -> None:
        other = await wire.plane.create_namespace()
        async with wire.watch("secrets", resourceVersion=await wire.now("secrets")) as watch:
            await wire.made("pods", a_pod("pod"))
            await wire.made(f"/api/v1/namespaces/{other}/secrets", a_secret("elsewhere"))
            await wire.made("secrets", a_secret("here"))
            assert (await watch.next()).what == ("ADDED", "here")
        await wire.plane.delete_namespace(other)

    async def test_one_watch_is_told_of_all_namespaces(self, wire: Wire) -> None:
        other = await wire.plane.create_namespace()
        of = {"tests.example/of": wire.namespace}
        since = {"resourceVersion": await wire.now("/api/v1/secrets")}
        async with wire.watch("/api/v1/secrets", labelSelector=f"tests.example/of={wire.namespace}", **since) as watch:
            await wire.made(f"/api/v1/namespaces/{other}/secrets", a_secret("a", of))
            await wire.made("secrets", a_secret("b", of))
            told = [(event.name, event.object["metadata"]["namespace"]) for event in await watch.take(2)]
        assert told == [("a", other), ("b", wire.namespace)]
        await wire.plane.delete_namespace(other)

    async def test_objects_in_it_say_their_kind_and_it_is_a_stream_of_json(self, wire: Wire) -> None:
        await wire.made("jobs", a_job("a"))
        async with wire.watch("jobs") as watch:
            found = (await watch.next()).object
            assert (found["kind"], found["apiVersion"]) == ("Job", "batch/v1")
            assert watch.content_type == "application/json"


class TestBeginning:
    @pytest.mark.parametrize("since", [{}, {"resourceVersion": ""}, {"resourceVersion": "0"}])
    async def test_without_a_version_what_there_is_comes_first(self, wire: Wire, since: dict[str, str]) -> None:
        await wire.made("secrets", a_secret("a"), a_secret("b"))
        await wire.seen("secrets", await wire.changed("secrets/b", {"data": {"a": "YQ=="}}))
        async with wire.watch("secrets", **since) as watch:
            first = await watch.take(2)
            await wire.made("secrets", a_secret("c"))
            assert (await watch.next()).what == ("ADDED", "c")
        assert {event.what for event in first} == {("ADDED", "a"), ("ADDED", "b")}

    async def test_a_version_to_come_is_waited_for_in_silence(self, wire: Wire) -> None:
        later = str(int(await wire.now("secrets")) + NEVER)
        async with wire.watch("secrets", resourceVersion=later, timeoutSeconds="1") as watch:
            await wire.made("secrets", a_secret("a"))
            assert await watch.rest() == []

    async def test_a_version_long_gone_is_followed_without_a_gap_or_is_expired(self, wire: Wire) -> None:
        """A server forgets when it likes. If it has, the word comes as the only event of a watch that was granted."""
        await wire.made("secrets", a_secret("a"))
        await live(wire, "b")
        async with wire.watch("secrets", resourceVersion="1") as watch:
            first = await watch.next()
            events = [first, *(await watch.rest() if first.type == "ERROR" else await watch.take(4))]
        if first.type == "ERROR":
            told = {key: first.object[key] for key in ("kind", "apiVersion", "status", "code", "reason")}
            assert told == {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired"}
            assert events == [first]
        else:
            assert [event.what for event in events] == [("ADDED", "a"), *[(kind, "b") for kind, _ in LIFE]]

    async def test_what_is_no_version_is_refused(self, wire: Wire) -> None:
        for given in ("abc", "-1"):
            assert (await wire.get("secrets", watch="true", resourceVersion=given)).refusal == (500, "")

    async def test_a_watch_cannot_be_of_exactly_one_version(self, wire: Wire) -> None:
        answer = await wire.get("secrets", watch="true", resourceVersion="1", resourceVersionMatch="Exact")
        assert answer.refusal == (422, "Invalid")
        assert {field for _, field in answer.causes} == {"resourceVersionMatch"}


class TestSelectors:
    async def test_what_begins_to_match_is_added_and_what_ceases_is_deleted(self, wire: Wire) -> None:
        async with wire.watch("secrets", resourceVersion=await wire.now("secrets"), **APP) as watch:
            await live(wire)
            await live(wire, "b")
            events = await watch.take(4)
        assert [event.what for event in events] == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b"), ("DELETED", "b")]

    async def test_what_ceases_to_match_comes_as_it_last_matched(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a", {"app": "y"}))
        async with wire.watch("secrets", resourceVersion=await wire.now("secrets"), **APP) as watch:
            change = {"metadata": {"labels": {"app": "x"}}, "data": {"a": "YQ=="}}
            changed = await wire.changed("secrets/a", change)
            event = await watch.next()
        assert apps([event]) == [("DELETED", "y")]
        assert "data" not in event.object
        assert event.version == version(changed)

    async def test_only_what_matches_is_there_at_the_beginning(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a", {"app": "x"}), a_secret("b", {"app": "y"}))
        async with wire.watch("secrets", **APP) as watch:
            assert (await watch.next()).what == ("ADDED", "b")

    async def test_one_object_is_watched_by_its_name(self, wire: Wire) -> None:
        since = await wire.now("secrets")
        async with wire.watch("secrets", resourceVersion=since, fieldSelector="metadata.name=b") as watch:
            await wire.made("secrets", a_secret("a"), a_secret("b"))
            await wire.delete("secrets/a")
            await wire.delete("secrets/b")
            assert [event.what for event in await watch.take(2)] == [("ADDED", "b"), ("DELETED", "b")]

    async def test_a_pod_comes_to_its_node_when_it_is_bound(self, wire: Wire) -> None:
        since = {"resourceVersion": await wire.now("pods")}
        async with (
            wire.watch("pods", fieldSelector="spec.nodeName=one", **since) as node,
            wire.watch("pods", fieldSelector="spec.nodeName=", **since) as waiting,
        ):
            await wire.made("pods", a_pod("elsewhere", nodeName="two"), a_pod("a"))
            await wire.bind("a", "one")
            assert (await node.next()).what == ("ADDED", "a")
            assert [event.what for event in await waiting.take(2)] == [("ADDED", "a"), ("DELETED", "a")]

    async def test_a_pod_leaves_a_watch_of_running_pods_when_it_ends(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a"))
        since = {"resourceVersion": await wire.now("pods")}
        async with wire.watch("pods", fieldSelector="status.phase=Running", **since) as watch:
            for phase in ("Running", "Succeeded"):
                await wire.changed("pods/a/status", {"status": {"phase": phase}})
            events = await watch.take(2)
        assert [event.what for event in events] == [("ADDED", "a"), ("DELETED", "a")]
        assert events[1].object["status"]["phase"] == "Running"


class TestEnd:
    async def test_it_ends_in_peace_after_the_time_it_was_given(self, wire: Wire) -> None:
        async with wire.watch("secrets", resourceVersion=await wire.now("secrets"), timeoutSeconds="1") as watch:
            await wire.made("secrets", a_secret("a"))
            assert [event.what for event in await watch.rest()] == [("ADDED", "a")]

    async def test_a_bookmark_tells_a_silent_watch_how_far_it_is_and_nobody_who_did_not_ask(self, wire: Wire) -> None:
        """It comes within the last two seconds."""
        since = {"resourceVersion": await wire.now("secrets"), "timeoutSeconds": "3"}
        silent = {"fieldSelector": "metadata.name=none", "allowWatchBookmarks": "true"}
        async with wire.watch("secrets", **since) as unasked, wire.watch("secrets", **since, **silent) as watch:
            made = await wire.made("secrets", a_secret("a"))
            while (event := await watch.next()).version < version(made):
                pass
            await wire.made("secrets", a_secret("b"))
            assert [told.what for told in await unasked.take(2)] == [("ADDED", "a"), ("ADDED", "b")]
        meta = {"resourceVersion": event.object["metadata"]["resourceVersion"]}
        assert event == Event("BOOKMARK", {"kind": "Secret", "apiVersion": "v1", "metadata": meta})

    async def test_a_time_that_is_no_number_is_a_bad_request(self, wire: Wire) -> None:
        assert (await wire.get("secrets", watch="true", timeoutSeconds="long")).refusal == (400, "BadRequest")

    async def test_a_watcher_that_goes_disturbs_nobody(self, wire: Wire) -> None:
        since = {"resourceVersion": await wire.now("secrets")}
        async with wire.watch("secrets", **since) as stays:
            async with wire.watch("secrets", **since):
                await wire.made("secrets", a_secret("a"))
            await wire.delete("secrets/a")
            assert [event.type for event in await stays.take(2)] == ["ADDED", "DELETED"]
