"""The objects of the chart at the real API server: in namespaces of their own, and removed again with the test."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dispatcher.jobs.catalog import built_in
from dispatcher.jobs.manifest import build_job
from dispatcher.jobs.templates import Template
from dispatcher.model.caches import CacheHistory
from dispatcher.startup import placing_of, site_of
from tests.controlplane.api import Api, Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.rig.builders import a_request, an_order
from tests.rig.deployed import pod_templates, rendered, settings_of


class Installed:
    """The objects as the API server keeps them; `namespace`: where our programs are."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self._apis: dict[str, Api] = {}

    async def create(self, one: Json) -> str:
        """Creates the object as `kubectl apply` does, with unknown fields refused. Returns its path."""
        collection, _ = await self.plane._place(one, one["metadata"].get("namespace", self.namespace))
        await self.plane.admin("POST", collection, one, params={"fieldValidation": "Strict"})
        return f"{collection}/{one['metadata']['name']}"

    async def look(self, path: str, **params: str) -> Json:
        return await self.plane.admin("GET", path.format(namespace=self.namespace), params=params)

    async def account(self, name: str) -> Api:
        """The API server, asked as that ServiceAccount of the installation."""
        if name not in self._apis:
            token = await self.plane.service_account_token(self.namespace, name)
            self._apis[name] = Api(self.plane.url, self.plane.ca_file, token)
        return self._apis[name]

    async def close(self) -> None:
        for api in self._apis.values():
            await api.close()


@asynccontextmanager
async def installed(plane: ControlPlane, namespace: str, objects: Iterable[Json]) -> AsyncIterator[Installed]:
    """Creates the objects, and deletes them again at the end."""
    there, made = Installed(plane, namespace), list[str]()
    try:
        for one in objects:
            made += [await there.create(one)]
        yield there
    finally:
        await there.close()
        for path in reversed(made):
            await plane.remove(path)


class Site:
    """An installation with two namespaces, its accounts, and Jobs as its own renderer makes them."""

    def __init__(self, there: Installed, objects: tuple[Json, ...]) -> None:
        self.plane = there.plane
        self.namespace = there.namespace
        self.account = there.account
        self.settings = settings_of(objects, "run").settings
        self.jobs = self.settings.kube.namespace or ""
        self.policy = f"{self.settings.kube.installation}.{there.namespace}"
        templates = pod_templates(objects)
        self.dispatcher = str(templates["run"]["spec"]["serviceAccountName"])
        self.janitor = str(templates["janitor"]["spec"]["serviceAccountName"])

    def path(self, namespace: str = "", name: str = "") -> str:
        collection = f"/apis/batch/v1/namespaces/{namespace or self.jobs}/jobs"
        return f"{collection}/{name}" if name else collection

    def job(self, cache_key: str | None = None) -> Json:
        """A Job of the built-in template, for a row with that cache key."""
        template = built_in(self.settings.jobs)["default"]
        assert isinstance(template, Template)
        placement = placing_of(self.settings).plan("default", a_request(cache_key=cache_key), CacheHistory())
        order = an_order(template, placement=placement, cache_key=cache_key)
        made = build_job(order, template, site_of(self.settings, self.jobs))
        copied: Json = msgspec.json.decode(msgspec.json.encode(made))
        return copied

    async def sends(self, account: str, job: Json, namespace: str = "", **params: str) -> Json:
        """The Job as the API server would keep it; unknown fields are refused."""
        asked = {"fieldValidation": "Strict", **params}
        return await (await self.account(account)).request("POST", self.path(namespace), job, params=asked)

    async def grant(self, namespace: str, account: str, verb: str) -> None:
        """Gives the account one more verb on Jobs of a namespace."""
        group = "rbac.authorization.k8s.io"
        name = f"{verb}-{account}"
        rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": [verb]}]
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self.namespace}
        path = f"/apis/{group}/v1/namespaces/{namespace}"
        await self.plane.admin("POST", f"{path}/roles", {"metadata": {"name": name}, "rules": rules})
        role = {"apiGroup": group, "kind": "Role", "name": name}
        bound = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        await self.plane.admin("POST", f"{path}/rolebindings", bound)

    async def is_guarded(self) -> None:
        """Waits until the API server judges by the policy and its lists, which takes it a moment."""
        foreign = self.job()
        foreign["metadata"]["labels"] = {"whose": "others"}  # without labels, the Job would get those of its Pod

        async def is_in_force() -> bool:
            try:
                await self.sends(self.dispatcher, self.job(), dryRun="All")
                await self.sends(self.dispatcher, foreign, dryRun="All")
            except KubeFault as fault:
                return "have the labels" in str(fault)
            return False

        await self.plane.wait_for(is_in_force, "the policy is in force", 30)


@asynccontextmanager
async def guarded(plane: ControlPlane, **values: Any) -> AsyncIterator[Site]:
    """An installation with programs in one namespace and Jobs in another, whose policy is in force."""
    places = await plane.create_namespace(), await plane.create_namespace()
    objects = rendered(namespace=places[0], jobsNamespace=places[1], **values)
    async with installed(plane, places[0], objects) as there:
        site = Site(there, objects)
        await site.is_guarded()
        yield site
    for namespace in places:
        await plane.delete_namespace(namespace)


def a_job(**spec: object) -> Json:
    """A Job that no program of ours made."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "task", "image": "x:1"}]}
    return {"metadata": {"name": "of-a-task"}, "spec": {**spec, "template": {"spec": pod}}}
