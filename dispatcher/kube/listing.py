"""A consistent list of one resource, in pages, each object read as the fact it is."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from dispatcher.kube.client import KubeClient, Reply
from dispatcher.kube.objects import UNREADABLE, Meta, Page
from dispatcher.model.errors import ClusterAway

PAGE: Final = 100
T = TypeVar("T")


def by_name(meta: Meta) -> str:
    return meta.name


class Resource(Struct, Generic[T], frozen=True):
    """What is listed: its path, which of it (by label and by field), and how an object becomes a fact (None: not ours).

    `key`: the fact's name, told from metadata alone. `is_optional`: where the API server does not know the kind (404),
    there is none of it.
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
        """As a list and a watch are asked for it."""
        return {"labelSelector": self.selector} | ({"fieldSelector": self.fields} if self.fields else {})


class Listed(Struct, Generic[T], frozen=True):
    """All of it, as of one resource version."""

    items: Sequence[T]
    resource_version: str


async def list_all(client: KubeClient, resource: Resource[T], params: Mapping[str, str] = {}) -> Listed[T]:
    """Consistent, unless `params` name a resourceVersion: never from a cache that lags. ClusterError: not known."""
    found: list[T] = []
    which = {"limit": str(PAGE), **resource.which}
    asked = {**which, **params}
    while True:
        page = read_page(resource, await client.request("GET", resource.path, params=asked), found)
        if not page.metadata.continue_:
            return Listed(found, page.metadata.resource_version)
        asked = {**which, "continue": page.metadata.continue_}
        await asyncio.sleep(0)  # between pages the loop belongs to others


def read_page(resource: Resource[T], reply: Reply, found: list[T]) -> Page:
    doing = f"list {resource.name}"
    page = reply.read(doing, Page)
    try:
        found.extend(fact for raw in page.items if (fact := resource.read(raw)) is not None)
    except UNREADABLE as fault:
        raise ClusterAway(f"{doing}: not what it should list: {fault}") from fault
    return page
