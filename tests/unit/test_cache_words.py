"""The ConfigMaps of cache keepers; where the cache of a row is, and whether a launch found it."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dispatcher.keeper.plan import LASTS, order_entry, orders_for, over
from dispatcher.kube.config_maps import CachePod, node_caches, read_cache_pod
from dispatcher.kube.objects import names_in
from dispatcher.model.caches import (
    LARGEST_SIZE,
    LARGEST_TEXT,
    CacheDirectory,
    CacheTotal,
    NodeCaches,
    read_node_caches,
    rounded,
    write_node_caches,
)
from dispatcher.model.jobs import LaunchCache
from dispatcher.placement.placing import MOST_REMEMBERED, Warmth, cache_digest
from dispatcher.views.launches import CacheNow, binary, cache_now, cache_of_launch, launches_of
from tests.rig.builders import a_job, a_pod

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
A, B = "a" * 40, "b" * 40
HOUR = 3600


def test_words_of_a_keeper_are_read_as_they_were_written() -> None:
    found = read_node_caches(write_node_caches("n1", [(A, 12_345_678, 5.5 * HOUR), (B, 7, 0)]))
    assert found is not None
    assert (found.name, found.node, found.whole) == ("n1", "n1", True)
    assert found.directories == {A: CacheDirectory(12_300_000, 5 * HOUR), B: CacheDirectory(7, 0)}


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


KEY = ("builds", "maps")
DIGEST = cache_digest("live", *KEY)


def warmth(**sizes: int) -> Warmth:
    """Nodes whose keepers say that they have the directory, with its size."""
    known = Warmth("live", lambda _: True, lambda: 0)
    for node, size in sizes.items():
        known.hear(None, NodeCaches(node, True, {DIGEST: CacheDirectory(size, 0)}))
    return known


def test_cache_that_keepers_tell_has_nodes_and_a_size() -> None:
    found = cache_now(KEY, {"b": 1}, warmth(a=4 * 2**30, b=8 * 2**30))
    assert found == CacheNow(message="warm on 2 nodes (12 GiB)", nodes=("b", "a"), bytes=12 * 2**30)


def test_cache_that_history_alone_tells_has_no_size() -> None:
    assert cache_now(KEY, {"b": 1}, warmth()) == CacheNow(message="warm on 1 node", nodes=("b",), bytes=None)
    assert cache_now(KEY, {}, warmth()).message == "no node is known to have its cache"


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536 * 2**20, "1.5 GiB"),
        (5 * 2**50, "5,120 TiB"),
    ],
)
def test_bytes_are_told_in_the_largest_unit(size: int, told: str) -> None:
    assert binary(size) == told


@pytest.mark.parametrize(
    ("cache", "node", "told"),
    [
        (LaunchCache(("a", "b")), "b", "warm"),
        (LaunchCache(("b", "a"), ("b",)), "b", "cold: a had no room, and one more node gets the cache"),
        (LaunchCache(("b", "a"), ("b",)), "a", "warm"),
        (LaunchCache(("a", "b")), "c", "cold: kube-scheduler did not choose a or b"),
        (LaunchCache(), "c", "cold: no node had the cache"),
    ],
)
def test_launch_says_whether_it_found_its_cache_and_why_not(cache: LaunchCache, node: str, told: str) -> None:
    assert cache_of_launch(cache, node) == told
    job, pod = a_job(cache=cache), a_pod(node_name=node)
    (launch,) = launches_of([], [(job, [pod])], "jobs")
    assert launch.cache == told
    assert launches_of([], [(a_job(), [pod])], "jobs")[0].cache is None, "the row has no cache key"
    assert launches_of([], [(job, [a_pod(node_name="")])], "jobs")[0].cache is None, "it has no node yet"


@pytest.mark.parametrize("written", ["", "5", "[5]", '{"a": 1}', "[", "\x00"])
def test_annotation_that_we_did_not_write_names_no_node(written: str) -> None:
    assert names_in(written) == ()


def test_keepers_are_counted_together_and_forgotten_with_their_words() -> None:
    known = warmth(a=3, b=4)
    assert known.total() == CacheTotal(2, 2, 7)
    told = known.told_by("a")
    assert told is not None
    known.hear(told, None)
    assert (known.total(), known.told_by("a")) == (CacheTotal(1, 1, 4), None)


def test_sizes_that_a_stolen_keeper_invents_can_be_added_and_told() -> None:
    told = NodeCaches("a", True, {f"{at:040x}": CacheDirectory(LARGEST_SIZE, 0) for at in range(MOST_REMEMBERED)})
    known = Warmth("live", lambda _: True, lambda: 0)
    known.hear(None, told)
    assert msgspec.json.encode(known.total())
    larger = NodeCaches("a", True, {"d": CacheDirectory(LARGEST_SIZE + 1, 0)})
    assert read_node_caches(msgspec.json.encode(larger).decode()) is None
    assert read_node_caches(write_node_caches("a", [(DIGEST, 2**60, 0)])) is not None, "a keeper with a huge directory"
