"""Failed and parked rows in groups, by messages that are equal once they are folded; and bounds."""

import time
from datetime import timedelta

import pytest

from dispatcher.admission.last_cycle import RowReason
from dispatcher.model.history import MOST_FAILED, FailedTask, JobSource
from dispatcher.model.launches import Offer
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views import failures
from dispatcher.views.failures import (
    EXAMPLES,
    HOURS,
    LONGEST,
    MOST_GROUPS,
    MOST_PARKED,
    SILENT,
    Failure,
    FailureGroups,
    by_hour,
    failed_since,
    failures_of,
    fold,
    parked_ids,
    parked_of,
    remembered,
    rows_of,
    telling_line,
)
from tests.rig.builders import NOW, a_last_cycle, ago
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


def test_parked_rows_are_those_that_the_last_cycle_told() -> None:
    reasons = {1: HoldReason.POISON, 2: HoldReason.QUEUE_CAP, 3: HoldReason.UNKNOWN_TEMPLATE}
    told = {id_: RowReason("q", 1, Hold(reason), NOW) for id_, reason in reasons.items()}
    cycle = a_last_cycle(told=told)
    assert parked_ids(cycle) == [1, 3]


ALIKE = [
    ("no row 17 in 3.5s", "no row 4711 in 12s", "no row <number> in <number>s"),
    ("can't open 'a b.txt'", "can't open '/x/y'", "can't open <name>"),
    ('key "a" of `b`', 'key "" of `c d`', "key <name> of <name>"),
    ("at 0x7f3a12", "at 0xffffffff", "at <hex>"),
    ("digest deadbeef1", "digest 0123456789abcdef", "digest <hex>"),
    ("row 0b5f9b1e-6d0f-4b0b-9f0e-2f6b3f1e9a77", "row AAAAAAAA-6d0f-4b0b-9f0e-2f6b3f1e9a77", "row <uuid>"),
    ("2026-11-24T19:05:56.123Z late", "2025-01-02 03:04:05+01:00 late", "<time> late"),
    ("10.1.2.3:8080 refused", "10.1.22.33:80 refused", "<number> refused"),
    ("pod worker-12 of x7k2p", "pod worker-7 of 9zz8q1", "pod worker-<number> of <id>"),
    ("1,000,000 of 64Mi", "12 of 128Mi", "<number> of <number>Mi"),
    ("a\n  b\tc", "a b c", "a b c"),
    ("\u202ea\u200b", "a", "a"),
    ("größe3 1", "größe44 2", "größe<number> <number>"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "both"), ALIKE)
def test_messages_that_differ_in_a_number_or_name_are_folded_alike(one: str, other: str, both: str) -> None:
    assert fold(one) == fold(other) == both


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no such file", "no such row"),
        ("64Mi", "64Gi"),
        ("it isn't 'a'", "it wasn't 'a'"),
        ("exit code 1", "exit status 1"),
        ("face", "cafe"),
    ],
)
def test_words_are_not_folded(one: str, other: str) -> None:
    assert fold(one) != fold(other)


def test_quotes_that_enclose_much_are_no_name() -> None:
    assert fold("'" + "a " * 70 + "'").startswith("'a a")


HOSTILE = [
    *("'", "\"'`", "1", "1.", "1:", "a", "a1", "é", "\0", "x\n"),
    *(" '", " 1Ki", "2026-01-0", "2026-01-01T00:00", "abcdef01-", "aaaaaaaa-bbbb-", "0x", "\u202e", "👩‍👧"),
]


@pytest.mark.parametrize("part", HOSTILE)
def test_a_hostile_text_is_folded_at_once(part: str) -> None:
    """Twenty texts of 8 KiB. They take some 5 ms; a pattern that looks back would take minutes."""
    text, began = part * (8192 // len(part)), time.process_time()
    for _ in range(20):
        assert len(fold(text + "x")) <= LONGEST
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("head", "tail", "line"),
    [
        ("Poison: 422; launch 1: Error\nnoise", "noise\nmore", "Poison: 422; launch 1: Error"),
        ("Traceback (most recent call last):\n  File", "f(x)\nValueError: x\n \n", "ValueError: x"),
        ("one line", "one line", "one line"),
        ("a long line", "long line that was cut", "a long line"),
        ("Poisonous: x\ny", "y", "y"),
        ("", "", ""),
        (None, None, ""),
        ("\n\n", "\n", ""),
    ],
)
def test_the_line_that_names_the_cause_is_taken(head: str | None, tail: str | None, line: str) -> None:
    assert telling_line(head, tail) == line


def test_messages_of_a_full_page_are_folded_once() -> None:
    messages = [f"cannot read file {number}" for number in range(MOST_FAILED + MOST_PARKED)]
    remembered.cache_clear()
    for _ in range(2):
        for message in messages:
            fold(message)
    assert remembered.cache_info().misses == len(messages)
