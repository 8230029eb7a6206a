"""The second check passes Jobs that the first check allows, and names each field that the template does not allow."""

import copy
from typing import Any

import msgspec
import pytest

from dispatcher.jobs.manifest import JobSite, build_job
from dispatcher.jobs.policy import check_job
from dispatcher.jobs.templates import Template, judge_template
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import Launch, LaunchSpec
from dispatcher.settings.definition import PlacementSettings
from tests.rig.builders import SITE, a_manifest, a_task, a_template, an_order

# Templates for rendered Jobs: a closed one, an open one, and requests of a row that the open one allows.


SITE_WITH_ENV = msgspec.structs.replace(
    SITE, passed={"S3_URL": "s3://x"}, placement=PlacementSettings(scheduler_name="warm")
)
SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}
CONTAINERS = [
    {"name": "side", "image": "side:1", "env": [{"name": "SIDE", "value": "1"}]},
    {
        "name": "task", "image": "app:1", "imagePullPolicy": "Always", "command": ["run"], "args": ["x"],
        "env": [{"name": "MODE", "value": "fast"}, {"name": "KEY", "valueFrom": SECRET}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    },
]  # fmt: skip
POD = {
    "containers": CONTAINERS,
    "initContainers": [{"name": "init", "image": "init:1"}],
    "automountServiceAccountToken": False,
    "nodeSelector": {"disk": "ssd"},
    "volumes": [{"name": "scratch", "emptyDir": {}}],
}
CLOSED = a_template(opens="", pod=POD)
OPEN = a_template(
    opens="env,env.MODE,image,command,args,cpu,memory", pod=POD,
    bounds={"images": "team-a/*", "max-cpu": "4", "max-memory": "8Gi", "max-seconds": "7200"},
)  # fmt: skip
ASKED: dict[str, Any] = {
    "env": {"MODE": "slow", "NEW": "5 $"},
    "spec": {"image": "team-a/app:2", "command": ["go"], "args": ["$HOME"], "cpu": "2", "memory": "2Gi"},
}
METADATA = {"labels": {"team": "a"}, "annotations": {"example.com/cost": "7"}}


def a_template_with_metadata() -> Template:
    manifest = a_manifest(pod={"schedulerName": "of-template"})
    manifest["metadata"] = manifest["spec"]["template"]["metadata"] = METADATA
    return judge_template("default", manifest)


TASK = ("spec", "template", "spec", "containers", 1)
POD_SPEC = ("spec", "template", "spec")
REMOVED = object()

Path = tuple[str | int, ...]


def changed(job: Manifest, path: Path, value: Any) -> Manifest:
    """A copy with another value at a path. `REMOVED` deletes the value, a function computes it from the old one."""
    copied = copy.deepcopy(job)
    place: Any = copied
    for step in path[:-1]:
        place = place[step]
    if value is REMOVED:
        del place[path[-1]]
    else:
        place[path[-1]] = value(place[path[-1]]) if callable(value) else value
    return copied


def appended(*items: Any) -> Any:
    """A change that appends these items to a list."""
    return lambda there: [*(there or []), *items]


def without_name(name: str) -> Any:
    return lambda env: [one for one in env if one["name"] != name]


def with_value(name: str, **value: Any) -> Any:
    return lambda env: [{"name": name, **value} if one["name"] == name else one for one in env]


def check(
    template: Template, order: LaunchSpec, path: Path = (), value: Any = None, site: JobSite = SITE_WITH_ENV
) -> str:
    job = build_job(order, template, site)
    return check_job(changed(job, path, value) if path else job, order, template, site)


# Jobs that pass


def test_job_of_a_row_without_requests_passes() -> None:
    assert check(CLOSED, an_order(CLOSED)) == ""


def test_job_inside_the_bounds_passes() -> None:
    assert check(OPEN, an_order(OPEN, **ASKED)) == ""


@pytest.mark.parametrize(("seconds", "fine"), [(7200, True), (7201, False)])
def test_run_limit_is_at_most_that_of_the_template(seconds: int, fine: bool) -> None:
    assert (check(OPEN, an_order(OPEN, task=a_task(timeout_seconds=seconds))) == "") is fine


@pytest.mark.parametrize(
    ("env", "spec", "is_fine"),
    [
        ({"DATE": "x" * 1020}, {}, True),
        ({"DATE": "x" * 1021}, {}, False),
        ({"DATE": "$" * 510}, {}, True),
        ({"DATE": "$" * 511}, {}, False),
        ({"DATE": "\u20ac" * 341}, {}, False),
        ({"DATE": "x" * 500}, {"args": ["y" * 520]}, True),
        ({"DATE": "x" * 500}, {"args": ["y" * 521]}, False),
        ({"DATE": "x" * 500}, {"args": ["y" * 300], "command": ["z" * 300]}, False),
    ],
)
def test_text_of_a_row_is_bounded_as_it_stands_in_the_job(
    env: dict[str, str], spec: dict[str, Any], is_fine: bool
) -> None:
    bounded = msgspec.structs.replace(OPEN, max_bytes=1024)
    found = check(bounded, an_order(bounded, env=env, spec=spec))
    assert found == "" if is_fine else "more than 1024: put large input into payload" in found


def test_text_of_template_and_installation_is_not_the_rows() -> None:
    site = msgspec.structs.replace(SITE_WITH_ENV, passed={"SITE_WIDE": "x" * 5000})
    bounded = msgspec.structs.replace(OPEN, max_bytes=1024)
    assert check(bounded, an_order(bounded), site=site) == ""


def test_minimal_template_passes() -> None:
    bare = judge_template("default", a_manifest(container={"resources": None}) | {"metadata": None})
    assert check(bare, an_order(bare, env={"A": "1"}, cache_key="k")) == ""


@pytest.mark.parametrize("site", [SITE, SITE_WITH_ENV], ids=["its own scheduler", "that of the installation"])
def test_metadata_and_scheduler_of_the_template_pass(site: JobSite) -> None:
    template = a_template_with_metadata()
    assert check(template, an_order(template), site=site) == ""


@pytest.mark.parametrize("head", [("metadata",), ("spec", "template", "metadata")], ids=["Job", "Pod"])
@pytest.mark.parametrize("part", [("labels", "team"), ("annotations", "example.com/cost")])
def test_missing_metadata_of_the_template_is_found(head: Path, part: Path) -> None:
    template = a_template_with_metadata()
    assert check(template, an_order(template), (*head, *part), REMOVED) != ""


def test_empty_map_counts_as_absent() -> None:
    assert check(CLOSED, an_order(CLOSED), (*POD_SPEC, "affinity"), {}) == ""


# Jobs that do not pass: each class of field, with a template that opens nothing

MUTATIONS: list[tuple[Path, Any, str]] = [
    (("metadata", "namespace"), "kube-system", "not this task's"),
    (("metadata", "labels", "dispatcher.internal/task-id"), "43", "not this task's"),
    ((*TASK, "env"), with_value("TASK_ID", value="42", valueFrom=SECRET), "env.TASK_ID"),
    ((*TASK, "env"), with_value("TASK_CACHE_DIR", value="$(KEY)"), "env.TASK_CACHE_DIR"),
    (("spec", "backoffLimit"), 1, "second Pod"),
    (("spec", "podFailurePolicy"), {"rules": []}, "second Pod"),
    (("spec", "parallelism"), 2, "Job's spec differs"),
    (("spec", "completions"), 2, "Job's spec differs"),
    (("spec", "suspend"), True, "Job's spec differs"),
    (("spec", "ttlSecondsAfterFinished"), 0, "Job's spec differs"),
    (("spec", "manualSelector"), True, "Job's spec differs"),
    ((*POD_SPEC, "restartPolicy"), "OnFailure", "second Pod"),
    ((*TASK, "restartPolicy"), "Always", "run twice"),
    ((*TASK, "restartPolicyRules"), [{"action": "Restart"}], "run twice"),
    ((*POD_SPEC, "initContainers", 0, "restartPolicy"), "OnFailure", "run twice"),
    ((*POD_SPEC, "initContainers", 0, "restartPolicyRules"), [{"action": "RestartAllContainers"}], "run twice"),
    ((*POD_SPEC, "activeDeadlineSeconds"), 0, "run limit"),
    ((*POD_SPEC, "activeDeadlineSeconds"), 604801, "run limit"),
    ((*POD_SPEC, "hostNetwork"), True, "Pod's spec differs"),
    ((*POD_SPEC, "hostPID"), True, "Pod's spec differs"),
    ((*POD_SPEC, "serviceAccountName"), "admin", "Pod's spec differs"),
    ((*POD_SPEC, "automountServiceAccountToken"), True, "Pod's spec differs"),
    ((*POD_SPEC, "automountServiceAccountToken"), REMOVED, "Pod's spec differs"),
    ((*POD_SPEC, "priorityClassName"), "system-node-critical", "Pod's spec differs"),
    ((*POD_SPEC, "nodeSelector"), {"disk": "hdd"}, "Pod's spec differs"),
    ((*POD_SPEC, "tolerations"), [{"operator": "Exists"}], "it tolerates more"),
    ((*POD_SPEC, "securityContext"), {"runAsUser": 0}, "Pod's spec differs"),
    ((*POD_SPEC, "volumes"), appended({"name": "root", "hostPath": {"path": "/"}}), "it has a volume"),
    ((*POD_SPEC, "initContainers", 0, "image"), "evil:1", "another container differs"),
    ((*POD_SPEC, "initContainers"), REMOVED, "another number of containers"),
    ((*POD_SPEC, "containers"), appended({"name": "extra", "image": "evil:1"}), "another number of containers"),
    ((*POD_SPEC, "containers", 0, "image"), "evil:1", "another container differs"),
    ((*POD_SPEC, "containers", 0, "env"), [], "another container differs"),
    ((*TASK, "name"), "task2", "container differs"),
    ((*TASK, "imagePullPolicy"), "Never", "container differs"),
    ((*TASK, "securityContext"), {"privileged": True}, "container differs"),
    ((*TASK, "securityContext", "capabilities", "drop"), [], "container differs"),
    ((*TASK, "volumeMounts"), [{"name": "scratch", "mountPath": "/"}], "container differs"),
    ((*TASK, "envFrom"), [{"secretRef": {"name": "all"}}], "container differs"),
    ((*TASK, "lifecycle"), {"preStop": {"exec": {"command": ["x"]}}}, "container differs"),
    ((*TASK, "image"), "evil:1", "image differs"),
    ((*TASK, "command"), ["sh"], "command differs"),
    ((*TASK, "command"), REMOVED, "command differs"),
    ((*TASK, "args"), ["y"], "args differs"),
    ((*TASK, "resources", "limits", "cpu"), "2", "limits.cpu differs"),
    ((*TASK, "resources", "requests", "memory"), REMOVED, "requests.memory differs"),
    ((*TASK, "resources", "limits", "example.com/gpu"), "1", "limits.example.com/gpu differs"),
    ((*TASK, "resources", "claims"), [{"name": "c"}], "resources differ"),
    ((*TASK, "resources"), REMOVED, "differs"),
    ((*TASK, "env"), appended({"name": "MODE", "value": "x"}), "stands twice"),
    ((*TASK, "env"), appended({"name": "NEW", "value": "x"}), "env.NEW is not opened"),
    ((*TASK, "env"), with_value("MODE", value="slow"), "env.MODE is not opened"),
    ((*TASK, "env"), with_value("S3_URL", value="s3://evil"), "env.S3_URL is not opened"),
    ((*TASK, "env"), without_name("TASK_LAUNCH"), "is incomplete"),
    ((*TASK, "env"), with_value("TASK_START_KEY", value="$(KEY)"), "not what the contract says"),
]  # fmt: skip


@pytest.mark.fault(56)
@pytest.mark.parametrize(
    ("path", "value", "said"), MUTATIONS, ids=[f"{'.'.join(map(str, path))}-{said}" for path, _, said in MUTATIONS]
)
def test_difference_from_the_template_is_named(path: Path, value: Any, said: str) -> None:
    assert said in check(CLOSED, an_order(CLOSED), path, value)


NOT_NAMED: list[tuple[str, Path, Any]] = [
    ("its name", ("metadata", "name"), "dispatcher-43-aaaaaaaa-1"),
    ("its identity", ("metadata", "annotations", "dispatcher.internal/identity"), "0" * 64),
    ("its counts", ("metadata", "annotations", "dispatcher.internal/disrupted"), "0"),
    ("its launch", ("metadata", "labels", "dispatcher.internal/launch"), "9"),
    ("its installation", ("metadata", "labels", "dispatcher.internal/installation"), "blue"),
    ("its owner", ("metadata", "ownerReferences"), [{"kind": "Node", "name": "n", "uid": "u"}]),
    ("its finalizers", ("metadata", "finalizers"), ["example.com/keep"]),
    ("its Pod's task", ("spec", "template", "metadata", "labels", "dispatcher.internal/task-id"), "43"),
    ("its Pod's labels", ("spec", "template", "metadata", "labels", "network"), "trusted"),
    ("its Pod's annotations", ("spec", "template", "metadata", "annotations", "k8s.v1.cni.cncf.io/networks"), "host"),
    ("its deadline", ("spec", "activeDeadlineSeconds"), 60),
    ("its scheduler", (*POD_SPEC, "schedulerName"), "somebodys"),
    ("a variable of the template", (*TASK, "env"), without_name("MODE")),
    ("a variable of PASS_ENV", (*TASK, "env"), without_name("S3_URL")),
    ("whose task it is told", (*TASK, "env"), with_value("TASK_ID", value="43")),
    ("which launch it is told", (*TASK, "env"), with_value("TASK_LAUNCH", value="9")),
    ("where its name comes from", (*TASK, "env"), with_value("POD_NAME", valueFrom=SECRET)),
    ("what kind of object it is", ("kind",), "CronJob"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), [one[1:] for one in NOT_NAMED], ids=[one[0] for one in NOT_NAMED])
def test_no_field_is_left_out_of_the_comparison(path: Path, value: Any) -> None:
    assert check(CLOSED, an_order(CLOSED, launch=Launch(2, 0, 1)), path, value) != ""


@pytest.mark.parametrize("name", ["TASK_TIMEOUT_SECONDS", "TASK_CACHE_DIR"])
def test_every_value_of_the_contract_is_compared(name: str) -> None:
    assert check(CLOSED, an_order(CLOSED), (*TASK, "env"), with_value(name, value="7")) != ""


# Jobs that do not pass although the template opens the field


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ((*TASK, "image"), "team-b/app", "spec.image is none of"),
        ((*TASK, "image"), "team-a/../team-b/app", "spec.image is none of"),
        ((*TASK, "resources", "limits", "cpu"), "4001m", "spec.cpu 4001m is over"),
        ((*TASK, "resources", "requests", "memory"), "0", "spec.memory must be above 0"),
        ((*TASK, "resources", "requests", "memory"), REMOVED, "spec.memory"),
        ((*TASK, "resources", "limits", "ephemeral-storage"), "1Ti", "limits.ephemeral-storage differs"),
        ((*POD_SPEC, "activeDeadlineSeconds"), 7201, "run limit"),
        ((*TASK, "env"), with_value("KEY", value="mine"), "env.KEY is not opened"),
        ((*TASK, "env"), with_value("S3_URL", value="mine"), "env.S3_URL is not opened"),
        ((*TASK, "env"), appended({"name": "A B", "value": "x"}), "an env name is illegal"),
        ((*TASK, "env"), with_value("NEW", valueFrom=SECRET), "not a plain value"),
        ((*TASK, "env"), with_value("NEW", value="$(KEY)"), "env.NEW would be expanded"),
        ((*TASK, "env"), with_value("NEW", value="$$$(KEY)"), "env.NEW would be expanded"),
    ],
)  # fmt: skip
def test_open_field_is_checked_against_its_bound(path: Path, value: Any, said: str) -> None:
    assert said in check(OPEN, an_order(OPEN, **ASKED), path, value)


def test_secret_reference_beside_an_empty_value_is_found() -> None:
    smuggled = with_value("NEW", value="", valueFrom=SECRET)
    assert check(OPEN, an_order(OPEN, **ASKED), (*TASK, "env"), smuggled) != ""


@pytest.mark.parametrize("field", ["command", "args"])
def test_unescaped_variable_in_arguments_is_found(field: str) -> None:
    assert check(OPEN, an_order(OPEN, **ASKED), (*TASK, field), ["$(KEY)"]) != ""


@pytest.mark.fault(54)
@pytest.mark.parametrize("name", ["LD_PRELOAD", "TASK_DATABASE_URL", "KUBERNETES_SERVICE_HOST"])
def test_second_check_finds_closed_names(name: str) -> None:
    assert check(OPEN, an_order(OPEN, **ASKED), (*TASK, "env"), appended({"name": name, "value": "x"})) != ""
