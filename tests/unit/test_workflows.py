"""Templates of Argo's workflows: what a step and its parameters become. The other kinds are in test_adoption.py."""

import copy
import json
from typing import Any

import pytest

from dispatcher.commands.adopt import adopt
from dispatcher.commands.adoption import Adoption, Did
from dispatcher.commands.manifests import inserting_cron_job
from dispatcher.jobs.manifest import build_job
from dispatcher.jobs.offered import why_unusable
from dispatcher.jobs.templates import judge_template
from dispatcher.model.launches import DOMAIN
from tests.property.kubelet import seen_env
from tests.rig.builders import SITE, an_order
from tests.rig.corpus import PROXY, job, manifest, pod, step, workflow
from tests.rig.whole_job import parent_of, paths


def adopted(document: dict[str, Any]) -> Adoption:
    found = adopt(document)
    assert isinstance(found, list)
    return found[0]


@pytest.mark.parametrize(
    ("name", "kept", "statement"),
    [
        (
            "CronWorkflow with one step first",
            {"timeZone": "Europe/Vienna", "suspend": False, "startingDeadlineSeconds": 60}, "one_at_a_time",
        ),
        ("CronWorkflow of one list", {}, "again"),
    ],
)  # fmt: skip
def test_first_step_of_a_cron_workflow_has_its_schedule(name: str, kept: dict[str, Any], statement: str) -> None:
    found = adopt(manifest(name))
    assert isinstance(found, list)
    (first,) = (one for one in found if one.schedule)
    assert (first.name, first.schedule) == ("one", {"schedule": "5 4 * * *", **kept})
    assert [one.file for one in first.statements] == [statement]


def test_schedule_whose_first_step_is_a_graph_is_left_to_a_person() -> None:
    graph = {"name": "all", "dag": {"tasks": []}}
    for parts in ({"entrypoint": "all"}, {"entrypoint": "one"}):
        cron = workflow(graph, step(), kind="CronWorkflow", more={"schedules": ["@daily", "@hourly"]}, **parts)
        del cron["spec"]["schedule"]
        found = adopt(cron)
        assert isinstance(found, list)
        assert not any(one.schedule for one in found)
        assert [one.did for one in found[0].fields if one.field == "spec.schedules"] == [Did.OPEN]


def test_step_has_the_labels_and_the_volumes_of_its_workflow() -> None:
    made = adopted(manifest("step of its own labels")).manifest["spec"]["template"]["metadata"]
    assert made == {"labels": {"a": "own", "b": "all"}, "annotations": {"x": "y"}}
    found = adopt(manifest("workflow volumes beside"))
    assert isinstance(found, list)
    volumes = [one.manifest["spec"]["template"]["spec"]["volumes"] for one in found]
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    assert volumes == [[claim], [claim], [{"name": "data", "emptyDir": {}}]]


def test_parameters_of_a_workflow_become_variables_of_the_row() -> None:
    task = adopted(manifest("parameters")).manifest["spec"]["template"]["spec"]["containers"][0]
    assert task == {"name": "task", "image": "a:1", "command": ["run"], "args": ["$(IN_FILE)", "--x=$(X)"]}
    half = step(container={"image": "a", "args": ["{{inputs.parameters.task-id}}"], "env": [
        {"name": "U", "value": "http://{{inputs.parameters.host}}"}]})  # fmt: skip
    made = adopted(workflow(half))
    assert made.manifest["spec"]["template"]["spec"]["containers"][0]["args"] == ["$(PARAMETER_TASK_ID)"]
    env = made.manifest["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env == [{"name": "U", "value": "http://$(HOST)"}]
    assert not [one for one in made.fields if one.did is Did.OPEN]


ENV: dict[str, Any] = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


@pytest.mark.parametrize(
    ("parts", "args", "opened"),
    [
        ({"args": ["{{inputs.parameters.path}}"]}, ["$(PARAMETER_PATH)"], "env.PARAMETER_PATH"),
        ({"args": ["{{inputs.parameters.token}}"], "env": [ENV]}, ["$(PARAMETER_TOKEN)"], "env.PARAMETER_TOKEN"),
        (
            {"args": ["{{inputs.parameters.a-b}}", "{{inputs.parameters.a_b}}", "{{workflow.parameters.a-b}}"]},
            ["$(A_B)", "$(PARAMETER_A_B)", "$(PARAMETER_A_B2)"], "env.A_B,env.PARAMETER_A_B,env.PARAMETER_A_B2",
        ),
        ({"args": ["{{inputs.parameters.x}}"], "envFrom": [{"secretRef": {"name": "s"}}]}, ["$(PARAMETER_X)"],
         "env.PARAMETER_X"),
        ({"args": ["{{inputs.parameters.x}}"], "env": [{"name": "SOURCE", "value": "{{inputs.parameters.x}}"}]},
         ["$(SOURCE)"], "env.SOURCE"),
        ({"args": ["{{ inputs.parameters.x }}", "{{inputs.parameters.x}}"]}, ["$(X)", "$(X)"], "env.X"),
        ({"args": [f"{{{{inputs.parameters.{'x' * 300}}}}}"]}, [f"$({'X' * 200})"], f"env.{'X' * 200}"),
    ],
)  # fmt: skip
def test_parameter_has_a_name_that_replaces_nothing(parts: dict[str, Any], args: list[str], opened: str) -> None:
    """No variable of the container, none that programs trust, and none of another parameter."""
    made = adopted(workflow(step(container={"image": "a", **parts}))).manifest
    assert made["spec"]["template"]["spec"]["containers"][0]["args"] == args
    assert made["metadata"]["annotations"][f"{DOMAIN}/row-may-set"] == opened


STEP: dict[str, Any] = step(
    container={"image": "a:1", "command": ["run"], "args": ["x"], "env": [{"name": "A", "value": "b"}],
               "volumeMounts": [{"name": "d", "mountPath": "/d", "subPath": "s"}]},
    initContainers=[{"name": "i", "image": "b:1"}], sidecars=[PROXY], nodeSelector={"pool": "p"},
    volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}], metadata={"labels": {"l": "m"}},
)  # fmt: skip


