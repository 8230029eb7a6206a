"""Lists of an API server: order, pages, selectors, and lists of a past, present or future version."""

import asyncio

import pytest

from tests.contract.wire import Wire, a_job, a_pod, a_secret, names, version
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

NEVER = "99999999999"
KINDS = {
    "pods": ("PodList", "v1"),
    "nodes": ("NodeList", "v1"),
    "secrets": ("SecretList", "v1"),
    "configmaps": ("ConfigMapList", "v1"),
    "events": ("EventList", "v1"),
    "namespaces": ("NamespaceList", "v1"),
    "jobs": ("JobList", "batch/v1"),
    "leases": ("LeaseList", "coordination.k8s.io/v1"),
}
EXACT, NOT_OLDER = {"resourceVersionMatch": "Exact"}, {"resourceVersionMatch": "NotOlderThan"}


async def five(wire: Wire) -> None:
    await wire.made("secrets", *(a_secret(name) for name in "badce"))


def token(page: Json) -> str:
    return str(page["metadata"]["continue"])


class TestList:
    async def test_list_reports_its_kind(self, wire: Wire) -> None:
        for resource, (kind, api_version) in KINDS.items():
            listed = await wire.found(resource)
            assert (listed["kind"], listed["apiVersion"]) == (kind, api_version)
            assert set(listed["metadata"]) == {"resourceVersion"}
            assert isinstance(listed["items"], list)

    async def test_list_is_not_older_than_its_items(self, wire: Wire) -> None:
        assert version(await wire.found("secrets")) > 0
        made = await wire.made("secrets", a_secret("a"))
        assert version(await wire.found("secrets")) >= version(made)

    async def test_items_come_by_name_and_without_kind(self, wire: Wire) -> None:
        await five(wire)
        listed = await wire.found("secrets")
        assert names(listed) == ["a", "b", "c", "d", "e"]
        assert not any({"kind", "apiVersion"} & set(item) for item in listed["items"])

    @pytest.mark.parametrize("resource", ["pods", "jobs"])
    async def test_item_is_the_object_without_its_kind(self, wire: Wire, resource: str) -> None:
        await wire.made(resource, a_pod("a") if resource == "pods" else a_job("a", {"parallelism": 0}))
        (item,) = (await wire.found(resource))["items"]
        found = await wire.found(f"{resource}/a")
        assert item["spec"] == found["spec"]
        assert item["metadata"]["uid"] == found["metadata"]["uid"]

    async def test_list_of_all_namespaces_comes_by_namespace_then_name(self, wire: Wire) -> None:
        other = await wire.plane.create_namespace()
        wanted = []
        for namespace in sorted((wire.namespace, other)):
            for name in ("b", "a"):
                await wire.made(f"/api/v1/namespaces/{namespace}/secrets", a_secret(name))
            wanted += [(namespace, "a"), (namespace, "b")]
        items = (await wire.found("/api/v1/secrets"))["items"]
        told = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in items]
        assert [one for one in told if one[0] in {wire.namespace, other}] == wanted
        await wire.plane.delete_namespace(other)

    async def test_list_of_a_missing_namespace_is_empty(self, wire: Wire) -> None:
        assert await wire.names("/api/v1/namespaces/nowhere/secrets") == []


class TestPages:
    async def test_pages_are_of_the_moment_of_the_first(self, wire: Wire) -> None:
        await five(wire)
        first = await wire.found("secrets", limit="2")
        await wire.delete("secrets/c")
        await wire.made("secrets", a_secret("bb"), a_secret("f"))
        await wire.changed("secrets/d", {"data": {"new": "MQ=="}})
        second = await wire.found("secrets", **{"limit": "2", "continue": token(first)})
        third = await wire.found("secrets", **{"limit": "2", "continue": token(second)})
        assert [names(page) for page in (first, second, third)] == [["a", "b"], ["c", "d"], ["e"]]
        assert "data" not in second["items"][1]
        assert version(first) == version(second) == version(third)
        assert "continue" not in third["metadata"]

    async def test_pages_under_a_selector_do_not_tell_how_many_remain(self, wire: Wire) -> None:
        await wire.made("secrets", *(a_secret(name, {"app": app}) for name, app in zip("abcd", "xyxx", strict=True)))
        first = await wire.found("secrets", limit="2", labelSelector="app=x")
        assert names(first) == ["a", "c"]
        assert "remainingItemCount" not in first["metadata"]
        rest = await wire.names("secrets", **{"labelSelector": "app=x", "continue": token(first)})
        assert rest == ["d"]

    async def test_page_without_a_limit_has_the_rest(self, wire: Wire) -> None:
        await five(wire)
        first = await wire.found("secrets", limit="2")
        assert await wire.names("secrets", **{"continue": token(first)}) == ["c", "d", "e"]

    async def test_zero_or_large_limit_gives_all_items(self, wire: Wire) -> None:
        await five(wire)
        for limit in ("0", "5", "500"):
            listed = await wire.found("secrets", limit=limit)
            assert names(listed) == ["a", "b", "c", "d", "e"]
            assert set(listed["metadata"]) == {"resourceVersion"}

    async def test_pages_go_through_all_namespaces(self, wire: Wire) -> None:
        of = {"tests.example/of": wire.namespace}
        await wire.made("secrets", a_secret("a", of), a_secret("b", of))
        select = {"labelSelector": f"tests.example/of={wire.namespace}", "limit": "1"}
        first = await wire.found("/api/v1/secrets", **select)
        second = await wire.found("/api/v1/secrets", **select, **{"continue": token(first)})
        assert names(first) + names(second) == ["a", "b"]

    async def test_invalid_token_or_limit_is_a_bad_request(self, wire: Wire) -> None:
        for params in ({"continue": "garbage"}, {"limit": "many"}):
            assert (await wire.get("secrets", **params)).refusal == (400, "BadRequest")


