"""The use of a run as a real Prometheus reports it.

The tolerance of the figures comes from scraping. Between two samples a counter is known exactly. Up to one interval at
each end of a run lies outside of the samples, and its use is guessed from the rest. For even use the guess is right. A
live scrape may also carry its value late, by up to its own duration: one more interval for each end.
"""

import itertools
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from dispatcher.model.caches import Use
from dispatcher.prometheus import Prometheus, PrometheusFault
from tests.prometheus.exporter import Container, Exporter
from tests.prometheus.lives import LIVE, LIVE_SECONDS, Lived, live
from tests.prometheus.server import PrometheusServer
from tests.prometheus.traces import Course, Trace

EXACT = 1e-3  # times have milliseconds
INTERVALS = pytest.mark.parametrize("every", [15, 30, 60])
_places = itertools.count(1)


class Caller:
    """The adapter, asked with the times of a trace."""

    def __init__(self, url: str) -> None:
        self.adapter = Prometheus(url)

    async def use(self, namespace: str, pod: str, began: float, ended: float) -> Use | None:
        times = datetime.fromtimestamp(began, UTC), datetime.fromtimestamp(ended, UTC)
        return await self.adapter.use_of(namespace, pod, *times)

    async def known(self, namespace: str, pod: str, began: float, ended: float) -> Use:
        found = await self.use(namespace, pod, began, ended)
        assert found is not None, f"nothing is known of {pod!r}"
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def caller(prometheus: PrometheusServer) -> AsyncIterator[Caller]:
    caller = Caller(prometheus.url)
    yield caller
    await caller.adapter.close()


@pytest.fixture
def own_namespace() -> str:
    """A namespace that no other test has."""
    return f"jobs-{next(_places)}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lived(prometheus: PrometheusServer, exporter: Exporter) -> Lived:
    """A life without long gaps between its samples. On a busy machine it may be the second or third."""
    await prometheus.wait_for(lambda: prometheus.query("up == 1"), "a first scrape")
    for number in (1, 2, 3):
        made = await live(prometheus, exporter, f"{number}")
        if made.tolerance < 2 * LIVE:
            return made
    raise AssertionError(f"no life was scraped well enough: {made}")


