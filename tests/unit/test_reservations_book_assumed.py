"""Between filter and bind: Pods of which nobody has said yet where they go."""

from dispatcher.reservations.assumed_pods import ASSUMED_TICKS
from tests.unit.a_reservation_book import CPU, END, MEMORY, OURS, THEIRS, DemoEnvironment, a_reservation, an_asker


def test_a_burst_cannot_take_what_is_held() -> None:
    stage = DemoEnvironment(a_reservation(), nodes="a")
    passed = [number for number in range(10) if not stage.refused(an_asker(500, name=f"team/p{number}"))]
    assert passed == [0, 1, 2]


def test_who_is_seen_bound_is_charged_where_it_is_and_nowhere_else() -> None:
    stage = DemoEnvironment(a_reservation(), a_reservation("team/s", node="b"), nodes="ab")
    first = an_asker(1900, name="team/first")
    assert stage.refused(first) == {}
    assert stage.refused(an_asker(1)) == {"a": CPU, "b": CPU}
    stage.bind(first, "a")
    assert stage.refused(an_asker(1900)) == {"a": CPU}


def test_who_is_asked_about_again_is_charged_once() -> None:
    stage = DemoEnvironment(a_reservation(), nodes="a")
    for _ in range(3):
        assert stage.refused(an_asker(1900)) == {}


def test_who_never_comes_is_forgotten() -> None:
    stage = DemoEnvironment(a_reservation(), nodes="a")
    stage.refused(an_asker(1900, name="team/first"))
    stage.tick(ASSUMED_TICKS - 1)
    assert stage.refused(an_asker(1900)) == {"a": CPU}
    stage.tick(1)
    assert stage.refused(an_asker(1900)) == {}


def test_while_the_process_was_stopped_nobody_is_forgotten() -> None:
    """It has heard of no binding meanwhile, either."""
    stage = DemoEnvironment(a_reservation(), nodes="a")
    stage.refused(an_asker(1900, name="team/first"))
    assert stage.refused(an_asker(1900), END / 2) == {"a": CPU}


def test_who_is_on_its_way_when_the_first_hold_comes_counts() -> None:
    stage = DemoEnvironment(nodes="a")
    stage.refused(an_asker(1900, name="team/first"))
    stage.holds.hear_reservation(None, a_reservation())
    assert stage.refused(an_asker(1)) == {"a": CPU}


def test_whom_an_earlier_process_let_through_is_known_after_a_while() -> None:
    stage = DemoEnvironment()
    stage.tick(ASSUMED_TICKS - 1)
    assert not stage.holds.knows_who_is_coming
    stage.tick(1)
    assert stage.holds.knows_who_is_coming


def test_who_may_not_have_a_node_with_a_hold_is_charged_to_none() -> None:
    stage = DemoEnvironment(a_reservation())
    stage.refused(an_asker(3900, name="team/big"))
    assert stage.refused(an_asker(1900)) == {}


def test_where_all_that_is_held_is_its_own_a_target_is_never_refused() -> None:
    """kube-scheduler knows who is on the way there, and nobody else has anything to lose."""
    stage = DemoEnvironment(a_reservation(), a_reservation("team/s", node="b", target=THEIRS, amounts={"cpu": 100}))
    for number in range(3):
        assert stage.refused(an_asker(500, name=f"team/stranger-{number}")) == {}
    assert stage.refused(an_asker(3900, OURS, name="team/ours")) == {"b": CPU}


# Where a target shares its node


def test_two_targets_of_one_node_come_at_once() -> None:
    stage = DemoEnvironment(a_reservation(), a_reservation("team/s", target=THEIRS, amounts={"cpu": 1900}), nodes="a")
    assert stage.refused(an_asker(2000, OURS, name="team/ours")) == {}
    assert stage.refused(an_asker(1901, THEIRS, name="team/theirs")) == {"a": CPU}
    assert stage.refused(an_asker(1900, THEIRS, name="team/theirs")) == {}


