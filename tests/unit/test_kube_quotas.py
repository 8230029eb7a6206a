"""ResourceQuotas as the API server writes them."""

import msgspec
import pytest
from prometheus_client import REGISTRY

from dispatcher.kube.capacity import read_quota
from dispatcher.kube.pods import needs_of_manifest
from dispatcher.model.cluster import Quota, Scope
from tests.unit.rooms import amounts_of


def read(**parts: object) -> Quota:
    return read_quota(msgspec.json.encode({"metadata": {"name": "team"}, **parts}))


def test_limits_are_those_that_the_api_server_enforces() -> None:
    """The status lags behind the spec until the quota controller has counted."""
    found = read(spec={"hard": {"pods": "50"}}, status={"hard": {"pods": "5"}, "used": {"pods": "3"}})
    assert found == Quota("team", amounts_of({"pods": "5"}), amounts_of({"pods": "3"}))


def test_quota_that_was_never_counted_has_no_limits() -> None:
    assert read(spec={"hard": {"pods": "5"}}) == Quota("team", {}, {})
    assert read(spec={"scopes": None, "scopeSelector": {"matchExpressions": None}}, status={"hard": None}).hard == {}


def test_scopes_of_both_forms_count() -> None:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    found = read(spec={"scopes": ["Terminating"], "scopeSelector": selector})
    assert found.scopes == (Scope("Terminating"), Scope("PriorityClass", "In", ("high",)))


def unreadable() -> float:
    return REGISTRY.get_sample_value("dispatcher_unreadable_amounts_total", {"resource": "resourcequotas"}) or 0


@pytest.mark.parametrize("amount", ["", "lots", "1e3e3", "--1", "1.5.2", "٣"])
def test_unreadable_amount_holds_nothing(amount: str) -> None:
    before = unreadable()
    assert read(status={"hard": {"pods": amount, "cpu": "2"}, "used": {"pods": "1"}}).hard == amounts_of({"cpu": "2"})
    assert unreadable() == before + 1


def test_limits_of_a_pod_are_summed_as_its_requests_are() -> None:
    container = {"name": "task", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}
    sidecar = {"name": "proxy", "restartPolicy": "Always", "resources": {"limits": {"cpu": "500m"}}}
    found = needs_of_manifest({"containers": [container], "initContainers": [sidecar]})
    assert found is not None
    assert dict(found.limits) == amounts_of({"cpu": "2500m", "memory": "1Gi"})
