"""An installation for `dispatcher doctor`: the objects of the chart, a migrated database, a template, and no fault."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import yaml

from dispatcher.doctor.finding import Finding, FindingState
from dispatcher.doctor.program import DoctorEnvironment, examine
from dispatcher.kube.credentials import Login, tls_of
from dispatcher.settings.loading import load
from tests.contract.installed import Installed, installed
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import POLICY_KINDS, RBAC_KINDS, rendered

SECRET_VALUE = "postgresql://task:a-password-that-nobody-may-see@db/work"
SECRET = {"metadata": {"name": "task-database"}, "stringData": {"TASK_DATABASE_URL": SECRET_VALUE}}
TASK: Json = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "task",
                        "image": "registry.example/team/app:1",
                        "envFrom": [{"secretRef": {"name": "task-database"}}],
                        "resources": {
                            "requests": {"cpu": "10m", "memory": "16Mi"},
                            "limits": {"cpu": "10m", "memory": "16Mi"},
                        },
                    }
                ]
            }
        }
    },
}


def now() -> datetime:
    return datetime.now(UTC)


class Site(NamedTuple):
    """Where the installation is: two namespaces, and a folder for templates and kubeconfigs."""

    there: Installed
    jobs: str
    folder: Path

    @property
    def plane(self) -> ControlPlane:
        return self.there.plane

    @property
    def ours(self) -> str:
        return self.there.namespace

    def environment(self, url: str, **settings: object) -> dict[str, str]:
        """The settings of the installation, for an operator with a kubeconfig."""
        values = {
            "DATABASE_URL": url,
            "KUBECONFIG": self.folder / "kubeconfig",
            "NAMESPACE": self.jobs,
            "TEMPLATES_DIR": self.folder / "templates",
            **settings,
        }
        return {f"DISPATCHER_{name}": str(value) for name, value in values.items() if value is not None}

    async def findings(
        self, environment: dict[str, str], around: DoctorEnvironment | None = None
    ) -> tuple[Finding, ...]:
        loaded = load(environment, lambda path: Path(path).read_text())
        return (await examine(loaded, around or DoctorEnvironment())).findings

    async def faults(
        self, environment: dict[str, str], clock: Callable[[], datetime] = now
    ) -> dict[str, list[Finding]]:
        """The faults by name."""
        found: dict[str, list[Finding]] = {}
        for one in await self.findings(environment, DoctorEnvironment(now=clock)):
            if one.state is FindingState.FAULT:
                found.setdefault(one.what, []).append(one)
        return found

    async def names(self, environment: dict[str, str], what: str) -> Finding:
        """Waits until the doctor names this fault and no other, and returns it. New objects take a moment to hold."""
        last: dict[str, list[Finding]] = {}

        async def is_named() -> bool:
            nonlocal last
            last = await self.faults(environment)
            return list(last) == [what]

        try:
            await self.plane.wait_for(is_named, f"the doctor names {what} alone", 20)
        except TimeoutError as late:
            raise AssertionError(f"expected {what} alone, found {last}") from late
        assert len(last[what]) == 1, last[what]
        return last[what][0]

    def template(self, name: str = "default", **pod: object) -> Path:
        """Writes a template; `pod`: fields of its Pod."""
        (self.folder / "templates").mkdir(exist_ok=True)
        spec = TASK["spec"]["template"]["spec"] | pod
        path = self.folder / "templates" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(TASK | {"spec": {"template": {"spec": spec}}}))
        return path

    def container(self, **fields: object) -> Json:
        """`containers` with these fields of the task's container changed."""
        return {"containers": [TASK["spec"]["template"]["spec"]["containers"][0] | fields]}

    async def own_login(self, account: str = "dispatcher") -> Login:
        """The login of the Pod of `run`, or of another program."""
        token = await self.plane.service_account_token(self.ours, account)

        async def bearer(_: bool) -> str:
            return token

        return Login(self.plane.url, tls_of(Trust(self.plane)), bearer, self.ours, self.ours)


class Trust:
    """The part of a kubeconfig that `tls_of` reads."""

    def __init__(self, plane: ControlPlane) -> None:
        self.host = plane.url
        self.ssl_ca_cert = str(plane.ca_file)


def is_run(one: Json) -> bool:
    return bool((one["kind"], one["metadata"]["name"]) == ("Deployment", "dispatcher"))


def idle(one: Json) -> Json:
    """The Deployment, without Pods."""
    return one | {"spec": one["spec"] | {"replicas": 0}}


@asynccontextmanager
async def an_installation(
    plane: ControlPlane, folder: Path, variant: str = "default", **values: Json
) -> AsyncIterator[Site]:
    ours, jobs = await plane.create_namespace(), await plane.create_namespace()
    try:
        given: Json = {"jobsNamespace": jobs, **values}
        objects = rendered(variant, ours, **given)
        shipped = [one for one in objects if one["kind"] in (*RBAC_KINDS, *POLICY_KINDS)]
        shipped += [idle(one) for one in objects if is_run(one)]
        async with installed(plane, ours, shipped) as there:
            site = Site(there, jobs, folder)
            site.template()
            plane.kubeconfig(folder / "kubeconfig", token=plane.admin_token, namespace=ours)
            await plane.admin("POST", f"/api/v1/namespaces/{jobs}/secrets", SECRET)
            yield site
    finally:
        for namespace in (ours, jobs):
            await plane.delete_namespace(namespace)
