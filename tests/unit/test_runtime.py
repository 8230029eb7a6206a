"""The work beside decisions: rounds and their faults, work that can wait, and what a program exports at /metrics."""

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from aiohttp.http_exceptions import BadStatusLine
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from structlog.testing import capture_logs
from tenacity import AsyncRetrying, RetryCallState

from dispatcher import __version__
from dispatcher.app import App, can_lead
from dispatcher.kube.capacity import count_end
from dispatcher.kube.client import KubeClient, resource_of
from dispatcher.kube.credentials import Login, TokenFile
from dispatcher.kube.events import PodRefusals
from dispatcher.kube.objects import read_job
from dispatcher.kube.reflector import MOST_SECONDS, UNDER_WAY, Reflector, ReflectorPace, Resource
from dispatcher.model.cluster import ClusterView, PodRefusal
from dispatcher.model.errors import ClusterAway, DatabaseAway
from dispatcher.model.jobs import Phase
from dispatcher.pg.connect import Listener
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.health import ExportedMetrics, MetricsText, build_app
from dispatcher.runtime.logs import BadRequests
from dispatcher.runtime.metrics import OF_ROWS, OF_RUN, REFUSED_PODS
from dispatcher.runtime.rounds import BUGS_IN_A_ROW, Precedence, Rounds, Wake
from dispatcher.settings.loading import load
from tests.rig.builders import NOW, a_job
from tests.unit.logins import jwt


class Broken:
    """Rounds that end in a bug. Every pause ends at once."""

    def __init__(self, *, is_vital: bool) -> None:
        self.calls, self.stop, self._wake = 0, asyncio.Event(), Wake()
        self.rounds = Rounds("broken", self._run_once, self._wake, is_vital=is_vital)

    async def _run_once(self) -> float:
        self.calls += 1
        self._wake()
        if self.calls == 2 * BUGS_IN_A_ROW:
            self.stop.set()
        raise ZeroDivisionError("a bug")


async def test_bugs_in_a_row_end_the_program() -> None:
    broken = Broken(is_vital=True)
    with pytest.raises(ZeroDivisionError):
        await broken.rounds.run(broken.stop)
    assert broken.calls == BUGS_IN_A_ROW


async def test_series_of_rounds_begin_at_zero_and_only_success_moves_their_time() -> None:
    """Prometheus sees no increase in a counter that begins at 1."""
    broken = Broken(is_vital=False)
    await broken.rounds.run(broken.stop)
    assert REGISTRY.get_sample_value("dispatcher_last_round_timestamp_seconds", {"component": "broken"}) == 0
    stop = asyncio.Event()

    async def run_once() -> float:
        assert REGISTRY.get_sample_value("dispatcher_faults_total", {"component": "well"}) == 0
        stop.set()
        return 0

    began = time.time()
    await Rounds("well", run_once, Wake()).run(stop)
    ended = REGISTRY.get_sample_value("dispatcher_last_round_timestamp_seconds", {"component": "well"})
    assert ended is not None
    assert began <= ended <= time.time()


async def test_bugs_of_rounds_that_only_tell_end_nothing() -> None:
    broken = Broken(is_vital=False)
    await broken.rounds.run(broken.stop)
    assert (broken.calls, broken.rounds.fault) == (2 * BUGS_IN_A_ROW, "a bug")


async def test_fault_that_lasts_is_in_the_last_minutes_of_the_log() -> None:
    """The runbooks look at ten of them."""
    stop, wake, seconds = asyncio.Event(), Wake(), iter(range(0, 3600, 15))

    async def run_once() -> float:
        wake()
        if (now := next(seconds, None)) is None:
            stop.set()
            return 0
        moments.append(now)
        raise DatabaseAway("the database does not answer")

    moments = [0]
    with capture_logs() as told:
        await Rounds("away", run_once, wake, clock=lambda: moments[-1]).run(stop)
    assert [line["fault"] for line in told] == 12 * ["the database does not answer"]


async def test_outage_is_logged_when_it_begins_and_not_at_each_try() -> None:
    """A try comes each few seconds: in a day of an outage tens of thousands of lines, which push all others out."""
    away = RetryCallState(AsyncRetrying(), None, (), {})
    away.set_exception((DatabaseAway, DatabaseAway("gone"), None))
    client = KubeClient(Login("http://127.0.0.1:1", None, TokenFile(Path("/none")).read, "x"))
    listener = Listener(lambda: None, lambda: None)
    reflector = Reflector(client, Resource("jobs", "/jobs", read_job), ReflectorPace(first_pause=0))
    with capture_logs() as told:
        for _ in range(5):
            listener._tell(away)
            await reflector._pause(ClusterAway("list jobs: gone"))
        await reflector._pause(ClusterAway("list jobs: denied"))
    await client.close()
    assert [line["fault"] for line in told] == ["gone", "list jobs: gone", "list jobs: denied"]


@pytest.mark.parametrize(
    ("age", "fault", "leads"),
    [(0, "", True), (MOST_SECONDS + 1, "list jobs: no answer", False), (MOST_SECONDS + 1, "", False),
     (MOST_SECONDS - 1, "list jobs: no answer", True), (MOST_SECONDS + 1, UNDER_WAY, True)],
)  # fmt: skip
async def test_replica_that_cannot_follow_the_cluster_leaves_the_lead_to_others(
    age: float, fault: str, leads: bool
) -> None:
    """Its node alone may lose large answers or long streams, while small calls such as those for the lease pass."""
    urls = {"DISPATCHER_DATABASE_URL": "postgresql://d@db.example/work", "DISPATCHER_NAMESPACE": "jobs"}
    client = KubeClient(Login("http://127.0.0.1:1", None, TokenFile(Path("/none")).read, "x"))
    app = App(load(urls, str).settings, client)
    app.dispatching.fault = ""
    for reflector in app.mirror._all:
        reflector.store.prove(elapsed() - age)
        reflector.fault = fault
    assert can_lead(app) is leads
    app.dispatching.fault = "the database does not answer"
    assert not can_lead(app)
    await app.close()
    await client.close()


