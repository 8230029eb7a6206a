"""An installation made from the chart: accounts, rights and policy. Programs log in with the accounts of their Pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from tests.contract.installed import installed
from tests.controlplane.api import Json
from tests.rig.deployed import POLICY_KINDS, RBAC_KINDS, rendered
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.in_pod import write_account


class Installation(NamedTuple):
    """An installation.

    place: namespace of its Jobs, and the database of its rows.
    objects: what the chart renders for it.
    namespace: where its programs run.
    """

    place: Place
    objects: tuple[Json, ...]
    namespace: str

    async def token(self, program: str) -> str:
        return await self.place.control_plane.service_account_token(self.namespace, program)

    async def dispatcher(self, **settings: object) -> Dispatcher:
        """A dispatcher, not started yet, that logs in with the account of its Pod."""
        plane, token = self.place.control_plane, await self.token("dispatcher")
        pod = write_account(self.place.folder / "account", plane, token=token, namespace=self.namespace)
        made = Dispatcher(self.place, **settings)
        made.move_into_a_pod(pod)
        return made


@asynccontextmanager
async def install(place: Place, variant: str = "default") -> AsyncIterator[Installation]:
    """Applies accounts, rights and policy of a variant of the chart. Jobs are in the place's namespace.

    The programs are in the same namespace for `one-namespace`, otherwise in a namespace of their own.
    """
    plane = place.control_plane
    own = place.namespace if variant == "one-namespace" else await plane.create_namespace()
    objects = rendered(variant, own, jobsNamespace=place.namespace)
    wanted = [one for one in objects if one["kind"] in (*RBAC_KINDS, *POLICY_KINDS)]
    async with installed(plane, own, wanted):
        yield Installation(place, objects, own)
