"""The placement of a launch: pool, cache directory, history, real use."""

import json
import re

import pytest

from dispatcher.model.caches import CacheHistory, Placement, Pool, Use
from dispatcher.model.launches import COLD_NODES, HISTORY_NODES, REAL_RESOURCES
from dispatcher.placement.placing import (
    Needs,
    Placing,
    cache_digest,
    cache_path,
    choose_pool,
    history_points,
    read_history,
    read_needs,
    write_history,
    write_uses,
)
from dispatcher.settings.definition import PlacementSettings
from tests.rig.builders import a_request

PLAIN = PlacementSettings()
SELECTING = PlacementSettings(node_selector="pool=batch", special_machine_label="gpu")
PRIVATE = Pool("dispatcher.internal/private-machine", "mine", is_private=True)


@pytest.mark.parametrize(
    ("spec", "pool"),
    [
        ({}, Pool("pool", "batch")),
        ({"special_machine": "big"}, Pool("gpu", "big")),
        ({"private_machine": "mine"}, PRIVATE),
        ({"private_machine": "mine", "special_machine": "big"}, PRIVATE),
    ],
)
def test_first_pool_that_is_named_is_chosen(spec: dict[str, str], pool: Pool) -> None:
    assert choose_pool(spec, SELECTING) == pool


def test_row_without_a_pool_is_bound_to_none() -> None:
    assert choose_pool({}, PLAIN) is None


# Caches


@pytest.mark.parametrize("key", ["main", "", "../../etc", "/etc/passwd", "a/b", "ü\n$(HOME)", "x" * 200])
def test_cache_is_one_directory_below_the_root_for_any_key(key: str) -> None:
    digest = cache_digest("live", "builds", key)
    assert re.fullmatch(r"/var/cache/live/[0-9a-f]{40}", cache_path("/var/cache", "live", digest))


def test_cache_directories_of_different_queues_and_keys_differ() -> None:
    pairs = [("a", "b"), ("ab", ""), ("", "ab"), ("a", "c"), ("c", "b"), ('a","b', ""), ("a", '","b')]
    assert len({cache_digest("live", *pair) for pair in pairs}) == len(pairs)
    assert cache_digest("live", "a", "b") == cache_digest("live", "a", "b")


def test_installations_with_the_same_root_share_no_cache() -> None:
    paths = {cache_path("/c", name, cache_digest(name, "q", "k")) for name in ("live", "test")}
    assert len({path.rpartition("/")[0] for path in paths}) == len({path.rpartition("/")[2] for path in paths}) == 2


# History


def test_history_is_an_array_of_at_most_three_nodes_the_newest_first() -> None:
    assert json.loads(write_history(["c", "a", "b", "d"])) == ["c", "a", "b"]
    assert read_history({HISTORY_NODES: write_history(["c", "a"])}) == ("c", "a")
    assert read_history({}) == ()


def test_node_that_is_listed_twice_counts_at_its_first_place() -> None:
    assert read_history({HISTORY_NODES: '["a", "a", "b", "c", "d"]'}) == ("a", "b", "c")


@pytest.mark.parametrize("written", ["", "a", "{}", '"a"', "[1]", "null", "[[]]", '["a"'])
def test_history_that_is_no_array_of_names_raises(written: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_history({HISTORY_NODES: written})


def test_history_points_are_three_two_and_one() -> None:
    assert history_points(("c", "a", "b")) == {"c": 3, "a": 2, "b": 1}
    assert history_points(("c",)) == {"c": 3}


# Real use


def test_uses_hold_the_highest_five_of_cpu_and_of_memory() -> None:
    mib = 2**20
    seen = [(373, 277), (848, 390), (966, 378), (0, 0), (832, 471), (738, 466), (941, 323)]
    ranked = json.loads(write_uses([Use(cpu / 1000, memory * mib) for cpu, memory in seen]))
    assert [(one["cpu"], one["memory"]) for one in ranked] == [
        ("966m", "471Mi"), ("941m", "466Mi"), ("848m", "390Mi"), ("832m", "378Mi"), ("738m", "323Mi"),
    ]  # fmt: skip


def test_runs_beyond_the_newest_ten_are_not_counted() -> None:
    uses = [Use(0.1, 0)] * 10 + [Use(9, 0)]
    assert "9000m" not in write_uses(uses)


def test_a_gibibyte_is_1024_mebibytes() -> None:
    assert json.loads(write_uses([Use(1.5, 2**30)])) == [{"cpu": "1500m", "memory": "1024Mi"}]


def test_needs_are_read_as_they_were_written() -> None:
    assert read_needs({REAL_RESOURCES: write_uses([Use(1.5, 2**20)])}) == Needs((1500,), (2**20 * 1000,))
    assert read_needs({}) == Needs()


@pytest.mark.parametrize(("cpu", "milli"), [("1e3", 1_000_000), ("0.5", 500), ("-1", None), ("1Ki1", None), ("", None)])
def test_unusable_amount_is_unknown(cpu: str, milli: int | None) -> None:
    assert read_needs({REAL_RESOURCES: json.dumps([{"cpu": cpu, "memory": "1"}])}) == Needs((milli,), (1000,))


@pytest.mark.parametrize("written", ["", "5", "{}", "[1]", '["1"]', '[{"cpu": 1}]', "[null]"])
def test_uses_that_are_no_array_raise(written: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_needs({REAL_RESOURCES: written})


# The whole placement


def test_a_row_without_key_and_pool_goes_anywhere() -> None:
    assert Placing("live", PLAIN).plan("q", a_request(), CacheHistory()) == Placement()


def test_history_is_preferred_only_without_our_own_scheduler() -> None:
    history = CacheHistory(("c", "b", "a", "z"), (Use(1, 2**20),))
    plain = Placing("live", PLAIN).plan("q", a_request(cache_key="k"), history)
    assert plain.preferred == ("c", "b", "a")
    assert plain.notes == {HISTORY_NODES: '["c","b","a"]', REAL_RESOURCES: '[{"cpu":"1000m","memory":"1Mi"}]'}
    ours = Placing("live", PlacementSettings(scheduler_name="warm")).plan("q", a_request(cache_key="k"), history)
    assert (ours.preferred, ours.notes) == ((), plain.notes)


def test_nodes_that_get_the_cache_now_are_told_if_they_are_among_the_first() -> None:
    history = CacheHistory(("c", "b", "a", "z"), cold=("b", "z"))
    notes = Placing("live", PLAIN).plan("q", a_request(cache_key="k"), history).notes
    assert notes == {HISTORY_NODES: '["c","b","a"]', COLD_NODES: '["b"]'}


def test_cache_is_given_to_rows_with_a_key_if_there_is_a_root() -> None:
    rooted = PlacementSettings(cache_root="/var/cache")
    assert Placing("live", rooted).plan("q", a_request(cache_key="k"), CacheHistory()).cache_path == cache_path(
        "/var/cache", "live", cache_digest("live", "q", "k")
    )
    assert Placing("live", rooted).plan("q", a_request(cache_key=""), CacheHistory()).cache_path
    assert not Placing("live", rooted).plan("q", a_request(), CacheHistory()).cache_path
    assert not Placing("live", PLAIN).plan("q", a_request(cache_key="k"), CacheHistory()).cache_path
