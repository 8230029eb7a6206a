"""Terms of the leader lease, by a clock that a test moves: how long one is trusted, and who takes over when."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from prometheus_client import REGISTRY

from tests.contract.scripted_lease import Replicas, Turns, faults, meets, serving_lease, takes, written_but_lost

SECONDS = 15
TRUSTED = 13.5


@pytest_asyncio.fixture(loop_scope="session")
async def replicas() -> AsyncIterator[Replicas]:
    async with serving_lease() as api:
        made = Replicas(api)
        yield made
        await made.close()


class TestTerm:
    async def test_the_first_to_come_leads_and_says_so(self, replicas: Replicas) -> None:
        lease, won = replicas.one(), []
        lease.on_winning(lambda: won.append(lease.is_trusted()))
        assert not lease.is_trusted()
        assert "not read yet" in lease.vacancy()
        await lease.run_once()
        assert (replicas.api.holder, won, lease.vacancy()) == (lease.me, [True], "")
        assert REGISTRY.get_sample_value("dispatcher_leader") == 1

    async def test_it_is_trusted_for_its_length_less_a_margin_from_the_start_of_the_call(
        self, replicas: Replicas
    ) -> None:
        lease, clock = await replicas.leader(), replicas.clock
        for before, after in ((0, 0), (4, 0), (0, 4), (2, 2)):
            began = clock.at
            replicas.api.faults["PUT"].append(takes(clock, before, after))
            await lease.run_once()
            assert lease.is_trusted()
            clock.at = began + TRUSTED - 0.01
            assert lease.is_trusted()
            clock.at = began + TRUSTED
            assert not lease.is_trusted()
            assert REGISTRY.get_sample_value("dispatcher_leader") == 0

    async def test_the_read_before_a_takeover_counts_too(self, replicas: Replicas) -> None:
        lease, clock, began = replicas.one(), replicas.clock, replicas.clock.at
        replicas.api.faults["GET"].append(takes(clock, 2, 3))
        replicas.api.faults["POST"].append(takes(clock, 3, 3))
        await lease.run_once()
        assert lease.is_trusted()
        clock.at = began + TRUSTED
        assert not lease.is_trusted()

    async def test_a_renewal_that_was_answered_after_its_term_trusts_nothing(self, replicas: Replicas) -> None:
        lease = await replicas.leader()
        replicas.api.faults["PUT"].append(takes(replicas.clock, after=3600))  # the machine slept
        await lease.run_once()
        assert not lease.is_trusted()
        await lease.run_once()
        assert lease.is_trusted()

    async def test_a_renewal_is_one_write_that_keeps_what_is_kept(self, replicas: Replicas) -> None:
        lease = await replicas.leader()
        replicas.api.by_hand()  # what the server has now is not what the leader knows
        before = dict(replicas.api.lease or {})
        await lease.run_once()
        assert replicas.api.lease == before, "nobody's version is written over"
        await lease.run_once()
        await lease.run_once()
        assert [asked.kind for asked in replicas.api.asked] == ["GET", "POST", "PUT", "GET", "PUT", "PUT"]
        assert {asked.query["timeout"] for asked in replicas.api.asked if asked.kind != "GET"} == {"5s"}
        assert replicas.api.lease is not None
        spec = replicas.api.lease["spec"]
        assert spec | {"renewTime": ""} == before["spec"] | {"renewTime": ""}
        assert spec["renewTime"] > spec["acquireTime"] == before["spec"]["acquireTime"]
        assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (15, 0)

    async def test_winning_is_told_once_a_term(self, replicas: Replicas) -> None:
        lease, terms = replicas.one(), []
        lease.on_winning(lambda: terms.append(replicas.clock.at))
        for _ in range(4):
            replicas.clock.at += await lease.run_once()
        assert len(terms) == 1
        replicas.clock.move(SECONDS)
        await lease.run_once()
        assert len(terms) == 2, "what others did meanwhile is not known"

    async def test_who_was_asleep_while_another_took_over_writes_nothing(self, replicas: Replicas) -> None:
        first, second = await replicas.leader(), replicas.one()
        await second.run_once()
        replicas.clock.move(3600)
        assert not first.is_trusted()
        await second.run_once()
        assert second.is_trusted()
        for _ in range(2):
            await first.run_once()
            assert not first.is_trusted()
        assert (replicas.api.holder, first.vacancy()) == (second.me, "")


class TestTakingOver:
    @pytest.mark.parametrize("seconds", [2, 15, 300])
    @pytest.mark.parametrize("after", [0, 0.7, 2.9, 33.3])
    async def test_a_rival_leads_within_the_length_and_two_seconds_of_a_kill(
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

    async def test_a_rival_waits_as_long_as_the_holder_wanted(self, replicas: Replicas) -> None:
        first, second = await replicas.leader(60), replicas.one(2)
        turns, start = Turns(replicas.clock, first, second), replicas.clock.at
        await turns.until(start)
        turns.kill(first)
        await turns.until(start + 59.9)
        assert not second.is_trusted()
        await turns.until(start + 62)
        assert second.is_trusted()

    async def test_what_is_given_up_is_taken_within_a_second(self, replicas: Replicas) -> None:
        first, second = await replicas.leader(), replicas.one()
        turns, start = Turns(replicas.clock, first, second), replicas.clock.at
        await turns.until(start + 10)
        turns.kill(first)
        await first.release()
        assert (replicas.api.holder, first.is_trusted()) == ("", False)
        assert replicas.api.lease is not None
        assert replicas.api.lease["spec"]["leaseTransitions"] == 0, "nobody has taken it yet"
        await turns.until(start + 11.01, second.is_trusted)
        assert second.is_trusted()

    async def test_it_is_not_trusted_while_it_is_being_given_up(self, replicas: Replicas) -> None:
        first, second = await replicas.leader(), replicas.one()
        await second.run_once()
        replicas.api.faults["PUT"].append(written_but_lost)
        await first.release()
        await second.run_once()
        assert (first.is_trusted(), second.is_trusted()) == (False, True)

    async def test_nobody_gives_up_what_is_anothers(self, replicas: Replicas) -> None:
        first, second = await replicas.leader(), replicas.one()
        await second.run_once()
        await second.release()
        assert replicas.api.holder == first.me
        assert not [asked for asked in replicas.api.asked if asked.kind == "PUT"]

    @pytest.mark.parametrize("method", ["POST", "PUT"])
    async def test_of_two_that_reach_for_it_one_leads(self, replicas: Replicas, method: str) -> None:
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
        assert faults() == before, "a rival that was faster is none"
        turns = Turns(replicas.clock, first, second)
        await turns.until(replicas.clock.at + 60)
        assert (second.is_trusted(), replicas.api.holder, first.vacancy()) == (True, second.me, "")
