"""What the chart makes for the cache keeper: a DaemonSet with few rights on its node, where there are caches."""

from typing import Any

from tests.rig.deployed import pod_templates, rendered

API_SERVER = "10.2.0.10/32"
CIDRS = {"databaseCidr": "10.1.0.0/16", "apiServerCidr": API_SERVER}


def test_cache_keeper_is_root_with_two_capabilities_and_one_folder_of_the_node() -> None:
    spec = pod_templates(rendered("everything"))["cache-keeper"]["spec"]
    assert spec["securityContext"] == {
        "runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "FOWNER"]},
    }  # fmt: skip
    folder = {"path": "/var/cache/dispatcher/dispatcher", "type": "DirectoryOrCreate"}
    assert spec["volumes"] == [{"name": "caches", "hostPath": folder}]
    assert container["volumeMounts"] == [{"name": "caches", "mountPath": folder["path"]}]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert spec["tolerations"] == [{"operator": "Exists"}]


def kinds_of_keeper(**values: Any) -> set[str]:
    return {one["kind"] for one in rendered(only="cache-keeper", **values)}


def test_cache_keeper_needs_a_root_and_the_policy_that_bounds_it() -> None:
    with_root: dict[str, Any] = {"settings": {"CACHE_ROOT": "/caches/"}}
    assert {"DaemonSet", "ServiceAccount", "ValidatingAdmissionPolicy"} <= kinds_of_keeper(**with_root)
    for lacking in (
        {}, {**with_root, "cacheKeeper": {"enabled": False}}, {**with_root, "policy": {"enabled": False}},
        {**with_root, "clusterRights": False},
    ):  # fmt: skip
        assert kinds_of_keeper(**lacking) == set()


def test_cache_keeper_reaches_the_api_server_alone() -> None:
    values: dict[str, Any] = {"settings": {"CACHE_ROOT": "/caches"}}
    for networks in ({}, CIDRS):
        found = {
            one["metadata"]["name"]: one["spec"] for one in rendered(only="network", networkPolicy=networks, **values)
        }
        (own,) = [one for name, one in found.items() if name == "dispatcher-cache-keeper"]
        (excluded,) = found["dispatcher"]["podSelector"]["matchExpressions"]
        assert (excluded["operator"], excluded["values"]) == ("NotIn", ["cache-keeper"])
        assert "ingress" not in own
        to = [{"to": [{"ipBlock": {"cidr": API_SERVER}}]}] if networks else None
        assert (own["policyTypes"], own.get("egress")) == (["Ingress", "Egress"] if networks else ["Ingress"], to)
