"""The objects that an API server lists under a selector of labels or fields."""

from tests.contract.wire import Wire, a_job, a_pod, a_secret
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

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
