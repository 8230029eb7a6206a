"""Terms of the leader lease, with a clock that a test moves: how long a term is trusted, and who takes over when."""

from collections.abc import Callable

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from tests.contract.scripted_api import ScriptedApi
from tests.contract.scripted_lease import (
    Replicas,
    ScriptedLease,
    Turns,
    beaten_by,
    faults,
    meets,
    takes,
    written_but_lost,
)  # fmt: skip

SECONDS = 15
TRUSTED = 13.5


class TestTerm:
    async def test_first_replica_leads_and_says_so(self, replicas: Replicas) -> None:
        lease, won = replicas.one(), []
        lease.on_winning(lambda: won.append(lease.is_trusted()))
        assert not lease.is_trusted()
        assert "not read yet" in lease.vacancy()
        await lease.run_once()
        assert (replicas.api.holder, won, lease.vacancy()) == (lease.me, [True], "")
        assert REGISTRY.get_sample_value("dispatcher_leader") == 1

    async def test_term_is_trusted_for_its_length_less_a_margin_from_the_call(self, replicas: Replicas) -> None:
        lease, clock = await replicas.leader(), replicas.clock
        for before, after in ((0, 0), (4, 0), (0, 4), (2, 2)):
            began = clock.at
            replicas.api.faults["PUT"].append(takes(clock, before, after))
            await lease.run_once()
            assert lease.is_trusted()
            replicas.trust_ends(lease, began + TRUSTED)
            assert REGISTRY.get_sample_value("dispatcher_leader") == 0

    async def test_time_of_the_read_before_a_takeover_counts(self, replicas: Replicas) -> None:
        lease, clock, began = replicas.one(), replicas.clock, replicas.clock.at
        replicas.api.faults["GET"].append(takes(clock, 2, 3))
        replicas.api.faults["POST"].append(takes(clock, 3, 3))
        await lease.run_once()
        assert lease.is_trusted()
        clock.at = began + TRUSTED
        assert not lease.is_trusted()

    async def test_renewal_answered_after_its_term_is_not_trusted(self, replicas: Replicas) -> None:
        lease = await replicas.leader()
        replicas.api.faults["PUT"].append(takes(replicas.clock, after=3600))  # the machine slept
        await lease.run_once()
        assert not lease.is_trusted()
        await lease.run_once()
        assert lease.is_trusted()

    async def test_renewal_is_one_write_that_changes_only_the_time(self, replicas: Replicas) -> None:
        lease = await replicas.leader()
        before = dict(replicas.api.lease or {})
        for _ in range(2):
            await lease.run_once()
        assert [asked.kind for asked in replicas.api.asked] == ["GET", "POST", "PUT", "PUT"]
        assert {asked.query["timeout"] for asked in replicas.api.asked if asked.kind != "GET"} == {"5s"}
        assert replicas.api.lease is not None
        spec = replicas.api.lease["spec"]
        assert spec | {"renewTime": ""} == before["spec"] | {"renewTime": ""}
        assert spec["renewTime"] > spec["acquireTime"] == before["spec"]["acquireTime"]
        assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (15, 0)

    async def test_lease_changed_by_others_is_read_and_renewed_in_the_same_try(self, replicas: Replicas) -> None:
        lease, before = await replicas.leader(), faults()
        replicas.api.by_hand(leaseTransitions=7)  # the server has another version now
        replicas.clock.move(5)
        assert await lease.run_once() == 3
        assert [asked.kind for asked in replicas.api.asked][2:] == ["PUT", "GET", "PUT"]
        assert replicas.api.lease is not None
        assert replicas.api.lease["spec"]["leaseTransitions"] == 7, "no other version is overwritten"
        replicas.clock.move(TRUSTED - 0.01)
        assert lease.is_trusted()
        assert faults() == before

    async def test_try_has_two_rounds_and_leaves_the_term_as_it_was(self, replicas: Replicas) -> None:
        lease, began, before = await replicas.leader(), replicas.clock.at, faults()
        replicas.clock.move(5)
        replicas.api.faults["PUT"].extend([beaten_by(replicas.api.by_hand)] * 2)
        assert 0 < await lease.run_once() <= 3
        assert [asked.kind for asked in replicas.api.asked][2:] == ["PUT", "GET", "PUT"]
        assert faults() == before, "a conflict is no fault"
        replicas.trust_ends(lease, began + TRUSTED)
        await lease.run_once()
        assert lease.is_trusted()

    async def test_winning_is_reported_once_a_term_and_terms_are_numbered(self, replicas: Replicas) -> None:
        lease, terms = replicas.one(), []
        lease.on_winning(lambda: terms.append(lease.term()))
        assert lease.term() == 0
        for _ in range(4):
            replicas.clock.at += await lease.run_once()
            assert lease.term() == 1
        replicas.clock.move(SECONDS)
        assert (lease.term(), terms) == (0, [1])
        await lease.run_once()
        assert (lease.term(), terms) == (2, [1, 2]), "others may have led meanwhile"
        await lease.release()
        assert lease.term() == 0
        await lease.run_once()
        assert (lease.term(), terms) == (3, [1, 2, 3])


