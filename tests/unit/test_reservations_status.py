"""What a reservation's status says of it, and when it has to be told anew."""

import pytest
from msgspec.structs import replace

from dispatcher.model.capacity import BoundPod, NodeCapacities, NodeSize
from dispatcher.model.reservations import Reservation, key_of
from dispatcher.reservations.book import ReservationBook
from dispatcher.reservations.pod_request import PodRequest
from dispatcher.reservations.status import Around, ReservationStatus, kept_from, status_of, turned
from tests.builders import NOW

LESS = "less is free than is held"
OURS = key_of("taskId", "team", 7)
ONE = Reservation("team/r", "u", "a", {"cpu": 2000, "memory": 1024}, OURS, ends_at=100, made_at=40)
SIZE = NodeSize("a", NOW, {"cpu": 4000, "memory": 4096, "pods": 10_000})


@pytest.mark.parametrize(
    ("around", "phase", "message"),
    [
        (Around(), "Active", ""),
        (Around(left={"cpu": 0, "memory": 1}), "Active", ""),
        (Around(left={"cpu": -1500}), "Active", "less is free than is held: cpu lacks 1500m"),
        (
            Around(left={"cpu": -2000, "memory": -1}, twins=("team/s",)), "Active",
            f"{LESS}: cpu lacks 2; {LESS}: memory lacks 1m; held for the same target: team/s",
        ),
        (Around(has_node=False), "NodeMissing", "there is no node a; room is held there once it comes"),
        (Around(has_node=False, holds=False), "Expired", "its time was over, at 1970-01-01T00:01:40Z"),
        (Around(has_landed=True), "Landed", "its Pod was on a node already"),
        (Around(has_landed=True, landed_on="b"), "Landed", "its Pod is on node b"),
    ],
)  # fmt: skip
def test_it_says(around: Around, phase: str, message: str) -> None:
    assert status_of(ONE, around) == ReservationStatus(phase, message)


def test_a_message_is_never_longer_than_a_status_may_hold() -> None:
    many = Around(twins=[f"team/reservation-{number:04}" for number in range(200)])
    assert len(status_of(ONE, many).message) == 1024


def test_what_was_over_before_it_was_made_is_told_so() -> None:
    early = replace(ONE, ends_at=40)
    assert (
        status_of(early, Around(holds=False)).message == "its time was over before it was made, at 1970-01-01T00:00:40Z"
    )


def test_what_was_told_of_a_landing_stays_after_a_restart() -> None:
    told = replace(ONE, phase="Landed", message="its Pod is on node c")
    assert status_of(told, Around(has_landed=True)) == ReservationStatus("Landed", "its Pod is on node c")


@pytest.mark.parametrize(
    ("before", "phase", "words", "is_warning"),
    [
        ("", "Landed", "m", False), ("Active", "Expired", "m", False), ("Active", "NodeMissing", "m", True),
        ("NodeMissing", "Active", "m", False),
    ],
)  # fmt: skip
def test_another_phase_is_told(before: str, phase: str, words: str, is_warning: bool) -> None:
    (told,) = turned(replace(ONE, phase=before), ReservationStatus(phase, words))
    assert (told.kind, told.name, told.uid) == ("NodeReservation", "team/r", "u")
    assert (told.reason, told.words, told.is_warning) == (phase, words, is_warning)


def test_that_a_node_is_back_is_told_in_words() -> None:
    (told,) = turned(replace(ONE, phase="NodeMissing"), ReservationStatus("Active", ""))
    assert told.words == "room is held on node a"


@pytest.mark.parametrize("before", ["", "Active"])
def test_that_it_holds_as_it_should_is_no_news(before: str) -> None:
    assert not [*turned(replace(ONE, phase=before), ReservationStatus("Active", "less is free than is held"))]


def test_a_pod_hears_of_the_reservations_of_one_node_and_of_how_many_nodes_there_are() -> None:
    both = [ONE, replace(ONE, name="team/s", uid="v")]
    pod, *others = kept_from("x/p", "pod", both, "why", 3)
    assert pod.words == "why: by NodeReservation team/r, team/s on node a, and on 2 other nodes"
    assert [(one.name, one.uid, one.words) for one in others] == [
        ("team/r", "u", "Pod x/p was kept from node a"), ("team/s", "v", "Pod x/p was kept from node a"),
    ]  # fmt: skip
    assert not [*kept_from("x/p", "pod", [], "why", 1)]


