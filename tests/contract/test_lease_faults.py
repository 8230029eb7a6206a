"""The lease at a server that loses answers, refuses or hangs, and a lease that is edited by hand."""

import time
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from tests.contract.scripted_api import Fault, ScriptedApi
from tests.contract.scripted_faults import answers, refuses, reset
from tests.contract.scripted_lease import (
    Replicas,
    ScriptedLease,
    Turns,
    faults,
    hanging,
    takes,
    written_but_lost,
)
from tests.controlplane.waiting import moment

TRUSTED = 13.5
NO_ANSWER: dict[str, Fault] = {
    "a broken connection": reset,
    "a namespace that ends": refuses(403, "Forbidden"),
    "an error of the server": refuses(500, "InternalError"),
    "too many requests, in plain text": answers(429, "Too many requests"),
    "a login page": answers(200, "<html>who are you?</html>"),
    "a list": answers(200, "[]"),
    "a lease of something else": answers(200, '{"metadata": {"resourceVersion": "1"}, "spec": 7}'),
}
NAMES = ("holderIdentity", "leaseDurationSeconds", "leaseTransitions", "acquireTime", "renewTime")
GIVEN_UP: dict[str, Any] = {"holderIdentity": "", "leaseDurationSeconds": 1}
BY_HAND: dict[str, dict[str, Any]] = {
    "no holder": {"holderIdentity": None},
    "an empty holder": {"holderIdentity": ""},
    "no length": {"leaseDurationSeconds": None},
    "a length of a second": {"leaseDurationSeconds": 1},
    "a length of nothing": {"leaseDurationSeconds": 0},
    "a length below nothing": {"leaseDurationSeconds": -5},
    "a length without end": {"leaseDurationSeconds": 2**31 - 1},
    "no count": {"leaseTransitions": None},
    "no times": {"renewTime": None},
    "nothing": {"holderIdentity": None, "leaseDurationSeconds": None, "leaseTransitions": None},
    "another holder": {"holderIdentity": "nobody"},
}


@pytest.mark.parametrize("fault", NO_ANSWER.values(), ids=NO_ANSWER)
class TestNoAnswer:
    async def test_unanswered_read_makes_no_leader(self, replicas: Replicas, fault: Fault) -> None:
        lease = replicas.one()
        replicas.api.until_cured["GET"] = fault
        assert await lease.run_once() == 1
        assert not lease.is_trusted()
        assert "lease dispatcher-leader: " in lease.vacancy()
        assert {asked.kind for asked in replicas.api.asked} == {"GET"}
        replicas.api.until_cured.clear()
        await lease.run_once()
        assert (lease.is_trusted(), lease.vacancy()) == (True, "")
        replicas.clock.move(15)
        assert lease.vacancy() == "lease dispatcher-leader: its holder is gone", "the fault is past"

    @pytest.mark.parametrize("method", ["POST", "PUT"])
    async def test_unanswered_write_makes_no_leader(self, replicas: Replicas, fault: Fault, method: str) -> None:
        if method == "PUT":
            replicas.api.by_hand(**GIVEN_UP)
        lease = replicas.one()
        replicas.api.until_cured[method] = fault
        assert await lease.run_once() == 1
        assert not lease.is_trusted()
        assert replicas.api.holder in {None, ""}
        assert replicas.api.asked[-1].kind == method
        assert lease.vacancy()
        replicas.api.until_cured.clear()
        await lease.run_once()
        assert lease.is_trusted()

    async def test_term_that_cannot_be_renewed_ends_in_time(self, replicas: Replicas, fault: Fault) -> None:
        lease, began = await replicas.leader(), replicas.clock.at
        replicas.api.until_cured |= {"GET": fault, "PUT": fault}
        while replicas.clock.at < began + TRUSTED - 1:
            replicas.clock.at += await lease.run_once()
            assert lease.is_trusted()
            assert lease.vacancy() == ""
        replicas.clock.at = began + TRUSTED
        assert not lease.is_trusted()
        replicas.clock.at = began + 15
        assert "lease dispatcher-leader: " in lease.vacancy()
        replicas.api.until_cured.clear()
        await lease.run_once()
        assert lease.is_trusted()

    async def test_failed_release_ends_the_trust(self, replicas: Replicas, fault: Fault) -> None:
        lease = await replicas.leader()
        replicas.api.until_cured |= {"GET": fault, "PUT": fault}
        await lease.release()
        assert not lease.is_trusted()


