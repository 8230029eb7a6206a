"""What `adopt` makes of a manifest means the same to the API server, which also takes Pods of the built-in template."""

from typing import Any

import pytest
import yaml

from dispatcher.commands.adopt import adopt
from dispatcher.commands.adoption import Did
from dispatcher.commands.manifests import inserting_cron_job
from dispatcher.commands.pod_adoption import OPEN_VOLUMES
from dispatcher.jobs.catalog import built_in
from dispatcher.jobs.env import CONTRACT
from dispatcher.jobs.manifest import build_job
from dispatcher.jobs.templates import Template, judge_template
from dispatcher.settings.loading import load
from tests.contract.in_force import pod_security_in_force
from tests.contract.policy_cases import CONTAINER_ATTACKS, LEGAL_CONTAINERS, LEGAL_PODS, POD_ATTACKS
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.rig.builders import SITE, an_order
from tests.rig.corpus import CRON_JOBS, JOBS, PODS, SCALED_JOBS, WORKFLOWS, container, job, manifest, pod
from tests.rig.deployed import CHART

POD_OF = {
    "Job": ("spec", "template", "spec"), "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    "ScaledJob": ("spec", "jobTargetRef", "template", "spec"), "Pod": ("spec",),
}  # fmt: skip
OURS = ("activeDeadlineSeconds", "restartPolicy")
"""Fields of the Pod that become annotations of the template, and hold for all Jobs of the dispatcher."""


OF_A_ROW = "index by its note"
"""What the cluster gave to each Pod, a row gives."""


async def as_taken(plane: ControlPlane, namespace: str, job: dict[str, Any]) -> dict[str, Any]:
    """The Pod's spec with all defaults, as the API server would keep it. Our variables are left out."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    taken = await plane.admin("POST", path, job, params={"dryRun": "All", "fieldValidation": "Strict"})
    pod: dict[str, Any] = {key: value for key, value in taken["spec"]["template"]["spec"].items() if key not in OURS}
    for one in (*pod["containers"], *pod.get("initContainers", ())):
        if one.get("restartPolicy") == "OnFailure":
            del one["restartPolicy"]  # a container runs once
    for one in pod["containers"]:
        env = {variable["name"]: variable for variable in one.pop("env", [])}  # of equal names, the last counts
        one["env"] = [variable for name, variable in env.items() if name not in CONTRACT]
    return pod


@pytest.mark.parametrize("name", [name for name in (*JOBS, *CRON_JOBS, *SCALED_JOBS, *PODS) if name != OF_A_ROW])
async def test_adopted_pod_is_the_one_of_the_manifest(control_plane: ControlPlane, ground: str, name: str) -> None:
    document: Any = manifest(name)
    found = adopt(document)
    assert isinstance(found, list)
    template = judge_template("adopted", found[0].manifest)
    pod = document
    for step in POD_OF[document["kind"]]:
        pod = pod[step]
    theirs = {key: value for key, value in pod.items() if key not in OURS} | {"restartPolicy": "Never"}
    own = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "own"}, "spec": {"template": {"spec": theirs}}}
    ours = build_job(an_order(template), template, SITE)
    ours["metadata"]["namespace"] = ground
    assert await as_taken(control_plane, ground, ours) == await as_taken(control_plane, ground, own)


@pytest.mark.parametrize("name", WORKFLOWS)
async def test_steps_of_a_workflow_have_fields_that_the_server_knows(
    control_plane: ControlPlane, ground: str, name: str
) -> None:
    found = adopt(manifest(name))
    assert isinstance(found, list)
    for one in found:
        if one.manifest:
            template = judge_template(one.name, one.manifest)
            ours = build_job(an_order(template), template, SITE)
            ours["metadata"]["namespace"] = ground
            pod = await as_taken(control_plane, ground, ours)
            assert pod["containers"][0]["image"] == one.manifest["spec"]["template"]["spec"]["containers"][0]["image"]


SCHEDULED = [*CRON_JOBS, "CronWorkflow with one step first", "CronWorkflow of one list"]


@pytest.mark.parametrize("name", SCHEDULED)
async def test_cron_job_that_inserts_has_the_schedule_and_is_accepted(
    control_plane: ControlPlane, ground: str, name: str
) -> None:
    document: Any = manifest(name)
    found = adopt(document)
    assert isinstance(found, list)
    (first,) = (one for one in found if one.schedule)
    made = inserting_cron_job("a" * 63, first.schedule, "INSERT INTO dispatch.tasks DEFAULT VALUES")
    path = f"/apis/batch/v1/namespaces/{ground}/cronjobs"
    taken = await control_plane.admin("POST", path, made, params={"dryRun": "All", "fieldValidation": "Strict"})
    given = {"timeZone": document["spec"].get("timezone"), **document["spec"]}
    given["schedule"] = given.get("schedule") or given["schedules"][0]
    for field in ("schedule", "timeZone", "suspend", "startingDeadlineSeconds"):
        assert taken["spec"].get(field) == given.get(field, False if field == "suspend" else None), field


NOT_TOLD = {"restarts after a failure", "restarts by a rule", "a node"}
"""What no template gets."""


def words_of_policy(spec: dict[str, Any]) -> list[str]:
    found = adopt(job(spec))
    assert isinstance(found, list)
    return [one.words for one in found[0].fields if one.did is Did.OPEN and "policy" in one.words]


def test_field_that_the_policy_refuses_is_left_to_a_person() -> None:
    """Otherwise every row of the template is refused, and nobody knows why."""
    attacks = {name: pod(container(**fields)) for name, (fields, _) in CONTAINER_ATTACKS.items()}
    attacks |= {name: pod(**fields) for name, (fields, _) in POD_ATTACKS.items()}
    assert {name for name, spec in attacks.items() if not words_of_policy(spec)} == NOT_TOLD
    legal = [pod(container(**LEGAL_CONTAINERS[name])) for name in ("a capability of baseline", "a probe of itself")]
    legal += [
        pod(**LEGAL_PODS[name]) for name in ("a claim", "memory", "namespaces of its own", "what baseline allows")
    ]
    assert [words_of_policy(spec) for spec in legal] == [[]] * 6
    kinds = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["policy"]["volumeKinds"]
    assert {"name", *kinds} == OPEN_VOLUMES


def a_pod(**settings: str) -> Json:
    loaded = load({f"DISPATCHER_{name}": given for name, given in {"IMAGE": "x:1", **settings}.items()}, str)
    template = built_in(loaded.settings.jobs)["default"]
    assert isinstance(template, Template)
    spec = template.manifest["spec"]["template"]["spec"]
    return {"metadata": {"name": "tried"}, "spec": {**spec, "restartPolicy": "Never"}}


async def try_at(plane: ControlPlane, namespace: str, level: str, pod: Json) -> None:
    await pod_security_in_force(plane, namespace, level)
    await plane.admin("POST", f"/api/v1/namespaces/{namespace}/pods", pod, params={"dryRun": "All"})


async def test_pod_passes_baseline(control_plane: ControlPlane, namespace: str) -> None:
    await try_at(control_plane, namespace, "baseline", a_pod())


async def test_pod_passes_restricted_by_one_setting(control_plane: ControlPlane, namespace: str) -> None:
    await try_at(control_plane, namespace, "restricted", a_pod(RUN_AS_NON_ROOT="true"))
    with pytest.raises(KubeFault, match=r"runAsNonRoot != true"):
        await try_at(control_plane, namespace, "restricted", a_pod())