class TestScraped:
    """The use is that of the Pod: not of the pause container, its own cgroup, a longer name or another namespace."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("namespace", "pod", "cores", "memory"),
        [("live", "even", 1.5 + 0.75, 250e6), ("other", "even", 4, 100e6), ("live", "reset", 2, 70e6)],
        ids=["two containers", "another namespace", "a counter that began anew"],
    )
    async def test_use_is_that_of_the_containers_of_the_pod(
        self, caller: Caller, lived: Lived, namespace: str, pod: str, cores: float, memory: float
    ) -> None:
        use = await caller.known(namespace, pod + lived.suffix, lived.began, lived.began + LIVE_SECONDS)
        assert use.cpu == pytest.approx(cores, rel=lived.tolerance)
        assert use.memory == pytest.approx(memory)

    async def test_pod_that_is_gone_is_known(self, caller: Caller, lived: Lived) -> None:
        use = await caller.known("live", f"gone{lived.suffix}", lived.gone_at - LIVE_SECONDS, lived.gone_at)
        assert use.cpu == pytest.approx(0.5, rel=lived.tolerance)
        assert use.memory == pytest.approx(30e6)

    async def test_time_before_the_pod_is_unknown(self, caller: Caller, lived: Lived) -> None:
        assert await caller.use("live", f"even{lived.suffix}", lived.began - 60, lived.began - 1) is None

    async def test_server_that_was_away_is_asked_again(
        self, caller: Caller, lived: Lived, prometheus: PrometheusServer
    ) -> None:
        times = lived.gone_at - LIVE_SECONDS, lived.gone_at
        gone = f"gone{lived.suffix}"
        before = await caller.known("live", gone, *times)
        prometheus.kill()
        with pytest.raises(PrometheusFault):
            await caller.use("live", gone, *times)
        await prometheus.start()
        assert await caller.known("live", gone, *times) == before


def in_turns(seconds: float) -> float:
    """Three cores in every other minute."""
    rounds, rest = divmod(seconds, 120)
    return 3 * (60 * rounds + min(rest, 60))


def early(seconds: float) -> float:
    return 3 * min(seconds, 100)


def late(seconds: float) -> float:
    return 3 * max(0.0, seconds - 500)


def risen(seconds: float) -> float:
    return 1e9 * min(1.0, seconds / 300)


class Written:
    """Containers of one Pod, in a namespace that no other test has. Their samples were written long ago."""

    def __init__(self, caller: Caller, prometheus: PrometheusServer, namespace: str) -> None:
        self._caller = caller
        self._prometheus = prometheus
        self._namespace = namespace

    def container(self, cores: float = 1, memory: float = 100e6, *, name: str = "task", pod: str = "pod") -> Container:
        return Container(self._namespace, pod, name, cores, memory)

    async def use(self, *traces: Trace) -> Use | None:
        """Writes the samples of containers of one Pod, and asks for the use of the Pod."""
        await self._prometheus.write(*traces)
        return await self.asked(*traces)

    async def asked(self, *traces: Trace) -> Use | None:
        """The use from the first begin to the last end."""
        began, ended = min(trace.began for trace in traces), max(trace.ended for trace in traces)
        return await self._caller.use(self._namespace, traces[0].container.pod, began, ended)

    async def known(self, *traces: Trace) -> Use:
        found = await self.use(*traces)
        assert found is not None
        return found


@pytest.fixture
def written(caller: Caller, prometheus: PrometheusServer, own_namespace: str) -> Written:
    return Written(caller, prometheus, own_namespace)


class TestWritten:
    """Samples at the intervals of production, written long ago."""

    @INTERVALS
    async def test_even_use_is_found_exactly(self, written: Written, every: float) -> None:
        began = time.time() - 3000
        for number, after in enumerate((0.01, 0.3, 0.7, 0.99)):
            pod = written.container(1.25, pod=f"pod-{number}")
            ended = began + 3.43 * every
            use = await written.known(Trace(container=pod, began=began, ended=ended, every=every, after=after * every))
            assert use.cpu == pytest.approx(1.25, rel=EXACT)
            assert use.memory == pytest.approx(100e6)

    @INTERVALS
    @pytest.mark.parametrize("used", [in_turns, early, late])
    async def test_uneven_use_is_missed_by_no_more_than_two_intervals(
        self, written: Written, used: Course, every: float
    ) -> None:
        began, pod = time.time() - 3000, written.container()
        use = await written.known(
            Trace(container=pod, began=began, ended=began + 600, every=every, after=every / 2, used=used, memory=risen)
        )
        assert use.cpu == pytest.approx(used(600) / 600, abs=3 * 2 * every / 600)
        assert use.memory == pytest.approx(0.75e9, abs=1e9 * 2 * every / 600)

    async def test_run_of_a_day_is_found_like_one_of_a_minute(self, written: Written) -> None:
        ended = time.time() - 60
        pod = written.container(0.002, 1e12)
        use = await written.known(Trace(container=pod, began=ended - 86_400, ended=ended, every=60))
        assert use.cpu == pytest.approx(0.002, rel=EXACT)
        assert use.memory == pytest.approx(1e12)

    async def test_run_that_was_scraped_once_is_unknown(self, written: Written) -> None:
        began = time.time() - 100
        assert await written.use(Trace(container=written.container(), began=began, ended=began + 10)) is None

    async def test_restarted_container_counts_once(self, written: Written) -> None:
        """The kubelet makes another cgroup for it. So there are two series, one after the other."""
        began, pod = time.time() - 3000, written.container(2, 1e9)
        use = await written.known(
            Trace(container=pod, began=began, ended=began + 300),
            Trace(container=pod, began=began + 300, ended=began + 600, number=2),
        )
        assert use.cpu == pytest.approx(2, rel=2 * 15 / 600)
        assert use.memory == pytest.approx(1e9, rel=15 / 600)

    async def test_node_that_is_scraped_twice_counts_once(self, written: Written) -> None:
        """Two jobs scrape the node, for example one of an older installation."""
        began, pod = time.time() - 3000, written.container(2, 1e9)
        ended = began + 600
        jobs = [Trace(container=pod, began=began, ended=ended, job=f"job-{n}", after=n, every=15 * n) for n in (1, 2)]
        use = await written.known(*jobs)
        assert use.cpu == pytest.approx(2, rel=EXACT)
        assert use.memory == pytest.approx(1e9)

    async def test_container_that_ran_for_a_part_counts_for_a_part(self, written: Written) -> None:
        began = time.time() - 3000
        use = await written.known(
            Trace(container=written.container(1, 4e9, name="init"), began=began, ended=began + 60),
            Trace(container=written.container(), began=began, ended=began + 600),
        )
        assert use.cpu == pytest.approx(1 + 1 * 60 / 600, abs=2 * 15 / 600)
        assert use.memory == pytest.approx(100e6 + 4e9 * 60 / 600, abs=4e9 * 15 / 600)


class TestNames:
    """The `pod_name` of a row is what its container reported: any text."""

    ODD = (
        "a.c",
        "a+",
        ".*",
        'say "hi"',
        "back\\slash",
        "it's",
        "\"'`",
        "{{x}}",
        "new\nline",
        "tab\t",
        "\x01",
        "ä\u2028日本",
    )

    async def test_name_of_a_pod_is_taken_as_it_is(self, written: Written) -> None:
        began = time.time() - 3000
        names = (*self.ODD, "abc", "aa", "a")
        pods = {name: written.container(number, pod=name) for number, name in enumerate(names, 1)}
        traces = {name: Trace(container=pod, began=began, ended=began + 100) for name, pod in pods.items()}
        await written.use(*traces.values())
        uses = {name: await written.asked(trace) for name, trace in traces.items()}
        found = {name: use and use.cpu for name, use in uses.items()}
        assert found == {name: pytest.approx(number, rel=EXACT) for number, name in enumerate(names, 1)}

    @pytest.mark.parametrize("name", [*ODD, "", 'x"} or vector(7) or up{job="', "%s", "{pod}", "x" * 8192])
    async def test_unknown_name_has_no_use(self, caller: Caller, own_namespace: str, name: str) -> None:
        ended = time.time()
        assert await caller.use(own_namespace, name, ended - 60, ended) is None
        assert await caller.use(name, own_namespace, ended - 60, ended) is None
