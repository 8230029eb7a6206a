"""Documents that are no work, and what other tools would have filled in. Fields are in test_adoption.py."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dispatcher.commands.adopt import AdoptedFile, adopt, adopt_text
from dispatcher.commands.adoption import AdoptedField, Did
from dispatcher.jobs.template_text import write_document
from dispatcher.model.launches import DOMAIN
from tests.rig.corpus import alone, container, cron_job, job, pod, scaled_job, step, workflow


def test_document_that_is_no_work_is_left_out() -> None:
    named = {"metadata": {"name": "c"}}
    left = Did.LEFT_OUT, "ConfigMap c is no work: kubectl apply it, in the namespace of the dispatcher's Jobs"
    assert adopt({"kind": "ConfigMap", **named}) == left
    assert "an insert of a row is the trigger" in str(adopt({"kind": "TriggerAuthentication"}))
    for kind in ("Deployment", "ScaledObject", "HorizontalPodAutoscaler"):
        assert "work without an end" in str(adopt({"kind": kind}))


CHART = {"metadata": {"name": "c", "namespace": "prod"}}


@pytest.mark.parametrize(
    ("document", "did", "words"),
    [
        ({"kind": "ConfigMap", **CHART}, Did.OPEN, "and not in prod"),
        ({"kind": "ConfigMap", "data": {"a.yaml": "apiVersion: v1\nkind: Pod\n"}}, Did.OPEN, "work in data[a.yaml]"),
        ({"kind": "Secret", "stringData": {"a": '{"kind": "CronJob"}'}}, Did.OPEN, "work in stringData.a"),
        ({"kind": "ConfigMap", "data": {"a": "a kind: Pod\nkind: Podium"}}, Did.LEFT_OUT, "no work"),
        ({"kind": "HorizontalPodAutoscaler", "spec": {"scaleTargetRef": {"apiVersion": "v1", "kind": "Pod"}}},
         Did.LEFT_OUT, "without an end"),
        ({"kind": "Kustomization"}, Did.OPEN, "`kubectl kustomize DIR | dispatcher adopt -`"),
        ({"kind": "Template", "objects": [job()]}, Did.OPEN, "`oc process -f FILE"),
        ({"kind": "HelmRelease"}, Did.OPEN, "kubectl get jobs"),
        ({"kind": "Template", "apiVersion": "scaffolder.backstage.io/v1beta3"}, Did.OPEN, "not known here"),
        ({"replicas": 3}, Did.LEFT_OUT, "no manifest: it names no kind"),
        ({"spec": {}}, Did.OPEN, "is it a Job or a Pod?"),
        ({"kind": "List", "items": []}, Did.LEFT_OUT, "the List has no items"),
        ({"kind": "IPAllowList", "spec": {}}, Did.OPEN, "not known here"),
        ({"kind": "Job", "apiVersion": "v1alpha1/x/", "metadata": {"annotations": {"a": "kind: Job"}}}, Did.OPEN,
         "Job of v1alpha1/x Job is a kind"),
    ],
)  # fmt: skip
def test_what_is_no_work_says_the_next_step(document: dict[str, Any], did: Did, words: str) -> None:
    found = adopt(document)
    assert isinstance(found, tuple)
    assert (found[0], words in found[1]) == (did, True), found


def test_work_inside_of_another_object_is_adopted() -> None:
    triggers = [{"template": {"k8s": {"source": {"resource": one}}}} for one in (job(backoffLimit=1), workflow(step()))]
    found = adopt({"apiVersion": "argoproj.io/v1alpha1", "kind": "Sensor", "spec": {"triggers": triggers}})
    assert isinstance(found, list)
    assert [one.name for one in found] == ["load", "one"]
    at = "spec.triggers[0].template.k8s.source.resource"
    words = {one.field: one.words for one in found[0].fields}
    assert (words[at], words[f"{at}.spec.backoffLimit"]) == (
        "Sensor Sensor made it, and may write values into it: insert its row then", f"{DOMAIN}/max-failures: 2",
    )  # fmt: skip


def printed(*documents: dict[str, Any]) -> list[AdoptedFile]:
    text = "---\n".join(map(write_document, documents))
    return list(adopt_text(Path("a.yaml"), text, Path("none"), set(), check=True))


BATCH = "|| to_char(now(), '-YYYYMMDD-HH24MISS')"


def test_statements_for_several_rows_name_their_queue_and_their_batch() -> None:
    """As the words say it: max_jobs is that of the queue into which the rows are inserted."""
    (one,) = printed(cron_job(of_job={"completions": 10, "parallelism": 5}))
    queue, rows = one.sql
    assert queue.splitlines() == [
        "-- A queue of its own, once. A login with dispatch_operator runs it.",
        "INSERT INTO dispatch.queues (name, max_jobs) VALUES ('nightly', 5);",
    ]
    assert rows.splitlines() == [
        "-- One row for each Pod of a Job, as one batch. A login with dispatch_submitter runs it.",
        "INSERT INTO dispatch.tasks (queue, template, batch)",
        f"SELECT 'nightly', 'nightly', 'nightly' {BATCH} FROM generate_series(1, 10) AS n;",
    ]
    (made,) = yaml.safe_load_all(one.cron_job)
    (container,) = made["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][-1] == " ".join(rows.splitlines()[1:]), "a comment would hide the rest of its line"


def test_queue_of_a_template_has_its_last_name() -> None:
    """Two ScaledJobs of one name, of two namespaces. Several rows for each piece of work have one statement."""
    several = {"completions": 3, "completionMode": "Indexed", "parallelism": 2}
    _, second = printed(scaled_job(), scaled_job(of_job=several, maxReplicaCount=4))
    queue, rows = (one.partition("\n")[2] for one in second.sql)
    assert queue == "INSERT INTO dispatch.queues (name, max_jobs) VALUES ('scaled-2', 8);"
    assert rows.splitlines()[1].startswith(f"SELECT 'scaled-2', 'scaled-2', 'scaled-2' {BATCH}, jsonb_build_object(")


def test_second_template_of_a_name_is_told_with_its_number() -> None:
    document = job()
    document["spec"]["template"]["metadata"] = {"name": "load"}
    first, second = printed(document, document)
    names = [[one for one in each.fields if one[1] == "metadata.name"] for each in (first, second)]
    assert names == [
        [("moved", "metadata.name", "the name of the template")],
        [("moved", "metadata.name", "the name of the template: load-2")],
    ]
    assert ("left out", "spec.template.metadata.name", "each Pod gets a name of its own") in second.fields


def unfilled(document: dict[str, Any]) -> list[AdoptedField]:
    found = adopt(document)
    assert isinstance(found, list)
    return [one for each in found for one in each.fields if "nobody fills in" in one.words]


SHELL = container(command=["/bin/bash", "-c"], args=["echo ${HOME} {{ .Values.x }}"])


@pytest.mark.parametrize(
    ("document", "field", "text"),
    [
        (job(name="{{ .Release.Name }}-a"), "metadata.name", "{{ .Release.Name }}"),
        (job(meta={"labels": {"app": "{% if x %}"}}), "metadata.labels.app", "{% if x %}"),
        (job(meta={"labels": {"${APP}": "x"}}), "metadata.labels[${APP}]", "${APP}"),
        (job(pod(serviceAccountName="{{ .Values.sa }}")), "spec.template.spec.serviceAccountName", "{{ .Values.sa }}"),
        (alone(pod(container(args=["--day", "{{ ds }}"]))), "spec.containers[0].args[1]", "{{ ds }}"),
        (alone(pod(container(env=[{"name": "A", "value": "${B}"}]))), "spec.containers[0].env[0].value", "${B}"),
        (alone(pod(SHELL)), "spec.containers[0].args[0]", "{{ .Values.x }}"),
        (cron_job(schedule="{{ .Values.at }}"), "spec.schedule", "{{ .Values.at }}"),
        (scaled_job(triggers=[{"type": "<%= x %>"}]), "spec.triggers[0].type", "<%= x %>"),
        (workflow(step(nodeSelector={"a": "${B}"})), "spec.templates[0].nodeSelector.a", "${B}"),
        (workflow(step(name="{{ .Values.x }}")), "spec.templates[0].name", "{{ .Values.x }}"),
    ],
)
def test_what_a_tool_would_fill_in_is_left_to_a_person(document: dict[str, Any], field: str, text: str) -> None:
    (one,) = unfilled(document)
    assert (one.did, one.field) == (Did.OPEN, field)
    assert one.words.startswith(f"nobody fills in {text!r} here: write it")
    assert one.words.endswith("row-may-set") is bool({"args", "env"} & {*re.findall(r"\w+", field)})


def test_variables_of_a_script_are_its_own() -> None:
    for document in (
        alone(pod({**SHELL, "args": ["echo ${HOME}"]})),
        workflow({"name": "s", "script": {"image": "a", "command": ["sh"], "source": "echo ${HOME}"}}),
        job(meta={"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "${A}"}}),
    ):
        assert not unfilled(document)


@pytest.mark.parametrize("kind", ["JobSet", "TaskRun", "PyTorchJob", "batch.volcano.sh/v1alpha1 Job"])
def test_kind_that_is_not_known_is_left_to_a_person(kind: str) -> None:
    """Others have a Job, too: its kind alone does not say what it is."""
    group, _, name = kind.rpartition(" ")
    found = adopt({"kind": name, "spec": {"tasks": []}} | ({"apiVersion": group} if group else {}))
    assert isinstance(found, tuple)
    assert group.rpartition("/")[0] in found[1]
    assert (found[0], "write its Pod as a Job" in found[1]) == (Did.OPEN, True)
