"""A replica's knowledge about leadership: the lease as last read, and when this version was first seen.

Invariant: two replicas never trust their terms at the same time, if their clocks run at about the same speed.

* A leader's trust ends a margin before (start of its renewing call + lease length). A slow renewal cannot stretch it.
* A rival waits the whole length after it saw the lease unchanged. It saw the lease after the renewing call had begun.
* Wall clocks of machines are never compared (River's trust window; client-go's elector).
* A rival waits for an edited or deleted lease, too. Only a release by the holder makes the lease free at once.

Not guaranteed: that a replica waits for a leader whose lease somebody deletes before the replica ever read it, or
deletes twice between two reads. That leader notices the deletion at its next renewal.
"""

from msgspec import Struct

RELEASED_SECONDS = 1
"""Lease length that marks a release if the holder is empty, as in client-go. Any other empty holder is an edit."""


class Record(Struct, frozen=True):
    """The lease object as last read.

    holder: identity of the holder; empty if there is none.
    seconds: lease length, for which a renewal is valid.
    transitions: number of changes of the holder.
    acquired_at: time at which the holder took the lease, as its replica wrote it.
    resource_version: empty if the lease was deleted.
    """

    holder: str
    seconds: float
    transitions: int
    acquired_at: str
    resource_version: str

    def gone(self) -> "Record":
        """The record after a deletion. A deletion counts as an edit, so a rival waits the whole length."""
        return Record("", max(self.seconds, RELEASED_SECONDS + 1), 0, "", "")

    @property
    def is_gone(self) -> bool:
        return not self.resource_version


class Sight(Struct, frozen=True):
    """A record, and when this replica first saw this version (`seen_at`, seconds of its own clock)."""

    record: Record
    seen_at: float

    def free_at(self, seconds: float) -> float:
        """The moment from which a rival may take the lease. `seconds`: the rival's own lease length."""
        if not self.record.holder and self.record.seconds == RELEASED_SECONDS:
            return self.seen_at
        return self.seen_at + max(self.record.seconds, seconds)

    def is_free(self, seconds: float, now: float) -> bool:
        """Whether a rival may take the lease at `now`."""
        return now >= self.free_at(seconds)


def look_again(sight: Sight | None, record: Record, now: float) -> Sight:
    """The sight after `record` was read at `now`. Only a new version begins a new wait."""
    is_known = sight is not None and sight.record.resource_version == record.resource_version
    return sight if sight and is_known else Sight(record, now)


def trusted_until(began: float, seconds: float) -> float:
    """End of the trust that a renewing call gives. `began`: start of that call; `seconds`: lease length."""
    return began + seconds - margin(seconds)


def margin(seconds: float) -> float:
    """Seconds by which trust ends early. They cover clocks of different speed, and a short pause of the process."""
    return max(0.5, seconds / 10)


def pause(sight: Sight | None, me: str, seconds: float, now: float) -> float:
    """Seconds until the next try.

    A leader renews at least five times per lease length. A rival looks every second, and at the end of its wait.
    """
    if sight is not None and sight.record.holder == me:
        return min(seconds / 5, 3.0)
    left = sight.free_at(seconds) - now if sight is not None else 0
    return min(1.0, left) if left > 0 else min(1.0, seconds / 10)
