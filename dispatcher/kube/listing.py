"""Lists one resource consistently, in pages, and reads each object as a fact."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from dispatcher.kube.client import KubeClient, Reply
from dispatcher.kube.wire import UNREADABLE, Meta, Page
from dispatcher.model.errors import ClusterAway

PAGE: Final = 100
T = TypeVar("T")


def by_name(meta: Meta) -> str:
    return meta.name


class Resource(Struct, Generic[T], frozen=True):
    """Which objects to list, and how to read them.

    name: name in metrics, logs and faults.
    path: path of the collection.
    read: makes a fact of an object; None: the object is not ours.
    selector: label selector.
    fields: field selector.
    key: the fact's name, from metadata alone.
    is_optional: a 404 means that the API server does not know the kind, so there are no such objects.
    """

    name: str
    path: str
    read: Callable[[msgspec.Raw], T | None]
    selector: str = ""
    fields: str = ""
    key: Callable[[Meta], str] = by_name
    is_optional: bool = False

    @property
    def which(self) -> dict[str, str]:
        """Query parameters that select the objects, for a list and for a watch."""
        return {"labelSelector": self.selector} | ({"fieldSelector": self.fields} if self.fields else {})


class Listed(Struct, Generic[T], frozen=True):
    """All objects, as of one resource version."""

    items: Sequence[T]
    resource_version: str


async def list_all(client: KubeClient, resource: Resource[T], params: Mapping[str, str] = {}) -> Listed[T]:
    """Lists all objects. The list never comes from a lagging cache, unless `params` name a resourceVersion.

    Raises ClusterError if any page is missing.
    """
    found: list[T] = []
    which = {"limit": str(PAGE), **resource.which}
    asked = {**which, **params}
    while True:
        page = read_page(resource, await client.request("GET", resource.path, params=asked), found)
        if not page.metadata.continue_:
            return Listed(found, page.metadata.resource_version)
        asked = {**which, "continue": page.metadata.continue_}
        await asyncio.sleep(0)  # lets other coroutines run between pages


def read_page(resource: Resource[T], reply: Reply, found: list[T]) -> Page:
    doing = f"list {resource.name}"
    page = reply.read(doing, Page)
    try:
        found.extend(fact for raw in page.items if (fact := resource.read(raw)) is not None)
    except UNREADABLE as fault:
        raise ClusterAway(f"{doing}: not what it should list: {fault}") from fault
    return page
