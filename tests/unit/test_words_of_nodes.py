"""Amounts of nodes as people read them."""

import pytest
from msgspec.structs import replace

from dispatcher.views.node_room import NodeRoom
from dispatcher.views.words import amount, filled, free_part, resources

NODE = NodeRoom(
    name="n1", ready=True, cordoned=False, taints=(), size={"cpu": "4", "pods": "10", "gpu": "0"}, others={"cpu": "1"},
    ours={"cpu": "500m"}, coming={"cpu": "500m"}, reserved={"cpu": "1"}, free={"cpu": "1"}, kept_for=None, rejects="",
)  # fmt: skip


@pytest.mark.parametrize(
    ("quantity", "resource", "told"),
    [
        ("1500m", "cpu", "1.5"), ("1", "cpu", "1"), ("1m", "cpu", "0.001"), ("16069292Ki", "memory", "15.32Gi"),
        ("1Gi", "memory", "1Gi"), ("100", "memory", "100"), ("12345", "pods", "12,345"), (None, "cpu", "0"),
        ("3Ti", "ephemeral-storage", "3Ti"), ("2Mi", "hugepages-2Mi", "2Mi"),
    ],
)  # fmt: skip
def test_amount_is_rounded_and_has_a_unit(quantity: str | None, resource: str, told: str) -> None:
    assert amount(quantity, resource) == told


def test_resources_of_which_a_node_has_any_are_listed() -> None:
    assert resources(NODE.size) == ["pods"]


def test_bar_of_a_resource_has_a_part_for_others_ours_and_holds() -> None:
    assert [(part.name, part.start, part.width) for part in filled(NODE, "cpu")] == [
        ("others", 0, 25), ("ours", 25, 12.5), ("held", 37.5, 37.5)
    ]  # fmt: skip


def test_bar_of_an_over_asked_node_ends_at_its_size() -> None:
    parts = filled(replace(NODE, others={"cpu": "9"}), "cpu")
    assert [(part.name, part.width) for part in parts] == [("others", 100)]


def test_bar_of_a_resource_that_the_node_lacks_is_empty() -> None:
    assert filled(NODE, "gpu") == filled(NODE, "memory") == []
    assert (free_part(NODE, "memory"), free_part(NODE, "cpu")) == (0, 0.25)
