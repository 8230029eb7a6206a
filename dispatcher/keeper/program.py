"""`dispatcher cache-keeper`: measures and removes the cache directories of its node, and reports them.

    Pods of this node, orders ─▶ keeper.keeping ─▶ directories ─▶ metrics, ConfigMap {INSTALLATION}-cache-NODE

The keeper needs no database. Its account may list Pods, and write ConfigMaps of our namespace and Events. One kind of
round removes directories, another one measures them, and a third one writes the ConfigMap. So neither a long
measurement nor a refused write stops a removal.

`drop`: `dispatcher cache drop`, an order to the cache keepers, in the ConfigMap {INSTALLATION}-cache-orders.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import click
import msgspec
import structlog

from dispatcher.keeper.folder import CacheFolder, KeeperPace, Root, Survey
from dispatcher.keeper.keeping import CacheRounds, Round
from dispatcher.keeper.plan import LASTS, Marks, Removal, order_entry, orders_for, over, plan_removals
from dispatcher.kube.client import KubeClient
from dispatcher.kube.config_maps import CachePod, ConfigMaps, pods_of_node
from dispatcher.kube.credentials import log_in
from dispatcher.kube.events import Events
from dispatcher.kube.reflector import Reflectors, fault_of, list_all
from dispatcher.model.caches import CACHES_OF, KEY, ORDERS, name_of_map, write_node_caches
from dispatcher.model.errors import ClusterStale, DiskError, SettingsError
from dispatcher.model.jobs import Notice
from dispatcher.model.launches import LABEL_INSTALLATION
from dispatcher.placement.placing import cache_digest, cache_folder, cache_path
from dispatcher.runtime import health
from dispatcher.runtime.metrics import (
    CACHE_BYTES,
    CACHE_DIRECTORIES,
    CACHE_DISK_HIGH,
    CACHE_DISK_USED,
    CACHE_REFUSED,
    CACHE_REMOVED,
    CACHE_UNMEASURED,
    CACHE_UNUSED,
    OF_JANITOR,
    OF_ROWS,
    OF_RUN,
)
from dispatcher.runtime.rounds import Rounds, Wake, stop_on_signals
from dispatcher.settings.definition import KeeperSettings, Settings

log = structlog.get_logger(component="cache-keeper")

DISK_FULL: Final = "CacheDiskFull"
WARN_SECONDS: Final = 3600
"""Seconds between two Events about a full disk."""
TELL_SECONDS: Final = 60
"""Seconds between two reports."""
MEASURE_SECONDS: Final = 5
"""Seconds between two rounds of measurements."""
FIRST_SECONDS: Final = 30
"""Seconds for which the first report waits for the sizes."""


async def run(settings: Settings, *, dry_run: bool = False) -> None:
    """Runs until SIGTERM or SIGINT. With `dry_run`: prints what one round would remove, and changes nothing."""
    path, name = place_of(settings)
    client = KubeClient(await log_in(settings.kube))
    try:
        node = KeptNode(client, settings, name)
        if dry_run:
            await preview(Root(path), path, node, marks_of(settings.keeper))
        else:
            with contextlib.closing(CacheFolder(path)) as folder:
                tell_foreign(folder, path)
                survey = Survey(folder, path, KeeperPace())
                keeping = CacheRounds(folder, survey, node, marks_of(settings.keeper))
                await serve(keeping, survey, node, settings, stop_on_signals())
    finally:
        await client.close()


def tell_foreign(folder: Root, path: str) -> None:
    """Logs the names in the folder that are no cache directories. The keeper does not touch them."""
    if names := folder.foreign():
        log.warning("not cache directories, left alone", folder=path, number=len(names), first=names[:5])


def place_of(settings: Settings) -> tuple[str, str]:
    """The folder of this installation's caches, and the name of the node. Raises SettingsError if one is not known."""
    root, node = settings.placement.cache_root, os.environ.get("NODE_NAME", "")
    faults = []
    if not root:
        faults.append("DISPATCHER_CACHE_ROOT is not set: there are no caches to keep")
    if not node:
        faults.append("NODE_NAME is not set: set it to the name of the node (the chart does, from spec.nodeName)")
    if faults:
        raise SettingsError(tuple(faults))
    return cache_folder(root, settings.kube.installation), node


