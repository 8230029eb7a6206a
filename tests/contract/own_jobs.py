"""The dispatcher at the real API server: its client, its ServiceAccount, and Jobs as the dispatcher makes them."""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import msgspec

from dispatcher.jobs.manifest import build_job
from dispatcher.kube.client import SILENCE_SECONDS, Access, KubeClient
from dispatcher.kube.credentials import Login, TokenFile
from dispatcher.kube.job_api import JobApi
from dispatcher.model.jobs import Job, Manifest
from dispatcher.model.launches import Launch
from dispatcher.model.rights import RUN, InstallationSite, verbs_of
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.rig.builders import SITE, a_task, a_template, an_order
from tests.rig.deployed import rendered

STEER = "play.dispatcher.internal"
task_ids = count(1000)


class Account:
    """The ServiceAccount `dispatcher` with the rights of `deploy/`, and the clients that use it."""

    def __init__(self, plane: ControlPlane, namespace: str, token_file: Path) -> None:
        self.plane = plane
        self.namespace = namespace
        self.token_file = token_file
        self._clients: list[KubeClient] = []
        self.client = self.open_client()
        self.api = self.job_api()

    def open_client(self, token_file: Path | None = None, *, silence: float = SILENCE_SECONDS) -> KubeClient:
        tls = ssl.create_default_context(cafile=self.plane.ca_file) if self.plane.ca_file else None
        token = TokenFile(token_file or self.token_file).read
        self._clients.append(KubeClient(Login(self.plane.url, tls, token, self.namespace), silence))
        return self._clients[-1]

    def job_api(self, namespace: str | None = None) -> JobApi:
        return JobApi(self.client, namespace or self.namespace, SITE.installation)

    def access(self, client: KubeClient | None = None, *, with_nodes: bool = True) -> Access:
        """All rights in one namespace, as in an installation of one namespace."""
        site = InstallationSite(SITE.installation, self.namespace, self.namespace, with_nodes)
        return Access(client or self.client, verbs_of(RUN, site))

    def manifest(
        self,
        task_id: int | None = None,
        *,
        attempt: int = 1,
        launch: int = 1,
        namespace: str | None = None,
        steer: Mapping[str, str] | None = None,
    ) -> Manifest:
        """A Job as the dispatcher sends it; `steer`: what kwok does with its Pod."""
        task = a_task(id=next(task_ids) if task_id is None else task_id, attempt=attempt)
        site = msgspec.structs.replace(SITE, namespace=namespace or self.namespace)
        order = an_order(task=task, launch=Launch(launch))
        made = build_job(order, a_template(), site)
        pod_notes = made["spec"]["template"]["metadata"]["annotations"]
        pod_notes |= {f"{STEER}/{key}": value for key, value in (steer or {}).items()}
        return made

    async def created(self, manifest: Manifest | None = None) -> Job:
        answer = await self.api.create(manifest or self.manifest())
        assert answer.status == 201, answer
        assert answer.job is not None
        return answer.job

    async def the_job(self, name: str) -> Job:
        """The Job of that name, which is ours."""
        answer = await self.api.get(name)
        assert answer.status == 200
        assert answer.job is not None
        return answer.job

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    # As an administrator

    def path(self, resource: str, name: str = "") -> str:
        groups = {"jobs": "apis/batch/v1", "roles": "apis/rbac.authorization.k8s.io/v1"}
        collection = f"/{groups.get(resource, 'api/v1')}/namespaces/{self.namespace}/{resource}"
        return f"{collection}/{name}" if name else collection

    async def create_pod(self, name: str, labels: dict[str, str], **spec: str) -> None:
        """A Pod of no Job, which the administrator creates, and which no scheduler places."""
        whole = {"containers": [{"name": "x", "image": "x"}], "schedulerName": "nobody", **spec}
        await self.plane.admin("POST", self.path("pods"), {"metadata": {"name": name, "labels": labels}, "spec": whole})

    async def pods_of(self, job: Job) -> list[Json]:
        params = {"labelSelector": f"batch.kubernetes.io/controller-uid={job.uid}"}
        items: list[Json] = (await self.plane.admin("GET", self.path("pods"), params=params))["items"]
        return items

    async def the_pod(self, job: Job, what: str, test: Callable[[Json], bool]) -> Json:
        """The Pod of the Job, once `test` is true for it; `what` names that state in a fault."""

        async def look() -> Json | None:
            return next((pod for pod in await self.pods_of(job) if test(pod)), None)

        pod = await self.plane.wait_for(look, f"the Pod of {job.name} {what}", 20)
        assert pod is not None
        return pod

    async def allow(self, **verbs: list[str]) -> None:
        """Sets the verbs of the Roles, by resource."""
        for name in ("dispatcher", "dispatcher-jobs"):
            role = await self.plane.admin("GET", self.path("roles", name))
            rules = [rule | {"verbs": verbs.get(rule["resources"][0], rule["verbs"])} for rule in role["rules"]]
            await self.plane.admin("PATCH", self.path("roles", name), {"rules": rules})


@asynccontextmanager
async def dispatcher_account(plane: ControlPlane, namespace: str, folder: Path) -> AsyncIterator[Account]:
    await plane.apply(rendered("one-namespace", only="rbac"), namespace=namespace)
    token_file, another = folder / "token", folder / "another-token"
    for file in (token_file, another):
        file.write_text(await plane.service_account_token(namespace, "dispatcher"))
    account = Account(plane, namespace, token_file)
    # The API server remembers a token that it has accepted. That of a test has not been used before.
    access = account.access(account.open_client(another))

    async def has_rights() -> bool:
        """The API server learns of role bindings a moment after their write."""
        await access.check()
        return not access.missing

    try:
        await plane.wait_for(has_rights, f"the rights of {namespace}/dispatcher are in force", 30)
        yield account
    finally:
        await account.close()
