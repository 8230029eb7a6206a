"""The status of a reservation, and when it has to be written."""

import pytest
from msgspec.structs import replace

from dispatcher.extender.assumed_pods import PodRequest
from dispatcher.extender.book import ReservationBook
from dispatcher.extender.lifecycle import Observation, ReservationStatus, phase_notices, refusal_notices, status_of
from dispatcher.model.cluster import BoundPod, Node, NodeCapacities
from dispatcher.model.reservations import Reservation, key_of
from tests.rig.builders import NOW

LESS = "less is free than is held"
OURS = key_of("taskId", "team", 7)
ONE = Reservation("team/r", "u", "a", {"cpu": 2000, "memory": 1024}, OURS, ends_at=100, made_at=40)
SIZE = Node("a", NOW, {"cpu": 4000, "memory": 4096, "pods": 10_000})


@pytest.mark.parametrize(
    ("seen", "phase", "message"),
    [
        (Observation(), "Active", ""),
        (Observation(unreserved={"cpu": 0, "memory": 1}), "Active", ""),
        (Observation(unreserved={"cpu": -1500}), "Active", "less is free than is held: cpu lacks 1500m"),
        (
            Observation(unreserved={"cpu": -2000, "memory": -1}, same_target=("team/s",)), "Active",
            f"{LESS}: cpu lacks 2; {LESS}: memory lacks 1m; held for the same target: team/s",
        ),
        (Observation(node_exists=False), "NodeMissing", "there is no node a; room is held there once it comes"),
        (Observation(node_exists=False, is_active=False), "Expired", "its time was over, at 1970-01-01T00:01:40Z"),
        (Observation(has_landed=True), "Landed", "its Pod was on a node already"),
        (Observation(has_landed=True, landed_on="b"), "Landed", "its Pod is on node b"),
    ],
)  # fmt: skip
def test_status_says(seen: Observation, phase: str, message: str) -> None:
    assert status_of(ONE, seen) == ReservationStatus(phase, message)


def test_a_message_is_never_longer_than_a_status_may_hold() -> None:
    many = Observation(same_target=[f"team/reservation-{number:04}" for number in range(200)])
    assert len(status_of(ONE, many).message) == 1024


def test_reservation_that_ended_before_it_was_made_says_so() -> None:
    early = replace(ONE, ends_at=40)
    assert (
        status_of(early, Observation(is_active=False)).message
        == "its time was over before it was made, at 1970-01-01T00:00:40Z"
    )


def test_message_of_a_landing_stays_after_a_restart() -> None:
    landed = replace(ONE, phase="Landed", message="its Pod is on node c")
    assert status_of(landed, Observation(has_landed=True)) == ReservationStatus("Landed", "its Pod is on node c")


@pytest.mark.parametrize(
    ("before", "phase", "words", "is_warning"),
    [
        ("", "Landed", "m", False), ("Active", "Expired", "m", False), ("Active", "NodeMissing", "m", True),
        ("NodeMissing", "Active", "m", False),
    ],
)  # fmt: skip
def test_new_phase_is_notified(before: str, phase: str, words: str, is_warning: bool) -> None:
    (notice,) = phase_notices(replace(ONE, phase=before), ReservationStatus(phase, words))
    assert (notice.kind, notice.name, notice.uid) == ("NodeReservation", "team/r", "u")
    assert (notice.reason, notice.words, notice.is_warning) == (phase, words, is_warning)


def test_return_of_a_node_is_notified_in_words() -> None:
    (notice,) = phase_notices(replace(ONE, phase="NodeMissing"), ReservationStatus("Active", ""))
    assert notice.words == "room is held on node a"


@pytest.mark.parametrize("before", ["", "Active"])
def test_active_phase_at_the_begin_is_not_notified(before: str) -> None:
    assert not [*phase_notices(replace(ONE, phase=before), ReservationStatus("Active", "less is free than is held"))]


def test_refusal_notice_names_one_node_and_the_number_of_others() -> None:
    both = [ONE, replace(ONE, name="team/s", uid="v")]
    pod, *others = refusal_notices("x/p", "pod", both, "why", 3)
    assert pod.words == "why: by NodeReservation team/r, team/s on node a, and on 2 other nodes"
    assert [(one.name, one.uid, one.words) for one in others] == [
        ("team/r", "u", "Pod x/p was kept from node a"), ("team/s", "v", "Pod x/p was kept from node a"),
    ]  # fmt: skip
    assert not [*refusal_notices("x/p", "pod", [], "why", 1)]


class Statuses:
    """A book, and the reservations as the API server has them."""

    def __init__(self) -> None:
        self.book = ReservationBook(NodeCapacities())
        self.objects: dict[str, Reservation] = {}

    def put(self, one: Reservation) -> None:
        self.book.hear_reservation(self.objects.get(one.name), one)
        self.objects[one.name] = one

    def write_due(self, now: float = 0) -> dict[str, str]:
        """Writes the due statuses, and hears of them as the watch would. Returns the phases."""
        due = list(self.book.reports.due(now))
        for one, status in due:
            self.put(replace(one, phase=status.phase, message=status.message))
        return {one.name: status.phase for one, status in due}