def marks_of(settings: KeeperSettings) -> Marks:
    return Marks(
        settings.high_percent / 100, settings.low_percent / 100, settings.max_age_days, settings.max_bytes or 0
    )


class KeptNode:
    """The keeper's knowledge of its node and of the cluster."""

    def __init__(self, client: KubeClient, settings: Settings, name: str) -> None:
        self.name = name
        self._own_uid = os.environ.get("POD_UID", "")
        self.client = client
        self.reflectors = Reflectors(client)
        namespace, installation = settings.kube.namespace or client.namespace, settings.kube.installation
        here, nowhere = pods_of_node(namespace, name), pods_of_node(namespace, "")
        self._live = here, nowhere
        self.watched = self.reflectors.of(here)
        self.maps = ConfigMaps(client, client.own_namespace or namespace, installation, more=marked(installation))

    def now(self) -> float:
        return self.client.now().timestamp()

    def pods(self) -> Iterable[CachePod]:
        """The living Pods. Raises ClusterStale if they are not known now, so that nothing may be removed."""
        if fault := fault_of(self.watched):
            raise ClusterStale(fault)
        return self._others(self.watched.store.values())

    async def live_pods(self) -> Sequence[CachePod]:
        return self._others([pod for one in self._live for pod in (await list_all(self.client, one)).items])

    def _others(self, pods: Iterable[CachePod]) -> Sequence[CachePod]:
        """The Pods without the keeper's own. It mounts all caches, and may stand in the namespace of Jobs."""
        return [pod for pod in pods if pod.uid != self._own_uid]

    async def ordered(self) -> Mapping[str, float]:
        return orders_for(self.name, await self.maps.read_all(ORDERS), self.client.now())


