"""The room that the Pod of a Job would find now, for `dispatcher render`. It is a look from outside.

Pods of ours that wait for a node are not counted, and claims are not known: the running dispatcher knows them.
"""

import asyncio
from typing import Final

from dispatcher.admission.room import Room
from dispatcher.admission.room_index import RoomIndex
from dispatcher.admission.room_view import RoomView
from dispatcher.kube.capacity import PRIORITY_CLASSES, pods_of_all
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import is_cluster_named, log_in
from dispatcher.kube.listing import list_all
from dispatcher.kube.mirror import NODES
from dispatcher.kube.needs import needs_of_manifest
from dispatcher.model.errors import DispatcherError
from dispatcher.model.jobs import Manifest
from dispatcher.model.needs import PodNeeds
from dispatcher.model.verdicts import HoldReason
from dispatcher.settings.definition import Settings

LONGEST_SECONDS: Final = 20
"""Limit of the whole look. The Job is shown in any case."""


async def tell_room(job: Manifest, settings: Settings) -> str:
    """Whether a node has room for the Job's Pod now, as one line; empty if no cluster is named.

    A cluster that cannot be asked is no fault.
    """
    if not is_cluster_named(settings.kube):
        return ""
    if not settings.kube.check_room:
        return "room: not judged, because DISPATCHER_CHECK_ROOM is false"
    needs = needs_of_manifest(job["spec"]["template"]["spec"])
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            view = await read_room(settings)
    except DispatcherError as fault:
        return f"room: not known: {fault}"
    except TimeoutError:
        return f"room: not known: no answer within {LONGEST_SECONDS} s"
    return f"room: {describe_room(needs, view)}"


def describe_room(needs: PodNeeds | None, view: RoomView) -> str:
    room = Room(view)
    if needs is None or view.threshold(needs) is None:
        return "not judged: only the Pod's scheduler can tell"
    if room.has_room(needs):
        return f"node {room.witness[needs]} has room now"
    could_fit, why = view.why_not(needs)
    return f"{HoldReason.NO_ROOM_NOW if could_fit else HoldReason.NEVER_FITS}: {why}"


async def read_room(settings: Settings) -> RoomView:
    """The nodes and what is free on them. Raises ClusterError."""
    client = KubeClient(await log_in(settings.kube))
    try:
        return await room_of(client, settings)
    finally:
        await client.close()


async def room_of(client: KubeClient, settings: Settings) -> RoomView:
    """The same, with the client of the caller."""
    scheduler = settings.placement.scheduler_name
    index = RoomIndex([scheduler] if scheduler else [])
    pods = pods_of_all(settings.kube.namespace or client.namespace, settings.kube.installation, scheduler)
    for node in (await list_all(client, NODES)).items:
        index.hear_node(None, node)
    for pod in (await list_all(client, pods)).items:
        index.hear_pod(None, pod)
    for one in (await list_all(client, PRIORITY_CLASSES)).items:
        index.hear_priority_class(None, one)
    return index.view()
