"""Valid requests with changed bytes and branches. A seeded random chooses the changes."""

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

Slot = tuple[Any, Any]
"""A branch of a JSON tree: its parent, and its key or index there."""
DEEP: Final = "@deep@"
ODD: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 7, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e308, 1e-320,
    "", "a", "b", "x" * 300, "\0", "\x7f", "\u2028", "\U0001f600", "NaN", "null", "[]", "{}", '["a"]',
    '[{"cpu":"1"}]', "1e3", "0.5", "-1", "1Ki1", "1E", "1e99", "1e-99", "9" * 30, "500m", "2Gi", "0", "+.5k",
    "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00", "9999-12-31T23:59:59.999999999-23:59",
    [], {}, [None], [[]], [{}], {"": {}}, ["a", "a"], {"a": "a"}, DEEP,
)  # fmt: skip


def slots(tree: Any) -> list[Slot]:
    """All branches of the tree, the outer ones first."""
    found: list[Slot] = []
    trees = [tree]
    for one in trees:
        for key, branch in one.items() if isinstance(one, dict) else enumerate(one):
            found.append((one, key))
            if isinstance(branch, dict | list):
                trees.append(branch)  # the loop reaches it later
    return found


def copied(tree: Any) -> Any:
    """A deep copy. Without it a branch could contain itself."""
    return json.loads(json.dumps(tree))


def replace(random: Random, slot: Slot, other: Slot) -> None:
    slot[0][slot[1]] = copied(random.choice(ODD))


def replace_with_text(random: Random, slot: Slot, other: Slot) -> None:
    """Replaces a branch with any text that has no surrogates."""
    codes = [random.choice((random.randrange(128), random.randrange(0xD800), random.randrange(0xE000, 0x110000)))]
    codes += [random.randrange(0xD800) for _ in range(random.randrange(12))]
    slot[0][slot[1]] = "".join(map(chr, codes))


def copy(random: Random, slot: Slot, other: Slot) -> None:
    slot[0][slot[1]] = copied(other[0][other[1]])


def drop(random: Random, slot: Slot, other: Slot) -> None:
    del slot[0][slot[1]]


def rename(random: Random, slot: Slot, other: Slot) -> None:
    tree, key = slot
    if isinstance(tree, dict):
        tree[random.choice(("", "x", str(other[1]), str(key).lower(), str(key) + "s"))] = tree.pop(key)


def repeat(random: Random, slot: Slot, other: Slot) -> None:
    tree, key = slot
    if isinstance(tree, list):
        tree.insert(random.randrange(len(tree) + 1), copied(tree[key]))


def wrap(random: Random, slot: Slot, other: Slot) -> None:
    tree, key = slot
    tree[key] = random.choice(([tree[key]], {"x": tree[key]}, json.dumps(tree[key])))


CHANGES: Final[tuple[Callable[[Random, Slot, Slot], None], ...]] = (
    replace, replace, replace, replace_with_text, copy, drop, rename, repeat, wrap,
)  # fmt: skip


def change_tree(random: Random, body: str) -> bytes:
    """The body with one, two or four changed branches."""
    tree = json.loads(body)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        branches = slots(tree)
        if branches:
            random.choice(CHANGES)(random, random.choice(branches), random.choice(branches))
    text = json.dumps(tree, ensure_ascii=random.random() < 0.5)
    if DEEP in text:
        depth = random.choice((3, 200, 1100, 5000))
        text = text.replace(f'"{DEEP}"', "[" * depth + "]" * depth)
    return text.encode()


def change_bytes(random: Random, body: str) -> bytes:
    """The body with one, two or eight changed bytes."""
    changed = bytearray(body.encode())
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        changed[random.randrange(len(changed))] = random.choice((random.randrange(256), *b'"\\[]{},:0-e\xff'))
    return bytes(changed)


def cut(random: Random, body: str) -> bytes:
    """The body truncated, or with a piece that is missing or comes twice."""
    whole = body.encode()
    start, end = sorted(random.randrange(len(whole) + 1) for _ in range(2))
    return random.choice((whole[:start], whole[:start] + whole[end:], whole[:end] + whole[start:]))


def replace_body(random: Random, body: str) -> bytes:
    """Another body: random bytes, or an odd value as JSON."""
    return random.choice((random.randbytes(random.randrange(60)), json.dumps(random.choice(ODD)).encode()))


WAYS: Final[tuple[tuple[int, Callable[[Random, str], bytes]], ...]] = (
    (60, change_tree), (25, change_bytes), (13, cut), (2, replace_body)
)  # fmt: skip
WEIGHTS: Final = [weight for weight, _ in WAYS]


def change(random: Random, body: str) -> bytes:
    """The body, changed in one way. Most of the ways leave it valid JSON."""
    ((_, way),) = random.choices(WAYS, WEIGHTS)
    return way(random, body)
