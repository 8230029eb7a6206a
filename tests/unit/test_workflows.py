"""Templates of Argo's workflows: what a step becomes. Their parameters are in test_workflow_parameters.py."""

from typing import Any

import pytest

from dispatcher.commands.adopt import adopt, pasted_cron_jobs
from dispatcher.commands.adoption import Did
from dispatcher.commands.placeholders import next_step
from dispatcher.jobs.offered import why_unusable
from dispatcher.jobs.templates import judge_template
from dispatcher.model.launches import DOMAIN
from tests.rig.corpus import PROXY, SECRET, SPACE, manifest, step, workflow
from tests.unit.adopting import adopted, told


@pytest.mark.parametrize(
    ("name", "named", "kept", "statement"),
    [
        (
            "CronWorkflow with one step first", "-one",
            {"timeZone": "Europe/Vienna", "suspend": False, "startingDeadlineSeconds": 60}, "one_at_a_time",
        ),
        ("CronWorkflow of one list", "", {}, "again"),
    ],
)  # fmt: skip
def test_first_step_of_a_cron_workflow_has_its_schedule(
    name: str, named: str, kept: dict[str, Any], statement: str
) -> None:
    found = adopt(manifest(name))
    assert isinstance(found, list)
    (first,) = (one for one in found if one.schedule)
    assert (first.name, first.schedule) == (f"flow{named}", {"schedule": "5 4 * * *", **kept})
    assert [one.file for one in first.statements] == [statement]


def test_cron_job_of_a_cron_workflow_is_never_too_late_to_run() -> None:
    """With 0 the controller of CronJobs makes no Job. Argo asks for a delay only after an outage."""
    soon = workflow(step(), kind="CronWorkflow", entrypoint="one", more={"startingDeadlineSeconds": 0})
    found = adopted(soon)
    assert found.schedule == {"schedule": "@daily"}
    (word,) = told(soon, "spec.startingDeadlineSeconds")
    assert (word[0], "with 0 may never run" in word[1]) == (Did.LEFT_OUT, True)
    later = workflow(step(), kind="CronWorkflow", entrypoint="one", more={"startingDeadlineSeconds": 10})
    assert adopted(later).schedule == {"schedule": "@daily", "startingDeadlineSeconds": 10}


def test_blank_zone_of_a_cron_workflow_is_none() -> None:
    """The API server refuses a CronJob with a blank zone. Argo reads it as none, as it does a blank policy."""
    blank = workflow(step(), kind="CronWorkflow", entrypoint="one", more={"timezone": "", "concurrencyPolicy": ""})
    assert adopted(blank).schedule == {"schedule": "@daily"}
    for field in ("timezone", "concurrencyPolicy"):
        assert told(blank, f"spec.{field}") == [(Did.LEFT_OUT, "it is so anyway")]


def test_names_that_a_step_needs_are_told_at_the_step() -> None:
    (word,) = told(workflow(step(serviceAccountName="s")), "spec.templates[0]")
    assert word == (
        Did.OPEN,
        "an operator opens for this template, in the value policy.templates of the chart: serviceAccounts: [s]",
    )


def test_words_for_a_long_script_show_what_nobody_fills_in() -> None:
    script = {"image": "a:1", "command": ["sh"], "source": f"{'true $(date);' * 9} echo {{{{workflow.name}}}}"}
    one = {"name": "one", "script": script}
    ((_, words),) = told(workflow(one), "spec.templates[0].script.source")[1:]
    assert words.startswith("nobody fills in '{{workflow.name}}' here")


def test_schedule_whose_first_step_is_a_graph_is_left_to_a_person() -> None:
    graph = {"name": "all", "dag": {"tasks": []}}
    times = {
        "schedules": ["@daily", "@hourly"],
        "suspend": False,
        "concurrencyPolicy": "Allow",
        "timezone": "Asia/Tokyo",
    }
    found = adopt(workflow(graph, step(), kind="CronWorkflow", more=times, entrypoint="all"))
    assert isinstance(found, list)
    assert not any(one.schedule for one in found)
    words = {one.field: (one.did, one.words) for one in found[0].fields}
    assert words["spec.schedule"] == (Did.LEFT_OUT, "its schedules count")
    assert (words["spec.schedules"][0], "@daily in Asia/Tokyo, and at @hourly" in words["spec.schedules"][1]) == (
        Did.OPEN, True,
    )  # fmt: skip
    anyway = Did.LEFT_OUT, "it is so anyway"
    assert (words["spec.suspend"], words["spec.concurrencyPolicy"]) == (anyway, anyway)
    assert words["spec.timezone"] == (Did.OPEN, "its times are those of Asia/Tokyo")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("Forbid", "give each row a dedupe_key: no second row while one is alive"),
        ("Replace", "give each row a dedupe_key: by it the new row is dropped, and the old one goes on: end that"),
        ("New", "'New' is not known here"),
    ],
)  # fmt: skip
def test_policy_of_a_schedule_without_a_cron_job_is_left_to_a_person(policy: str, words: str) -> None:
    graph = {"name": "all", "dag": {"tasks": []}}
    document = workflow(graph, kind="CronWorkflow", more={"concurrencyPolicy": policy}, entrypoint="all")
    ((did, said),) = told(document, "spec.concurrencyPolicy")
    assert did is Did.OPEN
    assert said.startswith(words)