def marked(installation: str) -> Mapping[str, Any]:
    """The label by which the dispatcher finds reports of keepers, and the keeper's Pod as their owner.

    Kubernetes deletes the ConfigMap with the Pod. So a node that was replaced under its name has no old report.
    """
    found: dict[str, Any] = {"labels": {LABEL_INSTALLATION: installation, **CACHES_OF}}
    pod, uid = os.environ.get("POD_NAME"), os.environ.get("POD_UID")
    if pod and uid:
        found["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}]
    return found


async def serve(
    keeping: CacheRounds, survey: Survey, node: KeptNode, settings: Settings, stop: asyncio.Event
) -> None:  # fmt: skip
    """Runs the rounds until `stop`. A removal that has begun is finished by the next start."""
    telling = KeeperReport(keeping, node, settings)
    rounds = Rounds("cache-keeper", lambda: keep(keeping, node), Wake())
    measuring = Rounds("measuring", lambda: measure(keeping, survey, node), Wake(), is_vital=False)
    beside = Rounds("telling", telling.run_once, Wake(), is_vital=False)
    node.watched.on_list(rounds.nudge)
    CACHE_DISK_HIGH.set(settings.keeper.high_percent / 100)
    checks = {"caches": lambda: rounds.fault, "pods": lambda: fault_of(node.watched)}
    server = await health.serve(
        health.build_app(checks, (*OF_RUN, *OF_ROWS, *OF_JANITOR)), settings.service.listen_address
    )
    try:
        work = [node.reflectors.run(), rounds.run(stop), measuring.run(stop), beside.run(stop), stop.wait()]
        tasks = [asyncio.create_task(one) for one in work]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()  # a bug ends the program
    finally:
        await server.cleanup()


async def keep(keeping: CacheRounds, node: KeptNode) -> float:
    """Runs one round, and sets its metrics."""
    try:
        return await keeping.run_once()
    except OSError as fault:
        raise DiskError(f"a round over the cache directories: {fault}") from fault
    finally:
        with contextlib.suppress(OSError):  # the round has told of such a disk
            if (found := keeping.found) is not None:
                count(found.removed, node.now())
                show(found)


async def measure(keeping: CacheRounds, survey: Survey, node: KeptNode) -> float:
    """Measures the directories that may have changed."""
    try:
        await survey.measure(node.now())
        if (found := keeping.found) is not None:
            show(found)
    except OSError as fault:
        raise DiskError(f"a measurement of the cache directories: {fault}") from fault
    return MEASURE_SECONDS


class KeeperReport:
    """Reports the result of the last round: the ConfigMap of the node, and an Event on the Node."""

    def __init__(self, keeping: CacheRounds, node: KeptNode, settings: Settings) -> None:
        self._keeping = keeping
        self._node = node
        self._events = Events(node.client, f"{settings.kube.installation}-cache-keeper")
        self._written = ""
        self._warned_at = float("-inf")
        self._began = node.now()

    async def run_once(self) -> float:
        found = self._keeping.found
        if found is None or (found.unsure and self._node.now() < self._began + FIRST_SECONDS):
            return 1
        await self._write(found)
        await self._warn(found)
        return TELL_SECONDS

    async def _write(self, found: Round) -> None:
        directories = ((one.name, one.size, one.last_use) for one in found.directories)
        text = write_node_caches(self._node.name, directories)
        if text != self._written:
            await self._node.maps.write(name_of_map(self._node.name), KEY, text)
            self._written = text

    async def _warn(self, found: Round) -> None:
        if found.is_stuck and self._node.now() - self._warned_at >= WARN_SECONDS:
            words = (
                f"The disk of the caches is {found.disk.used_part:.0%} full, and no cache directory is left that may "
                "go. Something else fills it, or the directories that Pods use."
            )
            notice = Notice("Node", f"/{self._node.name}", self._node.name, DISK_FULL, words, is_warning=True)
            await self._events.tell(notice)
            self._warned_at = self._node.now()


def show(found: Round) -> None:
    for state, is_in_use in (("in_use", True), ("idle", False)):
        some = [one for one in found.directories if (one.name in found.in_use) is is_in_use]
        CACHE_BYTES.labels(state).set(sum(one.size for one in some))
        CACHE_DIRECTORIES.labels(state).set(len(some))
    CACHE_UNMEASURED.set(sum(not one.is_whole for one in found.directories))
    CACHE_REFUSED.set(len(found.refused))
    CACHE_DISK_USED.set(found.disk.used_part)


def count(removed: Iterable[Removal], now: float) -> None:
    for removal in removed:
        CACHE_REMOVED.labels(removal.cause).inc()
        CACHE_UNUSED.observe(max(0.0, now - removal.directory.last_use))


async def preview(folder: Root, path: str, node: KeptNode, marks: Marks) -> None:
    """Prints what a round would remove."""
    survey = Survey(folder, path, KeeperPace())
    await survey.look(await node.live_pods(), node.now())
    await survey.measure(node.now())
    directories, in_use = survey.directories(node.now()), survey.users.names
    disk, marks = folder.disk(), msgspec.structs.replace(marks, ordered=await node.ordered())
    for one in plan_removals(directories, in_use, disk, marks, node.now()):
        gone, least = one.directory, "" if one.directory.is_whole else "at least "
        click.echo(f"{PurePosixPath(path, gone.name)}  {least}{gone.size} bytes, {gone.files} inodes: {one.cause}")
    click.echo(f"{len(directories)} cache directories, {len(in_use)} in use; {disk.used_part:.0%} of the disk is used")


async def drop(settings: Settings, which: tuple[str, str], node: str | None, namespace: str | None) -> str:
    """Writes the order, and removes the orders that are over. Returns the order in words. Raises ClusterError.

    which: queue and key.
    namespace: the namespace of our programs; None: that of the account.
    """
    installation = settings.kube.installation
    digest = cache_digest(installation, *which)
    client = KubeClient(await log_in(settings.kube))
    try:
        ours = namespace or client.own_namespace or client.namespace
        maps = ConfigMaps(client, ours, installation)
        known = await maps.read_all(ORDERS)  # the answer sets the clock, too
        name, value = order_entry(digest, node, client.now())
        await maps.change(ORDERS, {**dict.fromkeys(over(known, client.now())), name: value})
    finally:
        await client.close()
    path = cache_path(settings.placement.cache_root or "CACHE_ROOT", installation, digest)
    where = f"on node {node}" if node else "on every node"
    order = f"ordered of the keepers in namespace {ours}"
    return f"{order}: {path} goes {where} as soon as no Pod uses it, within {LASTS.days} days"