async def test_round_sees_the_news_that_came_before_it() -> None:
    """They start no further round after it. Later ones may come sooner than those would have."""
    wake = Wake()
    wake.soon(60)
    wake()
    assert await wake.wait(60)
    assert not await wake.wait(0.1)
    wake.soon(60)
    wake.soon(0)
    assert await wake.wait(60), "the earlier one counts"


async def began(precedence: Precedence, seconds: float = 60) -> "asyncio.Task[None]":
    """A wait that has begun."""
    waits = asyncio.create_task(precedence.wait(seconds))
    await asyncio.sleep(0)
    return waits


async def test_requests_wait_only_while_a_decision_runs() -> None:
    assert (await began(Precedence())).done()


async def test_work_waits_until_every_decision_has_ended() -> None:
    precedence = Precedence()
    with precedence.running():
        with precedence.running():
            waits = await began(precedence)
        await asyncio.sleep(0)
        assert not waits.done()
    await waits
    assert (await began(precedence)).done()


async def test_decision_that_takes_long_delays_nothing_for_ever() -> None:
    precedence = Precedence()
    with precedence.running():
        await precedence.wait(0.001)


async def test_decision_that_fails_delays_nothing() -> None:
    precedence = Precedence()
    with pytest.raises(ZeroDivisionError), precedence.running():
        _ = 1 / 0
    assert (await began(precedence)).done()


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_ready_is_asked_at_each_scrape() -> None:
    missing = ["the database is away"]
    build_app({"database": lambda: missing[0]})
    assert value("dispatcher_ready") == 0
    missing[0] = ""
    assert value("dispatcher_ready") == 1


class Series:
    """Series that note which thread writes them."""

    def __init__(self) -> None:
        self.writers = list[threading.Thread]()

    def __iter__(self) -> Iterator[Sample]:
        self.writers.append(threading.current_thread())
        yield Sample("waiting", {}, 7)


class Scraped(Collector):
    """One metric, which notes which thread reads it."""

    def __init__(self) -> None:
        self.readers, self.series = list[threading.Thread](), Series()

    def collect(self) -> Iterable[Metric]:
        self.readers.append(threading.current_thread())
        metric = Metric("waiting", "rows", "gauge")
        metric.samples = self.series  # type: ignore[assignment]  # any iterable does
        return [metric]


async def test_metrics_are_read_on_the_event_loop_and_written_beside_it() -> None:
    """The loop reads each metric with all its series, so no scrape sees half of a change. The text takes long."""
    scraped, here = Scraped(), threading.current_thread()
    assert b"waiting 7.0" in await MetricsText(scraped).read()
    assert scraped.readers == [here]
    assert here not in scraped.series.writers


async def test_scrapes_that_come_together_share_the_next_text() -> None:
    """The first one begins to read before the others ask."""
    scraped = Scraped()
    written = MetricsText(scraped)
    await asyncio.gather(*(written.read() for _ in range(50)))
    assert len(scraped.readers) <= 2


async def test_each_scrape_has_the_values_of_its_moment_unless_they_cost_too_much() -> None:
    """Each text takes a tenth of a second here. A flood gets the last one, for three quarters of the time."""
    scraped, pauses = Scraped(), 0.0
    written = MetricsText(scraped, lambda: len(scraped.readers) / 10 + pauses)
    for _ in range(10):
        pauses += 0.001
        await written.read()
    assert len(scraped.readers) == 10
    for _ in range(1000):
        pauses += 0.001
        await written.read()
    assert 10 < (flooded := len(scraped.readers)) < 20
    pauses += 60
    await written.read()
    assert len(scraped.readers) == flooded + 1


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


def test_many_requests_that_cannot_be_parsed_fill_no_log() -> None:
    """Whoever reaches a port sends any number of them, and a node keeps some megabytes of a log."""
    now = [0.0]
    stays = BadRequests(lambda: now[0])

    def line(fault: Exception) -> logging.LogRecord:
        said = (type(fault), fault, None)
        return logging.LogRecord("aiohttp.server", logging.ERROR, "", 0, "Error from %s", ("1.2.3.4",), said)

    bad = line(BadStatusLine("secret"))
    assert [stays(bad), stays(line(BadStatusLine("secret"))), stays(line(ValueError("a bug")))] == [True, False, True]
    assert (bad.getMessage(), bad.exc_info) == ("Error from 1.2.3.4: BadStatusLine", None)
    now[0] = 1
    assert stays(line(BadStatusLine("secret")))


def test_database_is_neither_up_nor_away_before_the_first_look() -> None:
    """A janitor looks at the cluster first. With 0, an API server that is away would call somebody to the database."""
    exported = "from prometheus_client import REGISTRY; import dispatcher.runtime.metrics"
    code = f"{exported}; print(REGISTRY.get_sample_value('dispatcher_database_up'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "nan\n"


def test_program_exports_no_metric_that_it_never_sets() -> None:
    """It would stand at 0 for ever: an alert for a missing database or a missing leader would fire."""
    everything, some = (generate_latest(ExportedMetrics(never_set)).decode() for never_set in ((), (*OF_RUN, *OF_ROWS)))
    for name in ("dispatcher_database_up", "dispatcher_leader", "dispatcher_cycle_seconds_count"):
        assert f"\n{name} " in everything
        assert name not in some
    assert 'dispatcher_build_info{python="' in some
    assert f'version="{__version__}"' in some
