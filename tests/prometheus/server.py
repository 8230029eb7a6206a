"""A Prometheus for a test. It starts empty on loopback, and the test queries it by its HTTP API.

All its files are in one temporary folder. Failure story: if Prometheus dies, `wait_for` fails with the end of its log.
Leaving the context kills it and removes the folder, also after a start that failed half way.
"""

import asyncio
import io
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import aiohttp
import yaml

from tests.controlplane import waiting
from tests.controlplane.binaries import PROMETHEUS, programs
from tests.controlplane.ports import free_ports
from tests.controlplane.processes import Server
from tests.prometheus.traces import PATH, Trace, body

T = TypeVar("T")
SCRAPE_SECONDS = 0.2
EVALUATION_SECONDS = 0.5
START_SECONDS = 30  # a cold disk and a busy machine; on an idle one it is half a second
OLDEST = "2d"
"""The greatest age of samples that a test writes, also after newer samples."""


class Target(NamedTuple):
    """A program that is scraped. `labels`: those that the scrape adds."""

    address: str
    labels: Mapping[str, str] = {}


class PrometheusServer:
    """Scrapes the targets every `scrape_seconds`, and evaluates `rules` (a rule file) each EVALUATION_SECONDS."""

    def __init__(self, *targets: Target, rules: str = "", scrape_seconds: float = SCRAPE_SECONDS) -> None:
        self._targets = targets
        self._scrape_seconds = scrape_seconds
        self._rules = rules
        self._folder: Path | None = None
        self._server: Server | None = None
        self._session: aiohttp.ClientSession | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        try:
            program = (await asyncio.to_thread(programs, PROMETHEUS))["prometheus"]
            self._folder = Path(tempfile.mkdtemp(prefix="prometheus-"))
            self._session = aiohttp.ClientSession()
            self._server = Server("prometheus", self._command(program), self._folder / "log")
            await self.start()
        except BaseException:  # Ctrl-C, too: the server ends
            await self._leave()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def _leave(self) -> None:
        if self._server is not None:
            self._server.kill()
        if self._session is not None:
            await self._session.close()
        if self._folder is not None:
            shutil.rmtree(self._folder)

    def _command(self, program: Path) -> list[str]:
        assert self._folder is not None
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        (self._folder / "prometheus.yaml").write_text(yaml.safe_dump(self._config()))
        (self._folder / "rules.yaml").write_text(self._rules)
        return [
            str(program),
            f"--config.file={self._folder}/prometheus.yaml",
            f"--storage.tsdb.path={self._folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-otlp-receiver",
            "--scrape.discovery-reload-interval=100ms",  # the time before the first scrape
            "--log.level=warn",
        ]

    def _config(self) -> dict[str, Any]:
        often = f"{round(self._scrape_seconds * 1000)}ms"
        scraped = [{"targets": [one.address], "labels": dict(one.labels)} for one in self._targets]
        return {
            "global": {
                "scrape_interval": often,
                "scrape_timeout": often,
                "evaluation_interval": f"{round(EVALUATION_SECONDS * 1000)}ms",
            },
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "cadvisor", "static_configs": scraped}],
            "storage": {"tsdb": {"out_of_order_time_window": OLDEST}},
        }

    # Calls of a test

    async def start(self) -> None:
        """Starts Prometheus. After `kill` it starts again with its data."""
        assert self._server is not None
        self._server.start()
        await self.wait_for(self._is_ready, "Prometheus", START_SECONDS)

    def kill(self) -> None:
        assert self._server is not None
        self._server.kill()

    async def write(self, *traces: Trace) -> None:
        """Writes samples, as if Prometheus had scraped them at their times."""
        headers = {"Content-Type": "application/json"}
        async with self.session.post(self.url + PATH, data=io.BytesIO(body(traces)), headers=headers) as answer:
            assert answer.status == 200, await answer.text()

    async def query(self, query: str) -> list[Any]:
        """The result of an instant query at the current time."""
        async with self.session.post(f"{self.url}/api/v1/query", data={"query": query}) as answer:
            content = await answer.json()
            assert content["status"] == "success", content
            found: list[Any] = content["data"]["result"]
            return found

    async def alerts(self) -> list[Any]:
        """The alerts that fire now, with labels and annotations as their receivers get them."""
        async with self.session.get(f"{self.url}/api/v1/alerts") as answer:
            content = await answer.json()
            assert content["status"] == "success", content
            return [one for one in content["data"]["alerts"] if one["state"] == "firing"]

    async def wait_for(self, predicate: Callable[[], Awaitable[T]], what: str, seconds: float = 20) -> T:
        assert self._server is not None
        return await waiting.wait_for(predicate, what, seconds, check=self._server.check)

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self._session is not None, "Prometheus is not running"
        return self._session

    async def _is_ready(self) -> bool:
        try:
            async with self.session.get(f"{self.url}/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False
