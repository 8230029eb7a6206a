"""The objects of the chart: the real API server accepts them, Pod Security admits their Pods, they fit the programs."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from dispatcher import __version__
from dispatcher.cli import commands
from dispatcher.jobs.catalog import built_in
from dispatcher.jobs.templates import Template
from dispatcher.model.launches import MANAGED_BY
from dispatcher.model.rights import RUN, verbs_of
from dispatcher.runtime import health
from dispatcher.startup import installation_of
from tests.contract.in_force import pod_security_in_force
from tests.contract.installed import Installed, installed
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import CLUSTER_KINDS, Right, granted, pod_templates, rendered, settings_of

REPLICAS = {"run": 2, "janitor": 1, "migrate": 1}
SERVERS = ("run", "janitor")
BASIC = ("default", "namespaced", "one-namespace")
ALL = pytest.mark.parametrize("variant", BASIC)
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
    operators = {"In": "in", "NotIn": "notin"}
    rules = [
        (rule["key"], operators[rule["operator"]], rule["values"]) for rule in selector.get("matchExpressions", ())
    ]
    return ",".join(equal + [f"{key} {operator} ({','.join(values)})" for key, operator, values in rules])


@ALL
async def test_api_server_accepts_every_object_and_pod_security_every_pod(
    control_plane: ControlPlane, namespace: str, variant: str
) -> None:
    await pod_security_in_force(control_plane, namespace, "restricted")
    jobs = namespace if variant == "one-namespace" else await control_plane.create_namespace()
    objects = rendered(variant, namespace, jobsNamespace=jobs)
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
    await pod_security_in_force(control_plane, namespace, "restricted")
    spec = pod_templates(rendered())["migrate"]["spec"] | {"serviceAccountName": "default"}
    for context in (spec["securityContext"], spec["containers"][0]["securityContext"]):
        context.pop(field, None)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lax"}, "spec": spec}
    with pytest.raises(KubeFault, match=rf"violates PodSecurity.*{field}"):
        await Installed(control_plane, namespace).create(pod)


def test_namespaced_installation_has_nothing_outside_its_namespaces() -> None:
    def outside(variant: str) -> set[str]:
        return {one["kind"] for one in rendered(variant)} & set(CLUSTER_KINDS)

    assert outside("everything") == set(CLUSTER_KINDS)
    assert outside("default") == outside("one-namespace") == set(CLUSTER_KINDS) - {"CustomResourceDefinition"}
    assert outside("namespaced") == set()


@ALL
def test_namespace_of_jobs_has_only_rights(variant: str) -> None:
    objects = rendered(variant)
    jobs = settings_of(objects, "run").settings.kube.namespace
    assert jobs == ("dispatcher" if variant == "one-namespace" else "dispatcher-jobs")
    kinds: dict[str, set[str]] = {}
    for one in objects:
        if one["kind"] not in CLUSTER_KINDS:
            kinds.setdefault(one["metadata"]["namespace"], set()).add(one["kind"])
    assert "ServiceAccount" in kinds.pop("dispatcher")
    assert kinds == ({} if variant == "one-namespace" else {"dispatcher-jobs": {"Role", "RoleBinding"}})


def test_two_installations_share_no_object_and_have_the_same_rights() -> None:
    first = rendered()
    second = rendered(namespace="second", jobsNamespace="second-jobs", installation="second-of-two")
    same_name = rendered(namespace="third", jobsNamespace="third-jobs")

    def places(objects: tuple[Json, ...]) -> set[tuple[str, str, str]]:
        return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in objects}

    assert places(first).isdisjoint(places(second))
    assert places(first).isdisjoint(places(same_name))
    moves = {"dispatcher": "second", "dispatcher-jobs": "second-jobs"}
    for account in ("dispatcher", "dispatcher-janitor"):
        there = {
            right._replace(
                where=moves.get(right.where, right.where), name=right.name.replace("dispatcher", "second-of-two")
            )
            for right in granted(first, account)
        }
        assert there == granted(second, account.replace("dispatcher", "second-of-two"))
    subjects = [subject for one in second for subject in one.get("subjects", ())]
    assert {subject["namespace"] for subject in subjects} == {"second"}


def expressions_of(objects: tuple[Json, ...]) -> dict[str, str]:
    """The expressions of the policy for Jobs, by their names."""
    policies = [one for one in objects if one["kind"] == "ValidatingAdmissionPolicy"]
    (spec,) = [
        one["spec"] for one in policies if one["spec"]["matchConstraints"]["resourceRules"][0]["resources"] == ["jobs"]
    ]
    return {one["name"]: one["expression"] for one in spec["matchConditions"] + spec["variables"]}


def test_policy_has_the_lists_and_accounts_of_the_values() -> None:
    lists = {name: [name.lower(), "x"] for name in ("configMaps", "serviceAccounts", "volumeKinds")}
    more = {"hostPathPrefixes": ["/mnt/", "/data"], "secrets": ["s", "task-database"], **lists}
    settings = {"CACHE_ROOT": "/var/cache"}
    objects = rendered(
        namespace="second", jobsNamespace="second-jobs", installation="two", policy=more, settings=settings
    )
    told = expressions_of(objects)
    accounts = [f"system:serviceaccount:second:{name}" for name in ("two", "two-janitor")]
    assert told["our-accounts"] == f"request.userInfo.username in {accounts}"
    assert told["isJanitor"] == f"request.userInfo.username == '{accounts[1]}'"
    assert (told["jobsNamespace"], told["installation"]) == ("'second-jobs'", "'two'")
    assert {name: json.loads(told[name]) for name in lists} == lists
    assert json.loads(told["secrets"]) == ["s", "task-database"]
    assert json.loads(told["folders"]) == ["/mnt/", "/data/", "/var/cache/two/"]
    bound = [one["spec"]["policyName"] for one in objects if one["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert bound == ["two-cache-keeper.second", "two-words.second", "two.second"]


def test_empty_lists_of_the_policy_allow_nothing() -> None:
    lists = (
        "secrets", "configMaps", "serviceAccounts", "volumeKinds", "hostPathPrefixes", "priorityClasses",
        "runtimeClasses",
    )  # fmt: skip
    told = expressions_of(rendered(policy={name: [] for name in (*lists, "schedulers")}, secrets={"taskDatabase": ""}))
    assert {told["folders" if name == "hostPathPrefixes" else name] for name in lists} == {"[]"}
    assert json.loads(told["schedulers"]) == ["", "default-scheduler", "dispatcher-scheduler"]


def test_templates_without_more_change_nothing() -> None:
    assert rendered(policy={"templates": {"a": {}, "b": {"secrets": [], "privileged": False}}}) == rendered()


@ALL
def test_rights_that_readyz_asks_for_are_those_of_the_roles(variant: str) -> None:
    objects = rendered(variant)
    settings = settings_of(objects, "run").settings
    asked = verbs_of(RUN, installation_of(settings, "dispatcher", str(settings.kube.namespace)))
    rights = {Right(one.namespace or "cluster", one.group, one.resource, one.verb, one.name) for one in asked}
    assert rights == granted(objects, "dispatcher")


def test_default_lists_allow_what_the_default_settings_name() -> None:
    told, settings = expressions_of(rendered()), settings_of(rendered(), "run").settings
    assert json.loads(told["secrets"]) == [settings.jobs.task_secret]
    assert (json.loads(told["folders"]), settings.placement.cache_root) == ([], "")


def test_migration_has_no_rights_and_no_token() -> None:
    objects = rendered()
    spec = pod_templates(objects)["migrate"]["spec"]
    assert granted(objects, spec["serviceAccountName"]) == set()
    assert spec["automountServiceAccountToken"] is False


@ALL
@pytest.mark.parametrize("command", REPLICAS)
def test_shipped_settings_are_known_and_complete(variant: str, command: str) -> None:
    loaded = settings_of(rendered(variant), command)
    assert loaded.warnings == ()
    assert loaded.settings.database.url
    if command in SERVERS:
        assert loaded.settings.kube.check_room is (variant != "namespaced")
        assert isinstance(built_in(loaded.settings.jobs)["default"], Template)


@pytest.mark.parametrize("command", REPLICAS)
def test_container_runs_a_command_and_finds_its_files(command: str) -> None:
    assert command in commands.commands
    container = pod_templates(rendered())[command]["spec"]["containers"][0]
    mounted = {Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    env = {entry["name"]: Path(entry["value"]) for entry in container["env"] if entry["value"].startswith("/")}
    files = {path.parent if name.endswith("_FILE") else path for name, path in env.items()}
    files |= {Path(word).parent for word in container["args"] if word.startswith("/")}
    assert files == mounted


@pytest.mark.parametrize("command", SERVERS)
def test_probes_ask_for_pages_that_are_served(command: str) -> None:
    container = pod_templates(rendered())[command]["spec"]["containers"][0]
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
    listens = settings_of(rendered(), command).settings.service.listen_address
    assert listens == f":{port['containerPort']}"


@pytest.mark.parametrize("command", REPLICAS)
def test_pods_of_our_programs_are_not_taken_for_tasks(command: str) -> None:
    assert MANAGED_BY not in pod_templates(rendered())[command]["metadata"]["labels"]


def test_image_has_the_version_of_the_program() -> None:
    images = {template["spec"]["containers"][0]["image"] for template in pod_templates(rendered()).values()}
    assert {image.rpartition(":")[2] for image in images} == {__version__}


def test_changed_setting_is_a_rollout_and_no_new_migration() -> None:
    before, after = rendered(), rendered(settings={"MAX_JOBS": 7})
    assert settings_of(after, "run").settings.admission.max_jobs == 7
    was, now = pod_templates(before), pod_templates(after)
    assert {name for name in REPLICAS if was[name] != now[name]} == set(SERVERS)
    assert migration(before) == migration(after)


def migration(objects: tuple[Json, ...]) -> str:
    (job,) = [one["metadata"]["name"] for one in objects if one["kind"] == "Job"]
    return str(job)


def test_migration_is_another_job_for_another_image_or_list_of_queues() -> None:
    """The API server refuses every change of a Job's Pod."""
    digest = "sha256:" + "0" * 64
    others = [
        rendered(image={"repository": "other.example/dispatcher"}),
        rendered(image={"digest": digest}),
        rendered(queues=[{"name": "reports"}]),
        rendered(secrets={"migrateDatabase": "another"}),
    ]
    names = [migration(objects) for objects in (rendered(), *others)]
    assert len(set(names)) == len(names)
    assert all(name.startswith(f"dispatcher-migrate-{__version__.replace('.', '-')}-") for name in names)
    assert pod_templates(others[1])["run"]["spec"]["containers"][0]["image"].endswith(f"dispatcher@{digest}")


def test_new_template_needs_no_rollout() -> None:
    job = {"kind": "Job", "spec": {"parallelism": 1}}
    before, after = rendered(), rendered(templates={"small.yaml": job, "text.yaml": "kind: Job"})
    assert pod_templates(before) == pod_templates(after)
    (templates,) = [one["data"] for one in after if one["metadata"]["name"] == "dispatcher-templates"]
    assert {name: yaml.safe_load(text) for name, text in templates.items()} == {
        "small.yaml": job,
        "text.yaml": {"kind": "Job"},
    }
