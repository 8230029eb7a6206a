"""`dispatcher logs ID`: the output of a row's container, with the caller's own rights, and what is known without it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from dispatcher.explain import launches
from dispatcher.explain.launches import LaunchFacts
from dispatcher.explain.status import InstallationStatus
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.kube.listing import Resource, list_all
from dispatcher.kube.objects import read_pod as as_pod
from dispatcher.kube.wire import WirePod
from dispatcher.model import identity as ids
from dispatcher.model.cluster import Pod
from dispatcher.model.errors import DispatcherError
from dispatcher.model.texts import printable
from dispatcher.programs.explaining import ask_row
from dispatcher.programs.reaching import Where, reached
from dispatcher.settings.definition import Settings

LOOK_SECONDS: Final = 2
NO_LIMIT: Final = None
Echo = Callable[[str], None]


class Wanted(Struct, frozen=True):
    """Which output: of the newest launch, or of the newest one with these numbers."""

    task: int
    attempt: int | None = None
    launch: int | None = None

    @property
    def selector(self) -> str:
        numbers = {ids.LABEL_TASK_ID: self.task, ids.LABEL_ATTEMPT: self.attempt, ids.LABEL_LAUNCH: self.launch}
        return ",".join(f"{key}={number}" for key, number in numbers.items() if number is not None)

    def means(self, one: LaunchFacts) -> bool:
        return self.attempt in {None, one.attempt} and self.launch in {None, one.launch}


class JobsPlace(Struct, frozen=True):
    """Where the Jobs of an installation are."""

    namespace: str
    installation: str

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods"


class LaunchPod(Struct, frozen=True):
    """A Pod of the row. `container`: the one that runs the task."""

    wire: WirePod
    pod: Pod
    container: str

    @property
    def number(self) -> tuple[int, int]:
        labels = self.wire.metadata.labels or {}
        attempt, launch = (labels.get(key, "") for key in (ids.LABEL_ATTEMPT, ids.LABEL_LAUNCH))
        return (int(attempt), int(launch)) if attempt.isdecimal() and launch.isdecimal() else (0, 0)


async def logs(wanted: Wanted, where: Where, settings: Settings, *, follow: bool, echo: Echo) -> int:
    """Prints the output of the row's newest launch. Returns the exit status; 1: there is no output.

    follow: waits until the container starts, and goes on until it ends.
    """
    client = KubeClient(await log_in(settings.kube))
    try:
        place = await place_of_jobs(where, settings)
        found = await newest(client, place, wanted)
        while follow and found is not None and not launches.has_log(found.pod):
            await asyncio.sleep(LOOK_SECONDS)
            found = await newest(client, place, wanted)
        if found is not None and launches.has_log(found.pod):
            async with aclosing(output(client, place, found, follow=follow)) as lines:
                async for line in lines:
                    echo(printable(line))
            return 0
    finally:
        await client.close()
    return await remembered(wanted, where, settings, echo)


async def place_of_jobs(where: Where, settings: Settings) -> JobsPlace:
    """Where the Jobs are: as DISPATCHER_NAMESPACE says, otherwise as the dispatcher says. Raises DispatcherError."""
    if settings.kube.namespace:
        return JobsPlace(settings.kube.namespace, settings.kube.installation)
    try:
        async with reached(where, settings) as api:
            status = await api.ask("status", InstallationStatus)
    except DispatcherError as fault:
        raise DispatcherError(
            f"the namespace of Jobs is not known: {fault}; or set DISPATCHER_NAMESPACE to the namespace of Jobs"
        ) from fault
    return JobsPlace(status.jobs_namespace, status.installation)


async def newest(client: KubeClient, place: JobsPlace, wanted: Wanted) -> LaunchPod | None:
    """Raises ClusterError."""
    selector = f"{ids.LABEL_INSTALLATION}={place.installation},{wanted.selector}"
    found = await list_all(client, Resource("pods", place.pods, read_pod, selector=selector))
    return max(found.items, key=lambda one: (one.number, one.pod.created_at), default=None)


def read_pod(raw: msgspec.Raw) -> LaunchPod:
    wire = msgspec.json.decode(raw, type=WirePod)
    names = [container.name for container in wire.spec.containers]
    return LaunchPod(wire, as_pod(raw), "task" if "task" in names else next(iter(names), ""))


async def output(client: KubeClient, place: JobsPlace, found: LaunchPod, *, follow: bool) -> AsyncGenerator[str, None]:
    """The lines of the container's output. Raises ClusterError."""
    path = f"{place.pods}/{quote(found.pod.name, safe='')}/log"
    asked = {"container": found.container, "follow": str(follow).lower()}
    async with aclosing(client.lines("GET", path, asked, limit=NO_LIMIT, silence=NO_LIMIT)) as lines:
        async for line in lines:
            if line:
                yield line.decode(errors="replace").removesuffix("\n")


async def remembered(wanted: Wanted, where: Where, settings: Settings, echo: Echo) -> int:
    """Prints what the database and the Job know of a launch whose Pod is gone, or why there was no launch."""
    async with reached(where, settings) as api:
        found = await ask_row(api, wanted.task)
    known = [one for one in found.launches if wanted.means(one)]
    for one in known[-1:]:
        echo(printable("\n".join(launches.in_words(one))))
        echo(f"task {wanted.task}: no output is left but this" if one.error else f"task {wanted.task}: no output")
    if not known:
        echo(printable(f"task {wanted.task} has no such launch; {found.reason or found.status}: {found.message}"))
    return 0 if any(one.error for one in known) else 1
