"""The page About, and the same as JSON: what runs here, by which settings, with which rights, and how fresh it is."""

from typing import Any

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.showing import shown


async def about(dispatcher: Dispatcher) -> dict[str, Any]:
    status, found = await dispatcher.api("about")
    assert status == 200
    return dict(found)


async def all_fresh(dispatcher: Dispatcher) -> bool:
    return not any(one["is_stale"] for one in (await about(dispatcher))["stores"])


def by_name(items: Any, name: str) -> dict[str, Any]:
    return {one[name]: one for one in items}


@pytest.mark.slow
async def test_installation_is_told_as_it_is(place: Place) -> None:
    async with Dispatcher(place, MAX_JOBS=7) as dispatcher:
        await dispatcher.ready()
        await wait_for(lambda: all_fresh(dispatcher), "every store is fresh", 20, check=dispatcher.check)
        found, (status, page) = await about(dispatcher), await shown(dispatcher, "/about")
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{place.namespace}/leases/dispatcher-leader"
        holder = (await place.control_plane.admin("GET", lease))["spec"]["holderIdentity"]
        assert (found["leader"], found["leads"], found["lease"]) == (
            holder,
            holder == found["replica"],
            "dispatcher-leader",
        )
        assert (found["jobs_namespace"], found["is_ready"], found["missing_rights"]) == (place.namespace, True, [])
        stores = by_name(found["stores"], "store")
        assert {"last cycle", "counts", "database", "templates", "jobs", "pods", "nodes"} <= set(stores)
        settings = by_name(found["settings"], "name")
        assert (settings["DISPATCHER_MAX_JOBS"]["value"], settings["DISPATCHER_MAX_JOBS"]["origin"]) == (
            "7",
            "environment",
        )
        assert settings["DISPATCHER_PARK_SECONDS"]["origin"] == "default"
        assert settings["DISPATCHER_DATABASE_URL"]["value"] == "(hidden)"
        assert status == 200
        for words in (
            holder,
            "this replica",
            "DISPATCHER_MAX_JOBS",
            "openapi.json",
            "docs/operator.md",
            "last cycle",
            "fresh",
        ):
            assert words in page.words, words
        assert len(page.html.encode()) < 100_000


@pytest.mark.slow
async def test_replica_that_does_not_lead_names_the_leader(place: Place) -> None:
    async with Dispatcher(place) as leader, Dispatcher(place) as other:
        await leader.ready()
        await other.ready()
        first, second = await about(leader), await about(other)
        assert first["leader"] == second["leader"]
        assert sorted([first["leads"], second["leads"]]) == [False, True]
        assert first["replica"] != second["replica"]


@pytest.mark.slow
async def test_page_is_there_before_the_first_cycle_and_names_what_is_missing(place: Place) -> None:
    """Also without a database: the page is for those who look for the fault."""
    async with Dispatcher(
        place, DATABASE_URL="postgresql://nobody:planted-secret-11d0@127.0.0.1:1/nowhere"
    ) as dispatcher:
        await dispatcher.unready("does not answer")
        found, (_, page) = await about(dispatcher), await shown(dispatcher, "/about")
        stores = by_name(found["stores"], "store")
        assert (found["is_ready"], stores["database"]["is_stale"], stores["last cycle"]["age_seconds"]) == (
            False,
            True,
            None,
        )
        assert "does not answer" in page.words
        assert "planted-secret-11d0" not in page.html + str(found)


def verbs_of(rule: dict[str, Any]) -> list[str]:
    """The verbs on Jobs."""
    return list(rule["verbs"]) if "jobs" in rule.get("resources", ()) else []


@pytest.mark.slow
async def test_right_that_is_missing_is_named(place: Place) -> None:
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}/roles"
    items = (await place.control_plane.admin("GET", roles))["items"]
    (role,) = [one for one in items if any({"delete", "watch"} <= set(verbs_of(rule)) for rule in one["rules"])]
    fewer = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "delete"]} if verbs_of(rule) else rule
        for rule in role["rules"]
    ]
    await place.control_plane.admin("PATCH", f"{roles}/{role['metadata']['name']}", {"rules": fewer})
    async with Dispatcher(place) as dispatcher:
        await dispatcher.unready("delete jobs")
        found, (_, page) = await about(dispatcher), await shown(dispatcher, "/about")
    assert [one for one in found["missing_rights"] if "delete jobs" in one]
    assert "delete jobs" in page.words
