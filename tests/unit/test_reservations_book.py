"""What is held for one Pod is not there for another; and when a hold is over."""

import pytest

from dispatcher.model.capacity import NodeSize
from dispatcher.model.reservations import key_of
from dispatcher.reservations.book import REFUSED
from dispatcher.reservations.pod_request import PodRequest
from tests.builders import NOW
from tests.unit.a_reservation_book import CPU, END, MEMORY, OURS, SIZE, DemoEnvironment, a_reservation, an_asker, bound

# Who sees what


def test_others_see_the_node_smaller_and_the_target_does_not() -> None:
    stage = DemoEnvironment(a_reservation())
    assert stage.refused(an_asker(3000)) == {"a": CPU}
    assert stage.refused(an_asker(3000, OURS)) == {}


def test_what_fits_beside_a_hold_may_have_the_node() -> None:
    assert DemoEnvironment(a_reservation()).refused(an_asker(1900)) == {}
    assert DemoEnvironment(a_reservation()).refused(an_asker(1901)) == {"a": CPU}


def test_the_transcript_of_the_plugin_that_it_comes_from() -> None:
    """Three nodes of 3900m, 2000m held on one: fillers of 3000m, the owner, and what then fits beside it."""
    stage = DemoEnvironment(a_reservation())
    fillers = [an_asker(3000, name=f"team/filler-{number}") for number in range(3)]
    for filler, node in zip(fillers, "bc", strict=False):
        assert stage.refused(filler) == {"a": CPU}
        stage.bind(filler, node)
    assert stage.refused(fillers[2])["a"] == CPU
    owner = an_asker(2000, OURS, name="team/owner")
    assert "a" not in stage.refused(owner)
    stage.bind(owner, "a")
    assert stage.refused(an_asker(1500, name="team/later")) == {}


def test_a_pod_that_asks_for_nothing_of_it_is_not_refused() -> None:
    full = DemoEnvironment(a_reservation(amounts={"cpu": 5000}))
    assert full.refused(an_asker(0, also={"memory": 8000})) == {}


def test_only_what_is_held_is_compared() -> None:
    stage = DemoEnvironment(a_reservation(amounts={"memory": 6000}))
    assert stage.refused(an_asker(99_000, also={"memory": 2000})) == {}
    assert stage.refused(an_asker(1, also={"memory": 2001})) == {"a": MEMORY}


def test_what_the_node_has_none_of_can_be_held_and_is_refused() -> None:
    stage = DemoEnvironment(a_reservation(amounts={"example.com/gpu": 1000}))
    assert stage.refused(an_asker(1, also={"example.com/gpu": 1000})) == {"a": REFUSED.format("example.com/gpu")}


def test_holds_on_one_node_add_up_and_each_target_pays_for_the_others() -> None:
    theirs = key_of("taskId", "team", 7)
    stage = DemoEnvironment(a_reservation(), a_reservation("team/s", target=theirs, amounts={"cpu": 1000}))
    assert stage.refused(an_asker(901)) == {"a": CPU}
    assert stage.refused(an_asker(2901, OURS)) == {"a": CPU}
    assert stage.refused(an_asker(2900, OURS)) == {}
    assert stage.refused(an_asker(3900, OURS, theirs)) == {}


def test_a_target_may_have_holds_on_several_nodes_and_landing_on_any_ends_them_all() -> None:
    stage = DemoEnvironment(a_reservation(), a_reservation("team/s", node="b"))
    assert stage.refused(an_asker()) == {"a": CPU, "b": CPU}
    stage.bind(an_asker(100, OURS, name="team/ours"), "c")
    assert stage.refused(an_asker()) == {}


def test_a_node_that_carries_more_than_it_should_refuses_whoever_asks_for_what_is_held() -> None:
    stage = DemoEnvironment(a_reservation())
    stage.bind(an_asker(3000, name="team/other"), "a")
    assert stage.refused(an_asker(1)) == {"a": CPU}
    assert stage.refused(an_asker(900, OURS)) == {}


