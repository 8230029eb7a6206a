"""Why Jobs are suspended: who is asked, and which of the words are told."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
import pytest

from dispatcher.kube.client import KubeClient, Reply
from dispatcher.kube.job_api import KUEUE, LONGEST_WORDS, Suspensions, suspended_jobs
from dispatcher.model.errors import ClusterError
from dispatcher.model.jobs import Job
from dispatcher.model.snapshot import ClusterView
from tests.rig.builders import NOW, a_failed_job, a_job, ago

PENDING = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed"
WORKLOADS = f"{KUEUE}/v1beta2/namespaces/jobs/workloads"
EVENTS = "/api/v1/namespaces/jobs/events"
GROUP = {"preferredVersion": {"version": "v1beta2"}}


def a_condition(type_: str, status: str, message: str, seconds: float) -> dict[str, Any]:
    return {"type": type_, "status": status, "message": message, "lastTransitionTime": written(ago(seconds))}


def an_event(writer: str, message: str, seconds: float = 1) -> dict[str, Any]:
    return {"source": {"component": writer}, "message": message, "lastTimestamp": written(ago(seconds))}


def written(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class Server(KubeClient):
    """Answers each path. A path that is not there is not found."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = dict(answers)
        self.asked = list[tuple[str, str]]()

    async def request(
        self, method: str, path: str, body: bytes | None = None, params: Mapping[str, str] | None = None,
        seconds: float = 0,
    ) -> Reply:  # fmt: skip
        about = (params or {}).get("labelSelector", "") or (params or {}).get("fieldSelector", "")
        self.asked.append((path, about))
        found = self.answers.get(path, 404)
        return Reply(found, b"{}") if isinstance(found, int) else Reply(200, msgspec.json.encode(found))


def of_workload(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {KUEUE: GROUP, WORKLOADS: {"items": [{"status": {"conditions": list(conditions)}}]}, EVENTS: {"items": []}}


def asking(server: Server, *jobs: Job) -> Suspensions:
    return Suspensions(server, "jobs", lambda: ClusterView(NOW, {job.name: job for job in jobs}, {}, {}))


SUSPENDED = a_job(suspended=True, created_at=ago(60))


async def test_workload_of_kueue_tells_why_its_job_waits() -> None:
    server = Server(of_workload(a_condition("QuotaReserved", "False", PENDING, 5)))
    suspensions = asking(server, SUSPENDED)
    await suspensions.run_once()
    assert suspensions.known == {SUSPENDED.uid: PENDING}
    assert server.asked == [(KUEUE, ""), (WORKLOADS, f"kueue.x-k8s.io/job-uid={SUSPENDED.uid}")]


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([a_condition("QuotaReserved", "False", "old", 90), a_condition("Admitted", "False", "a\n b", 5)], "a b"),
        ([a_condition("QuotaReserved", "True", "reserved", 9), a_condition("Admitted", "False", "check", 50)], "check"),
        ([{"type": "QuotaReserved", "status": "False", "message": "no time"}], "no time"),
        ([a_condition("QuotaReserved", "False", "x" * 999, 1)], "x" * LONGEST_WORDS),
        ([a_condition("Finished", "False", "another sort", 1)], None),
        ([a_condition("QuotaReserved", "False", "", 1)], None),
    ],
)  # fmt: skip
async def test_newest_condition_that_holds_is_told(conditions: list[dict[str, Any]], words: str | None) -> None:
    suspensions = asking(Server(of_workload(*conditions)), SUSPENDED)
    await suspensions.run_once()
    assert suspensions.known.get(SUSPENDED.uid) == words


@pytest.mark.parametrize(
    "found", [{}, {KUEUE: 403}, {KUEUE: 500}, {KUEUE: GROUP, WORKLOADS: 503}, {KUEUE: GROUP, WORKLOADS: {}}]
)
async def test_events_of_others_tell_it_where_kueue_does_not(found: Mapping[str, Any]) -> None:
    events = [
        an_event("job-controller", "Job suspended"), an_event("dispatcher", "launched again"), an_event("", "nobody"),
        an_event("night-shift", "from 20:00 on", 5), an_event("night-shift", "from 19:00 on", 50),
        an_event("night-shift", "", 0),
    ]  # fmt: skip
    suspensions = asking(Server({**found, EVENTS: {"items": events}}), SUSPENDED)
    await suspensions.run_once()
    assert suspensions.known == {SUSPENDED.uid: "night-shift: from 20:00 on"}


async def test_server_that_fails_is_a_fault_and_not_an_answer() -> None:
    with pytest.raises(ClusterError):
        await asking(Server({EVENTS: 500}), SUSPENDED).run_once()


async def test_words_stay_while_nothing_newer_is_said_and_go_with_the_suspension() -> None:
    server = Server(of_workload(a_condition("QuotaReserved", "False", PENDING, 5)))
    jobs = {SUSPENDED.name: SUSPENDED}
    suspensions = Suspensions(server, "jobs", lambda: ClusterView(NOW, jobs, {}, {}))
    await suspensions.run_once()
    known = suspensions.known
    server.answers[WORKLOADS] = {}
    await suspensions.run_once()
    assert suspensions.known is known
    jobs.clear()
    await suspensions.run_once()
    assert suspensions.known == {}


async def test_no_job_is_suspended_so_nobody_is_asked() -> None:
    server = Server({})
    suspensions = asking(server, a_job())
    await suspensions.run_once()
    suspensions.forget()
    assert (server.asked, suspensions.known) == ([], {})


@pytest.mark.parametrize(
    ("job", "is_asked"),
    [
        (SUSPENDED, True), (a_job(suspended=True, created_at=ago(1)), False), (a_job(created_at=ago(60)), False),
        (a_job(suspended=True, created_at=ago(60), deleting=True), False),
        (a_failed_job(suspended=True, created_at=ago(60)), False),
    ],
)  # fmt: skip
def test_only_unfinished_suspended_jobs_are_asked_about(job: Job, is_asked: bool) -> None:
    assert list(suspended_jobs(ClusterView(NOW, {job.name: job}, {}, {}))) == [job] * is_asked
