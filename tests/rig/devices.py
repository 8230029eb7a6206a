"""Devices as a driver of DRA tells them: a DeviceClass with the name of a resource, and a ResourceSlice for each node.

Pods ask for the resource, and no node has it. kube-scheduler alone knows who has a device: the feature gate
DRAExtendedResource is on since Kubernetes 1.36.
"""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.controlplane.api import Json
from tests.rig.dispatching import Place

GROUP = "/apis/resource.k8s.io/v1"


@asynccontextmanager
async def devices(place: Place, nodes: Sequence[str], each: int) -> AsyncIterator[str]:
    """The name by which Pods ask for one device of these nodes, of which each has so many."""
    admin, name = place.control_plane.admin, f"devices-{secrets.token_hex(4)}"
    driver = f"{name}.example.com"
    slices = [a_slice(f"{name}-{node}", driver, node, each) for node in nodes]
    for one in slices:
        await admin("POST", f"{GROUP}/resourceslices", one)
    await admin("POST", f"{GROUP}/deviceclasses", a_class(name, driver))
    try:
        yield f"example.com/{name}"
    finally:
        await admin("DELETE", f"{GROUP}/deviceclasses/{name}")
        for one in slices:
            await admin("DELETE", f"{GROUP}/resourceslices/{one['metadata']['name']}")


def a_class(name: str, driver: str) -> Json:
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    spec = {"selectors": selectors, "extendedResourceName": f"example.com/{name}"}
    return {"metadata": {"name": name}, "spec": spec}


def a_slice(name: str, driver: str, node: str, count: int) -> Json:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    every = [{"name": f"device-{number}"} for number in range(count)]
    return {"metadata": {"name": name}, "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": every}}
