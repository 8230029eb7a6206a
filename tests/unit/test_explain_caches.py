"""Where the cache of a row is, and whether a launch found it."""

import msgspec
import pytest

from dispatcher.kube.objects import names_in
from dispatcher.model.caches import LARGEST_SIZE, CacheTotal, Kept, NodeCaches, read_node_caches, write_node_caches
from dispatcher.model.jobs import LaunchCache
from dispatcher.placement.placing import MOST_REMEMBERED, Warmth, cache_digest
from dispatcher.views.launches import CacheNow, binary, cache_now, cache_of_launch, launches_of
from tests.rig.builders import a_job, a_pod

KEY = ("builds", "maps")
DIGEST = cache_digest("live", *KEY)


def warmth(**sizes: int) -> Warmth:
    """Nodes whose keepers say that they have the directory, with its size."""
    known = Warmth("live", lambda _: True, lambda: 0)
    for node, size in sizes.items():
        known.hear(None, NodeCaches(node, True, {DIGEST: Kept(size, 0)}))
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
    told = NodeCaches("a", True, {f"{at:040x}": Kept(LARGEST_SIZE, 0) for at in range(MOST_REMEMBERED)})
    known = Warmth("live", lambda _: True, lambda: 0)
    known.hear(None, told)
    assert msgspec.json.encode(known.total())
    larger = NodeCaches("a", True, {"d": Kept(LARGEST_SIZE + 1, 0)})
    assert read_node_caches(msgspec.json.encode(larger).decode()) is None
    assert read_node_caches(write_node_caches("a", [(DIGEST, 2**60, 0)])) is not None, "a keeper with a huge directory"
