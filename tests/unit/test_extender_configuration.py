"""The configuration of kube-scheduler, written out here in full, and the check of it by its calls."""

from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY

from dispatcher.extender.configuration import (
    ENOUGH_CALLS,
    FAULTS,
    NO_FILTER,
    NO_PRIORITIZE,
    REMEMBERED,
    STANDS_SECONDS,
    TURNS,
    TURNS_WITHIN_SECONDS,
    TWO_CALLERS,
    UNCACHED,
    ConfigurationCheck,
    Peer,
    build_configuration,
)
from dispatcher.extender.server import Call, Extender
from dispatcher.settings.loading import load

EXTENDER = {
    "urlPrefix": "http://127.0.0.1:8888",
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "preemptVerb": "preempt",
    "weight": 1,
    "httpTimeout": "1s",
    "nodeCacheCapable": True,
    "ignorable": False,
}
TLS = {
    "enableHTTPS": True,
    "tlsConfig": {
        "caFile": "/etc/kubernetes/extender/ca.crt",
        "certFile": "/etc/kubernetes/extender/tls.crt",
        "keyFile": "/etc/kubernetes/extender/tls.key",
    },
}


def configuration(own_namespace: str | None = None, **environ: str) -> dict[str, Any]:
    """The printed configuration for these settings. `own_namespace`: of the Pod that prints it; None: it is no Pod."""
    settings = load({f"DISPATCHER_{name}": value for name, value in environ.items()}, read_file=str).settings
    printed: dict[str, Any] = msgspec.yaml.decode(msgspec.yaml.encode(build_configuration(settings, own_namespace)))
    return printed


def test_default_configuration_is_a_second_scheduler_with_the_extender() -> None:
    assert configuration() == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": True, "resourceName": "dispatcher-scheduler", "resourceNamespace": "default"},
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": "dispatcher-scheduler"}],
        "extenders": [EXTENDER],
    }


def test_profile_and_lease_have_the_scheduler_name_of_the_pods() -> None:
    printed = configuration(SCHEDULER_NAME="warm")
    assert (printed["profiles"], printed["leaderElection"]["resourceName"]) == ([{"schedulerName": "warm"}], "warm")


def test_lease_is_in_the_namespace_of_the_pod_that_prints_or_of_the_jobs() -> None:
    """In the cluster kube-scheduler may write leases in the namespace of our programs alone."""
    assert configuration(NAMESPACE="builds")["leaderElection"]["resourceNamespace"] == "builds"
    assert configuration("ours", NAMESPACE="builds")["leaderElection"]["resourceNamespace"] == "ours"


@pytest.mark.parametrize("address", ["127.0.0.1:9999", "localhost:1", "[::1]:8443"])
def test_url_is_the_address_of_the_extender(address: str) -> None:
    assert configuration(EXTENDER_ADDRESS=address)["extenders"] == [EXTENDER | {"urlPrefix": f"http://{address}"}]


@pytest.mark.parametrize("address", ["10.0.0.7:8443", "extender.example:8443"])
def test_url_off_loopback_uses_mutual_tls(address: str) -> None:
    extenders = configuration(EXTENDER_ADDRESS=address, EXTENDER_TLS_DIR="/etc/tls")["extenders"]
    assert extenders == [EXTENDER | TLS | {"urlPrefix": f"https://{address}"}]


@pytest.mark.parametrize("address", [":8443", "0.0.0.0:8443", "[::]:8443"])
def test_extender_that_listens_on_every_address_is_called_by_name(address: str) -> None:
    extenders = configuration(EXTENDER_ADDRESS=address, EXTENDER_TLS_DIR="/etc/tls")["extenders"]
    assert extenders == [EXTENDER | TLS | {"urlPrefix": "https://dispatcher-extender:8443"}]


ONE: Peer = ("127.0.0.1", 40_001)
OTHER: Peer = ("127.0.0.1", 40_002)
THIRD: Peer = ("127.0.0.1", 40_003)


class Calls:
    """Makes calls, one second apart. `reported`: the faults that were found, in their order."""

    def __init__(self) -> None:
        self.check = ConfigurationCheck()
        self.now = 0.0
        self.reported: list[str] = []

    def call(self, *verbs: str, peer: Peer = ONE, has_choice: bool = True, is_cached: bool = True) -> None:
        for verb in verbs:
            new = self.check.hear(verb, peer, self.now, has_choice=has_choice, is_cached=is_cached)
            self.reported += sorted(new)
            self.now += 1

    def turns(self, *peers: Peer, seconds: float = 1) -> None:
        for peer in peers:
            self.call("filter", "prioritize", peer=peer)
            self.now += seconds - 2


def test_correct_calls_show_no_fault() -> None:
    calls = Calls()
    calls.call(*["filter", "prioritize"] * 5 * ENOUGH_CALLS)
    assert (calls.reported, calls.check.faults) == ([], frozenset())


def test_whole_nodes_are_reported_once() -> None:
    calls = Calls()
    calls.call("filter", "prioritize", "filter", is_cached=False)
    calls.call("filter")
    assert (calls.reported, calls.check.faults) == ([UNCACHED], frozenset({UNCACHED}))


