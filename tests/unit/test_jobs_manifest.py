"""The Job of a launch (docs/protocol.md, section 1, and docs/author.md)."""

import copy
from typing import Any

import msgspec
import pytest

from dispatcher.jobs.manifest import JobSite, build_job, run_limit
from dispatcher.jobs.templates import Template, judge_template
from dispatcher.model import launches as ids
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import Launch, LaunchSpec
from dispatcher.model.tasks import Task
from dispatcher.settings.definition import PlacementSettings
from tests.rig.builders import DATABASE_ID, SITE, START_KEY, a_manifest, a_task, a_template, an_order

OPEN = a_template(
    opens="env,image,command,args,cpu,memory", bounds={"images": "*", "max-cpu": "8", "max-memory": "8Gi"}
)
DOMAIN = "dispatcher.internal"


def a_site(**changes: Any) -> JobSite:
    return msgspec.structs.replace(SITE, **changes)


def rendered(order: LaunchSpec | None = None, template: Template | None = None, site: JobSite = SITE) -> Manifest:
    template = template or a_template()
    return build_job(order or an_order(template), template, site)


def container_of(job: Manifest) -> Manifest:
    container: Manifest = job["spec"]["template"]["spec"]["containers"][0]
    return container


def env_of(job: Manifest) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container_of(job)["env"] if "value" in one}


# Name, labels and annotations


def test_a_job_has_the_name_of_its_launch_in_the_namespace_of_the_installation() -> None:
    order = an_order(task=a_task(attempt=2), launch=Launch(3))
    job = rendered(order)
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert job["metadata"]["name"] == ids.name_of(order, "dispatcher")
    assert job["metadata"]["namespace"] == "jobs"


def test_job_and_pod_carry_the_labels() -> None:
    job = rendered(an_order(task=a_task(attempt=2, queue="blue"), launch=Launch(3)))
    labels = {
        "app.kubernetes.io/managed-by": "dispatcher", f"{DOMAIN}/installation": "dispatcher", f"{DOMAIN}/task-id": "42",
        f"{DOMAIN}/queue": "blue", f"{DOMAIN}/attempt": "2", f"{DOMAIN}/launch": "3", f"{DOMAIN}/template": "default",
    }  # fmt: skip
    assert job["metadata"]["labels"] == labels
    assert job["spec"]["template"]["metadata"]["labels"] == labels


def test_job_annotations_carry_identity_and_counts() -> None:
    order = an_order(launch=Launch(4, unstarted=1, disrupted=2))
    assert rendered(order)["metadata"]["annotations"] == {
        f"{DOMAIN}/identity": ids.identity_of(order), f"{DOMAIN}/database-id": DATABASE_ID,
        f"{DOMAIN}/submitted-by": "team_a", f"{DOMAIN}/unstarted": "1", f"{DOMAIN}/disrupted": "2",
        f"{DOMAIN}/report": "sql", f"{DOMAIN}/image": order.offer.image,
    }  # fmt: skip


@pytest.mark.parametrize(
    "bounds", [{"report": "exit-code"}, {"report": "exit-code", "final-codes": "2,64-68"}], ids=["mode", "codes"]
)
def test_report_mode_and_final_codes_of_the_template_are_annotations_of_the_job(bounds: dict[str, str]) -> None:
    found = rendered(template=a_template(bounds=bounds))["metadata"]["annotations"]
    assert {name: found[f"{DOMAIN}/{name}"] for name in bounds} == bounds


def test_the_pod_carries_its_shape_and_the_cache_key_of_its_row() -> None:
    order = an_order()
    assert rendered(order)["spec"]["template"]["metadata"]["annotations"] == {
        f"{DOMAIN}/shape": order.offer.shape, f"{DOMAIN}/container": "task",
    }  # fmt: skip
    keyed = an_order(cache_key="model/7")
    assert rendered(keyed)["spec"]["template"]["metadata"]["annotations"][f"{DOMAIN}/cache-key"] == "model/7"


