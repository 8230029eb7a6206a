"""The objects of `deploy/`: the real API server accepts them, Pod Security admits their Pods, they fit the programs."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from dispatcher import __version__
from dispatcher.cli import commands
from dispatcher.jobs.catalog import built_in
from dispatcher.jobs.templates import Template
from dispatcher.kube.access import questions
from dispatcher.kube.lease import lease_of
from dispatcher.model.identity import MANAGED_BY
from dispatcher.runtime import health
from tests.contract.installed import Installed, installed
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.deployed import (
    BASE,
    CLUSTER_KINDS,
    DEPLOY,
    NAMES,
    NAMESPACED,
    ONE_NAMESPACE,
    Right,
    granted,
    moved,
    overlaid,
    pod_templates,
    rendered,
    settings_of,
)

OPERATORS_PAGE = DEPLOY.parent / "docs" / "operator.md"
RESTRICTED = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/enforce-version": "latest",
}
REPLICAS = {"run": 2, "janitor": 1, "migrate": 1}
SERVERS = ("run", "janitor")
ALL = pytest.mark.parametrize("folder", [BASE, NAMESPACED, ONE_NAMESPACE], ids=lambda folder: folder.name)
NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"


async def components(there: Installed, selector: str) -> dict[str, int]:
    """The number of Pods that the selector hits, by the program that runs in them."""
    counts: dict[str, int] = {}
    for pod in (await there.look("/api/v1/namespaces/{namespace}/pods", labelSelector=selector))["items"]:
        component = pod["metadata"]["labels"].get(COMPONENT, "-")
        counts[component] = counts.get(component, 0) + 1
    return counts


def as_text(selector: Json) -> str:
    """A label selector as a query parameter."""
    equal = [f"{key}={wanted}" for key, wanted in selector.get("matchLabels", {}).items()]
    listed = [f"{rule['key']} in ({','.join(rule['values'])})" for rule in selector.get("matchExpressions", ())]
    return ",".join(equal + listed)


def secrets_of(objects: tuple[Json, ...]) -> dict[str, str]:
    """Every Secret that must exist, with its key."""
    found = {settings_of(objects, "run").settings.jobs.task_secret or "": "TASK_DATABASE_URL"}
    for template in pod_templates(objects).values():
        env = {entry["name"]: entry["value"] for entry in template["spec"]["containers"][0]["env"]}
        key = Path(env["DISPATCHER_DATABASE_URL_FILE"]).name
        found |= {volume["secret"]["secretName"]: key for volume in template["spec"]["volumes"] if "secret" in volume}
    return found


@ALL
async def test_api_server_accepts_every_object_and_pod_security_every_pod(
    control_plane: ControlPlane, namespace: str, folder: Path, tmp_path: Path
) -> None:
    await control_plane.admin("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": RESTRICTED}})
    jobs = namespace if folder == ONE_NAMESPACE else await control_plane.create_namespace()
    objects = moved(tmp_path, folder, (namespace, jobs))
    async with installed(control_plane, namespace, objects) as there:

        async def are_there() -> bool:
            return await components(there, f"{NAME}=dispatcher") == REPLICAS

        await control_plane.wait_for(are_there, "the Pods of every program", 30)
        policies = (await there.look("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"))["items"]
        closed = {bool(one["spec"].get("ingress")): as_text(one["spec"]["podSelector"]) for one in policies}
        assert await components(there, closed[False]) == REPLICAS
        assert await components(there, closed[True]) == {name: REPLICAS[name] for name in SERVERS}

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


def test_namespaced_installation_has_nothing_outside_its_namespaces() -> None:
    def outside(folder: Path) -> set[str]:
        return {one["kind"] for one in rendered(folder)} & set(CLUSTER_KINDS)

    assert outside(BASE) == outside(ONE_NAMESPACE) == set(CLUSTER_KINDS)
    assert outside(NAMESPACED) == set()


@ALL
def test_namespace_of_jobs_has_only_rights(folder: Path) -> None:
    objects = rendered(folder)
    jobs = settings_of(objects, "run").settings.kube.namespace
    assert jobs == ("dispatcher" if folder == ONE_NAMESPACE else "dispatcher-jobs")
    kinds: dict[str, set[str]] = {}
    for one in objects:
        if one["kind"] not in CLUSTER_KINDS:
            kinds.setdefault(one["metadata"]["namespace"], set()).add(one["kind"])
    assert "ServiceAccount" in kinds.pop("dispatcher")
    assert kinds == ({} if folder == ONE_NAMESPACE else {"dispatcher-jobs": {"Role", "RoleBinding"}})


def test_two_installations_share_no_object_and_have_the_same_rights(tmp_path: Path) -> None:
    first = rendered(BASE)
    second = moved(tmp_path, BASE, ("second", "second-jobs"), {"INSTALLATION": "second-of-two"})

    def places(objects: tuple[Json, ...]) -> set[tuple[str, str, str]]:
        return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in objects}

    assert places(first).isdisjoint(places(second))
    moves = {"dispatcher": "second", "dispatcher-jobs": "second-jobs"}
    moves |= {f"dispatcher-{name}": f"second-of-two-{name}" for name in ("leader", "status", "reasons")}
    for account in ("dispatcher", "dispatcher-janitor"):
        there = {
            right._replace(where=moves.get(right.where, right.where), name=moves.get(right.name, right.name))
            for right in granted(first, account)
        }
        assert there == granted(second, f"{account}-second")
    subjects = [subject for one in second for subject in one.get("subjects", ())]
    assert {subject["namespace"] for subject in subjects} == {"second"}


def words_of(objects: tuple[Json, ...]) -> dict[str, list[str]]:
    """The quoted words of the policy's expressions, by the names of the expressions."""
    (spec,) = [one["spec"] for one in objects if one["kind"] == "ValidatingAdmissionPolicy"]
    return {one["name"]: one["expression"].split("'")[1::2] for one in spec["matchConditions"] + spec["variables"]}


