"""Faults of a cluster that a test plants for `dispatcher doctor`. Each is removed at the end."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from dispatcher.doctor.templates import ENFORCED, ENFORCED_VERSION
from tests.controlplane.api import Json
from tests.rig.doctoring import Site


@asynccontextmanager
async def changed(site: Site, path: str, change: Callable[[Json], Json]) -> AsyncIterator[None]:
    """An object with another content, then as it was."""
    before = await site.plane.admin("GET", path)
    kept = {key: value for key, value in before.items() if key in {"rules", "spec"}}
    await site.plane.admin("PATCH", path, change(kept))
    try:
        yield
    finally:
        await site.plane.admin("PATCH", path, kept)


@asynccontextmanager
async def without(site: Site, path: str) -> AsyncIterator[None]:
    """The object is gone, then there again."""
    before = await site.plane.admin("GET", path)
    meta = {key: before["metadata"][key] for key in ("name", "labels", "annotations") if key in before["metadata"]}
    await site.plane.admin("DELETE", path)
    try:
        yield
    finally:
        kept = {key: value for key, value in before.items() if key != "status"}
        await site.plane.admin("POST", path.rpartition("/")[0], kept | {"metadata": meta})


@asynccontextmanager
async def added(site: Site, resource: str, one: Json) -> AsyncIterator[None]:
    """One more object in the namespace of Jobs."""
    path = f"/api/v1/namespaces/{site.jobs}/{resource}"
    await site.plane.admin("POST", path, one)
    try:
        yield
    finally:
        await site.plane.admin("DELETE", f"{path}/{one['metadata']['name']}")


@asynccontextmanager
async def enforced(site: Site, level: str, version: str | None = None) -> AsyncIterator[None]:
    """A Pod Security level of the namespace of Jobs, by the rules of a version of Kubernetes."""
    path = f"/api/v1/namespaces/{site.jobs}"
    await site.plane.admin("PATCH", path, {"metadata": {"labels": {ENFORCED: level, ENFORCED_VERSION: version}}})
    try:
        yield
    finally:
        await site.plane.admin("PATCH", path, {"metadata": {"labels": {ENFORCED: None, ENFORCED_VERSION: None}}})


@asynccontextmanager
async def templated(site: Site, name: str = "default", **pod: object) -> AsyncIterator[None]:
    """One more template, or another `default`."""
    path = site.template(name, **pod)
    try:
        yield
    finally:
        path.unlink()
        site.template()