@pytest.mark.parametrize(
    "text", ["{{workflow.name}}", "a-{{item}}", "{{=1}}", "{{inputs.artifacts.x.path}}", "{{inputs.parameters.p}}"]
)
def test_what_argo_would_fill_in_is_a_variable_or_left_to_a_person(text: str) -> None:
    """Wherever it stands in a step."""
    for path in paths(workflow(STEP)):
        document = copy.deepcopy(workflow(STEP))
        if (
            path[:3] != ("spec", "templates", 0)
            or len(path) < 5
            or not isinstance(parent_of(document, path)[path[-1]], str)
        ):
            continue
        parent_of(document, path)[path[-1]] = text
        made = adopted(document)
        left = [one.field for one in made.fields if one.did is Did.OPEN and "fill" in one.words]
        assert bool(left) is ("{{" in str(made.manifest)), (path, made.fields)


def test_script_is_an_argument_of_its_program() -> None:
    source = "echo $(date) $$ {{inputs.parameters.day}}"
    script = {"image": "a", "command": ["/bin/bash", "-e"], "source": source}
    found = adopted(workflow({"name": "one", "script": script}))
    (made,) = found.manifest["spec"]["template"]["spec"]["containers"]
    assert made["command"] == ["/bin/bash", "-e", "-c"]
    assert made["args"] == ["echo $$(date) $$$$ $(DAY)"], "kubelet expands the parameter alone"
    assert why_unusable(judge_template("one", found.manifest)) == ""
    strict = adopted(workflow({"name": "one", "script": {**script, "args": ["-o", "pipefail"]}}))
    (made,) = strict.manifest["spec"]["template"]["spec"]["containers"]
    assert made["command"] == ["/bin/bash", "-e", "-o", "pipefail", "-c"], "Argo gives the script behind the args"
    odd = adopted(workflow({"name": "one", "script": {**script, "command": ["magic"]}}))
    assert (odd.manifest, [one.did for one in odd.fields if "program is not known" in one.words]) == ({}, [Did.OPEN])


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}, "as valueFrom"),
        ({"enum": ["x", "y"]}, "no like here"),
    ],
)
def test_source_of_a_parameter_is_not_lost(facts: dict[str, Any], words: str) -> None:
    one = step(
        container={"image": "a", "args": ["{{inputs.parameters.d}}"]}, inputs={"parameters": [{"name": "d", **facts}]}
    )
    left = [told for told in adopted(workflow(one)).fields if told.did is Did.OPEN and words in told.words]
    assert [told.field for told in left] == [f"spec.templates[0].inputs.parameters[0].{next(iter(facts))}"]


