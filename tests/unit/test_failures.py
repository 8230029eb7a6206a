"""Failed and parked rows in groups: counts, times, hours, examples; and bounds."""

from datetime import timedelta

from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.model.history import MOST_FAILED, FailedTask, JobSource
from dispatcher.model.launches import Offer
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views import failures
from dispatcher.views.failures import (
    EXAMPLES,
    HOURS,
    MOST_GROUPS,
    SILENT,
    Failure,
    FailureGroups,
    by_hour,
    failed_since,
    failures_of,
    parked_ids,
    parked_of,
    rows_of,
)
from tests.rig.builders import NOW, a_picture, a_snapshot, ago
from tests.unit.explaining import Offers

HELD = Hold(HoldReason.UNKNOWN_TEMPLATE)
KNOWN = Offers(Offer("app:1", "small", "default"))


class Nothing(Offers):
    """No kind was judged yet."""

    def known_offer(self, _: bytes) -> None:
        return None


def a_failure(task: int = 1, message: str = "no file 1", seconds: float = 0, **changed: str) -> Failure:
    return Failure(task, changed.get("template", "default"), changed.get("image", "app:1"), None, message, ago(seconds))


def groups_of(*rows: Failure) -> list[failures.FailureGroup]:
    groups = FailureGroups(NOW)
    groups.add(rows)
    return groups.largest()[0]


def test_rows_with_one_cause_are_a_group_with_count_times_and_newest_rows() -> None:
    rows = [a_failure(number, f"no file {number}", seconds=3600 * number) for number in range(5)]
    (group,) = groups_of(*rows)
    assert (group.status, group.reason, group.template, group.image) == ("failed", None, "default", "app:1")
    assert (group.message, group.example, group.count) == ("no file <number>", "no file 0", 5)
    assert (group.first_seen, group.last_seen, group.tasks) == (rows[4].at, rows[0].at, [0, 1, 2])
    assert (len(group.tasks), sum(group.by_hour), group.by_hour[-5:]) == (EXAMPLES, 5, [1, 1, 1, 1, 1])


def test_template_image_and_reason_keep_rows_apart() -> None:
    told = {1: RowReason("q", 1, Hold(HoldReason.POISON, "x"), NOW)}
    parked = list(parked_of([JobSource(1, "default", b"k", None)], told, KNOWN))
    apart = groups_of(a_failure(), a_failure(template="other"), a_failure(image="app:2"), *parked)
    assert [(group.status, group.count) for group in apart].count(("failed", 1)) == 3
    (found,) = [group for group in apart if group.status == "parked"]
    assert (found.reason, found.message) == ("Poison", "the API server refuses its Job: x")
    assert found.last_seen == NOW


def test_key_of_a_group_finds_its_rows_alone_and_is_the_same_on_every_replica() -> None:
    parked = Failure(5, "default", "app:1", HoldReason.POISON, "no file 5", NOW)
    failed = [a_failure(1), a_failure(2, message="no disk"), a_failure(3, template="other"), a_failure(4, image="b:1")]
    groups, again = FailureGroups(NOW), FailureGroups(NOW)
    groups.add([*failed, a_failure(6, message="no file 6"), parked])
    again.add([parked, *failed[::-1]])
    told = {tuple(sorted(rows_of(one.key, groups.rows()))) for one in groups.largest()[0]}
    assert told == {(1, 6), (2,), (3,), (4,), (5,)}
    assert groups.rows().keys() == again.rows().keys()


def test_key_from_before_the_image_was_known_finds_the_rows_of_every_image() -> None:
    before, now = FailureGroups(NOW), FailureGroups(NOW)
    before.add([a_failure(1, image=""), a_failure(2, image=""), a_failure(3, message="no disk", image="")])
    now.add([a_failure(1, image="a:1"), a_failure(2, image="b:1"), a_failure(3, message="no disk", image="a:1")])
    found = [rows_of(key, now.rows()) for key in before.rows()]
    assert found == [[1, 2], [3]]
    assert rows_of("0" * 32, now.rows()) == []


def test_the_largest_groups_are_told_and_the_others_counted() -> None:
    groups = FailureGroups(NOW)
    groups.add(a_failure(number, message=chr(0x4E00 + number)) for number in range(MOST_GROUPS + 7))
    groups.add([a_failure(0, message=chr(0x4E00 + 50))])
    found, left_out = groups.largest()
    assert (len(found), left_out, found[0].count, found[0].message) == (MOST_GROUPS, 7, 2, chr(0x4E00 + 50))


def test_times_are_counted_by_hour_and_what_is_older_is_left_out() -> None:
    ages = (0, 3599, 3600, 86399, 86400, -60)
    counted = by_hour([ago(age) for age in ages], NOW)
    assert (counted[-1], counted[-2], counted[0], sum(counted), len(counted)) == (3, 1, 1, 5, HOURS)


def a_failed(id_: int = 1, image: str | None = None, head: str | None = "m", tail: str | None = "m") -> FailedTask:
    return FailedTask(id_, "default", b"k", image, ago(id_), head, tail)


def test_image_is_that_of_the_template_then_that_of_the_row() -> None:
    (known,) = failures_of([a_failed(image="mine:1")], KNOWN)
    unknown = [one.image for one in failures_of([a_failed(image="mine:1"), a_failed()], Nothing(HELD))]
    held = [one.image for one in failures_of([a_failed()], Offers(HELD))]
    assert (known.image, unknown, held) == ("app:1", ["mine:1", ""], [""])


def test_row_without_an_error_says_so() -> None:
    (silent,) = failures_of([a_failed(head=None, tail=None)], KNOWN)
    assert silent.message == SILENT


def test_failures_are_complete_since_a_day_or_since_the_oldest_row_that_was_read() -> None:
    day = NOW - timedelta(days=1)
    assert failed_since([], day) == failed_since([a_failed()], day) == day
    assert failed_since([a_failed(number) for number in range(MOST_FAILED)], day) == ago(MOST_FAILED - 1)


def test_parked_rows_are_those_that_the_last_cycle_told_the_newest_first() -> None:
    reasons = {1: HoldReason.POISON, 2: HoldReason.QUEUE_CAP, 3: HoldReason.UNKNOWN_TEMPLATE}
    told = {id_: RowReason("q", 1, Hold(reason), NOW) for id_, reason in reasons.items()}
    cycle = LastCycle(a_snapshot(), a_picture(), told, frozenset(), {}, {}, leads=True)
    assert parked_ids(cycle) == [3, 1]