class Told:
    """Reservations whose statuses somebody keeps."""

    def __init__(self) -> None:
        self.holds = ReservationBook(NodeCapacities())
        self.known: dict[str, Reservation] = {}

    def put(self, one: Reservation) -> None:
        self.holds.hear_reservation(self.known.get(one.name), one)
        self.known[one.name] = one

    def round(self, now: float = 0) -> dict[str, str]:
        """What is told, as it comes back."""
        told = list(self.holds.statuses(now))
        for one, now_is in told:
            self.put(replace(one, phase=now_is.phase, message=now_is.message))
        return {one.name: now_is.phase for one, now_is in told}


@pytest.fixture
def told() -> Told:
    made = Told()
    made.holds.hear_node(None, SIZE)
    made.put(ONE)
    assert made.round() == {"team/r": "Active"}
    return made


def test_what_has_not_changed_is_not_told_again(told: Told) -> None:
    assert told.round() == {}
    told.holds.hear_node(SIZE, replace(SIZE, size={**SIZE.size, "cpu": 3000}))
    assert told.round() == {}


def test_what_could_not_be_told_is_told_later(told: Told) -> None:
    told.holds.hear_node(SIZE, None)
    ((one, _),) = told.holds.statuses(0)
    assert list(told.holds.statuses(0)) == []
    told.holds.again(one)
    assert told.round() == {"team/r": "NodeMissing"}


def test_a_node_that_goes_and_comes_back_is_told(told: Told) -> None:
    told.holds.hear_node(SIZE, None)
    assert told.round() == {"team/r": "NodeMissing"}
    told.holds.hear_node(None, SIZE)
    assert told.round() == {"team/r": "Active"}


def test_an_end_is_told(told: Told) -> None:
    assert told.round(100) == {"team/r": "Expired"}
    assert +told.holds.phases == {"Expired": 1}


def test_a_landing_is_told(told: Told) -> None:
    told.holds.hear_pod(None, BoundPod("team/p", "b", {"cpu": 1}, (OURS,)))
    assert told.round() == {"team/r": "Landed"}
    assert told.known["team/r"].message == "its Pod is on node b"


def test_a_node_that_is_taken_by_others_is_told(told: Told) -> None:
    told.holds.hear_pod(None, BoundPod("team/p", "a", {"cpu": 3000, "memory": 0}, ("uid team/u",)))
    assert told.round() == {"team/r": "Active"}
    assert told.known["team/r"].message == "less is free than is held: cpu lacks 1"
    assert told.holds.is_bound(PodRequest("team/p", (), {}, uid="u"))
    assert not told.holds.is_bound(PodRequest("team/p", (), {}, uid="another of that name"))


def test_nobody_waits_for_a_reservation_that_is_gone(told: Told) -> None:
    told.holds.hear_reservation(told.known["team/r"], None)
    assert told.round(100) == {}
    assert +told.holds.phases == {}


def test_another_extender_that_says_a_moment_earlier_that_it_is_over_is_not_contradicted(told: Told) -> None:
    told.put(replace(ONE, phase="Expired", message="its time was over, at 1970-01-01T00:01:40Z"))
    assert told.round(99) == {}
    assert told.round(100) == {}


def test_what_is_made_longer_after_its_end_holds_again(told: Told) -> None:
    assert told.round(100) == {"team/r": "Expired"}
    told.put(replace(told.known["team/r"], ends_at=200))
    assert told.round(100) == {"team/r": "Active"}


def test_a_node_that_has_nothing_is_a_node(told: Told) -> None:
    told.holds.hear_node(SIZE, replace(SIZE, size={}))
    assert told.round() == {"team/r": "Active"}


def test_nor_is_it_said_meanwhile_that_its_node_is_missing(told: Told) -> None:
    told.holds.hear_node(SIZE, None)
    told.put(replace(ONE, phase="Expired", message="its time was over, at 1970-01-01T00:01:40Z"))
    assert told.round(99) == {}


def test_where_it_landed_is_said_once_by_whoever_saw_it_first(told: Told) -> None:
    """Another extender, which began later, may have seen another Pod of the same Job."""
    told.put(replace(ONE, phase="Landed", message="its Pod is on node a"))
    told.holds.hear_pod(None, BoundPod("team/p", "b", {"cpu": 1}, (OURS,)))
    assert told.round() == {}


def test_of_many_reservations_for_one_target_all_extenders_name_the_same(told: Told) -> None:
    for number in range(15, 1, -1):
        told.put(replace(ONE, name=f"team/s{number:02}", uid=f"s{number}"))
    words = {one.name: now_is.message for one, now_is in told.holds.statuses(0)}
    names = ", ".join(f"team/s{number:02}" for number in range(2, 11))
    assert words["team/s15"].endswith(f"; held for the same target: team/r, {names}")
    assert words["team/r"].endswith(f"; held for the same target: {names}, team/s11")