def test_first_step_of_a_cron_workflow_gets_the_arguments() -> None:
    """Those of the workflow, else the defaults of the step."""
    inputs = {"parameters": [{"name": "day", "value": "never"}, {"name": "zone", "default": "$(HOME)"}, {"name": "x"}]}
    args = [f"{{{{{scope}.parameters.{name}}}}}" for scope, name in (("inputs", "day"), ("workflow", "day"),
                                                                     ("inputs", "zone"), ("inputs", "x"))]  # fmt: skip
    one = step(container={"image": "a", "args": args}, inputs=inputs)
    arguments = {"parameters": [{"name": "day", "value": "today"}]}
    found = adopt(workflow(one, kind="CronWorkflow", entrypoint="one", arguments=arguments))
    assert isinstance(found, list)
    (made,) = found
    assert made.in_time is not None
    assert json.loads(str(made.in_time.values["env"])) == {"DAY": "today", "PARAMETER_DAY": "today", "ZONE": "$(HOME)"}
    inserting = inserting_cron_job("one", made.schedule, str(made.in_time.values["env"]))
    (container,) = inserting["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert "$$(HOME)" in container["command"][-1], "kubelet leaves it as it is"


def test_blank_field_of_a_step_is_that_of_the_workflow() -> None:
    one = step(container={"name": "", "image": "a"}, nodeSelector=None)
    made = adopted(workflow(one, nodeSelector={"pool": "gpu"})).manifest["spec"]["template"]["spec"]
    assert (made["nodeSelector"], made["containers"][0]["name"]) == ({"pool": "gpu"}, "task")


@pytest.mark.parametrize(
    ("deadline", "seconds", "did"),
    [("300", "300", Did.TRANSLATED), (300, "300", Did.TRANSLATED), ("{{inputs.parameters.t}}", None, Did.OPEN)],
)
def test_deadline_of_a_step_may_be_a_text(deadline: object, seconds: str | None, did: Did) -> None:
    found = adopted(workflow(step(activeDeadlineSeconds=deadline)))
    assert found.manifest["metadata"]["annotations"].get(f"{DOMAIN}/timeout-seconds") == seconds
    assert did in [one.did for one in found.fields if one.field == "spec.templates[0].activeDeadlineSeconds"]


def test_fields_of_a_workflow_are_those_of_steps_that_have_none_of_their_own() -> None:
    found = adopt(manifest("workflow places"))
    assert isinstance(found, list)
    pods = [one.manifest["spec"]["template"] for one in found]
    assert [pod["spec"]["nodeSelector"] for pod in pods] == [{"a": "b"}, {"c": "d"}]
    assert all(pod["spec"]["serviceAccountName"] == "s" and pod["metadata"]["labels"] == {"e": "f"} for pod in pods)
    mounts = adopt(manifest("workflow volumes"))
    assert isinstance(mounts, list)
    assert ["volumes" in one.manifest["spec"]["template"]["spec"] for one in mounts] == [True, False]


def told(document: dict[str, Any], field: str) -> list[tuple[Did, str]]:
    found = adopt(document)
    assert isinstance(found, list)
    return [(one.did, one.words) for each in found for one in each.fields if one.field == field]


def test_step_has_the_defaults_of_its_workflow() -> None:
    """Those of what it runs, and of each list what it has not named itself."""
    env = [{"name": "A", "value": "all"}, {"name": "B", "value": "all"}]
    defaults = {"activeDeadlineSeconds": 60, "container": {"image": "a:1", "env": env}, "retryStrategy": {"limit": 2},
                "script": {"source": "x"}}  # fmt: skip
    own = {"name": "one", "retryStrategy": None, "container": {"args": ["x"], "env": [{"name": "A", "value": "own"}]}}
    made = adopted(workflow(own, templateDefaults=defaults)).manifest
    (task,) = made["spec"]["template"]["spec"]["containers"]
    env = [{"name": "B", "value": "all"}, {"name": "A", "value": "own"}]
    assert task == {"image": "a:1", "args": ["x"], "env": env, "name": "task"}
    annotations = made["metadata"]["annotations"]
    assert (annotations[f"{DOMAIN}/timeout-seconds"], annotations[f"{DOMAIN}/max-failures"]) == ("60", "3")


def test_steps_inside_a_graph_are_steps() -> None:
    inline = {"container": {"image": "a:1"}, "serviceAccountName": "{{x}}"}
    dag = {"name": "all", "dag": {"tasks": [{"name": "fetch", "inline": inline}, {"name": "b", "template": "one"}]}}
    rows = {"name": "rows", "steps": [[{"name": "load", "inline": inline}], "odd"]}
    found = adopt(workflow(dag, step(), rows))
    assert isinstance(found, list)
    assert [one.name for one in found if one.manifest] == ["fetch", "one", "load"]
    places = [one.field for each in found for one in each.fields if "fills in" in one.words]
    assert places == [f"spec.templates[{at}].inline.serviceAccountName" for at in ("0].dag.tasks[0", "2].steps[0][0")]


@pytest.mark.parametrize(
    ("document", "field", "did", "words"),
    [
        (workflow(step(), podPriorityClassName="high"), "spec.podPriorityClassName", Did.KEPT, "none of its own"),
        (workflow(step(), priority=5), "spec.priority", Did.OPEN, "priority"),
        (workflow(step(), volumeClaimTemplates=[{}]), "spec.volumeClaimTemplates", Did.OPEN, "no claim is made"),
        (manifest("workflow of steps elsewhere"), "spec.workflowTemplateRef", Did.OPEN, "adopt the file"),
        (workflow(step(timeout="30s")), "spec.templates[0].timeout", Did.OPEN, "timeout-seconds"),
        (workflow(step(parallelism=2)), "spec.templates[0].parallelism", Did.OPEN, "max_jobs"),
        (workflow(step(synchronization={})), "spec.templates[0].synchronization", Did.OPEN, "max_jobs"),
        (workflow(step(podSpecPatch="x")), "spec.templates[0].podSpecPatch", Did.OPEN, "into the template"),
        (workflow(step(retryStrategy={}), retryStrategy={"limit": 3}), "spec.templates[0].retryStrategy.limit",
         Did.OPEN, "how often?"),
        (workflow(step(container={"image": "a", "env": [{"name": "A", "value": "{{pod.name}}"}]})),
         "spec.templates[0].container.env[0].value", Did.OPEN, f"{DOMAIN}/row-may-set: env.NAME"),
        (workflow(step(container={"image": "a", "volumeMounts": [{"name": "work"}]})),
         "spec.templates[0].container.volumeMounts[0]", Did.OPEN, "no volume is called work"),
        (workflow(step(container={"image": "a", "args": ["{{inputs.parameters.x}}"]},
                       inputs={"parameters": [{"name": "x", "value": True}]})),
         "spec.templates[0].inputs.parameters[0]", Did.OPEN, "put 'true' into env"),
    ],
)  # fmt: skip
def test_field_of_argo_has_its_like(document: dict[str, Any], field: str, did: Did, words: str) -> None:
    assert [one for one in told(document, field) if one[0] is did and words in one[1]], told(document, field)


def test_priority_of_a_workflow_is_that_of_its_steps() -> None:
    pod = adopted(workflow(step(), podPriorityClassName="high")).manifest["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == "high"


def test_value_that_is_put_together_refers_to_the_variable_of_the_row() -> None:
    """The row's variable comes before it (tests/unit/test_jobs_env.py)."""
    env = [{"name": "D", "value": "s3://b/{{inputs.parameters.d}}/$(X)"}, ENV, {"name": "DAY", "value": None}]
    container = {"image": "a", "args": ["{{inputs.parameters.d}}"], "env": env}
    made = adopted(workflow(step(container=container))).manifest
    (task,) = made["spec"]["template"]["spec"]["containers"]
    assert task["env"][0]["value"] == "s3://b/$(PARAMETER_D)/$(X)"
    assert (task["env"][1], task["args"]) == (ENV, ["$(PARAMETER_D)"])
    assert made["metadata"]["annotations"][f"{DOMAIN}/row-may-set"] == "env.PARAMETER_D"


def test_values_of_the_template_read_what_adopted_rows_give() -> None:
    """An earlier variable of an Argo step, and the index of an Indexed Job, in the Job as kubelet reads it."""
    env = [{"name": "DAY", "value": "{{inputs.parameters.day}}"}, {"name": "SOURCE", "value": "s3://b/$(DAY)"}]
    shard = [{"name": "SHARD", "value": "shard-$(JOB_COMPLETION_INDEX)"}]
    indexed = job(pod({"name": "a", "image": "a", "env": shard}), completions=3, completionMode="Indexed")
    for document, row, name, value in (
        (workflow(step(container={"image": "a", "env": env})), {"DAY": "monday"}, "SOURCE", "s3://b/monday"),
        (indexed, {"JOB_COMPLETION_INDEX": "2"}, "SHARD", "shard-2"),
    ):
        template = judge_template("one", adopted(document).manifest)
        (made,) = build_job(an_order(template, env=row), template, SITE)["spec"]["template"]["spec"]["containers"]
        assert seen_env(made)[name] == value


def test_argument_that_is_no_text_is_json() -> None:
    names = {"b": True, "n": 1, "l": ["x"], "t": "True"}
    args = [f"{{{{workflow.parameters.{name}}}}}" for name in names]
    arguments = {"parameters": [{"name": name, "value": value} for name, value in names.items()]}
    one = step(container={"image": "a", "args": args})
    made = adopted(workflow(one, kind="CronWorkflow", entrypoint="one", arguments=arguments))
    assert made.in_time is not None
    assert json.loads(str(made.in_time.values["env"])) == {"B": "true", "N": "1", "L": '["x"]', "T": "True"}