def test_labels_and_annotations_of_the_template_stay_except_its_openings() -> None:
    manifest = a_manifest(annotations={"row-may-set": "env,args", "max-seconds": "60"})
    manifest["metadata"]["annotations"]["example.com/cost"] = "7"
    manifest["metadata"]["labels"] = {"team": "a", "app.kubernetes.io/managed-by": "somebody"}
    manifest["spec"]["template"]["metadata"] = {"labels": {"team": "a"}, "annotations": {"example.com/mesh": "off"}}
    job = rendered(template=judge_template("default", manifest))
    assert job["metadata"]["labels"]["team"] == "a"
    assert job["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "dispatcher"
    assert job["metadata"]["annotations"]["example.com/cost"] == "7"
    assert not {f"{DOMAIN}/row-may-set", f"{DOMAIN}/max-seconds"} & job["metadata"]["annotations"].keys()
    assert job["spec"]["template"]["metadata"]["labels"]["team"] == "a"
    assert job["spec"]["template"]["metadata"]["annotations"]["example.com/mesh"] == "off"


def test_job_takes_only_labels_and_annotations_of_template_metadata() -> None:
    manifest = a_manifest() | {"status": {"active": 1}}
    manifest["metadata"] |= {"name": "mine", "finalizers": ["example.com/keep"], "ownerReferences": [{"name": "x"}]}
    job = rendered(template=judge_template("default", manifest))
    assert job.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert job["metadata"].keys() == {"name", "namespace", "labels", "annotations"}


def test_template_without_metadata_gives_a_complete_job() -> None:
    job = rendered(template=judge_template("default", a_manifest() | {"metadata": None}))
    assert job["metadata"] == rendered()["metadata"]


# One launch = one Job = one Pod


@pytest.mark.fault(37)
def test_a_job_makes_one_pod_that_runs_once_and_fails_on_a_disruption() -> None:
    spec = rendered()["spec"]
    assert (spec["backoffLimit"], spec["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert spec["podFailurePolicy"] == {
        "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    }
    assert not {"ttlSecondsAfterFinished", "suspend", "completions", "parallelism"} & spec.keys()


@pytest.mark.fault(42, 45)
@pytest.mark.parametrize(
    ("task", "bounds", "limit"),
    [
        (a_task(), {}, 3600),
        (a_task(timeout_seconds=60), {}, 60),
        (a_task(timeout_seconds=7200), {}, 7200),
        (a_task(), {"max-seconds": "600"}, 600),
        (a_task(timeout_seconds=60), {"max-seconds": "600"}, 60),
        (a_task(), {"timeout-seconds": "7200"}, 7200),
        (a_task(timeout_seconds=60), {"timeout-seconds": "7200"}, 60),
        (a_task(), {"timeout-seconds": "7200", "max-seconds": "7201"}, 7200),
    ],
    ids=str,
)
def test_pod_deadline_is_the_run_limit_and_the_job_has_none(task: Task, bounds: dict[str, str], limit: int) -> None:
    """A deadline of the Job would count the time in which its Pod waits for a node."""
    template = a_template(bounds=bounds)
    job = rendered(an_order(template, task=task), template)
    assert run_limit(task, template, SITE) == limit
    assert job["spec"]["template"]["spec"]["activeDeadlineSeconds"] == limit
    assert "activeDeadlineSeconds" not in job["spec"]
    assert env_of(job)["TASK_TIMEOUT_SECONDS"] == str(limit)


def test_scheduler_of_the_installation_replaces_that_of_the_template() -> None:
    mine = a_template(pod={"schedulerName": "of-template"})
    assert "schedulerName" not in rendered()["spec"]["template"]["spec"]
    assert rendered(template=mine)["spec"]["template"]["spec"]["schedulerName"] == "of-template"
    assert (
        rendered(template=mine, site=a_site(placement=PlacementSettings(scheduler_name="warm")))["spec"]["template"][
            "spec"
        ]["schedulerName"]
        == "warm"
    )


# The container


def test_container_env_holds_the_contract() -> None:
    job = rendered(an_order(task=a_task(attempt=2, queue="blue"), launch=Launch(3)))
    assert env_of(job) == {
        "TASK_ID": "42", "TASK_QUEUE": "blue", "TASK_ATTEMPT": "2", "TASK_LAUNCH": "3", "TASK_START_KEY": START_KEY,
        "TASK_TIMEOUT_SECONDS": "3600", "TASK_CACHE_DIR": "",
    }  # fmt: skip
    fields = {one["name"] for one in container_of(job)["env"] if "valueFrom" in one}
    assert fields == {"NODE_NAME", "POD_NAME", "POD_NAMESPACE", "JOB_UID"}


def test_pass_env_template_row_and_contract_meet_in_the_container() -> None:
    template = a_template(
        opens="env,env.MODE", container={"env": [{"name": name, "value": "$(S3_URL)"} for name in ("MODE", "OWN")]}
    )
    order = an_order(template, env={"MODE": "slow", "PRICE": "5 $"})
    env = env_of(rendered(order, template, a_site(passed={"S3_URL": "s3://$x"})))
    assert (env["S3_URL"], env["OWN"], env["TASK_ID"]) == ("s3://$$x", "$(S3_URL)", "42")
    assert (env["MODE"], env["PRICE"]) == ("slow", "5 $$")


def test_the_opened_parts_of_a_row_go_into_the_container() -> None:
    spec = {"image": "other:2", "command": ["a"], "args": ["b", "c"]}
    container = container_of(rendered(an_order(OPEN, spec=spec), OPEN))
    assert {field: container[field] for field in spec} == spec


@pytest.mark.fault(55)
@pytest.mark.museum("env $ unescaped")
@pytest.mark.parametrize("field", ["command", "args"])
def test_command_and_args_of_a_row_arrive_unchanged(field: str) -> None:
    """kubelet expands `$(NAME)` there, too. Without escapes a row could print a secret of its template."""
    container = container_of(rendered(an_order(OPEN, spec={field: ["$(DB_PASSWORD)", "5 $"]}), OPEN))
    assert container[field] == ["$$(DB_PASSWORD)", "5 $$"]


def test_cpu_and_memory_of_a_row_set_request_and_limit_alike() -> None:
    container = container_of(rendered(an_order(OPEN, spec={"cpu": "3", "memory": "2Gi"}), OPEN))
    assert container["resources"] == {
        "requests": {"cpu": "3", "memory": "2Gi"},
        "limits": {"cpu": "3", "memory": "2Gi"},
    }


def test_resource_that_the_row_leaves_out_keeps_the_template_value() -> None:
    gpu = {"requests": {"cpu": "1"}, "limits": {"cpu": "1", "example.com/gpu": "1"}, "claims": [{"name": "c"}]}
    template = a_template(opens="memory", bounds={"max-memory": "8Gi"}, container={"resources": gpu})
    container = container_of(rendered(an_order(template, spec={"memory": "2Gi"}), template))
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "2Gi"},
        "limits": {"cpu": "1", "memory": "2Gi", "example.com/gpu": "1"},
        "claims": [{"name": "c"}],
    }


def test_a_template_without_resources_gets_those_of_the_row() -> None:
    template = a_template(opens="cpu", bounds={"max-cpu": "2"}, container={"resources": None})
    assert "resources" not in container_of(rendered(template=template))
    container = container_of(rendered(an_order(template, spec={"cpu": "2"}), template))
    assert container["resources"] == {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}


def test_row_changes_only_the_container_named_task() -> None:
    side, task = {"name": "side", "image": "side:1"}, {"name": "task", "image": "app:1"}
    template = a_template(opens="image,env", bounds={"images": "*"}, pod={"containers": [side, task]})
    containers = rendered(an_order(template, spec={"image": "new"}, env={"A": "1"}), template)["spec"]["template"][
        "spec"
    ]["containers"]
    assert containers[0] == side
    assert containers[1]["image"] == "new"


# Fresh for each launch


def test_rendering_leaves_the_template_as_it_was_and_shares_nothing_with_it() -> None:
    template = a_template(container={"env": [{"name": "A", "value": "1"}]})
    before = copy.deepcopy(template.manifest)
    job = rendered(template=template)
    container_of(job)["env"].clear()
    job["spec"]["template"]["metadata"]["labels"].clear()
    assert template.manifest == before
    assert rendered(template=template) != job


@pytest.mark.fault(11)
@pytest.mark.museum("new name on retry")
def test_a_repeated_create_sends_the_same_bytes() -> None:
    order = an_order(OPEN, env={"B": "2", "A": "1"}, spec={"cpu": "2"})
    again = an_order(OPEN, env={"A": "1", "B": "2"}, spec={"cpu": "2"})
    assert msgspec.json.encode(rendered(order, OPEN)) == msgspec.json.encode(rendered(again, OPEN))
