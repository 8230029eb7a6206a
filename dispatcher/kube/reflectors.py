"""The reflectors of one process, one for each resource, so that nothing is listed and watched twice.

This is what client-go calls a shared informer factory.
"""

import asyncio
from functools import partial
from typing import Any, Final, TypeVar

from dispatcher.kube.client import KubeClient
from dispatcher.kube.listing import Resource
from dispatcher.kube.reflector import Pace, Reflector
from dispatcher.kube.store import Named
from dispatcher.model.snapshot import StoreAge
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.metrics import STORE_AGE

T = TypeVar("T", bound=Named)
MOST_SECONDS = 100
"""A store without proof for longer is stale. Bookmarks come about once a minute; 90 s of silence end a watch."""
MOST_SHOWN: Final = 1e9
"""Age of a store that was never listed, as the metric shows it."""


class Reflectors:
    """All reflectors of a process. Every resource must be asked for before `run`."""

    def __init__(self, client: KubeClient, pace: Pace = Pace()) -> None:
        self.client = client
        self._pace = pace
        self._made: dict[Resource[Any], Reflector[Any]] = {}

    def of(self, resource: Resource[T]) -> Reflector[T]:
        """The reflector of a resource. Equal resources share one."""
        if resource not in self._made:
            self._made[resource] = Reflector[T](self.client, resource, self._pace)
            STORE_AGE.labels(resource.name).set_function(partial(self._age, resource.name))
        return self._made[resource]

    def _age(self, name: str) -> float:
        """Age of the oldest store of this kind of object, at most MOST_SHOWN seconds."""
        now = elapsed()
        return max(min(one.store.age(now), MOST_SHOWN) for kind, one in self._made.items() if kind.name == name)

    def ages(self) -> list[StoreAge]:
        """The age of each store."""
        now = elapsed()
        return [StoreAge(kind.name, one.store.age(now), MOST_SECONDS, one.fault) for kind, one in self._made.items()]

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._made.values():
                group.create_task(reflector.run())


def fault_of(reflector: Reflector[Any]) -> str:
    """Why the store must not be used for decisions; empty if it is fresh."""
    age = reflector.store.age(elapsed())
    if reflector.fault or age > MOST_SECONDS:
        return f"{reflector.resource.name}: {reflector.fault or f'no sign of life for {age:.0f} s'}"
    return ""


def faults_of(*reflectors: Reflector[Any]) -> str:
    """The faults of all of them in one line; empty if all are fresh."""
    return "; ".join(fault for one in reflectors if (fault := fault_of(one)))