class TestVersion:
    async def past(self, wire: Wire) -> str:
        """The version at which there were five Secrets. Since then one was deleted, one changed and one made."""
        await five(wire)
        then = await wire.now("secrets")
        await wire.delete("secrets/c")
        await wire.changed("secrets/d", {"data": {"new": "MQ=="}})
        await wire.made("secrets", a_secret("f"))
        return then

    async def test_list_of_an_exact_version_is_as_it_was_then(self, wire: Wire) -> None:
        then = await self.past(wire)
        listed = await wire.found("secrets", resourceVersion=then, **EXACT)
        assert names(listed) == ["a", "b", "c", "d", "e"]
        assert "data" not in listed["items"][3]
        assert str(version(listed)) == then

    async def test_list_of_an_exact_version_comes_in_pages(self, wire: Wire) -> None:
        then = await self.past(wire)
        first = await wire.found("secrets", resourceVersion=then, limit="3", **EXACT)
        assert names(first) == ["a", "b", "c"]
        assert await wire.names("secrets", **{"limit": "3", "continue": token(first)}) == ["d", "e"]

    @pytest.mark.parametrize("match", [{}, NOT_OLDER], ids=["by-itself", "asked"])
    async def test_list_not_older_than_a_version_may_be_newer(self, wire: Wire, match: dict[str, str]) -> None:
        then = await self.past(wire)
        listed = await wire.found("secrets", resourceVersion=then, **match)
        assert version(listed) >= int(then)
        assert listed == await wire.found("secrets", resourceVersion=str(version(listed)), **EXACT)

    async def test_list_not_older_than_now_is_current(self, wire: Wire) -> None:
        await self.past(wire)
        now = await wire.now("secrets")
        listed = await wire.found("secrets", resourceVersion=now, **NOT_OLDER)
        assert names(listed) == ["a", "b", "d", "e", "f"]

    async def test_list_of_an_empty_version_is_current(self, wire: Wire) -> None:
        await self.past(wire)
        assert await wire.names("secrets", resourceVersion="") == ["a", "b", "d", "e", "f"]

    async def test_list_of_version_zero_may_be_of_any_version(self, wire: Wire) -> None:
        made = await wire.made("secrets", a_secret("a"), a_secret("b"))
        await wire.seen("secrets", made)
        assert await wire.names("secrets", resourceVersion="0") == ["a", "b"]

    async def test_invalid_version_is_a_bad_request(self, wire: Wire) -> None:
        for given in ("abc", "-1", "1.5"):
            assert (await wire.get("secrets", resourceVersion=given)).refusal == (400, "BadRequest")
            assert (await wire.get("secrets", resourceVersion=given, **EXACT)).refusal == (400, "BadRequest")

    async def test_list_of_a_future_version_times_out(self, wire: Wire) -> None:
        """Three requests at once, because the server waits some seconds for the version."""
        await wire.made("secrets", a_secret("a"))
        answers = await asyncio.gather(
            wire.get("secrets", resourceVersion=NEVER, **EXACT),
            wire.get("secrets", resourceVersion=NEVER, **NOT_OLDER),
            wire.get("secrets/a", resourceVersion=NEVER),
        )
        for answer in answers:
            assert answer.refusal == (504, "Timeout")
            assert answer.causes == [("ResourceVersionTooLarge", "")]
            assert answer.body["details"]["retryAfterSeconds"] == 1