def test_what_the_cluster_cannot_do_without_is_never_refused_and_counts() -> None:
    stage = DemoEnvironment(a_reservation())
    assert stage.refused(PodRequest("kube-system/d", (), {"cpu": 3000}, is_exempt=True)) == {}
    assert stage.refused(an_asker(500)) == {"a": CPU}


# Ends


def test_a_hold_is_over_when_its_time_is_and_not_before() -> None:
    stage = DemoEnvironment(a_reservation())
    assert stage.refused(an_asker(), END - 0.001) == {"a": CPU}
    assert stage.refused(an_asker(), END) == {}


def test_a_hold_that_is_made_longer_lasts_longer() -> None:
    stage = DemoEnvironment(a_reservation())
    stage.holds.hear_reservation(a_reservation(), a_reservation(ends_at=END + 5))
    assert stage.refused(an_asker(), END) == {"a": CPU}
    assert stage.refused(an_asker(), END + 5) == {}


def test_a_hold_that_is_made_smaller_holds_less() -> None:
    stage = DemoEnvironment(a_reservation())
    stage.holds.hear_reservation(a_reservation(), a_reservation(amounts={"cpu": 900}))
    assert stage.refused(an_asker(3000)) == {}


def test_a_hold_that_changes_what_it_holds_gives_the_rest_back() -> None:
    stage = DemoEnvironment(a_reservation())
    stage.holds.hear_reservation(a_reservation(), a_reservation(amounts={"memory": 8000}))
    assert stage.refused(an_asker(3900)) == {}
    assert stage.refused(an_asker(1, also={"memory": 1})) == {"a": MEMORY}


def test_a_hold_goes_with_its_object() -> None:
    stage = DemoEnvironment(a_reservation())
    stage.holds.hear_reservation(a_reservation(), None)
    assert stage.refused(an_asker()) == {}


@pytest.mark.parametrize("is_bound_first", [True, False])
def test_a_target_that_runs_already_holds_nothing(is_bound_first: bool) -> None:
    stage = DemoEnvironment(*() if is_bound_first else (a_reservation(),))
    stage.bind(an_asker(100, OURS, name="team/ours"), "b")
    if is_bound_first:
        stage.holds.hear_reservation(None, a_reservation())
    assert stage.refused(an_asker()) == {}


def test_landed_is_landed_even_when_the_pod_is_gone_again() -> None:
    stage, ours = DemoEnvironment(a_reservation()), an_asker(100, OURS, name="team/ours")
    stage.bind(ours, "b")
    stage.holds.hear_pod(bound(ours, "b"), None)
    stage.holds.hear_reservation(a_reservation(), a_reservation(ends_at=END + 1))
    assert stage.refused(an_asker()) == {}


def test_a_new_object_of_the_same_name_holds_anew() -> None:
    stage, ours = DemoEnvironment(a_reservation()), an_asker(100, OURS, name="team/ours")
    stage.bind(ours, "b")
    stage.holds.hear_pod(bound(ours, "b"), None)
    stage.holds.hear_reservation(a_reservation(), a_reservation(uid="another"))
    assert stage.refused(an_asker()) == {"a": CPU}


def test_what_had_landed_before_we_began_does_not_hold() -> None:
    assert DemoEnvironment(a_reservation(phase="Landed")).refused(an_asker()) == {}


def test_a_pod_whose_target_has_gone_without_trace_holds_nothing_back() -> None:
    """A Pod of an earlier run has ended: it is not bound any more, and the hold is for the next."""
    stage, earlier = DemoEnvironment(), an_asker(100, OURS, name="team/earlier")
    stage.bind(earlier, "b")
    stage.holds.hear_pod(bound(earlier, "b"), None)
    stage.holds.hear_reservation(None, a_reservation())
    assert stage.refused(an_asker()) == {"a": CPU}


def test_one_of_two_holds_on_a_node_ends_by_itself() -> None:
    stage = DemoEnvironment(a_reservation(), a_reservation("team/s", amounts={"cpu": 500, "memory": 8000}))
    stage.holds.hear_reservation(a_reservation(), None)
    assert stage.refused(an_asker(3401)) == {"a": CPU}
    assert stage.refused(an_asker(3400)) == {}
    assert stage.refused(an_asker(0, also={"memory": 1})) == {"a": MEMORY}