def test_who_comes_with_more_than_is_held_for_it_takes_that_from_the_others() -> None:
    stage = DemoEnvironment(a_reservation(amounts={"cpu": 1000}), a_reservation("team/s", target=THEIRS), nodes="a")
    assert stage.refused(an_asker(1500, OURS, name="team/ours")) == {}
    assert stage.refused(an_asker(2401, THEIRS, name="team/theirs")) == {"a": CPU}
    assert stage.refused(an_asker(2400, THEIRS, name="team/theirs")) == {}


def test_a_hold_is_there_for_one_of_those_who_come_for_it() -> None:
    """Two Pods of one row, say: the second would take what is held for somebody else."""
    stage = DemoEnvironment(a_reservation(), a_reservation("team/s", target=THEIRS, amounts={"cpu": 1900}), nodes="a")
    assert stage.refused(an_asker(2000, OURS, name="team/one")) == {}
    assert stage.refused(an_asker(2000, OURS, name="team/other")) == {"a": CPU}
    assert stage.refused(an_asker(1900, THEIRS, name="team/theirs")) == {}


def test_it_pays_for_those_who_may_come_there_and_for_nobody_else() -> None:
    stage = DemoEnvironment(a_reservation(), a_reservation("team/s", target=THEIRS, amounts={"cpu": 1000}))
    for number in range(5):
        assert stage.holds.refusals(an_asker(500, name=f"team/elsewhere-{number}"), ["b", "c"], 0) == {}
    assert stage.refused(an_asker(2900, OURS, name="team/ours")) == {}
    assert stage.holds.refusals(an_asker(500, name="team/here"), ["a", "b"], 0) == {"a": CPU}
    stage.tick(ASSUMED_TICKS)
    assert stage.holds.refusals(an_asker(500, name="team/here"), ["a", "b"], 0) == {}
    assert stage.refused(an_asker(2900, OURS, name="team/ours")) == {"a": CPU}
    assert stage.refused(an_asker(2400, OURS, name="team/ours")) == {}


def test_its_own_node_is_the_first_to_be_looked_at_again() -> None:
    """However little is left of it, and however much of others that it was refused as well."""
    full = [a_reservation(f"team/{node}", node=node, target="nobody", amounts={"cpu": 3000}) for node in "bc"]
    stage = DemoEnvironment(a_reservation(), a_reservation("team/s", target=THEIRS, amounts={"cpu": 1900}), *full)
    assert list(stage.refused(an_asker(2001, OURS, name="team/ours"))) == ["b", "c", "a"]


def test_a_node_stands_where_it_lacks_the_last_of_what_it_lacks() -> None:
    """Not where it lacks the first: those that lack least of one thing are looked at again."""
    held = [
        a_reservation("team/r", amounts={"cpu": 3900, "memory": 1}),
        a_reservation("team/s", node="b", amounts={"cpu": 1, "memory": 8000}),
    ]
    stage = DemoEnvironment(*held, nodes="ab")
    request = an_asker(3900, name="team/stranger", also={"memory": 8000})
    assert list(stage.refused(request).items()) == [("b", MEMORY), ("a", MEMORY)]


def test_who_waits_is_looked_at_when_something_comes_to_be_held_for_it() -> None:
    stage = DemoEnvironment()
    stage.holds.take_gained()
    stage.holds.hear_reservation(None, a_reservation())
    assert list(stage.holds.take_gained()) == ["a"]


def test_of_what_is_held_for_itself_alone_it_may_have_all() -> None:
    of_memory = a_reservation("team/s", target=THEIRS, amounts={"memory": 8000})
    stage = DemoEnvironment(a_reservation(), of_memory, nodes="a")
    assert stage.refused(an_asker(1900, name="team/stranger")) == {}
    assert stage.refused(an_asker(3900, OURS, name="team/ours")) == {}


# What is said of it


def test_what_we_say_of_a_reservation_ourselves_changes_nothing() -> None:
    """Neither does it count those on their way who may have no node with a hold."""
    stage = DemoEnvironment(a_reservation())
    stage.refused(an_asker(3900, name="team/big"))
    changes = stage.holds.changes
    stage.holds.hear_reservation(a_reservation(), a_reservation(phase="Active", message="x"))
    assert stage.holds.phases["Active"] == 1
    assert stage.refused(an_asker(1900)) == {}
    assert stage.holds.changes == changes
