"""Trust in a term. In a simulation, replicas with slow calls never trust their terms at the same time."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.kube.lease import RELEASED_SECONDS, ObservedLease, Record, look_again, margin, pause, trusted_until

NEVER = float("-inf")
Changes = dict[str, Any]
TimedEdit = tuple[float, Changes | None]
LENGTHS = st.integers(2, 300)


def a_record(holder: str = "rival", seconds: float = 15, version: str = "1") -> Record:
    return Record(holder, seconds, 0, "", version)


class TestSight:
    @pytest.mark.parametrize(
        ("holder", "theirs", "ours", "waited"),
        [("rival", 15, 15, 15), ("rival", 60, 2, 60), ("rival", 1, 15, 15), ("", 15, 15, 15), ("", 60, 2, 60),
         ("", 0, 15, 15), ("", 2, 15, 15), ("", RELEASED_SECONDS, 300, 0)],
    )  # fmt: skip
    def test_a_rival_waits_the_longer_length_unless_the_lease_was_released(
        self, holder: str, theirs: float, ours: float, waited: float
    ) -> None:
        assert ObservedLease(a_record(holder, theirs), seen_at=100).free_at(ours) == 100 + waited

    def test_only_a_new_version_begins_a_new_wait(self) -> None:
        first = look_again(None, a_record(version="1"), 100)
        assert first == ObservedLease(a_record(version="1"), 100)
        again = look_again(first, a_record(version="1"), 110)
        assert again == first
        renewed = look_again(again, a_record(version="2"), 112)
        assert renewed == ObservedLease(a_record(version="2"), 112)

    def test_a_new_version_counts_from_the_moment_it_was_seen(self) -> None:
        sight = look_again(look_again(None, a_record(seconds=300), 0), a_record("other", 15, "2"), 10)
        assert (sight.record.holder, sight.free_at(15)) == ("other", 25)

    def test_a_lease_is_free_from_the_end_of_the_wait_on(self) -> None:
        assert [ObservedLease(Record("a", 15, 0, "", "7"), 10).is_free(15, now) for now in (24.9, 25)] == [False, True]


class TestTerm:
    @pytest.mark.fault(30)
    @pytest.mark.museum("trust from the end of a renewal")
    @given(st.floats(0, 1e9), LENGTHS)
    def test_trust_ends_a_margin_before_call_start_plus_length(self, began: float, seconds: int) -> None:
        assert trusted_until(began, seconds) == pytest.approx(began + seconds - margin(seconds))

    @given(LENGTHS)
    def test_the_margin_is_from_a_tenth_to_a_quarter_of_the_length(self, seconds: int) -> None:
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
        assert pause(ObservedLease(a_record("me", seconds), 100), "me", seconds, now) == expected

    @pytest.mark.parametrize(("now", "expected"), [(100, 1), (113.9, 1), (114.75, 0.25)])
    def test_a_rival_looks_every_second_and_when_the_term_is_over(self, now: float, expected: float) -> None:
        assert pause(ObservedLease(a_record(), 100), "me", 15, now) == expected

    @pytest.mark.parametrize("seconds", [2, 15, 300])
    @pytest.mark.parametrize("sight", [None, ObservedLease(a_record("", 1), 100), ObservedLease(a_record(), 100)])
    def test_a_replica_that_lost_a_race_tries_again_soon(self, sight: ObservedLease | None, seconds: float) -> None:
        assert 0 < pause(sight, "me", seconds, 115) <= min(1, seconds / 5)

    @given(st.sampled_from(["", "rival"]), st.integers(0, 300), LENGTHS, st.floats(0, 400))
    def test_a_rival_sleeps_at_most_a_second_and_never_past_its_wait(
        self, holder: str, theirs: int, ours: int, waited: float
    ) -> None:
        sight = ObservedLease(a_record(holder, theirs), 100)
        now, free_at = 100 + waited, sight.free_at(ours)
        assert 0 < pause(sight, "me", ours, now) <= 1
        assert now >= free_at or now + pause(sight, "me", ours, now) <= free_at + 1e-9

    @given(LENGTHS, st.floats(0, 3), st.floats(0, 60))
    def test_a_rival_takes_over_within_the_length_and_a_second_of_the_leaders_end(
        self, seconds: int, phase: float, killed: float
    ) -> None:
        renewals = [0.0]
        while (following := renewals[-1] + pause(ObservedLease(a_record("a", seconds), 0), "a", seconds, 0)) <= killed:
            renewals.append(following)
        now, sight = phase, look_again(None, a_record("a", seconds, "0"), phase)
        while now < sight.free_at(seconds):
            now += pause(sight, "b", seconds, now)
            version = max(number for number, at in enumerate(renewals) if at <= now)
            sight = look_again(sight, a_record("a", seconds, str(version)), now)
        assert renewals[-1] + seconds <= now <= max(killed, phase) + seconds + 1.001


class Try(Struct, frozen=True):
    """One try of a replica: the pause before it, the way of each call out and back, and the fate of a write."""

    before: float
    out: float
    back: float
    fate: str


class NoAnswer(Exception):
    """No answer comes, so the try is over, whether the write takes effect or not."""


class World:
    """The lease at the API server, events in the order of one clock, and the trust of each replica."""

    def __init__(self) -> None:
        self.now = 0.0
        self.record: Record | None = None
        self.trusted: dict[str, float] = {}
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
        """Writes the lease like the API server. Returns None after a conflict: the caller must know the version."""
        if (self.record and self.record.resource_version) != (known and known.resource_version):
            return None
        self.record = a_record(holder, seconds if holder else RELEASED_SECONDS, str(next(self._numbers)))
        return self.record

    def edit(self, changes: Changes | None) -> None:
        """Edits the lease by hand, or deletes it."""
        version = {"resource_version": str(next(self._numbers))}
        self.record = replace(self.record, **changes | version) if self.record and changes else None

    def trust(self, me: str, until: float) -> None:
        """Notes that `me` trusts its term from now on. Fails if another replica still trusts its own term."""
        for other, their_end in self.trusted.items():
            assert other == me or their_end <= self.now or until <= self.now, f"{other} and {me} at {self.now}"
        self.trusted[me] = until


class Replica:
    """Tries as `dispatcher.kube.lease` does, at most twice: reads unless the lease is its own, writes if it may."""

    def __init__(self, world: World, me: str, seconds: float) -> None:
        self._world, self._me, self._seconds = world, me, seconds
        self._sight: ObservedLease | None = None
        self._is_current = False

    def run(self, tries: Sequence[Try]) -> Iterator[float]:
        for each in tries:
            yield each.before
            with suppress(NoAnswer):
                yield from self._release(each) if each.fate == "release" else self._try(each, self._world.now)

    def _try(self, each: Try, began: float) -> Iterator[float]:
        for _ in range(2):
            if not (self._is_current and self._holds()):
                yield from self._read(each)
            if not self._may_take():
                break
            yield from self._write(each, self._me)
            if self._is_current:
                break
        if self._is_current:
            self._world.trust(self._me, trusted_until(began, self._seconds) if self._holds() else NEVER)

    def _release(self, each: Try) -> Iterator[float]:
        self._world.trusted[self._me] = NEVER
        for _ in range(2):
            yield from self._read(each)
            if not self._holds():
                return
            yield from self._write(each, "")
            if self._is_current:
                return

    def _read(self, each: Try) -> Iterator[float]:
        yield each.out
        found = self._world.record
        yield each.back
        found = self._sight.record.gone() if found is None and self._sight else found
        if found is not None:
            self._sight = look_again(self._sight, found, self._world.now)
        self._is_current = True

    def _write(self, each: Try, holder: str) -> Iterator[float]:
        world, self._is_current = self._world, False
        known = self._sight.record if self._sight and not self._sight.record.is_gone else None
        if each.fate in {"lost", "late"}:
            if each.fate == "late":  # the write takes effect after the replica gave up waiting
                world.at(world.now + each.out, lambda: world.write(known, holder, self._seconds))
            yield each.back
            raise NoAnswer
        yield each.out
        written = world.write(known, holder, self._seconds)
        yield each.back
        if written is not None:
            self._sight, self._is_current = look_again(self._sight, written, world.now), True

    def _may_take(self) -> bool:
        sight, now = self._sight, self._world.now
        if sight is None or now >= sight.free_at(self._seconds):
            return True
        return self._holds() or (not sight.record.holder and now < self._world.trusted.get(self._me, NEVER))

    def _holds(self) -> bool:
        return self._sight is not None and self._sight.record.holder == self._me


DELAYS = st.sampled_from([0, 0, 0.1, 1, 3, 4.9, 8, 13.4, 14.9, 15, 15.1, 30])
FATES = st.sampled_from(["done"] * 4 + ["lost", "late", "release"])
TRIES = st.lists(st.builds(Try, DELAYS, DELAYS, DELAYS, FATES), min_size=2, max_size=8)
AT_ONCE, MOMENTS = Try(0, 0, 0, "done"), st.floats(0.01, 60)
EDITS: list[Changes] = [{"holder": "b"}, {"holder": ""}, {"seconds": 0}, {"holder": "", "seconds": 0}]
HANDS = st.lists(st.tuples(MOMENTS, st.sampled_from(EDITS)), max_size=4)
DELETIONS = st.lists(st.tuples(MOMENTS, st.none()), max_size=1)  # a rival may mistake two deletions for one


class TestReplicas:
    @pytest.mark.fault(30)
    @pytest.mark.museum("trust from the end of a renewal")
    @settings(max_examples=400)
    @given(st.lists(st.tuples(st.sampled_from([2, 5, 15]), TRIES), min_size=2, max_size=3))
    def test_replicas_never_trust_at_once_however_slow_their_calls(self, lives: list[tuple[int, list[Try]]]) -> None:
        world = World()
        world.run(*(Replica(world, f"replica-{n}", seconds).run(tries) for n, (seconds, tries) in enumerate(lives)))

    @settings(max_examples=400)
    @given(st.sampled_from([2, 5, 15]), st.lists(TRIES, min_size=2, max_size=3), HANDS, DELETIONS)
    def test_replicas_never_trust_at_once_after_edits_of_a_known_lease(
        self, seconds: int, lives: list[list[Try]], edits: list[TimedEdit], deletions: list[TimedEdit]
    ) -> None:
        world = World()
        for moment, changes in edits + deletions:
            world.at(moment, partial(world.edit, changes))
        world.run(*(Replica(world, f"replica-{n}", seconds).run([AT_ONCE, *tries]) for n, tries in enumerate(lives)))
