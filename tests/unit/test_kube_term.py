"""Who leads, as far as one replica can know; and that two of them, however slow their calls, never trust at once."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from dispatcher.kube.term import Record, Sight, look_again, margin, pause, trusted_until

NEVER = float("-inf")
LENGTHS = st.integers(2, 300)


def a_record(holder: str = "rival", seconds: float = 15, version: str = "1") -> Record:
    return Record(holder, seconds, 0, "", version)


class TestSight:
    def test_a_lease_is_free_once_it_was_seen_unchanged_for_its_whole_length(self) -> None:
        sight = Sight(a_record(seconds=15), seen_at=100)
        assert sight.free_at == 115
        assert [sight.is_free(now) for now in (100, 114.9, 115, 900)] == [False, False, True, True]

    def test_a_lease_that_was_given_up_is_free_at_once(self) -> None:
        assert Sight(a_record(""), seen_at=100).is_free(100)

    def test_only_a_new_version_begins_a_new_wait(self) -> None:
        first = look_again(None, a_record(version="1"), 100)
        assert first == Sight(a_record(version="1"), 100)
        again = look_again(first, a_record(version="1"), 110)
        assert again == first
        renewed = look_again(again, a_record(version="2"), 112)
        assert renewed == Sight(a_record(version="2"), 112)

    def test_what_a_new_version_says_counts_from_then_on(self) -> None:
        sight = look_again(look_again(None, a_record(seconds=300), 0), a_record("other", 15, "2"), 10)
        assert (sight.record.holder, sight.free_at) == ("other", 25)


class TestTerm:
    @pytest.mark.fault(30)
    @pytest.mark.museum("trust from the end of a renewal")
    @given(st.floats(0, 1e9), LENGTHS)
    def test_trust_ends_a_margin_before_the_length_that_counts_from_the_start_of_the_call(
        self, began: float, seconds: int
    ) -> None:
        assert trusted_until(began, seconds) == pytest.approx(began + seconds - margin(seconds))

    @given(LENGTHS)
    def test_the_margin_is_a_tenth_and_never_nothing_or_all(self, seconds: int) -> None:
        assert margin(seconds) >= 0.5
        assert margin(seconds) >= seconds / 10
        assert margin(seconds) <= seconds / 4

    def test_the_default_lease_is_trusted_for_thirteen_and_a_half_seconds(self) -> None:
        assert trusted_until(100, 15) == 113.5
        assert trusted_until(100, 2) == 101.5


class TestPause:
    @pytest.mark.parametrize(("seconds", "expected"), [(2, 0.4), (10, 2), (15, 3), (300, 3)])
    @pytest.mark.parametrize("now", [100, 114, 500])
    def test_a_leader_renews_five_times_a_term_or_more(self, seconds: float, expected: float, now: float) -> None:
        assert pause(Sight(a_record("me", seconds), 100), "me", seconds, now) == expected

    @pytest.mark.parametrize(("now", "expected"), [(100, 1), (113.9, 1), (114.75, 0.25)])
    def test_a_rival_looks_every_second_and_when_the_term_is_over(self, now: float, expected: float) -> None:
        assert pause(Sight(a_record(), 100), "me", 15, now) == expected

    @pytest.mark.parametrize("seconds", [2, 15, 300])
    @pytest.mark.parametrize("sight", [None, Sight(a_record(""), 100), Sight(a_record(), 100)])
    def test_who_lost_a_race_comes_again_soon(self, sight: Sight | None, seconds: float) -> None:
        assert 0 < pause(sight, "me", seconds, 115) <= min(3, seconds / 5)

    @given(LENGTHS, st.floats(0, 3), st.floats(0, 60))
    def test_a_rival_takes_over_within_the_length_and_a_second_of_the_leaders_end(
        self, seconds: int, phase: float, killed: float
    ) -> None:
        renewals = [0.0]
        while (following := renewals[-1] + pause(Sight(a_record("a", seconds), 0), "a", seconds, 0)) <= killed:
            renewals.append(following)
        now, sight = phase, look_again(None, a_record("a", seconds, "0"), phase)
        while not sight.is_free(now):
            now += pause(sight, "b", seconds, now)
            version = max(number for number, at in enumerate(renewals) if at <= now)
            sight = look_again(sight, a_record("a", seconds, str(version)), now)
        assert renewals[-1] + seconds <= now <= max(killed, phase) + seconds + 1.001


class Try(Struct, frozen=True):
    """One try of a replica: how long it waits before, how long each call is under way, and what becomes of a write."""

    before: float
    out: float
    back: float
    fate: str


class World:
    """The lease at the API server, events in the order of one clock, and who trusts its term."""

    def __init__(self) -> None:
        self.now = 0.0
        self.record: Record | None = None
        self.trusted: dict[str, float] = {}
        self.terms: list[str] = []
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def at(self, when: float, event: Callable[[], object]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), event))

    def run(self, *replicas: Iterator[float]) -> None:
        for replica in replicas:
            self._step(replica)
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()

    def _step(self, replica: Iterator[float]) -> None:
        wait = next(replica, None)
        if wait is not None:
            self.at(self.now + wait, lambda: self._step(replica))

    def write(self, known: Record | None, holder: str, seconds: float) -> Record | None:
        """As the API server: only who knows the version replaces it. None: a conflict."""
        if (self.record and self.record.resource_version) != (known and known.resource_version):
            return None
        self.record = a_record(holder, seconds, str(next(self._numbers)))
        return self.record

    def trust(self, me: str, until: float) -> None:
        """`me` trusts its term from now on; whoever else still does is the split that must not be."""
        for other, their_end in self.trusted.items():
            assert other == me or their_end <= self.now or until <= self.now, f"{other} and {me} at {self.now}"
        self.trusted[me] = until
        if self.terms[-1:] != [me]:
            self.terms.append(me)


class Replica:
    """Tries as `dispatcher.kube.lease` does: reads unless it knows its own lease, then writes what it may."""

    def __init__(self, world: World, me: str, seconds: float) -> None:
        self._world, self._me, self._seconds = world, me, seconds
        self._sight: Sight | None = None
        self._is_current = False

    def run(self, tries: Sequence[Try]) -> Iterator[float]:
        for each in tries:
            yield each.before
            began = self._world.now
            if each.fate == "release":
                self._world.trusted[self._me] = NEVER
            if not (self._is_current and self._holds()) or each.fate == "release":
                yield each.out
                found = self._world.record
                yield each.back
                self._note(found)
            if self._holds() or (each.fate != "release" and self._is_free()):
                yield from self._write(each, began)
            elif each.fate != "release":
                self._world.trusted[self._me] = NEVER

    def _write(self, each: Try, began: float) -> Iterator[float]:
        known, world = self._sight.record if self._sight else None, self._world
        holder, self._is_current = "" if each.fate == "release" else self._me, False
        if each.fate in {"lost", "late"}:
            if each.fate == "late":  # it lands when nobody waits for its answer any more
                world.at(world.now + each.out, lambda: world.write(known, holder, self._seconds))
            yield each.back
            return
        yield each.out
        written = world.write(known, holder, self._seconds)
        yield each.back
        if written is not None:
            self._note(written)
        if self._is_current and self._holds():
            world.trust(self._me, trusted_until(began, self._seconds))

    def _note(self, found: Record | None) -> None:
        self._sight = look_again(self._sight, found, self._world.now) if found else None
        self._is_current = True

    def _holds(self) -> bool:
        return self._sight is not None and self._sight.record.holder == self._me

    def _is_free(self) -> bool:
        return self._sight is None or self._sight.is_free(self._world.now)


DELAYS = st.sampled_from([0, 0, 0.1, 1, 3, 4.9, 8, 13.4, 14.9, 15, 15.1, 30])
FATES = st.sampled_from(["done"] * 4 + ["lost", "late", "release"])
TRIES = st.lists(st.builds(Try, DELAYS, DELAYS, DELAYS, FATES), min_size=2, max_size=8)


class TestTwoOfThem:
    @pytest.mark.fault(30)
    @pytest.mark.museum("trust from the end of a renewal")
    @settings(max_examples=400)
    @given(st.lists(st.tuples(st.sampled_from([2, 5, 15]), TRIES), min_size=2, max_size=3))
    def test_however_slow_their_calls_they_never_trust_at_once(self, lives: list[tuple[int, list[Try]]]) -> None:
        world = World()
        world.run(*(Replica(world, f"replica-{n}", seconds).run(tries) for n, (seconds, tries) in enumerate(lives)))

    def test_a_slow_renewal_that_was_done_early_does_not_stretch_the_term(self) -> None:
        world, began = World(), Try(0, 0, 0, "done")
        slow = Try(1, 0, 13, "done")  # asked and done at 1, answered at 14: good until 14.5, no longer
        rival = [Try(1.25, 0, 0, "done"), Try(14.75, 0, 0, "done"), Try(0.25, 0, 0, "done")]  # at 1.25, 16 and 16.25
        world.run(Replica(world, "a", 15).run([began, slow]), Replica(world, "b", 15).run(rival))
        assert world.trusted == {"a": 14.5, "b": 29.75}
        assert world.terms == ["a", "b"]

    def test_what_is_given_up_is_taken_at_once(self) -> None:
        world = World()
        given_up = [Try(0, 0, 0, "done"), Try(1, 0, 0, "release")]
        world.run(Replica(world, "a", 15).run(given_up), Replica(world, "b", 15).run([Try(1.5, 0, 0, "done")]))
        assert world.trusted == {"a": NEVER, "b": 15}
