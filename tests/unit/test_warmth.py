"""Which nodes are warm, and to which nodes the launches of a busy key are drawn."""

from collections import Counter
from collections.abc import Collection, Iterator

from dispatcher.admission.launch_inputs import MOST_LOOKED_AT, Draw, Drawing
from dispatcher.admission.room import Room
from dispatcher.model.caches import Kept, NodeCaches
from dispatcher.model.needs import PodNeeds
from dispatcher.placement.placing import Warmth, cache_digest
from tests.unit.rooms import a_node, needs, room

KEY = ("builds", "maps")
OURS, OTHER = cache_digest("live", *KEY), cache_digest("live", "builds", "other")


def told(node: str, *digests: str, last_use: int = 0, whole: bool = True) -> NodeCaches:
    return NodeCaches(node, whole, {digest: Kept(2**30, last_use) for digest in digests})


def warm(*words: NodeCaches, history: tuple[str, ...] = (), gone: str = "") -> tuple[str, ...]:
    known = Warmth("live", lambda node: node != gone, lambda: 0)
    for one in words:
        known.hear(None, one)
    return known.nodes(KEY, dict.fromkeys(history, 1.0))


def test_without_keepers_history_alone_counts() -> None:
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


def test_key_that_succeeded_after_the_words_of_a_keeper_is_warm_there_until_newer_words_deny_it() -> None:
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
    drawing = Drawing()
    orders = {key: list(drawing.order(("q", str(key)), names(40))) for key in range(200)}
    assert all(sorted(order) == sorted(names(40)) for order in orders.values())
    assert orders[7] == list(Drawing().order(("q", "7"), names(40)[::-1]))
    firsts = Counter(order[0] for order in orders.values())
    assert len(firsts) > 25
    assert max(firsts.values()) < 30


def test_node_that_goes_moves_only_the_keys_that_it_had() -> None:
    drawing, keys = Drawing(), [("q", str(key)) for key in range(200)]
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
    draw = Draw(room, in_order, copies)
    return [draw.nodes(KEY, warm, ONE_CORE) for _ in range(launches)]


def test_launches_go_to_warm_nodes_while_these_have_room() -> None:
    assert drawn(a_room(a="9", b="1", c="9"), "b", "c", launches=3) == [("b", "c"), ("c", "b"), ("c", "b")]


def test_launch_without_room_on_warm_nodes_is_drawn_to_one_more_node_until_that_is_full() -> None:
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
    assert Draw(a_room(a="9"), in_order, 3).nodes(KEY, ("b",), None) == ("b",)
    gated = PodNeeds(is_gated=True)
    assert Draw(a_room(a="9"), in_order, 3).nodes(KEY, ("b",), gated) == ("b",)


def test_warm_node_that_is_gone_or_claimed_has_no_room() -> None:
    room = Room(a_room(a="1", b="1").view, closed={"b": 7})
    assert [nodes[0] for nodes in (drawn(room, "b")[0], drawn(room, "gone")[0])] == ["a", "a"]


def test_few_nodes_are_looked_at_for_one_more() -> None:
    room = a_room(warm="0", **dict.fromkeys([f"n{at:04}" for at in range(MOST_LOOKED_AT)], "0"), z="9")
    assert drawn(room, "warm") == [("warm",)]


def test_another_key_has_room_of_its_own() -> None:
    draw = Draw(a_room(a="1"), in_order, 3)
    assert draw.nodes(KEY, ("a",), ONE_CORE) == draw.nodes(("q", "k"), ("a",), ONE_CORE) == ("a",)