def test_metadata_of_a_workflow_is_in_the_names_of_its_templates() -> None:
    document = workflow(step())
    document["metadata"] |= {"generateName": "flow-", "labels": {"name": "a", "kueue.x-k8s.io/queue-name": "q"}}
    words = {one.field: (one.did, one.words) for one in adopted(document).fields if one.field.startswith("metadata")}
    above = Did.LEFT_OUT, "it was the workflow's, and not its Pods'"
    assert words == {
        "metadata.name": (Did.MOVED, "in the names of the templates"), "metadata.generateName": above,
        "metadata.labels.name": above,
        "metadata.labels[kueue.x-k8s.io/queue-name]": (Did.OPEN, "write it into metadata.labels of the templates"),
    }  # fmt: skip


def test_step_with_a_secret_lets_rows_give_its_parameters_alone() -> None:
    env = [SECRET, {"name": "DAY", "value": "{{inputs.parameters.day}}"}]
    one = step(inputs={"parameters": [{"name": "day"}]}, container={"image": "a:1", "command": ["run"], "env": env})
    made = adopted(workflow(one))
    assert made.manifest["metadata"]["annotations"][f"{DOMAIN}/row-may-set"] == "env.DAY"
    (words,) = (each for each in made.fields if "row-may-set" in each.words)
    assert words.field == "spec.templates[0].container.env[0]"
    assert words.words.endswith("env.DAY, because it has Secret s: a row may set no other variable")


def test_each_schedule_of_a_cron_workflow_has_a_cron_job() -> None:
    times = {"schedules": ["@daily", "TZ=Asia/Tokyo @hourly"]}
    made = adopted(workflow(step(), kind="CronWorkflow", more=times, entrypoint="one"))
    assert (made.schedule, made.more_schedules) == (
        {"schedule": "@daily"}, [{"schedule": "@hourly", "timeZone": "Asia/Tokyo"}],
    )  # fmt: skip
    jobs = list(pasted_cron_jobs(made, "flow", "INSERT"))
    assert [one["metadata"]["name"] for one in jobs] == ["insert-flow", "insert2-flow"]


@pytest.mark.parametrize(
    ("steps", "parts", "names"),
    [
        ((), {"workflowTemplateRef": {"name": "other"}}, "the file that other names"),
        (({"name": "all", "dag": {"tasks": [{"name": "a", "templateRef": {"name": "far"}}]}},), {},
         "the file that far names"),
        (({"name": "wait", "suspend": {}},), {}, "what its steps become"),
    ],
)  # fmt: skip
def test_field_of_a_workflow_without_containers_is_left_to_a_person(
    steps: tuple[dict[str, Any], ...], parts: dict[str, Any], names: str
) -> None:
    kept: dict[str, Any] = {"nodeSelector": {"a": "b"}, "volumes": [], "podMetadata": {}, "templateDefaults": {}}
    words = {one.field: (one.did, one.words) for one in adopted(workflow(*steps, **parts, **kept)).fields}
    for field in kept:
        assert words[f"spec.{field}"][0] is Did.OPEN
        assert words[f"spec.{field}"][1].endswith(f"give it to the templates of {names}")


def test_step_has_the_labels_and_the_volumes_of_its_workflow() -> None:
    made = adopted(manifest("step of its own labels")).manifest["spec"]["template"]["metadata"]
    assert made == {"labels": {"a": "own", "b": "all"}, "annotations": {"x": "y"}}
    found = adopt(manifest("workflow volumes beside"))
    assert isinstance(found, list)
    volumes = [one.manifest["spec"]["template"]["spec"]["volumes"] for one in found]
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    assert volumes == [[claim], [claim], [{"name": "data", "emptyDir": {}}]]


