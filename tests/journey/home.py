"""An installation as `deploy/` makes it: accounts, rights and policy, and programs that log in as their Pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.contract.installed import installed
from tests.controlplane.api import Json
from tests.deployed import ONE_NAMESPACE, POLICY_KINDS, RBAC_KINDS, moved
from tests.dispatching import Dispatcher, Place
from tests.in_pod import write_account


class Home(NamedTuple):
    """An installation: where its Jobs and rows are, what `deploy/` renders for it, and where its programs stand."""

    place: Place
    objects: tuple[Json, ...]
    namespace: str

    def account(self, program: str) -> str:
        return f"{program}-{self.namespace}"

    async def token(self, program: str) -> str:
        return await self.place.control_plane.service_account_token(self.namespace, self.account(program))

    async def dispatcher(self, **settings: object) -> Dispatcher:
        """Not started yet; it will log in as its Pod does."""
        plane, token = self.place.control_plane, await self.token("dispatcher")
        pod = write_account(self.place.folder / "account", plane, token=token, namespace=self.namespace)
        made = Dispatcher(self.place, **settings)
        made.move_into_a_pod(pod)
        return made


@asynccontextmanager
async def moved_in(place: Place, folder: Path) -> AsyncIterator[Home]:
    """Accounts, rights and policy of an overlay: Jobs in the place, programs beside it or in the same namespace."""
    plane, overlay = place.control_plane, place.folder / "overlay"
    overlay.mkdir()
    ours = place.namespace if folder == ONE_NAMESPACE else await plane.create_namespace()
    objects = moved(overlay, folder, (ours, place.namespace))
    wanted = [one for one in objects if one["kind"] in (*RBAC_KINDS, *POLICY_KINDS)]
    async with installed(plane, ours, wanted):
        yield Home(place, objects, ours)