@pytest.mark.parametrize(
    ("called", "silent", "fault"), [("filter", "prioritize", NO_PRIORITIZE), ("prioritize", "filter", NO_FILTER)]
)
def test_missing_verb_is_reported_after_enough_calls_of_the_other(called: str, silent: str, fault: str) -> None:
    calls = Calls()
    calls.call(*[called] * (ENOUGH_CALLS - 1))
    assert calls.reported == []
    calls.call(called, called)
    assert (calls.reported, calls.check.faults) == ([fault], frozenset({fault}))
    late = Calls()
    late.call(silent, *[called] * 5 * ENOUGH_CALLS)
    assert late.reported == []


def test_calls_with_one_node_do_not_show_a_missing_prioritize() -> None:
    calls = Calls()
    calls.call(*["filter"] * 5 * ENOUGH_CALLS, has_choice=False)
    assert calls.reported == []
    calls.call(*["filter"] * ENOUGH_CALLS)
    assert calls.reported == [NO_PRIORITIZE]


def test_calls_of_other_verbs_do_not_count() -> None:
    calls = Calls()
    calls.call(*["preempt"] * 5 * ENOUGH_CALLS, *["filter"] * ENOUGH_CALLS)
    assert calls.reported == [NO_PRIORITIZE]


def test_fault_ends_when_calls_no_longer_show_it() -> None:
    """Otherwise its metric would stay 1 until a restart, although kube-scheduler's configuration is mended."""
    calls = Calls()
    calls.call(*["filter"] * ENOUGH_CALLS, is_cached=False)
    shown = calls.now - 1
    assert calls.check.faults == {UNCACHED, NO_PRIORITIZE}
    calls.now = shown + STANDS_SECONDS - 1
    calls.call("prioritize")
    assert calls.check.faults == {UNCACHED, NO_PRIORITIZE}
    calls.call("filter")
    assert calls.check.faults == frozenset()
    calls.call("filter", is_cached=False)
    assert calls.reported == [UNCACHED, NO_PRIORITIZE, UNCACHED], "reported again if it comes back"


def test_metric_of_a_fault_ends_without_a_further_call() -> None:
    """There may be none for long: no Pod waits, or the kube-scheduler of another replica leads."""
    clock = [0.0]
    extender = Extender({}, None, lambda: clock[0])  # type: ignore[arg-type]  # no node is reserved
    body = msgspec.json.encode({"Pod": {}, "Nodes": {"items": [{"metadata": {"name": "a"}}]}})
    extender.prioritize(Call(body, ONE, lambda: True))

    def shown(at: float) -> float | None:
        clock[0] = at
        return REGISTRY.get_sample_value("dispatcher_extender_config_faults", {"fault": UNCACHED})

    assert [shown(at) for at in (1, STANDS_SECONDS - 1, STANDS_SECONDS + 1)] == [1, 1, 0]


def test_several_faults_are_each_reported() -> None:
    calls = Calls()
    calls.call("filter", is_cached=False)
    calls.call(*["filter"] * ENOUGH_CALLS)
    calls.turns(OTHER, ONE, OTHER, ONE)
    assert calls.reported == [UNCACHED, NO_PRIORITIZE, TWO_CALLERS]
    assert set(calls.reported) == calls.check.faults


def test_each_fault_says_what_to_do() -> None:
    assert set(FAULTS) == {UNCACHED, NO_PRIORITIZE, NO_FILTER, TWO_CALLERS}
    assert all(": " in said for said in FAULTS.values())


# Two callers


def test_two_connections_in_turn_are_two_callers() -> None:
    calls = Calls()
    calls.turns(ONE, OTHER, ONE, OTHER)
    assert calls.reported == [], "two turns are too few"
    calls.turns(ONE)
    assert calls.reported == [TWO_CALLERS]
    calls.turns(OTHER, ONE, OTHER)
    assert calls.reported == [TWO_CALLERS], "reported once"


def test_same_port_of_another_machine_is_another_caller() -> None:
    calls = Calls()
    calls.turns(*[("10.0.0.1", 40_001), ("10.0.0.2", 40_001)] * 3)
    assert calls.reported == [TWO_CALLERS]


def test_three_connections_in_turn_are_reported() -> None:
    calls = Calls()
    calls.turns(*[ONE, OTHER, THIRD] * 2)
    assert calls.reported == [TWO_CALLERS]


def test_a_connection_that_is_replaced_is_no_second_caller() -> None:
    calls = Calls()
    for port in range(41_000, 41_000 + 3 * REMEMBERED):
        calls.turns(*[("127.0.0.1", port)] * 3)
    assert calls.reported == []


def test_calls_over_one_connection_are_no_turns() -> None:
    calls = Calls()
    calls.turns(ONE, *[OTHER] * 5 * TURNS, ONE, ONE)
    assert calls.reported == []


def test_turns_count_within_a_minute_only() -> None:
    """A port is used again after a long time, and a new leader follows the old one."""
    slow = Calls()
    slow.turns(*[ONE, OTHER] * 9, seconds=TURNS_WITHIN_SECONDS / (TURNS - 1) + 0.1)
    assert slow.reported == []
    slow.turns(*[ONE, OTHER] * TURNS)
    assert slow.reported == [TWO_CALLERS]
    just = Calls()
    just.turns(*[ONE, OTHER] * 9, seconds=TURNS_WITHIN_SECONDS / (TURNS - 1))
    assert just.reported == [TWO_CALLERS]


def test_old_connections_are_forgotten() -> None:
    calls = Calls()
    new = [("127.0.0.1", 42_000 + number) for number in range(5 * REMEMBERED)]
    for start in range(0, len(new), REMEMBERED):
        calls.turns(ONE, *new[start : start + REMEMBERED], seconds=0.001)
    assert calls.reported == []