def test_container_that_mirrors_the_mounts_has_them() -> None:
    mounts = [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"}]
    own = [{"name": "own", "mountPath": "/tmp"}]
    one = step(container={"image": "a:1", "volumeMounts": mounts}, sidecars=[
        {**PROXY, "mirrorVolumeMounts": True, "volumeMounts": own}, {**PROXY, "mirrorVolumeMounts": False},
    ], initContainers=[{**PROXY, "mirrorVolumeMounts": True}])  # fmt: skip
    document = workflow(one, volumes=[{"name": name, "emptyDir": {}} for name in ("data", "tmp", "own")])
    found = adopted(document).manifest["spec"]["template"]["spec"]
    assert [one.get("volumeMounts") for one in found["containers"]] == [mounts, [*own, mounts[0]], []]
    assert found["initContainers"] == [{**PROXY, "volumeMounts": mounts}]
    assert told(document, "spec.templates[0].sidecars[0].mirrorVolumeMounts")[0][0] is Did.TRANSLATED
    assert "mirror" not in str(found)


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
    odd = workflow({"name": "one", "script": {**script, "source": "{{pod.name}}"}})
    assert [one for one, _ in told(odd, "spec.templates[0].script.source")] == [Did.TRANSLATED, Did.OPEN]
    for command, option in ((["python3.11"], "-c"), (["/usr/bin/env", "Rscript"], "-e"), (["bash.exe"], "-c")):
        (made,) = adopted(workflow({"name": "one", "script": {**script, "command": command}})).manifest["spec"][
            "template"
        ]["spec"]["containers"]
        assert made["command"] == [*command, option]


@pytest.mark.parametrize(
    ("script", "made"),
    [
        ({"command": ["bash", "-euo", "pipefail"]}, ["bash", "-euo", "pipefail", "-c"]),
        ({"command": ["env", "-i", "python", "-W", "ignore"], "args": ["-u"]},
         ["env", "-i", "python", "-W", "ignore", "-u", "-c"]),
        ({"command": ["python", "-m", "coverage", "run"]}, None),
        ({"command": ["bash", "/opt/wrapper.sh"]}, None),
        ({"command": ["bash"], "args": ["/opt/wrapper.sh", "-x"]}, None),
        ({"command": ["pwsh", "-File"]}, None),
    ],
)  # fmt: skip
def test_program_that_runs_another_script_gets_no_source(script: dict[str, Any], made: list[str] | None) -> None:
    found = adopted(workflow({"name": "one", "script": {"image": "a", "source": "x", **script}}))
    if made is not None:
        assert found.manifest["spec"]["template"]["spec"]["containers"][0]["command"] == made
    else:
        (word,) = (one.words for one in found.fields if one.field == "spec.templates[0]")
        assert (found.manifest, "in front of the source" in word) == ({}, True)


def test_source_of_php_begins_as_in_a_file() -> None:
    script = {"image": "a", "command": ["php"], "source": "<?php echo 1;"}
    found = adopted(workflow({"name": "one", "script": script}))
    assert found.manifest["spec"]["template"]["spec"]["containers"][0]["args"] == ["?><?php echo 1;"]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"script": {"command": ["/bin/magic"], "source": "x"}}, "script one: the program 'magic' is not known here"),
        ({"script": {"source": "x"}}, "script one: it names no program"),
        ({"script": {"command": ["sh"]}}, "script one: it has no source"),
        (
            {"resource": {"action": "create", "manifest": "apiVersion: batch/v1\nkind: Job\n"}},
            "resource one: its manifest is a Job: write it into a file, and adopt that",
        ),
        ({"resource": {"action": "apply", "manifest": '{"kind": "ConfigMap"}'}}, "kubectl apply of a ConfigMap"),
        ({"resource": {}}, "kubectl create of a manifest"),
        ({"http": {"url": "x"}}, "http one: a call of a URL"),
        ({"suspend": {}}, "suspend one: a pause"),
        ({"containerSet": {}}, "make each a Job"),
        ({"plugin": {}}, "a plugin of Argo"),
        ({"data": {}}, "a row for each"),
        ({"dag": {}}, "dag one: a graph of steps"),
        ({}, "step one: it runs nothing"),
    ],
)
def test_step_without_a_container_says_the_next_step(parts: dict[str, Any], words: str) -> None:
    found = adopted(workflow({"name": "one", **parts}))
    (one,) = (one for one in found.fields if one.field == "spec.templates[0]")
    assert (found.manifest, one.did, words in one.words) == ({}, Did.OPEN, True), one.words


