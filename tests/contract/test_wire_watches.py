"""Watches of an API server: the events, their order, selectors, and the end of a watch."""

import pytest

from tests.contract.wire import HELD, Event, Wire, a_job, a_pod, a_secret, version
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

APP = {"labelSelector": "app=y"}
NEVER = 1_000_000


async def live(wire: Wire, name: str = "a") -> None:
    """Makes a Secret, changes it twice and deletes it."""
    await wire.made("secrets", a_secret(name, {"app": "x"}))
    await wire.changed(f"secrets/{name}", {"metadata": {"labels": {"app": "y"}}})
    await wire.changed(f"secrets/{name}", {"metadata": {"labels": {"app": "x"}}})
    await wire.delete(f"secrets/{name}")


def apps(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.type, event.object["metadata"]["labels"]["app"]) for event in events]


LIFE = [("ADDED", "x"), ("MODIFIED", "y"), ("MODIFIED", "x"), ("DELETED", "x")]


class TestEvents:
    async def test_events_after_the_list_come_in_order(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("before"))
        async with wire.watch("secrets", resourceVersion=await wire.now("secrets")) as watch:
            await live(wire)
            events = await watch.take(4)
        assert apps(events) == LIFE
        versions = [event.version for event in events]
        assert versions == sorted(set(versions))

    async def test_events_before_the_start_of_the_watch_are_included(self, wire: Wire) -> None:
        since = await wire.now("secrets")
        await live(wire)
        async with wire.watch("secrets", resourceVersion=since) as watch:
            assert apps(await watch.take(4)) == LIFE

    async def test_watch_continues_from_any_event(self, wire: Wire) -> None:
        since = await wire.now("secrets")
        await live(wire)
        async with wire.watch("secrets", resourceVersion=since) as watch:
            events = await watch.take(4)
        async with wire.watch("secrets", resourceVersion=str(events[1].version)) as watch:
            assert await watch.take(2) == events[2:]

    async def test_event_has_the_object_as_it_was_then(self, wire: Wire) -> None:
        since = await wire.now("secrets")
        made = await wire.made("secrets", a_secret("a"))
        changed = await wire.changed("secrets/a", {"data": {"a": "YQ=="}})
        async with wire.watch("secrets", resourceVersion=since) as watch:
            assert [event.object for event in await watch.take(2)] == [made, changed]

    async def test_deleted_object_comes_once_more_with_a_new_version(self, wire: Wire) -> None:
        last = await wire.made("secrets", a_secret("a", data={"a": "YQ=="}))
        await wire.delete("secrets/a")
        async with wire.watch("secrets", resourceVersion=last["metadata"]["resourceVersion"]) as watch:
            event = await watch.next()
        assert (event.type, event.object["data"]) == ("DELETED", {"a": "YQ=="})
        assert event.object["metadata"]["uid"] == last["metadata"]["uid"]
        assert event.version > version(last)

    async def test_finalized_object_is_modified_and_then_deleted(self, wire: Wire) -> None:
        await wire.made("secrets", {"metadata": {"name": "a", "finalizers": [HELD]}})
        async with wire.watch("secrets", resourceVersion=await wire.now("secrets")) as watch:
            await wire.delete("secrets/a")
            await wire.changed("secrets/a", {"metadata": {"finalizers": None}})
            modified, deleted = await watch.take(2)
        assert (modified.type, deleted.type) == ("MODIFIED", "DELETED")
        assert "deletionTimestamp" in modified.object["metadata"]
        assert deleted.object["metadata"]["finalizers"] == [HELD], "the state that was stored last"
        assert deleted.version > modified.version

    async def test_two_watches_get_the_same_events(self, wire: Wire) -> None:
        since = {"resourceVersion": await wire.now("secrets")}
        async with wire.watch("secrets", **since) as first, wire.watch("secrets", **since) as second:
            await live(wire)
            assert await first.take(4) == await second.take(4)

    async def test_watch_has_no_other_resources_and_namespaces(self, wire: Wire) -> None:
        other = await wire.plane.create_namespace()
        async with wire.watch("secrets", resourceVersion=await wire.now("secrets")) as watch:
            await wire.made("pods", a_pod("pod"))
            await wire.made(f"/api/v1/namespaces/{other}/secrets", a_secret("elsewhere"))
            await wire.made("secrets", a_secret("here"))
            assert (await watch.next()).what == ("ADDED", "here")
        await wire.plane.delete_namespace(other)

    async def test_one_watch_covers_all_namespaces(self, wire: Wire) -> None:
        other = await wire.plane.create_namespace()
        of = {"tests.example/of": wire.namespace}
        since = {"resourceVersion": await wire.now("/api/v1/secrets")}
        async with wire.watch("/api/v1/secrets", labelSelector=f"tests.example/of={wire.namespace}", **since) as watch:
            await wire.made(f"/api/v1/namespaces/{other}/secrets", a_secret("a", of))
            await wire.made("secrets", a_secret("b", of))
            told = [(event.name, event.object["metadata"]["namespace"]) for event in await watch.take(2)]
        assert told == [("a", other), ("b", wire.namespace)]
        await wire.plane.delete_namespace(other)

    async def test_watch_is_a_stream_of_json_objects_with_kind(self, wire: Wire) -> None:
        await wire.made("jobs", a_job("a"))
        async with wire.watch("jobs") as watch:
            found = (await watch.next()).object
            assert (found["kind"], found["apiVersion"]) == ("Job", "batch/v1")
            assert watch.content_type == "application/json"


