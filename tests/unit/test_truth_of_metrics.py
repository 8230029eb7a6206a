"""Gauges tell the time of the scrape, and counters count what happened while somebody looked."""

from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from dispatcher.kube.capacity import count_end
from dispatcher.kube.client import KubeClient, resource_of
from dispatcher.kube.credentials import Login, TokenFile
from dispatcher.kube.events import PodRefusals
from dispatcher.model.cluster import PodRefusal
from dispatcher.model.jobs import Phase
from dispatcher.model.snapshot import ClusterView
from dispatcher.runtime.health import build_app
from dispatcher.runtime.metrics import REFUSED_PODS
from tests.rig.builders import NOW, a_job
from tests.unit.logins import jwt


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_ready_is_asked_at_each_scrape() -> None:
    missing = ["the database is away"]
    build_app({"database": lambda: missing[0]})
    assert value("dispatcher_ready") == 0
    missing[0] = ""
    assert value("dispatcher_ready") == 1


async def test_end_of_the_token_is_known_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(jwt({"exp": 1763769600}))
    token = TokenFile(tmp_path / "token")
    await token.read(refused=False)
    assert value("dispatcher_credential_end_timestamp_seconds", credential="token") == 1763769600
    (tmp_path / "token").write_text(jwt({"exp": 1763773200}))
    await token.read(refused=True)
    assert value("dispatcher_credential_end_timestamp_seconds", credential="token") == 1763773200


def test_end_of_a_job_counts_once_and_only_if_it_was_seen_before() -> None:
    active, ended = a_job(), a_job(phase=Phase.FAILED)
    count_end(active, ended)
    before = value("dispatcher_jobs_ended_total", outcome="failed")
    for pair in ((ended, ended), (None, ended), (active, None), (active, active), (None, active)):
        count_end(*pair)
    assert value("dispatcher_jobs_ended_total", outcome="failed") == before
    count_end(active, ended)
    assert before is not None
    assert value("dispatcher_jobs_ended_total", outcome="failed") == before + 1


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/apis/batch/v1/namespaces/x/jobs/name", "jobs"), ("/api/v1/nodes", "nodes"), ("/api/v1/pods/", "pods"),
        ("/api/v1/namespaces/x", "namespaces"), ("/api/v1/namespaces/x/pods/y/status", "pods"),
        ("/apis/dispatcher.internal/v1alpha1/nodereservations", "nodereservations"),
        ("/apis/dispatcher.internal/v1alpha1/namespaces/x/nodereservations/y/status", "nodereservations"),
        ("/readyz", "other"), ("/apis", "other"),
    ],
)  # fmt: skip
def test_resource_of_a_request_is_that_of_its_path(path: str, resource: str) -> None:
    assert resource_of(path) == resource


async def test_replica_that_does_not_lead_tells_no_refused_pods() -> None:
    client = KubeClient(Login("http://127.0.0.1:1", None, TokenFile(Path("/none")).read, "x"))
    refusals = PodRefusals(client, "x", lambda: ClusterView(NOW, {}, {}, {}))
    refusals.known = {"uid": PodRefusal(NOW, "no", False)}
    REFUSED_PODS.labels("refused").set(1)
    refusals.forget()
    assert (refusals.known, value("dispatcher_refused_pods", cause="refused")) == ({}, None)
    await client.close()
