"""What `deploy/` installs: the real API server takes it, Pod Security lets it run, and it fits the program."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dispatcher import __version__, health
from dispatcher.cli import commands
from dispatcher.identity import MANAGED_BY
from dispatcher.jobs.catalog import built_in
from dispatcher.jobs.templates import Template
from dispatcher.kube.access import OF_CLUSTER, OF_NAMESPACE
from dispatcher.loading import Loaded, load
from dispatcher.local.environment import resolve
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.deployed import BASE, DEPLOY, NAMESPACED, Right, granted, overlaid, pod_templates, rendered

OPERATORS_PAGE = DEPLOY.parent / "docs" / "operator.md"
RESTRICTED = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/enforce-version": "latest",
}
REPLICAS = {"run": 2, "janitor": 1, "migrate": 1}
SERVERS = ("run", "janitor")
BOTH = pytest.mark.parametrize("folder", [BASE, NAMESPACED], ids=lambda folder: folder.name)
NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"


class Installed:
    """The objects in a namespace of their own, as the API server keeps them."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    async def create(self, one: Json) -> str:
        """Creates it as `kubectl apply` does, unknown fields refused; its path."""
        collection, _ = await self.plane._place(one, self.namespace)
        await self.plane.admin("POST", collection, one, params={"fieldValidation": "Strict"})
        return f"{collection}/{one['metadata']['name']}"

    async def look(self, path: str, **params: str) -> Json:
        return await self.plane.admin("GET", path.format(namespace=self.namespace), params=params)

    async def components(self, selector: str) -> dict[str, int]:
        """How many Pods the selector hits, by what runs in them."""
        counts: dict[str, int] = {}
        for pod in (await self.look("/api/v1/namespaces/{namespace}/pods", labelSelector=selector))["items"]:
            component = pod["metadata"]["labels"].get(COMPONENT, "-")
            counts[component] = counts.get(component, 0) + 1
        return counts


@asynccontextmanager
async def installed(plane: ControlPlane, namespace: str, objects: tuple[Json, ...]) -> AsyncIterator[Installed]:
    """What belongs to no namespace goes again with the test."""
    there, outside = Installed(plane, namespace), []
    try:
        for one in objects:
            path = await there.create(one)
            outside += [] if f"/namespaces/{namespace}/" in path else [path]
        yield there
    finally:
        for path in outside:
            await plane.admin("DELETE", path)


def as_text(selector: Json) -> str:
    """A selector of labels as a query has it."""
    equal = [f"{key}={wanted}" for key, wanted in selector.get("matchLabels", {}).items()]
    listed = [f"{rule['key']} in ({','.join(rule['values'])})" for rule in selector.get("matchExpressions", ())]
    return ",".join(equal + listed)


def settings_of(objects: tuple[Json, ...], command: str) -> Loaded:
    """As the program in that container would read them."""
    template = pod_templates(objects)[command]
    maps = {
        ("ConfigMap", one["metadata"]["name"]): one.get("data", {}) for one in objects if one["kind"] == "ConfigMap"
    }
    environ = resolve(template["spec"]["containers"][0], template, maps)
    return load(environ, lambda path: "postgresql://login@db/work")


def secrets_of(objects: tuple[Json, ...]) -> dict[str, str]:
    """Every Secret that must be there, and its key."""
    found = {settings_of(objects, "run").settings.jobs.task_secret or "": "TASK_DATABASE_URL"}
    for template in pod_templates(objects).values():
        env = {entry["name"]: entry["value"] for entry in template["spec"]["containers"][0]["env"]}
        key = Path(env["DISPATCHER_DATABASE_URL_FILE"]).name
        found |= {volume["secret"]["secretName"]: key for volume in template["spec"]["volumes"] if "secret" in volume}
    return found


@BOTH
async def test_the_api_server_takes_every_object_and_pod_security_lets_every_pod_in(
    control_plane: ControlPlane, namespace: str, folder: Path, tmp_path: Path
) -> None:
    await control_plane.admin("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": RESTRICTED}})
    objects = overlaid(tmp_path, folder, namespace=namespace, nameSuffix=f"-{namespace}")
    async with installed(control_plane, namespace, objects) as there:

        async def are_there() -> bool:
            return await there.components(f"{NAME}=dispatcher") == REPLICAS

        await control_plane.wait_for(are_there, "the Pods of every program", 30)
        policies = (await there.look("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"))["items"]
        closed = {bool(one["spec"].get("ingress")): as_text(one["spec"]["podSelector"]) for one in policies}
        assert await there.components(closed[False]) == REPLICAS
        assert await there.components(closed[True]) == {name: REPLICAS[name] for name in SERVERS}

        async def is_counted() -> bool:
            (budget,) = (await there.look("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"))["items"]
            return bool(budget.get("status", {}).get("expectedPods") == REPLICAS["run"])

        await control_plane.wait_for(is_counted, "the disruption budget counts the replicas", 30)


@pytest.mark.parametrize("field", ["runAsNonRoot", "seccompProfile", "allowPrivilegeEscalation", "capabilities"])
async def test_pod_security_keeps_out_a_pod_that_lacks_one_field(
    control_plane: ControlPlane, namespace: str, field: str
) -> None:
    await control_plane.admin("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": RESTRICTED}})
    spec = pod_templates(rendered(BASE))["migrate"]["spec"] | {"serviceAccountName": "default"}
    for context in (spec["securityContext"], spec["containers"][0]["securityContext"]):
        context.pop(field, None)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lax"}, "spec": spec}
    with pytest.raises(KubeFault, match=rf"violates PodSecurity.*{field}"):
        await Installed(control_plane, namespace).create(pod)