class TestTakingOver:
    @pytest.mark.parametrize("seconds", [2, 15, 300])
    @pytest.mark.parametrize("after", [0, 0.7, 2.9, 33.3])
    async def test_rival_leads_within_the_length_and_two_seconds_of_a_kill(
        self, replicas: Replicas, seconds: int, after: float
    ) -> None:
        first, second = await replicas.leader(seconds), replicas.one(seconds)
        turns, start = Turns(replicas.clock, first, second), replicas.clock.at
        await turns.until(start + after)
        assert (first.is_trusted(), second.is_trusted(), second.vacancy()) == (True, False, "")
        turns.kill(first)
        await turns.until(start + after + seconds + 2, second.is_trusted)
        assert second.is_trusted()
        assert not first.is_trusted()
        assert replicas.api.lease is not None
        spec = replicas.api.lease["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == (second.me, 1)
        assert spec["acquireTime"] == spec["renewTime"]

    async def test_rival_waits_as_long_as_the_holder_wanted(self, replicas: Replicas) -> None:
        first, second = await replicas.leader(60), replicas.one(2)
        turns, start = Turns(replicas.clock, first, second), replicas.clock.at
        await turns.until(start)
        turns.kill(first)
        await turns.until(start + 59.9)
        assert not second.is_trusted()
        await turns.until(start + 62)
        assert second.is_trusted()

    async def test_released_lease_is_taken_within_a_second(self, replicas: Replicas) -> None:
        first, second = await replicas.leader(), replicas.one()
        turns, start = Turns(replicas.clock, first, second), replicas.clock.at
        await turns.until(start + 10)
        turns.kill(first)
        await first.release()
        assert (replicas.api.holder, first.is_trusted()) == ("", False)
        assert replicas.api.lease is not None
        spec = replicas.api.lease["spec"]
        assert (spec["leaseTransitions"], spec["leaseDurationSeconds"]) == (0, 1), "not taken yet"
        await turns.until(start + 11.01, second.is_trusted)
        assert second.is_trusted()

    async def test_lease_is_not_trusted_while_it_is_released(self, replicas: Replicas) -> None:
        first, second = await replicas.leader(), replicas.one()
        await second.run_once()
        replicas.api.faults["PUT"].append(written_but_lost)
        await first.release()
        await second.run_once()
        assert (first.is_trusted(), second.is_trusted()) == (False, True)

    async def test_renewal_during_the_release_does_not_keep_the_lease(self, replicas: Replicas) -> None:
        first, second = await replicas.leader(), replicas.one()
        await second.run_once()
        # As a call that was cancelled, and is carried out all the same.
        replicas.api.faults["PUT"].append(beaten_by(replicas.api.by_hand))
        await first.release()
        assert replicas.api.holder == ""
        await second.run_once()
        assert (first.is_trusted(), second.is_trusted()) == (False, True)

    async def test_lease_that_keeps_changing_is_left_to_expire(self, replicas: Replicas) -> None:
        lease = await replicas.leader()
        replicas.api.faults["PUT"].extend([beaten_by(replicas.api.by_hand)] * 3)
        await lease.release()
        assert [asked.kind for asked in replicas.api.asked][2:] == ["GET", "PUT", "GET", "PUT"]
        assert (replicas.api.holder, lease.is_trusted()) == (lease.me, False)

    async def test_release_leaves_the_lease_of_another_holder(self, replicas: Replicas) -> None:
        first, second = await replicas.leader(), replicas.one()
        await second.run_once()
        await second.release()
        assert replicas.api.holder == first.me
        assert not [asked for asked in replicas.api.asked if asked.kind == "PUT"]

    @pytest.mark.parametrize("method", ["POST", "PUT"])
    async def test_one_of_two_simultaneous_replicas_leads(self, replicas: Replicas, method: str) -> None:
        first, second = replicas.one(), replicas.one()
        if method == "PUT":
            replicas.api.by_hand(holderIdentity="dead", leaseDurationSeconds=15)
            await first.run_once()
            await second.run_once()
            replicas.clock.move(SECONDS)
        replicas.api.faults[method].append(meets(second))
        before = faults()
        assert 0 < await first.run_once() <= 3
        assert (first.is_trusted(), second.is_trusted(), replicas.api.holder) == (False, True, second.me)
        assert faults() == before, "a faster rival is no fault"
        turns = Turns(replicas.clock, first, second)
        await turns.until(replicas.clock.at + 60)
        assert (second.is_trusted(), replicas.api.holder, first.vacancy()) == (True, second.me, "")

    async def test_loser_of_the_first_race_takes_over_in_time(self, replicas: Replicas) -> None:
        first, second = replicas.one(), replicas.one()
        replicas.api.faults["POST"].append(meets(first))
        start = replicas.clock.at
        replicas.clock.at += await second.run_once()
        assert (first.is_trusted(), second.is_trusted(), second.vacancy()) == (True, False, "")
        await Turns(replicas.clock, second).until(start + SECONDS + 2, second.is_trusted)
        assert (first.is_trusted(), second.is_trusted()) == (False, True)


EDITS: dict[str, Callable[[ScriptedLease], None]] = {
    "deleted": ScriptedLease.delete,
    "emptied": lambda api: api.by_hand(holderIdentity=""),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
class TestTakingBack:
    async def test_leader_with_a_trusted_term_takes_its_lease_back_at_once(
        self, replicas: Replicas, edit: Callable[[ScriptedLease], None]
    ) -> None:
        first, second, before = await replicas.leader(), replicas.one(), faults()
        await second.run_once()
        replicas.clock.move(13)
        edit(replicas.api)
        await second.run_once()
        assert (replicas.api.holder or "", second.vacancy()) == ("", "")
        await first.run_once()
        assert (replicas.api.holder, first.term(), faults()) == (first.me, 1, before)
        replicas.clock.move(TRUSTED - 0.01)
        assert first.is_trusted()

    async def test_trust_is_never_with_two_replicas(
        self, replicas: Replicas, edit: Callable[[ScriptedLease], None]
    ) -> None:
        first, second = await replicas.leader(), replicas.one()
        turns, start = Turns(replicas.clock, first, second), replicas.clock.at
        await turns.until(start + 6.5)
        edit(replicas.api)
        await turns.until(start + 60)  # `until` fails if two trust at once
        assert (first.term(), second.term()) == (1, 0)

    @pytest.mark.parametrize("was_leader", [True, False])
    async def test_replica_without_a_trusted_term_waits_for_the_whole_length(
        self, replicas: Replicas, edit: Callable[[ScriptedLease], None], was_leader: bool
    ) -> None:
        first, second = await replicas.leader(), replicas.one()
        await second.run_once()
        replicas.clock.move(TRUSTED)
        edit(replicas.api)
        one, start = first if was_leader else second, replicas.clock.at
        turns = Turns(replicas.clock, one)
        await turns.until(start + SECONDS - 0.1)
        assert (replicas.api.holder or "", one.is_trusted()) == ("", False)
        await turns.until(start + SECONDS + 2, one.is_trusted)
        assert (replicas.api.holder, one.term()) == (one.me, 1 + was_leader)


async def test_term_of_a_rival_in_between_ends_our_term(replicas: Replicas) -> None:
    """Our renewal takes so long that a rival takes over and releases the lease.

    The same attempt gets the lease back.
    """
    first, second = await replicas.leader(), replicas.one()
    before = first.term()
    await second.run_once()
    replicas.clock.move(13.4)

    async def rival_comes_and_goes(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
        replicas.clock.move(1.7)
        await second.run_once()
        assert second.is_trusted()
        await second.release()
        return await replicas.api.serve(request)

    replicas.api.faults["PUT"].append(rival_comes_and_goes)
    await first.run_once()
    assert first.is_trusted()
    assert first.term() == before + 1


async def test_rival_waits_for_a_deleted_lease_as_long_as_its_holder_wanted(replicas: Replicas) -> None:
    first, second = await replicas.leader(60), replicas.one(2)
    await second.run_once()
    replicas.clock.move(3)
    assert await first.run_once() == 3
    replicas.api.lease = None
    replicas.clock.move(0.2)
    while replicas.clock.at < 1005.9:
        replicas.clock.at += await second.run_once()
        assert not (first.is_trusted() and second.is_trusted())


class TestLeaderThatCannotWork:
    """For example its node does not reach the database, which the other replica reads."""

    async def test_another_replica_leads_and_goes_on_when_it_can_work_again(self, replicas: Replicas) -> None:
        unable = [0.0, 120.0]  # the time for which the first one cannot work, from the start on
        start = replicas.clock.at
        first = await replicas.leader(is_able=lambda: not unable[0] <= replicas.clock.at - start < unable[1])
        second = replicas.one()
        turns = Turns(replicas.clock, first, second)
        await turns.until(start + 30)
        assert first.is_trusted(), "a fail-over of the database takes no longer"
        await turns.until(start + 30 + SECONDS + 4)
        assert (first.is_trusted(), second.is_trusted(), second.vacancy()) == (False, True, "")
        await turns.until(start + 300)
        assert (first.term(), second.term()) == (0, 1)

    async def test_leader_goes_on_where_no_replica_can_and_seldom_asks(self, replicas: Replicas) -> None:
        start, led = replicas.clock.at, list[bool]()
        first = await replicas.leader(is_able=lambda: False)
        turns = Turns(replicas.clock, first, replicas.one(is_able=lambda: False))
        while replicas.clock.at < start + 600:
            await turns.until(replicas.clock.at + 1)
            led.append(any(one.is_trusted() for one in turns.living))
        assert led[30 : 30 + 2 * SECONDS].count(False) > SECONDS
        assert led.count(False) < 6 * SECONDS

    async def test_leader_leads_at_once_when_it_can_work_again(self, replicas: Replicas) -> None:
        start = replicas.clock.at
        alone = await replicas.leader(is_able=lambda: replicas.clock.at >= start + 50)
        turns = Turns(replicas.clock, alone)
        await turns.until(start + 49)
        assert not alone.is_trusted()
        await turns.until(start + 54, alone.is_trusted)
        assert alone.is_trusted()
