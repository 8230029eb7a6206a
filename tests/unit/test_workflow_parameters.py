"""Parameters of Argo's workflows: which variables of the row they become, and what each row must give."""

import copy
import json
from typing import Any

import pytest

from dispatcher.commands.adopt import adopt
from dispatcher.commands.adoption import Did
from dispatcher.commands.manifests import inserting_cron_job
from dispatcher.jobs.manifest import build_job
from dispatcher.jobs.templates import judge_template
from dispatcher.model.launches import DOMAIN
from tests.property.kubelet import seen_env
from tests.rig.builders import SITE, an_order
from tests.rig.corpus import PROXY, job, manifest, pod, step, workflow
from tests.rig.whole_job import parent_of, paths
from tests.unit.adopting import adopted, told


def test_parameters_of_a_workflow_become_variables_of_the_row() -> None:
    task = adopted(manifest("parameters")).manifest["spec"]["template"]["spec"]["containers"][0]
    assert task == {"name": "task", "image": "a:1", "command": ["run"], "args": ["$(IN_FILE)", "--x=$(X)"]}
    half = step(container={"image": "a", "args": ["{{inputs.parameters.task-id}}"], "env": [
        {"name": "U", "value": "http://{{inputs.parameters.host}}"}]})  # fmt: skip
    made = adopted(workflow(half))
    assert made.manifest["spec"]["template"]["spec"]["containers"][0]["args"] == ["$(PARAMETER_TASK_ID)"]
    env = made.manifest["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env == [{"name": "U", "value": "http://$(HOST)"}]
    words = "parameter host: each row must give env.HOST: without it the container reads the text $(HOST)"
    assert words in [one.words for one in made.fields if one.did is Did.OPEN]


@pytest.mark.parametrize("kind", ["Workflow", "CronWorkflow"])
def test_value_that_argo_makes_is_none(kind: str) -> None:
    """It reaches no row, and no default stands for it."""
    inputs = {"parameters": [{"name": "day", "value": "1970-01-01"}, {"name": "who", "default": "{{workflow.name}}"}]}
    one = step(container={"image": "a", "args": ["{{inputs.parameters.day}}{{inputs.parameters.who}}"]}, inputs=inputs)
    arguments = {"parameters": [{"name": "day", "value": "{{workflow.scheduledTime}}"}]}
    document = workflow(one, kind=kind, entrypoint="one", arguments=arguments)
    made, at = adopted(document), "spec.workflowSpec" if kind == "CronWorkflow" else "spec"
    assert "1970" not in str(made.statements)
    assert "{{" not in str(made.statements)
    ((did, argument),) = told(document, f"{at}.arguments.parameters[0]")
    assert (did, argument.partition(" here: ")) == (Did.OPEN, (
        "nobody fills in '{{workflow.scheduledTime}}'", " here: ",
        "the one who inserts gives DAY by env, such as jsonb_build_object('DAY', now())",
    ))  # fmt: skip
    words = [words for _, words in told(document, f"{at}.templates[0].inputs.parameters[1]")]
    assert "nobody fills in '{{workflow.name}}' here: each row must give env.WHO: without it" in words[1]
    assert not told(document, f"{at}.arguments.parameters[0].value")


def test_variables_that_each_row_must_give_are_told() -> None:
    """Otherwise a shell would run `$(TABLE)`."""
    container = {"image": "a", "command": ["sh", "-c"], "args": ['psql -c "TRUNCATE {{inputs.parameters.table}}"'],
                 "env": [{"name": "WHOLE", "value": "{{inputs.parameters.whole}}"}]}  # fmt: skip
    names = [{"name": "table"}, {"name": "whole"}, {"name": "x", "value": "1"}]
    document = workflow(step(container=container, inputs={"parameters": names}))
    at = "spec.templates[0].inputs.parameters"
    assert told(document, f"{at}[0]")[1] == (
        Did.OPEN, "each row must give env.TABLE: without it the container reads the text $(TABLE)",
    )  # fmt: skip
    assert told(document, f"{at}[1]")[1] == (
        Did.OPEN, "each row must give env.WHOLE: without it the container has no WHOLE",
    )  # fmt: skip
    (example,) = adopted(document).statements
    assert example.values["env"] == '{"WHOLE": <WHOLE>, "TABLE": <TABLE>}', "Postgres takes it when it is written"


def test_variable_of_a_name_that_no_row_has_reads_another_one() -> None:
    env = [{"name": "spring.profiles.active", "value": "{{inputs.parameters.profile}}"}]
    made = adopted(workflow(step(container={"image": "a", "env": env}))).manifest
    (task,) = made["spec"]["template"]["spec"]["containers"]
    assert task["env"] == [{"name": "spring.profiles.active", "value": "$(PROFILE)"}]
    assert made["metadata"]["annotations"][f"{DOMAIN}/row-may-set"] == "env.PROFILE"


def test_parameter_is_found_by_its_whole_name() -> None:
    """Also in an expression."""
    args = ["{{=inputs.parameters['file']}}", "{{inputs.artifacts.inputs.parameters.day_of_month}}"]
    names = {"parameters": [{"name": "file"}, {"name": "day"}]}
    one = step(container={"image": "a", "args": args}, inputs=names)
    found = [told(workflow(one), f"spec.templates[0].inputs.parameters[{n}]") for n in (0, 1)]
    assert found == [
        [(Did.OPEN, "it stands where no variable is read")], [(Did.LEFT_OUT, "its container does not use it")],
    ]  # fmt: skip


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
def test_text_that_argo_would_fill_in_is_a_variable_or_left_to_a_person(text: str) -> None:
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


def test_step_behind_the_first_has_no_argument_of_the_workflow() -> None:
    """A graph gives it another value."""
    args = ["{{inputs.parameters.day}}", "{{workflow.parameters.day}}", "{{workflow.parameters.zone}}"]
    inputs = {"parameters": [{"name": "day"}, {"name": "zone", "value": "x"}]}
    arguments = {"parameters": [{"name": "day", "value": "today"}]}
    found = adopted(workflow(step(container={"image": "a", "args": args}, inputs=inputs), arguments=arguments))
    assert [one.values["env"] for one in found.statements] == [
        '{"DAY": <DAY>, "PARAMETER_DAY": "today", "ZONE": <ZONE>}'
    ]


def test_argument_that_is_no_text_is_json() -> None:
    names = {"b": True, "n": 1, "l": ["x"], "t": "True"}
    args = [f"{{{{workflow.parameters.{name}}}}}" for name in names]
    arguments = {"parameters": [{"name": name, "value": value} for name, value in names.items()]}
    one = step(container={"image": "a", "args": args})
    made = adopted(workflow(one, kind="CronWorkflow", entrypoint="one", arguments=arguments))
    assert made.in_time is not None
    assert json.loads(str(made.in_time.values["env"])) == {"B": "true", "N": "1", "L": '["x"]', "T": "True"}