def test_graph_tells_what_its_steps_had_of_it() -> None:
    tasks = [{"name": "a", "template": "one"}]
    graph = {"name": "all", "steps": [tasks], "tolerations": [{}], "timeout": "1h", "parallelism": 2}
    words = {one.field: one.words for one in adopted(workflow(graph)).fields}
    assert words["spec.templates[0].tolerations"].endswith("write it into the templates of one")
    assert "cancel their rows" in words["spec.templates[0].timeout"]
    assert "max_jobs" in words["spec.templates[0].parallelism"]


@pytest.mark.parametrize(
    ("own", "whole", "expected", "place"),
    [
        ({"timeout": "1h30m"}, {}, 5400, "spec.templates[0].timeout"),
        ({"timeout": "30", "activeDeadlineSeconds": 60}, {}, 30, "spec.templates[0].timeout"),
        ({"timeout": "1.5s"}, {"activeDeadlineSeconds": 60}, 2, "spec.templates[0].timeout"),
        ({"timeout": "2h"}, {"activeDeadlineSeconds": 60}, 60, "spec.activeDeadlineSeconds"),
        ({}, {"templateDefaults": {"timeout": "5m"}}, 300, "spec.templates[0].timeout"),
        ({"timeout": "{{x}}", "activeDeadlineSeconds": 60}, {}, 60, "spec.templates[0].activeDeadlineSeconds"),
        ({}, {}, 604800, "spec.templates[0].activeDeadlineSeconds"),
    ],
)
def test_shortest_deadline_of_a_step_counts(
    own: dict[str, Any], whole: dict[str, Any], expected: int, place: str
) -> None:
    document = workflow(step(**own), **whole)
    made = adopted(document)
    assert made.manifest["metadata"]["annotations"][f"{DOMAIN}/timeout-seconds"] == str(expected)
    (words,) = (one[1] for one in told(document, place) if one[0] is Did.TRANSLATED)
    assert words.startswith(f"{DOMAIN}/timeout-seconds: {expected}")
    assert ("no deadline" in words) is (not own and not whole)
    others = {one.words for one in made.fields if "shorte" in one.words}
    assert bool(others) is (len(own) + len(whole) == 2), "each other deadline has a word"


def test_step_without_a_retry_strategy_says_so() -> None:
    assert told(workflow(step()), "spec.templates[0].retryStrategy") == [
        (Did.TRANSLATED, f"{DOMAIN}/max-failures: 1, Argo does not retry where none stands")
    ]
    assert not told(workflow(step()), "spec.templates[0].retryStrategy.limit")


def test_fields_of_both_are_those_that_argo_takes() -> None:
    """Empty ones of a step are the workflow's, and names of hosts of both count."""
    hosts = [{"ip": "1.1.1.1", "hostnames": ["a"]}], [{"ip": "2.2.2.2", "hostnames": ["b"]}]
    whole: dict[str, Any] = {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "affinity": {"x": {}}}
    one = step(nodeSelector={}, tolerations=[], affinity={}, hostAliases=hosts[1], serviceAccountName="")
    document = workflow(one, **whole, hostAliases=hosts[0], serviceAccountName="s")
    made = adopted(document).manifest["spec"]["template"]["spec"]
    assert made["hostAliases"] == [*hosts[0], *hosts[1]]
    assert {field: made[field] for field in whole} == {**whole, "affinity": {}}, "an affinity without a rule is one"
    assert (made["serviceAccountName"], told(document, "spec.affinity")) == (
        "s",
        [(Did.LEFT_OUT, "each step has its own")],
    )


def test_claims_and_resources_of_a_pod_are_those_of_the_step_or_its_workflow() -> None:
    claims, amounts = [{"name": "gpu", "resourceClaimTemplateName": "t"}], {"limits": {"cpu": "2"}}
    document = workflow(step(), step(name="two", podResources={}), resourceClaims=claims, podResources=amounts)
    found = adopt(document)
    assert isinstance(found, list)
    one, two = (each.manifest["spec"]["template"]["spec"] for each in found)
    assert (one["resourceClaims"], one["resources"], two["resources"]) == (claims, amounts, {})
    assert told(document, "spec.podResources") == [(Did.KEPT, "in each step that has none of its own")]
    assert told(document, "spec.templates[1].podResources") == [(Did.KEPT, "")]
    assert not [each.field for one in found for each in one.fields if each.field.endswith(".resources")]