async def test_lasting_fault_is_logged_at_its_begin_at_the_end_of_a_term_and_seldom(
    replicas: Replicas,
) -> None:
    lease, began = await replicas.leader(), replicas.clock.at
    replicas.api.until_cured |= {method: refuses(403, "Forbidden") for method in ("GET", "PUT")}
    with capture_logs() as told:
        while replicas.clock.at < began + 600:
            replicas.clock.at += await lease.run_once()
    assert [line["leads"] for line in told if line["fault"].startswith("PUT")] == [True]
    assert [line["leads"] for line in told if line["fault"].startswith("read")] == [True, False, False]


async def test_answer_404_of_a_proxy_does_not_mean_a_missing_lease(replicas: Replicas) -> None:
    first, second = await replicas.leader(), replicas.one()
    replicas.api.faults["GET"].append(answers(404, "404 page not found"))
    await second.run_once()
    assert "404" in second.vacancy()
    assert [asked.kind for asked in replicas.api.asked] == ["GET", "POST", "GET"]
    assert first.is_trusted()


async def test_missing_namespace_is_reported(replicas: Replicas) -> None:
    lease, before = replicas.one(), faults()
    replicas.api.until_cured["POST"] = refuses(404, "NotFound")
    assert await lease.run_once() == 1
    assert "404" in lease.vacancy()
    assert faults() == before + 1


async def test_empty_object_is_no_lease_of_ours(replicas: Replicas) -> None:
    replicas.api.until_cured |= {method: answers(200, "{}") for method in ("GET", "POST", "PUT")}
    lease = replicas.one()
    for _ in range(3):
        await lease.run_once()
        assert not lease.is_trusted()


LOST = {"POST": [written_but_lost], "PUT": [written_but_lost, reset]}
"""aiohttp repeats a PUT by itself."""


class TestWrittenButLost:
    @pytest.mark.parametrize("method", ["POST", "PUT"])
    async def test_win_with_a_lost_answer_is_renewed_before_it_is_trusted(
        self, replicas: Replicas, method: str
    ) -> None:
        if method == "PUT":
            replicas.api.by_hand(**GIVEN_UP)
        lease, rival = replicas.one(), replicas.one()
        replicas.api.faults[method].extend(LOST[method])
        assert await lease.run_once() == 1
        assert not replicas.api.faults[method]
        assert (replicas.api.holder, lease.is_trusted()) == (lease.me, False)
        await rival.run_once()
        replicas.clock.move(1)
        await lease.run_once()
        await rival.run_once()
        assert (lease.is_trusted(), rival.is_trusted()) == (True, False)
        replicas.clock.move(TRUSTED - 0.01)
        assert lease.is_trusted(), "from the call that was answered"

    async def test_conflict_of_a_repeated_write_is_solved_in_the_same_try(self, replicas: Replicas) -> None:
        replicas.api.by_hand(**GIVEN_UP)
        lease, clock = replicas.one(), replicas.clock
        replicas.api.faults["PUT"].extend([written_but_lost, takes(clock), takes(clock, after=2)])
        began = clock.at
        await lease.run_once()
        assert [asked.kind for asked in replicas.api.asked] == ["GET", "PUT", "PUT", "GET", "PUT"]
        replicas.trust_ends(lease, began + TRUSTED)  # from the start of the try, not of its last call

    async def test_lost_renewal_extends_no_trust_and_is_repeated(self, replicas: Replicas) -> None:
        lease, began = await replicas.leader(), replicas.clock.at
        replicas.clock.move(3)
        replicas.api.faults["PUT"].extend(LOST["PUT"])
        assert await lease.run_once() == 1
        assert not replicas.api.faults["PUT"]
        replicas.trust_ends(lease, began + TRUSTED)
        await lease.run_once()
        assert lease.is_trusted()

    async def test_renewal_with_a_lost_answer_can_be_released(self, replicas: Replicas) -> None:
        lease = await replicas.leader()
        replicas.api.by_hand()  # as a renewal that was cancelled, and is carried out all the same
        await lease.release()
        assert replicas.api.holder == ""

    async def test_rival_that_sees_a_lost_renewal_waits_from_then_on(self, replicas: Replicas) -> None:
        first, second = await replicas.leader(), replicas.one()
        await second.run_once()
        replicas.clock.move(12)
        replicas.api.faults["PUT"].extend(LOST["PUT"])
        await first.run_once()
        replicas.clock.move(3)
        turns = Turns(replicas.clock, second)
        await turns.until(replicas.clock.at + 14)
        assert not second.is_trusted()
        await turns.until(replicas.clock.at + 2)
        assert second.is_trusted()


