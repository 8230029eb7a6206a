"""Rows as an attacker inserts them, made from a seed: names, texts and amounts that mean harm or are at a limit.

Each value stands with the SQLSTATE that must refuse it, or with "" if the table accepts it. So a row says itself
whether it must be accepted, and which columns may refuse it. This oracle is written by hand and shares nothing with the
checks.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.contract.hostile_words import (
    BAD_CPU,
    BAD_IMAGES,
    BAD_MACHINES,
    BAD_MEMORY,
    CLOSED_NAMES,
    CPU,
    ILLEGAL_NAMES,
    IMAGES,
    MACHINES,
    MARK,
    MEMORY,
    NOT_OBJECTS,
    NOT_TEXTS,
    OPEN_NAMES,
    STRANGE_KEYS,
    TEXTS,
    TRUSTED_NAMES,
)

NOT_OF_TYPE: Final = "22"
"""Class of the SQLSTATEs by which Postgres itself refuses a value that does not fit the type of its column."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """One row.

    * columns: the text of each column; None: NULL.
    * faults: the (SQLSTATE, column) pairs by which the row must be refused; empty: it must be accepted.
    """

    columns: dict[str, str | None]
    faults: frozenset[tuple[str, str]] = frozenset()


@dataclass(slots=True)
class Making:
    """A row in the making; `own` is its number, for keys that must be used only once."""

    random: Random
    own: int
    columns: dict[str, str | None] = field(default_factory=dict)
    faults: set[tuple[str, str]] = field(default_factory=set)

    def put(self, column: str, value: str | None, code: str = "") -> None:
        self.columns[column] = value
        if code:
            self.faults.add((code, column))

    def pick(
        self, column: str, fine: Sequence[str | None], bad: Sequence[str | None], code: str, odds: float = 0.3
    ) -> None:
        is_bad = bool(bad) and self.random.random() < odds
        self.put(column, self.random.choice(bad if is_bad else fine), code if is_bad else "")

    def text(self) -> str:
        """A text from the list, or random characters without NUL and without halves of surrogate pairs."""
        if self.random.random() < 0.8:
            return self.random.choice(TEXTS)
        codes = (
            self.random.choice(((1, 128), (1, 0xD800), (0xE000, 0x110000))) for _ in range(self.random.randrange(12))
        )
        return "".join(chr(self.random.randrange(*span)) for span in codes)


def queue(row: Making) -> None:
    row.pick(
        "queue",
        ("default", "other", "team-x"),
        ("*", "", "nope", "default ", "DEFAULT", "locked", f"'; -- {MARK}", "\U0001f4a3", None),
        "DI003",
    )


def priority(row: Making) -> None:
    if row.random.random() < 0.1:
        row.put("priority", row.random.choice(("32768", "1.5", "x", "", "1e2")), NOT_OF_TYPE)
    else:
        row.pick("priority", ("0", "1", "999", "1000"), ("-1", "1001", "32767", "-32768", None), "DI004")


def run_at(row: Making) -> None:
    if row.random.random() < 0.1:
        row.put("run_at", row.random.choice(("x", "2026-13-01", "300000-01-01", "")), NOT_OF_TYPE)
        return
    bad = (
        "infinity",
        "-infinity",
        "9999-12-31 00:00:01+00",
        "1899-12-31 23:59:59+00",
        "294276-12-31 23:59:59+00",
        "4714-11-24 00:00:00+00 BC",
    )
    row.pick(
        "run_at",
        (None, "1900-01-01 00:00:00+00", "9999-12-31 00:00:00+00", "2026-01-01 00:00:00.000001+13"),
        bad,
        "DI004",
    )


def timeout(row: Making) -> None:
    if row.random.random() < 0.1:
        row.put("timeout_seconds", row.random.choice(("2147483648", "0.1", "x")), NOT_OF_TYPE)
    else:
        row.pick("timeout_seconds", (None, "1", "3600", "3601", "604800"), ("0", "-1", "604801", "2147483647"), "DI004")


def failures(row: Making) -> None:
    row.pick("max_failures", ("1", "3", "100", None), ("0", "-1", "101", "32767"), "DI004")


def template(row: Making) -> None:
    bad = ("", "Open", "../open", "open.yaml", "open/", "o" * 64, "open\n", "-open", "é", f"{MARK} ", None)
    row.pick("template", ("unknown", "a" * 63, "0"), bad, "DI006", 0.6)


def key(column: str) -> Callable[[Making], None]:
    def put(row: Making) -> None:
        start = f"{row.own} " if column == "dedupe_key" else ""
        fine = (
            f"{start}../../{row.text()}"[:200],
            f"{start}/",
            start + "\U0001f4a3" * (200 - len(start)),
            f"{start}{MARK}",
            f"{start}$(KEY)",
        )
        row.pick(column, fine, ("", "x" * 201, "\U0001f4a3" * 201, MARK * 1000), "DI005")

    return put


def payload(row: Making) -> None:
    """Any JSON up to 1 MiB of text is accepted. Most payloads are small, or a run would move gigabytes."""
    chance = row.random.random()
    if chance < 0.01:
        size = row.random.choice((2**20 - 2, 2**20 - 1))
        row.put("payload", json.dumps("x" * size), "DI007" if size > 2**20 - 2 else "")
    elif chance < 0.1:
        depth = row.random.choice((500, 50_000))
        row.put("payload", "[" * depth + "]" * depth, "54001" if depth > 1000 else "")
    elif chance < 0.2:
        row.put(
            "payload",
            row.random.choice(
                ("{", "NaN", "", "'x'", "{'a': 1}", '{"a": "\ud800"}'.replace("\ud800", "\\ud800"), '"\\u0000"')
            ),
            NOT_OF_TYPE,
        )
    else:
        row.put("payload", json.dumps(row.random.choice((row.text(), {row.text(): [row.text()]}, None, 10**300, True))))


def env(row: Making) -> None:
    chance = row.random.random()
    if chance < 0.06:
        row.put("env", row.random.choice(NOT_OBJECTS), "DI001")
    elif chance < 0.1:
        row.put(
            "env",
            row.random.choice(('{"A": "\\u0000"}', '{"A": "\\ud800"}', '{"\\u0000": "x"}', "{", "", "{'A': 1}")),
            NOT_OF_TYPE,
        )
    elif chance < 0.13:
        env_of_a_size(row)
    else:
        env_of_names(row)


def env_of_a_size(row: Making) -> None:
    """Sizes at the limits of the number of names and of bytes."""
    size = row.random.choice(("names", "value", "value", "all"))
    over = row.random.random() < 0.5
    if size == "names":
        value = {f"N{n}": MARK for n in range(65 if over else 64)}
    elif size == "value":
        value = {"A": row.random.choice(("$", "x", "\n")) * (32_769 if over else 32_768)}
    else:
        value = {f"N{n}": "$" * 32_768 for n in range(4)} | ({"MORE": "x"} if over else {})
    row.put("env", json.dumps(value), "DI001" if over else "")


def env_of_names(row: Making) -> None:
    pools = (OPEN_NAMES, OPEN_NAMES, OPEN_NAMES, TRUSTED_NAMES) * 3 + (CLOSED_NAMES, ILLEGAL_NAMES)
    chosen = [row.random.choice(pools) for _ in range(row.random.choice((0, 1, 1, 2, 3)))]
    value: dict[str, Any] = {row.random.choice(pool): row.text() for pool in chosen}
    is_bad = bool(value.keys() & {*CLOSED_NAMES, *ILLEGAL_NAMES})
    if value and row.random.random() < 0.05:
        value[row.random.choice(list(value))], is_bad = row.random.choice(NOT_TEXTS), True
    row.put("env", json.dumps(value, ensure_ascii=row.random.random() < 0.5), "DI001" if is_bad else "")


def words(row: Making) -> tuple[Any, bool]:
    if row.random.random() < 0.2:
        bad: Sequence[Any] = ("sh", 5, None, {}, [5], [None], [["sh"]], ["x"] * 1001, ["x" * 131_072])
        return row.random.choice(bad), True
    if row.random.random() < 0.02:
        return row.random.choice((["x"] * 1000, ["$" * 65_000])), False
    return [row.text() for _ in range(row.random.randrange(4))], False


AMOUNTS: Final[dict[str, tuple[Sequence[Any], Sequence[Any]]]] = {
    "image": (IMAGES, BAD_IMAGES), "cpu": (CPU, BAD_CPU), "memory": (MEMORY, BAD_MEMORY),
    "private_machine": (MACHINES, BAD_MACHINES), "special_machine": (MACHINES, BAD_MACHINES),
}  # fmt: skip


def spec(row: Making) -> None:
    if row.random.random() < 0.06:
        row.put("spec", row.random.choice(NOT_OBJECTS), "DI002")
        return
    value: dict[str, Any] = {}
    is_bad = False
    for name in row.random.sample([*AMOUNTS, "command", "args"], row.random.choice((1, 1, 2, 3))):
        if name in AMOUNTS:
            wrong = row.random.random() < 0.2
            value[name] = row.random.choice(AMOUNTS[name][wrong])
        else:
            value[name], wrong = words(row)
        is_bad |= wrong
    if row.random.random() < 0.05:
        value[row.random.choice(STRANGE_KEYS)], is_bad = row.text(), True
    row.put("spec", json.dumps(value), "DI002" if is_bad else "")


PLAIN: Final[dict[str, str | None]] = {
    "queue": "default", "priority": "100", "run_at": None, "timeout_seconds": None, "max_failures": "3",
    "template": "default", "env": "{}", "spec": "{}", "payload": None, "cache_key": None, "dedupe_key": None,
}  # fmt: skip
WAYS: Final[dict[Callable[[Making], None], int]] = {
    env: 8, spec: 8, key("cache_key"): 2, key("dedupe_key"): 1, queue: 1, priority: 1, run_at: 1, timeout: 2,
    failures: 1,
    template: 1, payload: 1,
}  # fmt: skip
"""The columns that may be made faulty, and how often."""
TEMPLATES: Final = ("open", "open", "bounded", "bounded", "default", "closed")


def hostile(random: Random, own: int) -> Hostile:
    """A row with one to three columns chosen to do harm."""
    row = Making(random, own)
    row.columns |= PLAIN | {"template": random.choice(TEMPLATES)}
    for way in dict.fromkeys(random.choices(list(WAYS), list(WAYS.values()), k=random.choice((1, 2, 2, 3)))):
        way(row)
    return Hostile(row.columns, frozenset(row.faults))
