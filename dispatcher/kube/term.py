"""Who leads, as far as one replica can know: the lease as it was last read, and since when by our own clock.

Invariant: two replicas never trust their terms at once as long as their clocks run at about the same speed. A leader's
trust ends a margin before (start of its renewing call + lease length), so that a slow renewal cannot stretch it; a
rival waits the whole length after it saw the lease unchanged, and it saw it later than that call began. Nobody's wall
clock is compared with anybody's (River's trust window; client-go's elector). A lease that somebody edits or deletes is
waited for as well: only a holder's own release is free at once.

Not guaranteed: that a replica waits for a leader whose lease somebody deletes before it ever read it, or twice between
two of its looks; that leader notices at its next renewal.
"""

from msgspec import Struct

RELEASED_SECONDS = 1
"""With no holder, the length that marks a release (client-go writes the same): anything else is somebody's edit."""


class Record(Struct, frozen=True):
    """The lease object: its holder (empty: given up), and for how long a renewal is good."""

    holder: str
    seconds: float
    transitions: int
    acquired_at: str
    resource_version: str

    def gone(self) -> "Record":
        """It was there and is not any more: somebody's edit, like any other, and waited for as long."""
        return Record("", max(self.seconds, RELEASED_SECONDS + 1), 0, "", "")

    @property
    def is_gone(self) -> bool:
        return not self.resource_version


class Sight(Struct, frozen=True):
    """A record, and when this version of it was first seen."""

    record: Record
    seen_at: float

    def free_at(self, seconds: float) -> float:
        """When a rival whose own lease is so long may take it."""
        if not self.record.holder and self.record.seconds == RELEASED_SECONDS:
            return self.seen_at
        return self.seen_at + max(self.record.seconds, seconds)


def look_again(sight: Sight | None, record: Record, now: float) -> Sight:
    """What is known after reading `record` at `now`: only a new version begins a new wait."""
    is_known = sight is not None and sight.record.resource_version == record.resource_version
    return sight if sight and is_known else Sight(record, now)


def trusted_until(began: float, seconds: float) -> float:
    """When the term that a renewing call sent at `began` gives is over."""
    return began + seconds - margin(seconds)


def margin(seconds: float) -> float:
    """What clocks may differ in speed, and a paused process may take to look at its own."""
    return max(0.5, seconds / 10)


def pause(sight: Sight | None, me: str, seconds: float, now: float) -> float:
    """Until the next try: a leader renews five times a term, a rival looks every second and when the term is over."""
    if sight is not None and sight.record.holder == me:
        return min(seconds / 5, 3.0)
    left = sight.free_at(seconds) - now if sight is not None else 0
    return min(1.0, left) if left > 0 else min(1.0, seconds / 10)
