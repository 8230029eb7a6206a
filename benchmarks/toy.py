"""A simple dispatcher, as one writes it in an afternoon: LISTEN, deterministic names, 16 creates at a time.

It shows what our promises cost. Do not use it:

* Jobs that end are not looked at: each row is launched once.
* It has no caps, retries, cancels, standby or rate limit, and ignores the bounds of a template.
* A failed create ends it. After a restart it posts every waiting row again, and is refused.
* It reads the start secret only once, so a rotation breaks it.
* Its memory grows with every row.
"""

import asyncio
import copy
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import yaml

from benchmarks.servers import program
from dispatcher.commands.options import turn
from dispatcher.model.launches import start_key
from tests.rig.dispatching import Place

AT_A_TIME = 16
POLL_SECONDS = 2
ROWS = """
SELECT id, attempt, created_at FROM dispatch_private.tasks
WHERE status = 'waiting' AND run_at IS NULL AND NOT id = ANY ($1::bigint[]) ORDER BY id LIMIT 1000
"""
SECRET = "SELECT start_inner, start_outer FROM dispatch_private.secrets ORDER BY generation DESC LIMIT 1"
LABELS = {"app.kubernetes.io/managed-by": "dispatcher", "dispatcher.internal/installation": "toy"}


class Toy:
    def __init__(self, kubeconfig: dict[str, Any], template: dict[str, Any]) -> None:
        self._server = kubeconfig["clusters"][0]["cluster"]
        self._token = kubeconfig["users"][0]["user"]["token"]
        self._namespace = kubeconfig["contexts"][0]["context"]["namespace"]
        self._template = template
        self._secret = (b"", b"")
        self._made: set[int] = set()
        self._wake = asyncio.Event()

    async def run(self, database_url: str) -> None:
        connection = await asyncpg.connect(database_url)
        self._secret = await read_secret(connection)
        await connection.add_listener("dispatch_tasks", lambda *_: self._wake.set())
        tls = ssl.create_default_context(cafile=self._server["certificate-authority"])
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=AT_A_TIME, ssl=tls, keepalive_timeout=60),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        ) as session:
            print("ready", flush=True)
            while True:
                self._wake.clear()
                rows = await connection.fetch(ROWS, list(self._made))
                await self._launch(session, rows)
                if not rows:
                    await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _launch(self, session: aiohttp.ClientSession, rows: list[asyncpg.Record]) -> None:
        waiting = iter(rows)

        async def post_each() -> None:
            for row in waiting:
                await self._post(session, row)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_A_TIME, len(rows))):
                group.create_task(post_each())

    async def _post(self, session: aiohttp.ClientSession, row: asyncpg.Record) -> None:
        url = f"{self._server['server']}/apis/batch/v1/namespaces/{self._namespace}/jobs"
        async with session.post(url, data=json.dumps(self._job(row))) as answer:
            await answer.read()
            assert answer.status in {201, 409}, answer.status
        self._made.add(row["id"])

    def _job(self, row: asyncpg.Record) -> dict[str, Any]:
        job = copy.deepcopy(self._template)
        labels = {**LABELS, "dispatcher.internal/task-id": str(row["id"])}
        job["metadata"] = {"name": f"toy-{row['id']}-{row['attempt']}", "labels": labels}
        pod = job["spec"]["template"]
        pod["metadata"] = {"labels": labels}
        pod["spec"]["restartPolicy"] = "Never"
        env = {
            "TASK_ID": row["id"],
            "TASK_ATTEMPT": row["attempt"],
            "TASK_LAUNCH": 1,
            "TASK_START_KEY": start_key(self._secret, row["id"], row["created_at"]),
        }
        pod["spec"]["containers"][0]["env"] = [{"name": name, "value": str(value)} for name, value in env.items()]
        return job


async def read_secret(connection: asyncpg.Connection) -> tuple[bytes, bytes]:
    row = await connection.fetchrow(SECRET)
    assert row is not None
    return row["start_inner"], row["start_outer"]


@asynccontextmanager
async def running(place: Place) -> AsyncIterator[int]:
    """Runs the toy as a process. Yields its pid."""
    files = place.folder / "kubeconfig", place.templates / "default.yaml"
    async with program("benchmarks.toy", *files, place.database.url("reader")) as process:
        yield process.pid


if __name__ == "__main__":
    read_kubeconfig, read_template = (yaml.safe_load(Path(path).read_text()) for path in sys.argv[1:3])
    turn(Toy(read_kubeconfig, read_template).run(sys.argv[3]))