def test_a_namespaced_installation_has_nothing_outside_its_namespace() -> None:
    def outside(folder: Path) -> set[str]:
        return {one["kind"] for one in rendered(folder) if "namespace" not in one["metadata"]}

    assert outside(BASE) == {"ClusterRole", "ClusterRoleBinding"}
    assert outside(NAMESPACED) == set()


def test_two_installations_share_no_object_and_have_the_same_rights(tmp_path: Path) -> None:
    first, second = rendered(BASE), overlaid(tmp_path, namespace="second", nameSuffix="-second")

    def places(objects: tuple[Json, ...]) -> set[tuple[str, str, str]]:
        return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in objects}

    assert places(first).isdisjoint(places(second))
    assert granted(second, "dispatcher-second") == granted(first, "dispatcher")
    subjects = [subject for one in second for subject in one.get("subjects", ())]
    assert {subject["namespace"] for subject in subjects} == {"second"}


@BOTH
def test_what_readyz_asks_for_is_what_the_role_grants(folder: Path) -> None:
    objects = rendered(folder)
    rules = {"namespace": OF_NAMESPACE, "cluster": OF_CLUSTER}
    if not settings_of(objects, "run").settings.kube.check_room:
        del rules["cluster"]
    asked = {
        Right(where, group, resource, verb)
        for where, of_place in rules.items()
        for group, resource, verbs in of_place
        for verb in verbs
    }
    assert asked == granted(objects, "dispatcher")


def test_the_migration_has_no_rights_and_no_token() -> None:
    objects = rendered(BASE)
    spec = pod_templates(objects)["migrate"]["spec"]
    assert granted(objects, spec["serviceAccountName"]) == set()
    assert spec["automountServiceAccountToken"] is False


@BOTH
@pytest.mark.parametrize("command", REPLICAS)
def test_its_settings_are_known_and_enough(folder: Path, command: str) -> None:
    loaded = settings_of(rendered(folder), command)
    assert loaded.warnings == ()
    assert loaded.settings.database.url
    if command in SERVERS:
        assert loaded.settings.kube.check_room is (folder == BASE)
        assert isinstance(built_in(loaded.settings.jobs)["default"], Template)


@pytest.mark.parametrize("command", REPLICAS)
def test_each_container_runs_a_command_and_finds_its_files(command: str) -> None:
    assert command in commands.commands
    container = pod_templates(rendered(BASE))[command]["spec"]["containers"][0]
    mounted = {Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    env = {entry["name"]: Path(entry["value"]) for entry in container["env"]}
    files = {path.parent if name.endswith("_FILE") else path for name, path in env.items()}
    assert files == mounted


@pytest.mark.parametrize("command", SERVERS)
def test_probes_ask_for_pages_that_are_served(command: str) -> None:
    container = pod_templates(rendered(BASE))[command]["spec"]["containers"][0]
    pages = {route.resource.canonical for route in health.build_app({}).router.routes() if route.resource}
    probes: Mapping[str, Json] = {key: probe["httpGet"] for key, probe in container.items() if key.endswith("Probe")}
    assert {key: probe["path"] for key, probe in probes.items()} == {
        "startupProbe": "/healthz",  # a restart brings no database back
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert {probe["path"] for probe in probes.values()} <= pages
    (port,) = container["ports"]
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    listens = settings_of(rendered(BASE), command).settings.service.listen_address
    assert listens == f"0.0.0.0:{port['containerPort']}"


@pytest.mark.parametrize("command", REPLICAS)
def test_our_own_pods_are_not_taken_for_tasks(command: str) -> None:
    assert MANAGED_BY not in pod_templates(rendered(BASE))[command]["metadata"]["labels"]


def test_image_and_migration_carry_the_version() -> None:
    objects = rendered(BASE)
    images = {template["spec"]["containers"][0]["image"] for template in pod_templates(objects).values()}
    assert {image.rpartition(":")[2] for image in images} == {__version__}
    (job,) = [one["metadata"]["name"] for one in objects if one["kind"] == "Job"]
    assert job == f"dispatcher-migrate-{__version__.replace('.', '-')}"


def test_a_changed_setting_is_a_rollout_and_no_new_migration(tmp_path: Path) -> None:
    more = {"name": "dispatcher-settings", "behavior": "merge", "literals": ["DISPATCHER_MAX_JOBS=7"]}
    before, after = rendered(BASE), overlaid(tmp_path, configMapGenerator=[more])
    assert settings_of(after, "run").settings.admission.max_jobs == 7
    was, now = pod_templates(before), pod_templates(after)
    assert {name for name in REPLICAS if was[name] != now[name]} == set(SERVERS)


def test_a_template_is_added_without_a_rollout(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text("kind: Job")
    more = {"name": "dispatcher-templates", "behavior": "merge", "files": ["small.yaml"]}
    before, after = rendered(BASE), overlaid(tmp_path, configMapGenerator=[more])
    assert pod_templates(before) == pod_templates(after)
    (templates,) = [one for one in after if one["metadata"]["name"] == "dispatcher-templates"]
    assert templates["data"] == {"small.yaml": "kind: Job"}


def test_the_operators_page_makes_every_secret_that_is_mounted() -> None:
    made = re.findall(r"create secret generic (\S+) .*--from-literal=(\w+)=", OPERATORS_PAGE.read_text())
    assert dict(made) == secrets_of(rendered(BASE))
