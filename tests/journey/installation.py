"""An installation made from `deploy/`: accounts, rights and policy. Programs log in with the accounts of their Pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.contract.installed import installed
from tests.controlplane.api import Json
from tests.deployed import ONE_NAMESPACE, POLICY_KINDS, RBAC_KINDS, moved
from tests.dispatching import Dispatcher, Place
from tests.in_pod import write_account


class Installation(NamedTuple):
    """An installation.

    place: namespace of its Jobs, and the database of its rows.
    objects: what `deploy/` renders for it.
    namespace: where its programs run.
    """

    place: Place
    objects: tuple[Json, ...]
    namespace: str

    def account(self, program: str) -> str:
        return f"{program}-{self.namespace}"

    async def token(self, program: str) -> str:
        return await self.place.control_plane.service_account_token(self.namespace, self.account(program))

    async def dispatcher(self, **settings: object) -> Dispatcher:
        """A dispatcher, not started yet, that logs in with the account of its Pod."""
        plane, token = self.place.control_plane, await self.token("dispatcher")
        pod = write_account(self.place.folder / "account", plane, token=token, namespace=self.namespace)
        made = Dispatcher(self.place, **settings)
        made.move_into_a_pod(pod)
        return made


@asynccontextmanager
async def install_overlay(place: Place, folder: Path) -> AsyncIterator[Installation]:
    """Applies accounts, rights and policy of an overlay. Jobs are in the place's namespace.

    The programs are in the same namespace for ONE_NAMESPACE, otherwise in a namespace of their own.
    """
    plane, overlay = place.control_plane, place.folder / "overlay"
    overlay.mkdir()
    own = place.namespace if folder == ONE_NAMESPACE else await plane.create_namespace()
    objects = moved(overlay, folder, (own, place.namespace))
    wanted = [one for one in objects if one["kind"] in (*RBAC_KINDS, *POLICY_KINDS)]
    async with installed(plane, own, wanted):
        yield Installation(place, objects, own)
