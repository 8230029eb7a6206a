"""The whole cluster: `async with EmbeddedCluster() as cluster` serves it on loopback until the block ends."""

import asyncio
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

import yaml
from aiohttp import web

from dispatcher.local.cluster.api import Api
from dispatcher.local.cluster.controllers import Controllers
from dispatcher.local.cluster.kinds import NAMESPACE, Target
from dispatcher.local.cluster.registry import Registry
from dispatcher.local.cluster.storage import Storage
from dispatcher.runtime.listening import Site

NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


def utc_now() -> datetime:
    return datetime.now(UTC)


class EmbeddedCluster:
    """API server and controllers, on a free port."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self.registry = Registry(Storage(), utc_now)
        self.url = ""

    async def __aenter__(self) -> Self:
        for name in NAMESPACES:
            self.registry.create(Target(NAMESPACE), {"metadata": {"name": name}})
        self._controlling = asyncio.create_task(Controllers(self.registry, utc_now).run())
        self._runner = web.AppRunner(Api(self.registry, self.token).app(), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await Site(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        self._controlling.cancel()
        with suppress(asyncio.CancelledError):
            await self._controlling

    def write_kubeconfig(self, path: Path, namespace: str = "default") -> Path:
        """Writes a kubeconfig, readable for this account alone: its token allows to run processes of this machine.

        The token is also in the server's address: kubectl sends no token of a user without TLS.
        """
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "embedded",
            "clusters": [{"name": "embedded", "cluster": {"server": f"{self.url}/{self.token}"}}],
            "users": [{"name": "embedded", "user": {"token": self.token}}],
            "contexts": [
                {"name": "embedded", "context": {"cluster": "embedded", "user": "embedded", "namespace": namespace}}
            ],
        }))  # fmt: skip
        return path
