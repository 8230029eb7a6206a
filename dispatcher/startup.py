"""What every program of ours begins and ends with: its login, its database, its site, its signals."""

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Final

from dispatcher.config import DatabaseSettings, KubeSettings, Settings
from dispatcher.errors import DatabaseAway
from dispatcher.jobs.env import pass_env
from dispatcher.jobs.manifest import Site
from dispatcher.kube.credentials import Login, from_kubeconfig, in_cluster
from dispatcher.loading import reread
from dispatcher.pg.connect import Url

LAST_SECONDS: Final = 27


async def log_in(kube: KubeSettings) -> Login:
    """In-cluster first, as INTERFACE has it; a kubeconfig that is named wins."""
    if kube.kubeconfig is None and (login := in_cluster()) is not None:
        return login
    return await from_kubeconfig(kube.kubeconfig or os.environ.get("KUBECONFIG"), kube.context)


def database_of(database: DatabaseSettings) -> Url:
    """Where the database is, as its file says at each connect."""

    def url() -> str | None:
        try:
            return reread("DATABASE_URL", database.url, os.environ, read_text)
        except OSError as fault:
            raise DatabaseAway(f"DISPATCHER_DATABASE_URL_FILE: {fault}") from fault

    return url


def site_of(settings: Settings, namespace: str) -> Site:
    """What all Jobs of this installation have in common."""
    kube, jobs = settings.kube, settings.jobs
    passed = pass_env(os.environ, jobs.pass_env)
    return Site(
        kube.installation, namespace, jobs.timeout_seconds, jobs.start_deadline_seconds, settings.placement, passed
    )


def read_text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end_soon, stop)
    return stop


def end_soon(stop: asyncio.Event) -> None:
    """Stops in good order; what still hangs after that (a name server that never answers) does not keep us."""
    stop.set()
    last = threading.Timer(LAST_SECONDS, os._exit, (0,))
    last.daemon = True
    last.start()
