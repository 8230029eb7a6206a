"""The placement of a launch: pool, cache directory, history, real use in memory, and warm nodes."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta

import pytest

from dispatcher.admission.launch_inputs import MOST_LOOKED_AT, CacheNodeChooser, NodeRing
from dispatcher.admission.room import Room
from dispatcher.model.caches import CacheDirectory, CacheHistory, CacheRun, NodeCaches, Placement, Pool, Use
from dispatcher.model.errors import DispatcherError
from dispatcher.model.launches import COLD_NODES, HISTORY_NODES, REAL_RESOURCES
from dispatcher.model.needs import PodNeeds
from dispatcher.placement import uses
from dispatcher.placement.placing import (
    PlacementPolicy,
    RealUses,
    Warmth,
    cache_digest,
    cache_path,
    choose_pool,
    history_points,
    read_history,
    read_needs,
    write_history,
    write_uses,
)
from dispatcher.placement.uses import Key, Uses
from dispatcher.settings.definition import PlacementSettings
from tests.rig.builders import NOW, a_request
from tests.unit.rooms import a_node, needs, room

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
    assert read_needs({REAL_RESOURCES: write_uses([Use(1.5, 2**20)])}) == RealUses((1500,), (2**20 * 1000,))
    assert read_needs({}) == RealUses()


@pytest.mark.parametrize(("cpu", "milli"), [("1e3", 1_000_000), ("0.5", 500), ("-1", None), ("1Ki1", None), ("", None)])
def test_unusable_amount_is_unknown(cpu: str, milli: int | None) -> None:
    assert read_needs({REAL_RESOURCES: json.dumps([{"cpu": cpu, "memory": "1"}])}) == RealUses((milli,), (1000,))


@pytest.mark.parametrize("written", ["", "5", "{}", "[1]", '["1"]', '[{"cpu": 1}]', "[null]"])
def test_uses_that_are_no_array_raise(written: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_needs({REAL_RESOURCES: written})


# The whole placement


def test_a_row_without_key_and_pool_goes_anywhere() -> None:
    assert PlacementPolicy("live", PLAIN).plan("q", a_request(), CacheHistory()) == Placement()


def test_history_is_preferred_only_without_our_own_scheduler() -> None:
    history = CacheHistory(("c", "b", "a", "z"), (Use(1, 2**20),))
    plain = PlacementPolicy("live", PLAIN).plan("q", a_request(cache_key="k"), history)
    assert plain.preferred == ("c", "b", "a")
    assert plain.notes == {HISTORY_NODES: '["c","b","a"]', REAL_RESOURCES: '[{"cpu":"1000m","memory":"1Mi"}]'}
    ours = PlacementPolicy("live", PlacementSettings(scheduler_name="warm")).plan(
        "q", a_request(cache_key="k"), history
    )
    assert (ours.preferred, ours.notes) == ((), plain.notes)


def test_nodes_that_get_the_cache_now_are_told_if_they_are_among_the_first() -> None:
    history = CacheHistory(("c", "b", "a", "z"), cold=("b", "z"))
    notes = PlacementPolicy("live", PLAIN).plan("q", a_request(cache_key="k"), history).notes
    assert notes == {HISTORY_NODES: '["c","b","a"]', COLD_NODES: '["b"]'}


def test_cache_is_given_to_rows_with_a_key_if_there_is_a_root() -> None:
    rooted = PlacementSettings(cache_root="/var/cache")
    assert PlacementPolicy("live", rooted).plan("q", a_request(cache_key="k"), CacheHistory()).cache_path == cache_path(
        "/var/cache", "live", cache_digest("live", "q", "k")
    )
    assert PlacementPolicy("live", rooted).plan("q", a_request(cache_key=""), CacheHistory()).cache_path
    assert not PlacementPolicy("live", rooted).plan("q", a_request(), CacheHistory()).cache_path
    assert not PlacementPolicy("live", PLAIN).plan("q", a_request(cache_key="k"), CacheHistory()).cache_path


MAIN: Key = ("builds", "main")


def a_run(number: int) -> CacheRun:
    return CacheRun(f"pod-{number}", NOW + timedelta(minutes=number), NOW + timedelta(minutes=number, seconds=9))


class Lookups:
    """Runs of keys, and a Prometheus that knows all runs but those in `unknown`."""

    def __init__(self) -> None:
        self.of: dict[Key, list[CacheRun]] = {MAIN: [a_run(2), a_run(1)]}
        self.asked: list[str] = []
        self.unknown: set[str] = set()
        self.fault: DispatcherError | None = None
        self.now = 0.0
        self.wakes = 0
        self.uses = Uses(self.runs, self.ask, self.wake, lambda: self.now)

    async def runs(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[CacheRun]]:
        return {key: self.of.get(key, []) for key in keys}

    async def ask(self, run: CacheRun) -> Use | None:
        self.asked.append(run.pod)
        if self.fault:
            raise self.fault
        return None if run.pod in self.unknown else Use(1, 2)

    def wake(self) -> None:
        self.wakes += 1


async def test_key_has_no_uses_until_they_are_looked_up() -> None:
    lookups = Lookups()
    assert lookups.uses.of(MAIN) == ()
    assert lookups.wakes == 1
    await lookups.uses.run_once()
    assert lookups.uses.of(MAIN) == (Use(1, 2), Use(1, 2))
    assert lookups.wakes == 1, "fresh uses are not looked up again"


async def test_run_is_looked_up_once_and_a_new_run_is_found() -> None:
    lookups = Lookups()
    lookups.uses.of(MAIN)
    await lookups.uses.run_once()
    lookups.of[MAIN].insert(0, a_run(3))
    lookups.now += uses.FRESH_SECONDS
    lookups.uses.of(MAIN)
    await lookups.uses.run_once()
    assert lookups.asked == ["pod-2", "pod-1", "pod-3"]
    assert len(lookups.uses.of(MAIN)) == 3


async def test_run_of_unknown_use_is_left_out() -> None:
    lookups = Lookups()
    lookups.unknown = {"pod-2"}
    lookups.uses.of(MAIN)
    await lookups.uses.run_once()
    assert lookups.uses.of(MAIN) == (Use(1, 2),)


async def test_fault_ends_the_round_and_the_key_is_looked_up_again() -> None:
    lookups = Lookups()
    lookups.fault = DispatcherError("away")
    lookups.uses.of(MAIN)
    with pytest.raises(DispatcherError):
        await lookups.uses.run_once()
    assert lookups.uses.of(MAIN) == ()
    lookups.fault = None
    await lookups.uses.run_once()
    assert lookups.uses.of(MAIN)


async def test_round_without_keys_looks_up_nothing() -> None:
    lookups = Lookups()
    assert await lookups.uses.run_once() == uses.PAUSE_SECONDS
    assert lookups.asked == []


async def test_a_round_looks_up_a_few_keys_and_comes_again_at_once() -> None:
    lookups = Lookups()
    for number in range(uses.KEYS_A_ROUND + 1):
        lookups.of["q", str(number)] = [a_run(number)]
        lookups.uses.of(("q", str(number)))
    assert await lookups.uses.run_once() == 0
    assert len(lookups.asked) == uses.KEYS_A_ROUND
    assert await lookups.uses.run_once() == uses.PAUSE_SECONDS


async def test_wanted_keys_are_bounded() -> None:
    lookups = Lookups()
    for number in range(uses.MOST_KEYS + uses.KEYS_A_ROUND):
        lookups.uses.of(("q", str(number)))
    while await lookups.uses.run_once() == 0:
        pass
    lookups.of["q", "new"] = [a_run(1)]
    lookups.uses.of(("q", "new"))
    await lookups.uses.run_once()
    assert lookups.uses.of(("q", "new"))
    assert lookups.wakes == uses.MOST_KEYS + 1


KEY = ("builds", "maps")
OURS, OTHER = cache_digest("live", *KEY), cache_digest("live", "builds", "other")


def told(node: str, *digests: str, last_use: int = 0, whole: bool = True) -> NodeCaches:
    return NodeCaches(node, whole, {digest: CacheDirectory(2**30, last_use) for digest in digests})


def warm(*words: NodeCaches, history: tuple[str, ...] = (), gone: str = "") -> tuple[str, ...]:
    known = Warmth("live", lambda node: node != gone, lambda: 0)
    for one in words:
        known.hear(None, one)
    return known.nodes(KEY, dict.fromkeys(history, 1.0))


def test_history_alone_counts_without_keepers() -> None:
    assert warm(history=("b", "a", "gone"), gone="gone") == ("b", "a")


def test_node_that_has_the_directory_comes_before_one_that_says_nothing() -> None:
    assert warm(told("a", OURS), history=("b", "a")) == ("a", "b")


def test_node_that_has_not_the_directory_is_left_out_unless_it_tells_only_a_part() -> None:
    assert warm(told("b", OTHER), told("a", OURS), history=("b", "a")) == ("a",)
    assert warm(told("b", OTHER, whole=False), history=("b", "a")) == ("b", "a")


def test_nodes_without_history_follow_by_their_last_use() -> None:
    words = told("c", OURS, last_use=5), told("d", OURS, last_use=9), told("a", OURS, last_use=1)
    assert warm(*words, history=("a",)) == ("a", "d", "c")
    assert warm(*words, history=("a",), gone="d") == ("a", "c")


def test_newer_words_replace_older_ones_and_a_keeper_that_is_gone_says_nothing() -> None:
    known = Warmth("live", lambda _: True, lambda: 0)
    first, second = told("a", OURS, OTHER), told("a", OTHER)
    known.hear(None, first)
    known.hear(first, second)
    assert (known.nodes(KEY, {"a": 1}), dict(known.kept(KEY))) == ((), {})
    known.hear(second, None)
    assert known.nodes(KEY, {"a": 1}) == ("a",)


def test_success_after_the_words_of_a_keeper_is_warm_until_newer_words_deny_it() -> None:
    """A keeper writes once a minute at most."""
    now = 100.0
    known, word, newer = Warmth("live", lambda _: True, lambda: now), told("a", OTHER), told("a", "x")
    known.hear(None, word)
    now = 130
    assert known.nodes(KEY, {"a": 10}) == ("a",)
    assert known.nodes(KEY, {"a": 40}) == ()
    known.hear(word, told("a", OTHER))  # listed once more
    assert known.nodes(KEY, {"a": 10}) == ("a",)
    known.hear(word, newer)
    assert known.nodes(KEY, {"a": 10}) == ()
    known.hear(newer, None)
    assert known.nodes(KEY, {"a": 10}) == ("a",)


def test_directory_that_one_node_loses_stays_known_of_the_others() -> None:
    known, first = Warmth("live", lambda _: True, lambda: 0), told("a", OURS)
    known.hear(None, first)
    known.hear(None, told("b", OURS))
    known.hear(first, told("a"))
    assert known.nodes(KEY, {"a": 1}) == ("b",)


def test_other_installation_has_other_directories() -> None:
    known = Warmth("other", lambda _: True, lambda: 0)
    known.hear(None, told("a", OURS))
    assert dict(known.kept(KEY)) == {}


def test_words_beyond_what_is_remembered_count_as_none() -> None:
    known, first, second = (
        Warmth("live", lambda _: True, lambda: 0, most=3),
        told("a", OURS, OTHER),
        told("b", OTHER, "x"),
    )
    known.hear(None, first)
    known.hear(None, second)
    assert known.nodes(KEY, {"b": 1, "a": 2}) == ("a", "b")
    known.hear(first, None)
    known.hear(second, second)
    assert known.nodes(KEY, {"b": 1, "a": 2}) == ("a",)


def names(number: int) -> list[str]:
    return [f"n{at}" for at in range(number)]


def test_each_key_has_an_order_of_all_nodes_of_its_own() -> None:
    drawing = NodeRing()
    orders = {key: list(drawing.order(("q", str(key)), names(40))) for key in range(200)}
    assert all(sorted(order) == sorted(names(40)) for order in orders.values())
    assert orders[7] == list(NodeRing().order(("q", "7"), names(40)[::-1]))
    firsts = Counter(order[0] for order in orders.values())
    assert len(firsts) > 25
    assert max(firsts.values()) < 30


def test_node_that_goes_moves_only_the_keys_that_it_had() -> None:
    drawing, keys = NodeRing(), [("q", str(key)) for key in range(200)]
    before = {key: next(drawing.order(key, names(40))) for key in keys}
    after = {key: next(drawing.order(key, names(39))) for key in keys}
    assert all(after[key] == node for key, node in before.items() if node != "n39")


def in_order(_: tuple[str, str], nodes: Collection[str]) -> Iterator[str]:
    return iter(sorted(nodes))


ONE_CORE = needs(memory="1Mi")


def a_room(**cores: str) -> Room:
    """Nodes with these cores."""
    return room([a_node(name, cpu=amount) for name, amount in cores.items()])


def drawn(room: Room | None, *warm: str, copies: int = 3, launches: int = 1) -> list[tuple[str, ...]]:
    draw = CacheNodeChooser(room, in_order, copies)
    return [draw.nodes(KEY, warm, ONE_CORE) for _ in range(launches)]


def test_launches_go_to_warm_nodes_while_these_have_room() -> None:
    assert drawn(a_room(a="9", b="1", c="9"), "b", "c", launches=3) == [("b", "c"), ("c", "b"), ("c", "b")]


def test_launch_without_room_on_warm_nodes_is_drawn_to_one_more_node() -> None:
    found = drawn(a_room(a="0", b="2", c="2", warm="1"), "warm", launches=6)
    assert [nodes[0] for nodes in found] == ["warm", "b", "b", "c", "c", "warm"]
    assert found[1] == ("b", "warm")


def test_key_is_drawn_to_no_more_nodes_than_its_copies() -> None:
    found = drawn(a_room(a="1", b="1", warm="1"), "warm", copies=2, launches=3)
    assert [nodes[0] for nodes in found] == ["warm", "a", "warm"]
    assert drawn(a_room(a="1", warm="0"), "warm", copies=1) == [("warm",)]


def test_history_stays_as_it_is_where_room_is_not_judged_or_no_node_is_warm() -> None:
    assert drawn(None, "b", "a") == [("b", "a")]
    assert drawn(a_room(a="9")) == [()]
    assert CacheNodeChooser(a_room(a="9"), in_order, 3).nodes(KEY, ("b",), None) == ("b",)
    gated = PodNeeds(is_gated=True)
    assert CacheNodeChooser(a_room(a="9"), in_order, 3).nodes(KEY, ("b",), gated) == ("b",)


def test_warm_node_that_is_gone_or_claimed_has_no_room() -> None:
    room = Room(a_room(a="1", b="1").view, closed={"b": 7})
    assert [nodes[0] for nodes in (drawn(room, "b")[0], drawn(room, "gone")[0])] == ["a", "a"]


def test_few_nodes_are_looked_at_for_one_more() -> None:
    room = a_room(warm="0", **dict.fromkeys([f"n{at:04}" for at in range(MOST_LOOKED_AT)], "0"), z="9")
    assert drawn(room, "warm") == [("warm",)]


def test_another_key_has_room_of_its_own() -> None:
    draw = CacheNodeChooser(a_room(a="1"), in_order, 3)
    assert draw.nodes(KEY, ("a",), ONE_CORE) == draw.nodes(("q", "k"), ("a",), ONE_CORE) == ("a",)