async def slow(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
    """Longer than half of a third of two seconds."""
    assert isinstance(api, ScriptedLease)
    await moment(0.5)
    return await api.serve(request)


class TestSilence:
    @pytest.mark.parametrize("method", ["GET", "POST"])
    async def test_call_is_given_up_after_a_third_of_the_length(self, replicas: Replicas, method: str) -> None:
        lease, began = replicas.one(2), time.monotonic()
        replicas.api.faults[method].append(hanging)
        assert await lease.run_once() == 0.2
        assert 0.5 < time.monotonic() - began < 5
        assert not lease.is_trusted()
        assert lease.vacancy()
        await lease.run_once()
        assert lease.is_trusted()

    async def test_read_and_write_together_have_the_same_limit(self, replicas: Replicas) -> None:
        lease = replicas.one(2)
        replicas.api.faults["GET"].append(slow)
        replicas.api.faults["POST"].append(slow)
        assert await lease.run_once() == 0.2
        assert "no answer in time" in lease.vacancy()
        await lease.run_once()
        replicas.api.faults["GET"].append(slow)
        replicas.api.faults["PUT"].append(hanging)
        await lease.release()
        assert not lease.is_trusted()

    async def test_leader_survives_a_hanging_call_within_its_term(self, replicas: Replicas) -> None:
        lease = await replicas.leader(2)
        replicas.api.faults["PUT"].append(hanging)
        await lease.run_once()
        assert lease.is_trusted()
        await lease.run_once()
        assert lease.is_trusted()
        assert replicas.api.holder == lease.me

    async def test_release_takes_bounded_time(self, replicas: Replicas) -> None:
        lease, began = await replicas.leader(2), time.monotonic()
        replicas.api.until_cured["GET"] = hanging
        await lease.release()
        assert time.monotonic() - began < 5


class TestByHand:
    @pytest.mark.parametrize("spec", BY_HAND.values(), ids=BY_HAND)
    async def test_edit_of_a_leaders_lease_is_overwritten_or_obeyed(
        self, replicas: Replicas, spec: dict[str, Any]
    ) -> None:
        lease, rival = await replicas.leader(), replicas.one()
        turns, start = Turns(replicas.clock, lease, rival), replicas.clock.at
        await turns.until(start + 6.5)
        replicas.api.by_hand(**spec)
        await turns.until(start + 10)
        assert (lease.is_trusted(), lease.vacancy()) == (spec.get("holderIdentity") != "nobody", "")
        await turns.until(start + 60)  # `until` fails if two trust at once
        assert lease.is_trusted() or rival.is_trusted()

    @pytest.mark.parametrize("spec", BY_HAND.values(), ids=BY_HAND)
    async def test_lease_made_by_hand_stops_nobody_for_ever(self, replicas: Replicas, spec: dict[str, Any]) -> None:
        known = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "leaseTransitions": 3}
        replicas.api.by_hand(**known | spec)
        lease, start = replicas.one(), replicas.clock.at
        turns = Turns(replicas.clock, lease)
        limit = 300 if spec.get("leaseDurationSeconds") == 2**31 - 1 else 15
        await turns.until(start + limit - 0.1)
        assert not lease.is_trusted()
        await turns.until(start + limit + 2, lease.is_trusted)
        assert (lease.is_trusted(), replicas.api.holder) == (True, lease.me)

    @pytest.mark.parametrize("names", [NAMES, ()], ids=["nulls", "nothing"])
    async def test_lease_of_nulls_or_nothing_is_free(self, replicas: Replicas, names: tuple[str, ...]) -> None:
        replicas.api.by_hand()
        assert replicas.api.lease is not None
        replicas.api.lease["spec"] = dict.fromkeys(names)
        lease = replicas.one()
        await Turns(replicas.clock, lease).until(replicas.clock.at + 17, lease.is_trusted)
        assert lease.is_trusted()