def test_of_two_reservations_for_one_target_one_may_go() -> None:
    stage = DemoEnvironment(a_reservation(), a_reservation("team/s", node="b"))
    stage.holds.hear_reservation(a_reservation("team/s", node="b"), None)
    assert stage.refused(an_asker(3000)) == {"a": CPU}
    assert stage.refused(an_asker(3000, OURS)) == {}


def test_who_had_a_hold_that_is_over_is_a_stranger_to_the_next() -> None:
    theirs = key_of("taskId", "team", 7)
    stage = DemoEnvironment(a_reservation(ends_at=5.0), a_reservation("team/s", target=theirs))
    assert stage.refused(an_asker(3000, OURS), 5) == {"a": CPU}


def test_a_target_runs_as_long_as_one_of_its_pods_does() -> None:
    stage = DemoEnvironment()
    one, other = an_asker(100, OURS, name="team/one"), an_asker(100, OURS, name="team/other")
    stage.bind(one, "b")
    stage.bind(other, "b")
    stage.holds.hear_pod(bound(one, "b"), None)
    stage.holds.hear_reservation(None, a_reservation())
    assert stage.refused(an_asker()) == {}


# Nodes


def test_a_node_that_is_gone_and_back_keeps_its_hold() -> None:
    stage, size = DemoEnvironment(a_reservation()), NodeSize("a", NOW, SIZE)
    stage.holds.hear_node(size, None)
    stage.holds.hear_node(None, size)
    assert stage.refused(an_asker()) == {"a": CPU}


def test_a_hold_on_a_node_that_does_not_exist_hurts_nobody() -> None:
    assert DemoEnvironment(a_reservation(node="nowhere")).refused(an_asker()) == {}


def test_a_node_that_grows_has_room_for_both() -> None:
    stage = DemoEnvironment(a_reservation())
    stage.holds.hear_node(NodeSize("a", NOW, SIZE), NodeSize("a", NOW, {**SIZE, "cpu": 5000}))
    assert stage.refused(an_asker(3000)) == {}


def test_an_end_that_is_changed_again_and_again_is_remembered_once() -> None:
    stage, before = DemoEnvironment(a_reservation()), a_reservation()
    for number in range(200):
        after = a_reservation(ends_at=END + number + 1)
        stage.holds.hear_reservation(before, after)
        before = after
    assert len(stage.holds._ends) < 50
    assert stage.refused(an_asker(), END + 199) == {"a": CPU}
    assert stage.refused(an_asker(), END + 200) == {}


def test_nothing_is_left_of_what_is_over() -> None:
    holds = DemoEnvironment(a_reservation(amounts={"cpu": 1, "example.com/gpu": 1000}), nodes="").holds
    holds.hear_reservation(a_reservation(amounts={"cpu": 1, "example.com/gpu": 1000}), None)
    held = holds._index
    assert not held.is_crowded
    assert (held._on, held._sums, held._left, holds._reservations, holds._by_target) == ({}, {}, {}, {}, {})


def test_one_that_holds_nothing_ends_like_any_other() -> None:
    """Its amounts could not be read, say; and the target has another one there."""
    holds, empty = DemoEnvironment(a_reservation(), nodes="a").holds, a_reservation("team/s", amounts={})
    holds.hear_reservation(None, empty)
    holds.hear_reservation(a_reservation(), None)
    holds.hear_reservation(empty, None)
    assert (holds._index._on, holds._index._for, holds._index.is_crowded) == ({}, {}, False)


def test_twins_hear_of_each_other_and_of_their_end() -> None:
    stage, twin = DemoEnvironment(a_reservation()), a_reservation("team/s", node="b")
    stage.holds.hear_reservation(None, twin)
    told = {one.name: words.message for one, words in stage.holds.statuses(0)}
    assert told == {"team/r": "held for the same target: team/s", "team/s": "held for the same target: team/r"}
    stage.holds.hear_reservation(a_reservation(), a_reservation(phase="Active", message=told["team/r"]))
    stage.holds.hear_reservation(twin, None)
    assert [words.message for _, words in stage.holds.statuses(0)] == [""]
