"""The judgement of the programs, and of the Lease of the one that leads."""

import pytest

from dispatcher.doctor.cluster import LeaseTerm, Replicas, RunningFacts, Unread, judge_running
from dispatcher.doctor.finding import FindingState

NAMES = {"namespace": "ours", "installation": "live"}
FORBIDDEN, ABSENT = Unread("403 Forbidden"), Unread("404 NotFound", is_absent=True)
LEADS = LeaseTerm("live-1", 3.0, 15.0)


def told(
    run: Replicas | Unread, janitor: Replicas | Unread, term: LeaseTerm | Unread
) -> list[tuple[str, FindingState, str]]:
    found = judge_running(RunningFacts({"live": run, "live-janitor": janitor}, term), NAMES)
    return [(one.where.split(" in ")[0], one.state, one.message) for one in found]


@pytest.mark.parametrize(
    ("program", "state", "message"),
    [
        (Replicas(2, 2), FindingState.GOOD, ""),
        (Replicas(2, 1), FindingState.GOOD, ""),
        (Replicas(2, 0), FindingState.FAULT, "0 of 2 Pods are ready"),
        (Replicas(0, 0), FindingState.WARNING, "it is scaled to 0"),
        (ABSENT, FindingState.FAULT, "there is none"),
        (FORBIDDEN, FindingState.NOT_CHECKED, "403 Forbidden"),
    ],
)
def test_program_is_judged_by_its_ready_pods(program: Replicas | Unread, state: FindingState, message: str) -> None:
    _, janitor, _ = told(Replicas(1, 1), program, LEADS)
    assert janitor == ("Deployment live-janitor", state, message)


@pytest.mark.parametrize(
    ("term", "state", "message"),
    [
        (LEADS, FindingState.GOOD, ""),
        (LeaseTerm("live-1", 16.0, 15.0), FindingState.FAULT, "it was renewed 16 s ago, and counts for 15 s"),
        (LeaseTerm("", 1.0, 15.0), FindingState.FAULT, "it was renewed 1 s ago, and counts for 15 s"),
        (LeaseTerm("live-1", float("inf"), 15.0), FindingState.FAULT, "it was never renewed, and counts for 15 s"),
        (ABSENT, FindingState.FAULT, "there is none: no replica has led yet"),
        (FORBIDDEN, FindingState.NOT_CHECKED, "403 Forbidden"),
    ],
)
def test_leader_is_judged_by_its_lease(term: LeaseTerm | Unread, state: FindingState, message: str) -> None:
    assert told(Replicas(1, 1), Replicas(1, 1), term)[2] == ("Lease live-leader", state, message)


def test_lease_that_is_not_there_is_no_fault_for_who_may_not_read_whether_a_replica_is_wanted() -> None:
    assert told(FORBIDDEN, FORBIDDEN, ABSENT)[2] == ("Lease live-leader", FindingState.NOT_CHECKED, "404 NotFound")
    assert told(FORBIDDEN, FORBIDDEN, LeaseTerm("live-1", 99.0, 15.0))[2][1] is FindingState.FAULT


def test_programs_that_run_elsewhere_or_were_stopped_are_not_judged_further() -> None:
    assert told(ABSENT, ABSENT, ABSENT) == []
    assert told(Replicas(0, 0), ABSENT, ABSENT) == [("Deployment live", FindingState.WARNING, "it is scaled to 0")]
