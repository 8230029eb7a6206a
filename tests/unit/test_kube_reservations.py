"""Reading of NodeReservations. An unreadable one holds nothing, and the others are still read."""

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from dispatcher.kube.reservations import PodWithoutNode, read_reservation, read_waiting

META = {"name": "r", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
SPEC = {"nodeName": "a", "resources": {"cpu": "2", "memory": 5}, "target": {"taskId": 7}, "ttlSeconds": 60}


def kept(**spec: Any) -> bytes:
    return msgspec.json.encode({"metadata": META, "spec": SPEC | spec})


def test_a_reservation_has_node_amounts_target_and_end() -> None:
    one = read_reservation(kept())
    assert one is not None
    assert (one.name, one.node, one.amounts) == ("team/r", "a", {"cpu": 2000, "memory": 5000})
    assert (one.target, one.ends_at - one.made_at) == ("taskId team/7", 60)


@pytest.mark.parametrize(
    "spec",
    [
        {"expiresAt": "0000-01-01T00:00:00Z"}, {"expiresAt": 7}, {"ttlSeconds": 10**12}, {"resources": ["cpu"]},
        {"target": {"taskId": "seven"}}, {"nodeName": None},
    ],
    ids=str,
)  # fmt: skip
def test_an_unreadable_reservation_holds_nothing_and_is_logged(spec: dict[str, Any]) -> None:
    with capture_logs() as told:
        assert read_reservation(kept(**spec)) is None
    assert [(line["name"], line["log_level"]) for line in told] == [("team/r", "warning")]


@pytest.mark.parametrize("amount", ["1e", "much", "-1", "0"])
def test_an_invalid_amount_is_not_held(amount: str) -> None:
    one = read_reservation(kept(resources={"cpu": amount, "memory": "1"}))
    assert one is not None
    assert one.amounts == {"memory": 1000}


def test_a_waiting_pod_has_the_message_of_kube_scheduler() -> None:
    conditions = [
        {"type": "Other", "message": "x"},
        {"type": "PodScheduled", "message": "0/1 nodes", "status": "False"},
    ]
    for told, why in ((conditions, "0/1 nodes"), ([], "")):
        raw = msgspec.json.encode({"metadata": META, "status": {"conditions": told}})
        assert read_waiting(raw) == PodWithoutNode("team/r", "u", why)