class TestBeginning:
    @pytest.mark.parametrize("since", [{}, {"resourceVersion": ""}, {"resourceVersion": "0"}])
    async def test_watch_without_a_version_begins_with_existing_objects(
        self, wire: Wire, since: dict[str, str]
    ) -> None:
        await wire.made("secrets", a_secret("a"), a_secret("b"))
        await wire.seen("secrets", await wire.changed("secrets/b", {"data": {"a": "YQ=="}}))
        async with wire.watch("secrets", **since) as watch:
            first = await watch.take(2)
            await wire.made("secrets", a_secret("c"))
            assert (await watch.next()).what == ("ADDED", "c")
        assert {event.what for event in first} == {("ADDED", "a"), ("ADDED", "b")}

    async def test_watch_waits_silently_for_a_future_version(self, wire: Wire) -> None:
        later = str(int(await wire.now("secrets")) + NEVER)
        async with wire.watch("secrets", resourceVersion=later, timeoutSeconds="1") as watch:
            await wire.made("secrets", a_secret("a"))
            assert await watch.rest() == []

    async def test_watch_of_an_old_version_has_no_gap_or_is_expired(self, wire: Wire) -> None:
        """A server may forget old versions at any time. Then the only event of the accepted watch says so."""
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


class TestSelectors:
    async def test_object_that_begins_or_ceases_to_match_is_added_or_deleted(self, wire: Wire) -> None:
        async with wire.watch("secrets", resourceVersion=await wire.now("secrets"), **APP) as watch:
            await live(wire)
            await live(wire, "b")
            events = await watch.take(4)
        assert [event.what for event in events] == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b"), ("DELETED", "b")]

    async def test_object_that_ceases_to_match_comes_as_it_last_matched(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a", {"app": "y"}))
        async with wire.watch("secrets", resourceVersion=await wire.now("secrets"), **APP) as watch:
            change = {"metadata": {"labels": {"app": "x"}}, "data": {"a": "YQ=="}}
            changed = await wire.changed("secrets/a", change)
            event = await watch.next()
        assert apps([event]) == [("DELETED", "y")]
        assert "data" not in event.object
        assert event.version == version(changed)

    async def test_watch_begins_with_matching_objects_only(self, wire: Wire) -> None:
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

    async def test_bound_pod_appears_in_the_watch_of_its_node(self, wire: Wire) -> None:
        since = {"resourceVersion": await wire.now("pods")}
        async with (
            wire.watch("pods", fieldSelector="spec.nodeName=one", **since) as node,
            wire.watch("pods", fieldSelector="spec.nodeName=", **since) as waiting,
        ):
            await wire.made("pods", a_pod("elsewhere", nodeName="two"), a_pod("a"))
            await wire.bind("a", "one")
            assert (await node.next()).what == ("ADDED", "a")
            assert [event.what for event in await waiting.take(2)] == [("ADDED", "a"), ("DELETED", "a")]

    async def test_ended_pod_leaves_a_watch_of_running_pods(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a"))
        since = {"resourceVersion": await wire.now("pods")}
        async with wire.watch("pods", fieldSelector="status.phase=Running", **since) as watch:
            for phase in ("Running", "Succeeded"):
                await wire.changed("pods/a/status", {"status": {"phase": phase}})
            events = await watch.take(2)
        assert [event.what for event in events] == [("ADDED", "a"), ("DELETED", "a")]
        assert events[1].object["status"]["phase"] == "Running"


class TestEnd:
    async def test_watch_ends_normally_after_its_timeout(self, wire: Wire) -> None:
        async with wire.watch("secrets", resourceVersion=await wire.now("secrets"), timeoutSeconds="1") as watch:
            await wire.made("secrets", a_secret("a"))
            assert [event.what for event in await watch.rest()] == [("ADDED", "a")]

    async def test_bookmark_comes_only_to_a_watch_that_asked_for_it(self, wire: Wire) -> None:
        """The bookmark comes within the last two seconds."""
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

    async def test_watch_with_an_invalid_timeout_is_a_bad_request(self, wire: Wire) -> None:
        assert (await wire.get("secrets", watch="true", timeoutSeconds="long")).refusal == (400, "BadRequest")

    async def test_watch_that_is_closed_disturbs_no_other_watch(self, wire: Wire) -> None:
        since = {"resourceVersion": await wire.now("secrets")}
        async with wire.watch("secrets", **since) as stays:
            async with wire.watch("secrets", **since):
                await wire.made("secrets", a_secret("a"))
            await wire.delete("secrets/a")
            assert [event.type for event in await stays.take(2)] == ["ADDED", "DELETED"]
