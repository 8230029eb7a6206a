"""The ConfigMaps of cache keepers: one has the directories of a node, the other has orders to remove some."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dispatcher.keeper.plan import LASTS, order_entry, orders_for, over
from dispatcher.kube.config_maps import CachePod, node_caches, read_cache_pod
from dispatcher.model.caches import LARGEST_TEXT, Kept, read_node_caches, rounded, write_node_caches

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
A, B = "a" * 40, "b" * 40
HOUR = 3600


def test_words_of_a_keeper_are_read_as_they_were_written() -> None:
    found = read_node_caches(write_node_caches("n1", [(A, 12_345_678, 5.5 * HOUR), (B, 7, 0)]))
    assert found is not None
    assert (found.name, found.node, found.whole) == ("n1", "n1", True)
    assert found.directories == {A: Kept(12_300_000, 5 * HOUR), B: Kept(7, 0)}


def test_words_stay_the_same_while_a_directory_is_used_and_grows_a_little() -> None:
    before, after = (
        write_node_caches("n1", [(A, size, last_use)])
        for size, last_use in ((10_010_000, 7200.0), (10_090_000, 10_799.0))
    )
    assert before == after


def test_most_recently_used_directories_are_told_if_all_are_too_many() -> None:
    every = [(f"{at:040x}", 2**62, float(at * HOUR)) for at in range(20_000)]
    text = write_node_caches("n" * 253, every)
    found = read_node_caches(text)
    assert found is not None
    assert (len(text) <= LARGEST_TEXT, len(text) > LARGEST_TEXT * 0.99, found.whole) == (True, True, False)
    assert set(found.directories) == {name for name, _, _ in every[-len(found.directories) :]}


@pytest.mark.parametrize("size", [0, 7, 999, 1000, 123_456, 2**62])
def test_size_keeps_its_first_three_digits(size: int) -> None:
    assert str(rounded(size)) == str(size)[:3] + "0" * (len(str(size)) - 3)


@pytest.mark.parametrize("last_use", [-1e9, -1.0, 0.0, 2.0**40])
def test_directory_of_any_age_can_be_told(last_use: float) -> None:
    """Whoever has a cache chooses the times of its files."""
    found = read_node_caches(write_node_caches("n1", [(A, 7, last_use)]))
    assert found is not None
    assert found.directories[A].last_use == max(0, last_use // HOUR * HOUR)


DEEP = '{"node":"n","whole":true,"directories":{},"x":' + "[" * 5000 + "]" * 5000 + "}"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", DEEP, '{"node": 1}', '{"node":"n","whole":true,"directories":{"a":[-1,0]}}']
)
def test_text_that_no_keeper_wrote_is_not_read(text: str) -> None:
    assert read_node_caches(text) is None


def a_map(name: str, text: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"metadata": {"name": name}, "data": {"cache.json": text}}))


def test_words_about_another_node_are_not_believed() -> None:
    resource, text = node_caches("ours", "live"), write_node_caches("n1", [])
    assert resource.read(a_map("live-cache-n1", text)) == read_node_caches(text)
    for name in ("live-cache-n2", "other-cache-n1", "live-cache-", "n1"):
        assert resource.read(a_map(name, text)) is None
    assert resource.read(msgspec.Raw(b'{"metadata": {"name": "live-cache-n1"}}')) is None
    assert resource.selector == "dispatcher.internal/installation=live,app.kubernetes.io/component=cache-keeper"


def test_order_is_for_one_node_or_for_all() -> None:
    entries = dict([order_entry(A, None, NOW), order_entry(B, "n1", NOW)])
    assert orders_for("n1", entries, NOW) == {A: NOW.timestamp(), B: NOW.timestamp()}
    assert orders_for("n2", entries, NOW) == {A: NOW.timestamp()}


def test_newest_of_two_orders_counts() -> None:
    entries = dict([order_entry(A, "n1", NOW), order_entry(A, None, NOW - timedelta(hours=1))])
    assert orders_for("n1", entries, NOW) == {A: NOW.timestamp()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (A, (NOW + timedelta(seconds=1)).isoformat()),  # in the future: a directory of today would not be older
        (A, (NOW - LASTS).isoformat()),
        (A, NOW.replace(tzinfo=None).isoformat()),
        (A, "9999-12-31T23:59:59+00:00"),
        (A, "0001-01-01T00:00:00+14:00"),
        (A, "now"),
        (A, ""),
        ("../..", NOW.isoformat()),
        ("A" * 40, NOW.isoformat()),
        (A[:39], NOW.isoformat()),
    ],
)
def test_order_that_is_over_or_unreadable_is_passed_over(name: str, value: str) -> None:
    assert orders_for("n1", {name: value}, NOW) == {}


def test_orders_that_are_over_are_named() -> None:
    entries = {A: (NOW - LASTS).isoformat(), B: NOW.isoformat(), "odd": "x", "late": "9999-12-31T23:59:59+00:00"}
    assert over(entries, NOW) == [A, "odd"]


def test_folders_of_a_pod_are_those_of_its_host_paths() -> None:
    pod = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"volumes": [{"name": "a", "hostPath": {"path": "/c/x", "type": ""}}, {"name": "b", "emptyDir": {}}]},
    }
    assert read_cache_pod(msgspec.Raw(msgspec.json.encode(pod))) == CachePod("p", "u", ["/c/x"])
    assert read_cache_pod(msgspec.Raw(b'{"metadata": {"name": "p"}, "spec": {"volumes": null}}')).paths == []