def test_policy_is_filled_in_from_lists_settings_and_accounts(tmp_path: Path) -> None:
    lists = {name: f"{name},x" for name in ("secrets", "configMaps", "serviceAccounts", "volumeKinds")}
    more = {"hostPathPrefixes": "/mnt", **lists}
    objects = moved(tmp_path, BASE, ("second", "second-jobs"), {"INSTALLATION": "two"}, more)
    words = words_of(objects)
    assert words["our-accounts"] == [
        "dispatcher-second",
        "dispatcher-janitor-second",
        "system:serviceaccount:",
        "second",
        ":",
    ]
    assert words["isJanitor"] == [":", "dispatcher-janitor-second"]
    assert (words["jobsNamespace"], words["installation"]) == (["second-jobs"], ["two"])
    assert {name: words[name][0] for name in lists} == lists
    assert words["folders"][0] == "/mnt"
    (binding,) = [one for one in objects if one["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert binding["spec"]["policyName"] == "dispatcher-second"
    assert not [one for one in objects if one["metadata"]["name"].startswith("dispatcher-policy")]


@ALL
def test_rights_that_readyz_asks_for_are_those_of_the_roles(folder: Path) -> None:
    objects = rendered(folder)
    kube = settings_of(objects, "run").settings.kube
    asked = questions(str(kube.namespace), lease_of(kube.installation, "dispatcher"), with_nodes=kube.check_room)
    rights = {Right(one.namespace or "cluster", one.group, one.resource, one.verb, one.name) for one in asked}
    assert rights == granted(objects, "dispatcher")


def test_shipped_lists_allow_what_the_shipped_settings_name() -> None:
    words, settings = words_of(rendered(BASE)), settings_of(rendered(BASE), "run").settings
    assert words["secrets"][0] == settings.jobs.task_secret
    assert words["folders"][0] == settings.placement.cache_root == ""


def test_migration_has_no_rights_and_no_token() -> None:
    objects = rendered(BASE)
    spec = pod_templates(objects)["migrate"]["spec"]
    assert granted(objects, spec["serviceAccountName"]) == set()
    assert spec["automountServiceAccountToken"] is False


@ALL
@pytest.mark.parametrize("command", REPLICAS)
def test_shipped_settings_are_known_and_complete(folder: Path, command: str) -> None:
    loaded = settings_of(rendered(folder), command)
    assert loaded.warnings == ()
    assert loaded.settings.database.url
    if command in SERVERS:
        assert loaded.settings.kube.check_room is (folder != NAMESPACED)
        assert isinstance(built_in(loaded.settings.jobs)["default"], Template)


@pytest.mark.parametrize("command", REPLICAS)
def test_container_runs_a_command_and_finds_its_files(command: str) -> None:
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
def test_pods_of_our_programs_are_not_taken_for_tasks(command: str) -> None:
    assert MANAGED_BY not in pod_templates(rendered(BASE))[command]["metadata"]["labels"]


def test_image_and_migration_carry_the_version() -> None:
    objects = rendered(BASE)
    images = {template["spec"]["containers"][0]["image"] for template in pod_templates(objects).values()}
    assert {image.rpartition(":")[2] for image in images} == {__version__}
    (job,) = [one["metadata"]["name"] for one in objects if one["kind"] == "Job"]
    assert job == f"dispatcher-migrate-{__version__.replace('.', '-')}"


def test_changed_setting_is_a_rollout_and_no_new_migration(tmp_path: Path) -> None:
    more = {"name": "dispatcher-settings", "behavior": "merge", "literals": ["DISPATCHER_MAX_JOBS=7"]}
    before, after = rendered(BASE), overlaid(tmp_path, configMapGenerator=[more])
    assert settings_of(after, "run").settings.admission.max_jobs == 7
    was, now = pod_templates(before), pod_templates(after)
    assert {name for name in REPLICAS if was[name] != now[name]} == set(SERVERS)


def test_new_template_needs_no_rollout(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text("kind: Job")
    more = {"name": "dispatcher-templates", "behavior": "merge", "files": ["small.yaml"]}
    before, after = rendered(BASE), overlaid(tmp_path, configMapGenerator=[more])
    assert pod_templates(before) == pod_templates(after)
    (templates,) = [one for one in after if one["metadata"]["name"] == "dispatcher-templates"]
    assert templates["data"] == {"small.yaml": "kind: Job"}


def test_operators_page_makes_every_secret_where_it_is_used() -> None:
    command = r"kubectl -n (\S+) create secret generic (\S+) .*--from-literal=(\w+)="
    made = {name: (namespace, key) for namespace, name, key in re.findall(command, OPERATORS_PAGE.read_text())}
    used = {name: ("dispatcher", key) for name, key in secrets_of(rendered(BASE)).items()}
    task_secret = settings_of(rendered(BASE), "run").settings.jobs.task_secret or ""
    assert made == used | {task_secret: ("dispatcher-jobs", used[task_secret][1])}


def test_overlays_of_the_operators_page_render(tmp_path: Path) -> None:
    pages = re.findall(r"```yaml\n(resources: \[deploy/base\].*?)```", OPERATORS_PAGE.read_text(), re.DOTALL)
    assert len(pages) == 3
    for name in ("default.yaml", "gpu.yaml"):
        (tmp_path / name).write_text("kind: Job")
    for page in pages:
        fields = yaml.safe_load(page.replace("deploy/names", os.path.relpath(NAMES, tmp_path.resolve())))
        del fields["resources"]
        assert overlaid(tmp_path, **fields)
