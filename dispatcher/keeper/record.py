"""The record of each directory, which the keeper has from one round to the next and over its restarts. Pure.

A lost or unreadable record costs no directory: each one then counts as used when its folder changed last.
"""

from collections.abc import Mapping, Set
from typing import Final

import msgspec
from msgspec import Struct

from dispatcher.keeper.plan import Directory

MEASURED_IN_USE_SECONDS: Final = 300
"""Between two measurements of a directory that is in use."""


class Entry(Struct, frozen=True, omit_defaults=True):
    """One directory. Times are Unix seconds.

    first_use, last_use: as far as this record goes back.
    uses: number of Pods that were seen to use it.
    size, files: bytes and inodes, when it was measured last.
    measured_at: 0: it was not measured yet.
    changed_at: when its folder had changed last, at that time.
    """

    first_use: float
    last_use: float
    uses: int = 0
    size: int = 0
    files: int = 0
    measured_at: float = 0
    changed_at: float = 0

    def needs_measurement(self, changed_at: float, now: float, *, is_in_use: bool) -> bool:
        """Whether its size may have changed. Deep inside, it changes only while it is in use."""
        if is_in_use:
            return not 0 <= now - self.measured_at < MEASURED_IN_USE_SECONDS
        return self.measured_at <= self.last_use or self.changed_at != changed_at


class Users(Struct, frozen=True):
    """The Pods that use directories, or are about to use them.

    pods: UIDs of Pods by directory.
    """

    pods: Mapping[str, Set[str]] = {}

    @property
    def names(self) -> Set[str]:
        return self.pods.keys()


Entries = Mapping[str, Entry]


def noted(known: Entries, present: Mapping[str, float], users: Users, before: Users, now: float) -> dict[str, Entry]:
    """The record of this round. Directories that are gone are forgotten.

    present: when the folder of each directory changed last.
    before: the users of the last round. Only the others are counted as new uses.
    """
    return {name: entry_of(known.get(name), changed_at, new_pods(name, users, before), name in users.names, now)
            for name, changed_at in present.items()}  # fmt: skip


def new_pods(name: str, users: Users, before: Users) -> int:
    return len(users.pods.get(name, frozenset()) - before.pods.get(name, frozenset()))


def entry_of(known: Entry | None, changed_at: float, new: int, is_in_use: bool, now: float) -> Entry:
    first = known or Entry(min(changed_at, now), min(changed_at, now))
    last_use = now if is_in_use else min(first.last_use, now)  # a clock that was ahead must not keep it for ever
    return msgspec.structs.replace(first, last_use=last_use, uses=first.uses + new)


def directories_of(entries: Entries) -> list[Directory]:
    """The measured directories. The removal of any other would free an unknown amount."""
    return [
        Directory(name, one.size, one.files, one.first_use, one.last_use)
        for name, one in entries.items()
        if one.measured_at
    ]


def write_record(entries: Entries) -> bytes:
    return msgspec.json.encode(entries)


def read_record(written: bytes) -> dict[str, Entry]:
    """The record; empty if it is none."""
    try:
        return msgspec.json.decode(written, type=dict[str, Entry])
    except msgspec.MsgspecError:
        return {}