def test_step_that_reads_its_namespace_is_told_of_another_one() -> None:
    document = workflow(step(container={"image": "a", "env": [SPACE]}))
    document["metadata"]["namespace"] = "team"
    ((did, words),) = told(document, "spec.templates[0].container.env[0]")
    assert (did, "let it read team" in words) == (Did.OPEN, True)


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
    assert [one.name for one in found if one.manifest] == ["flow-fetch", "flow-one", "flow-load"]
    places = [one.field for each in found for one in each.fields if "fills in" in one.words]
    assert places == [f"spec.templates[{at}].inline.serviceAccountName" for at in ("0].dag.tasks[0", "2].steps[0][0")]


@pytest.mark.parametrize(
    ("document", "field", "did", "words"),
    [
        (workflow(step(), podPriorityClassName="high"), "spec.podPriorityClassName", Did.KEPT, "none of its own"),
        (workflow(step(), priority=5), "spec.priority", Did.OPEN, "priority"),
        (workflow(step(), volumeClaimTemplates=[{}]), "spec.volumeClaimTemplates", Did.OPEN, "no claim is made"),
        (manifest("workflow of steps elsewhere"), "spec.workflowTemplateRef", Did.OPEN, "adopt the file"),
        (workflow(step(inputs={"artifacts": [{"name": "a", "path": "/in", "raw": {"data": "x"}}]})),
         "spec.templates[0].inputs.artifacts[0]", Did.OPEN, "into a ConfigMap, and mount that at /in"),
        (workflow(step(inputs={"artifacts": [{"name": "a", "raw": {}}, {"name": "b"}]})),
         "spec.templates[0].inputs.artifacts", Did.OPEN, "fetch"),
        (workflow(step(outputs={})), "spec.templates[0].outputs", Did.OPEN, "its result"),
        (workflow(step(hooks={})), "spec.templates[0].hooks", Did.OPEN, "insert their rows"),
        (workflow(step(daemon=True)), "spec.templates[0].daemon", Did.OPEN, "a Deployment"),
        (workflow(step(executor={})), "spec.templates[0].executor", Did.LEFT_OUT, "Argo's own"),
        (workflow(step(), executor={"serviceAccountName": "e"}), "spec.executor", Did.LEFT_OUT, "Argo's own"),
        (workflow(step(), suspend=True), "spec.suspend", Did.OPEN, "insert no row yet"),
        (workflow(step(), podPriority=5), "spec.podPriority", Did.OPEN, "a PriorityClass"),
        (workflow(step(retryStrategy={"limit": 1, "expression": "x"})), "spec.templates[0].retryStrategy.expression",
         Did.OPEN, "final-codes"),
        (workflow(step(), kind="CronWorkflow", more={"stopStrategy": {}}), "spec.stopStrategy", Did.OPEN, "delete"),
        (workflow(step(parallelism=2)), "spec.templates[0].parallelism", Did.OPEN, "max_jobs"),
        (workflow(step(synchronization={})), "spec.templates[0].synchronization", Did.OPEN, "max_jobs"),
        (workflow(step(podSpecPatch="x")), "spec.templates[0].podSpecPatch", Did.OPEN, "into the template"),
        (workflow(step(retryStrategy={}), retryStrategy={"limit": 3}), "spec.templates[0].retryStrategy.limit",
         Did.OPEN, "how often?"),
        (workflow(step(container={"image": "a", "env": [{"name": "A", "value": "{{pod.name}}"}]})),
         "spec.templates[0].container.env[0].value", Did.OPEN, f"{DOMAIN}/row-may-set: env.A"),
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


def test_template_of_a_step_has_the_name_of_its_workflow() -> None:
    """Steps of other workflows are called `main`, too."""
    found = adopt(workflow(step(name="Main"), step(name="x" * 60)))
    assert isinstance(found, list)
    assert [one.name for one in found] == ["flow-main", f"flow-{'x' * 58}"]
    assert adopted(workflow(step(name="main"), {"name": "all", "dag": {}})).name == "flow"


@pytest.mark.parametrize("what", ["container", "script"])
def test_text_of_a_step_that_nobody_fills_in_is_told_with_who_may_give_it(what: str) -> None:
    """A step of Argo has one container, under a name of its own."""
    step = next_step({}, ("spec", "templates", 0, what, "args", 0), 0)
    assert "row-may-set: args" in step
    assert "row-may-set" not in next_step({}, ("spec", "templates", 0, "sidecars", 0, "args", 0), 0)