BAD = (400, "BadRequest")
LIST_AND_WATCH: list[dict[str, str]] = [{}, {"watch": "true"}]
NO_FIELDS = [
    ("secrets", "spec.nodeName=a"),
    ("secrets", "data.a=b"),
    ("secrets", "metadata.name"),
    ("secrets", "metadata.name in (a)"),
    ("pods", "spec.nonsense=a"),
    ("jobs", "spec.nodeName=a"),
    ("nodes", "status.phase=Running"),
]


class TestLabels:
    async def test_label_selector_chooses_objects(self, wire: Wire) -> None:
        await wire.made(
            "secrets",
            a_secret("a", {"app": "y"}),
            a_secret("b", {"app": "x", "tier": "1"}),
            a_secret("c"),
            a_secret("d", {"app": "z"}),
            a_secret("e", {"app": "x"}),
            a_secret("f", {"app": ""}),
        )
        wanted = {
            "app=x": "be",
            "app==x": "be",
            " app = x ": "be",
            "app!=x": "acdf",
            "app in (x,y)": "abe",
            "app notin (x,y)": "cdf",
            "app": "abdef",
            "!app": "c",
            "": "abcdef",
            "app=": "f",
            "app in ()": "f",
            "app=x,tier": "b",
            "app=x,!tier": "e",
            "app in (x, z),tier notin (2)": "bde",
            "app=x,app=y": "",
        }
        found = {asked: "".join(await wire.names("secrets", labelSelector=asked)) for asked in wanted}
        assert found == wanted

    async def test_label_key_may_have_a_domain(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a", {"tests.example/app": "x"}), a_secret("b", {"app": "x"}))
        assert await wire.names("secrets", labelSelector="tests.example/app=x") == ["a"]

    async def test_job_is_found_by_the_labels_of_the_server(self, wire: Wire) -> None:
        made = await wire.made("jobs", a_job("other"), a_job("a"))
        uid = made["metadata"]["uid"]
        assert await wire.names("jobs", labelSelector=f"batch.kubernetes.io/controller-uid={uid}") == ["a"]
        assert await wire.names("jobs", labelSelector="batch.kubernetes.io/job-name=a,job-name in (a)") == ["a"]

    async def test_invalid_label_selector_is_a_bad_request(self, wire: Wire) -> None:
        for asked in ("app in (x", "=x", "app===x", "app=x,", "!", "-app=x", "app=b@d", "app in"):
            for how in LIST_AND_WATCH:
                assert (await wire.get("secrets", labelSelector=asked, **how)).refusal == BAD


class TestFields:
    async def test_every_object_is_selected_by_name_and_namespace(self, wire: Wire) -> None:
        await wire.made("secrets", a_secret("a"), a_secret("b"))
        wanted = {
            "metadata.name=a": ["a"],
            "metadata.name==a": ["a"],
            "metadata.name!=a": ["b"],
            f"metadata.namespace={wire.namespace}": ["a", "b"],
            "metadata.namespace=default": [],
            f"metadata.name=b,metadata.namespace={wire.namespace}": ["b"],
            "metadata.name=a,metadata.name=b": [],
            "": ["a", "b"],
        }
        assert {asked: await wire.names("secrets", fieldSelector=asked) for asked in wanted} == wanted

    async def test_pod_is_selected_by_node_and_phase(self, wire: Wire) -> None:
        await wire.made("pods", a_pod("a"), a_pod("b", nodeName="one"), a_pod("c", nodeName="two"))
        await wire.changed("pods/c/status", {"status": {"phase": "Running"}})
        wanted = {
            "spec.nodeName=one": ["b"],
            "spec.nodeName=": ["a"],
            "spec.nodeName!=": ["b", "c"],
            "status.phase=Pending": ["a", "b"],
            "status.phase=Running": ["c"],
            "status.phase!=Running,spec.nodeName!=one": ["a"],
            "spec.nodeName=one,metadata.name!=b": [],
        }
        assert {asked: await wire.names("pods", fieldSelector=asked) for asked in wanted} == wanted

    async def test_pods_of_a_node_are_found_in_all_namespaces(self, wire: Wire) -> None:
        node = f"node-of-{wire.namespace}"
        await wire.made("pods", a_pod("a", nodeName=node), a_pod("b"))
        assert await wire.names("/api/v1/pods", fieldSelector=f"spec.nodeName={node}") == ["a"]

    async def test_both_selectors_have_to_fit(self, wire: Wire) -> None:
        await wire.made("secrets", *(a_secret(name, {"app": app}) for name, app in zip("abc", "xxy", strict=True)))
        assert await wire.names("secrets", labelSelector="app=x", fieldSelector="metadata.name!=a") == ["b"]

    async def test_unknown_field_selector_is_a_bad_request(self, wire: Wire) -> None:
        for resource, asked in NO_FIELDS:
            for how in LIST_AND_WATCH:
                assert (await wire.get(resource, fieldSelector=asked, **how)).refusal == BAD