@pytest.fixture
def written() -> Statuses:
    made = Statuses()
    made.book.hear_node(None, SIZE)
    made.put(ONE)
    assert made.write_due() == {"team/r": "Active"}
    return made


def test_unchanged_status_is_not_written_again(written: Statuses) -> None:
    assert written.write_due() == {}
    written.book.hear_node(SIZE, replace(SIZE, size={**SIZE.size, "cpu": 3000}))
    assert written.write_due() == {}


def test_status_that_could_not_be_written_is_retried(written: Statuses) -> None:
    written.book.hear_node(SIZE, None)
    ((one, _),) = written.book.reports.due(0)
    assert list(written.book.reports.due(0)) == []
    written.book.reports.retry(one)
    assert written.write_due() == {"team/r": "NodeMissing"}


def test_missing_node_and_its_return_are_written(written: Statuses) -> None:
    written.book.hear_node(SIZE, None)
    assert written.write_due() == {"team/r": "NodeMissing"}
    written.book.hear_node(None, SIZE)
    assert written.write_due() == {"team/r": "Active"}


def test_end_is_written(written: Statuses) -> None:
    assert written.write_due(100) == {"team/r": "Expired"}
    assert +written.book.reports.phases == {"Expired": 1}


def test_landing_is_written(written: Statuses) -> None:
    written.book.hear_pod(None, BoundPod("team/p", "b", {"cpu": 1}, (OURS,)))
    assert written.write_due() == {"team/r": "Landed"}
    assert written.objects["team/r"].message == "its Pod is on node b"


def test_shortage_on_the_node_is_written(written: Statuses) -> None:
    written.book.hear_pod(None, BoundPod("team/p", "a", {"cpu": 3000, "memory": 0}, ("uid team/u",)))
    assert written.write_due() == {"team/r": "Active"}
    assert written.objects["team/r"].message == "less is free than is held: cpu lacks 1"
    assert written.book.is_bound(PodRequest("team/p", (), {}, uid="u"))
    assert not written.book.is_bound(PodRequest("team/p", (), {}, uid="another of that name"))


def test_deleted_reservation_gets_no_status(written: Statuses) -> None:
    written.book.hear_reservation(written.objects["team/r"], None)
    assert written.write_due(100) == {}
    assert +written.book.reports.phases == {}


def test_earlier_end_by_another_extender_is_not_contradicted(written: Statuses) -> None:
    written.put(replace(ONE, phase="Expired", message="its time was over, at 1970-01-01T00:01:40Z"))
    assert written.write_due(99) == {}
    assert written.write_due(100) == {}


def test_reservation_with_a_later_end_is_active_again(written: Statuses) -> None:
    assert written.write_due(100) == {"team/r": "Expired"}
    written.put(replace(written.objects["team/r"], ends_at=200))
    assert written.write_due(100) == {"team/r": "Active"}


def test_node_without_allocatable_is_not_missing(written: Statuses) -> None:
    written.book.hear_node(SIZE, replace(SIZE, size={}))
    assert written.write_due() == {"team/r": "Active"}


def test_missing_node_does_not_contradict_an_earlier_end(written: Statuses) -> None:
    written.book.hear_node(SIZE, None)
    written.put(replace(ONE, phase="Expired", message="its time was over, at 1970-01-01T00:01:40Z"))
    assert written.write_due(99) == {}


def test_node_of_a_landing_is_written_once(written: Statuses) -> None:
    """Another extender that began later may have seen another Pod of the same Job."""
    written.put(replace(ONE, phase="Landed", message="its Pod is on node a"))
    written.book.hear_pod(None, BoundPod("team/p", "b", {"cpu": 1}, (OURS,)))
    assert written.write_due() == {}


def test_node_of_a_landing_is_written_by_the_extender_that_knows_it(written: Statuses) -> None:
    """Another one heard of the binding before it heard of the reservation."""
    unknown = ReservationBook(NodeCapacities())
    unknown.hear_pod(None, BoundPod("team/p", "b", {"cpu": 1}, (OURS,)))
    unknown.hear_reservation(None, ONE)
    ((_, status),) = unknown.reports.due(0)
    written.put(replace(ONE, phase=status.phase, message=status.message))
    assert written.write_due() == {}
    written.book.hear_pod(None, BoundPod("team/p", "b", {"cpu": 1}, (OURS,)))
    assert written.write_due() == {"team/r": "Landed"}
    assert written.objects["team/r"].message == "its Pod is on node b"
    unknown.hear_reservation(ONE, written.objects["team/r"])
    assert list(unknown.reports.due(0)) == []


def test_first_ten_reservations_for_one_target_are_named(written: Statuses) -> None:
    for number in range(15, 1, -1):
        written.put(replace(ONE, name=f"team/s{number:02}", uid=f"s{number}"))
    words = {one.name: status.message for one, status in written.book.reports.due(0)}
    names = ", ".join(f"team/s{number:02}" for number in range(2, 11))
    assert words["team/s15"].endswith(f"; held for the same target: team/r, {names}")
    assert words["team/r"].endswith(f"; held for the same target: {names}, team/s11")
