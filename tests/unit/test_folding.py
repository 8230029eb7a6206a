"""Messages of one cause are equal once they are folded, and no text makes that expensive."""

import time

import pytest

from dispatcher.model.history import MOST_FAILED
from dispatcher.views.failures import LONGEST, MOST_PARKED, fold, remembered, telling_line

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
