"""Documents that are no work, and what other tools would have filled in. Fields are in test_adoption.py."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dispatcher.commands.adopt import AdoptedFile, adopt, adopt_documents, read_file, read_text
from dispatcher.commands.adoption import AdoptedField, Did
from dispatcher.commands.options import as_document
from dispatcher.jobs.template_text import write_document
from dispatcher.model.launches import DOMAIN
from tests.rig.corpus import alone, container, cron_job, job, pod, scaled_job, step, workflow


def test_document_that_is_no_work_is_left_out() -> None:
    named = {"metadata": {"name": "c"}}
    left = Did.LEFT_OUT, "ConfigMap c is no work, and no Pod that is adopted with it names it: leave it as it is"
    assert adopt({"kind": "ConfigMap", **named}) == left
    assert "an insert of a row is the trigger" in str(adopt({"kind": "TriggerAuthentication"}))
    for kind in ("Deployment", "ScaledObject", "HorizontalPodAutoscaler"):
        assert "work without an end" in str(adopt({"kind": kind}))


CHART = {"metadata": {"name": "c", "namespace": "prod"}}


@pytest.mark.parametrize(
    ("document", "did", "words"),
    [
        ({"kind": "ConfigMap", **CHART}, Did.LEFT_OUT, "leave it as it is"),
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
def test_object_without_work_says_the_next_step(document: dict[str, Any], did: Did, words: str) -> None:
    found = adopt(document)
    assert isinstance(found, tuple)
    assert (found[0], words in found[1]) == (did, True), found


def test_work_inside_of_another_object_is_adopted() -> None:
    triggers = [{"template": {"k8s": {"source": {"resource": one}}}} for one in (job(backoffLimit=1), workflow(step()))]
    found = adopt({"apiVersion": "argoproj.io/v1alpha1", "kind": "Sensor", "spec": {"triggers": triggers}})
    assert isinstance(found, list)
    assert [one.name for one in found] == ["load", "flow"]
    at = "spec.triggers[0].template.k8s.source.resource"
    words = {one.field: one.words for one in found[0].fields}
    assert (words[at], words[f"{at}.spec.backoffLimit"]) == (
        "Sensor Sensor made it, and may write values into it: insert its row then", f"{DOMAIN}/max-failures: 2",
    )  # fmt: skip


def test_fault_of_work_inside_of_another_object_has_its_place() -> None:
    (one,) = printed({"kind": "Policy", "spec": {"objects": [job(pod(container(imagee="a")))]}})
    assert one.faults == [
        "spec.objects[0].spec.template.spec.containers[0].imagee is no field of Kubernetes: is it image? (line 18)",
    ]


def test_text_without_the_signs_of_helm_is_none_of_its_templates() -> None:
    (other,), (chart,) = (read_text(Path("a.yaml"), f"kind: !Ref {sign}") for sign in ("${b}", "'{{ b }}'"))
    assert ["Helm" in one.told.faults[0] for one in (other, chart)] == [False, True]


@pytest.mark.parametrize("text", ["a: !reference [b, c]\n", "a: !Ref b\n", "- a\n", "Thank you\n", "a: [1\n"])
def test_file_of_another_program_is_left_out(text: str) -> None:
    """A folder has those of GitLab, CloudFormation or Ansible beside its manifests."""
    (one,) = adopt_documents(list(read_text(Path("a.yaml"), text)), Path("none"), check=True)
    ((did, _, words),) = one.fields
    assert (one.what, one.is_done, did) == ("no manifest", True, "left out")
    assert words.startswith("it names no kind: ")


def test_maker_without_a_kind_is_the_reader_of_the_file() -> None:
    found = adopt({"extraObjects": [job()]})
    assert isinstance(found, list)
    assert found[0].fields[0].words == (
        "what reads this file made it, and may write values into it: insert its row then"
    )


def printed(*documents: dict[str, Any]) -> list[AdoptedFile]:
    text = "---\n".join(map(write_document, documents))
    return list(adopt_documents(list(read_text(Path("a.yaml"), text)), Path("none"), check=True))


def test_manifest_without_a_template_prints_nothing_to_paste() -> None:
    """Rows would run another template of its name, or none."""
    crons = [{"type": "cron", "metadata": {"start": start, "end": "x"}} for start in ("@daily", "@hourly")]
    (one,) = printed(scaled_job(pod(container(image="")), triggers=crons))
    assert (one.to, one.sql, one.cron_job) == ("", (), "")
    triggers = [(did, words) for did, field, words in one.fields if field.startswith("spec.triggers")]
    words = "who inserts the rows? The CronJob for it is printed when the template is written"
    assert triggers == [(Did.OPEN, words)] * 2


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
        (job(name="process-item-$ITEM"), "metadata.name", "$ITEM"),
        (alone(pod(container(env=[{"name": "A", "value": "x$NAME"}]))), "spec.containers[0].env[0].value", "$NAME"),
        (job(pod(nodeSelector={"pool": "$POOL"})), "spec.template.spec.nodeSelector.pool", "$POOL"),
        (job(pod(serviceAccountName="#{Account.Name}#")), "spec.template.spec.serviceAccountName", "#{Account.Name}#"),
        (alone(pod(container(args=["--lr=${trialParameters.rate}"]))), "spec.containers[0].args[0]",
         "${trialParameters.rate}"),
        (alone(pod(container(args=["$(tt.params.revision)"]))), "spec.containers[0].args[0]", "$(tt.params.revision)"),
        (alone(pod(container(args=["${DAY:-today}"]))), "spec.containers[0].args[0]", "${DAY:-today}"),
        (alone(pod(container(args=["u:<path:kv/db#key>@db"]))), "spec.containers[0].args[0]", "<path:kv/db#key>"),
        *((job(pod(serviceAccountName=text)), "spec.template.spec.serviceAccountName", text)
          for text in ("<account>", "__ACCOUNT__", "%%ACCOUNT%%", "[MY_ACCOUNT]")),
        (alone(pod(container(args=["oc", "get", "-f", "x; y {{ .a }}"]))), "spec.containers[0].args[3]", "{{ .a }}"),
    ],
)  # fmt: skip
def test_text_that_a_tool_would_fill_in_is_left_to_a_person(document: dict[str, Any], field: str, text: str) -> None:
    (one,) = unfilled(document)
    assert (one.did, one.field) == (Did.OPEN, field)
    assert one.words.startswith(f"nobody fills in {text!r} here: write it")
    assert ("row-may-set: " in one.words) is bool({"args", "env"} & {*re.findall(r"\w+", field)})


def told_of(folder: Path, *documents: dict[str, Any]) -> list[AdoptedFile]:
    file = folder / "in.yaml"
    file.write_text("---\n".join(map(write_document, documents)))
    return list(adopt_documents(list(read_file(file)), folder, check=False))


def test_name_that_is_no_utf8_is_told_in_json(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"\xff.yaml")
    file.write_text(write_document(job()))
    (told,) = adopt_documents(list(read_file(file)), tmp_path / os.fsdecode(b"\xfe"), check=True)
    assert told.file.endswith("/\N{REPLACEMENT CHARACTER}.yaml")
    assert as_document([told], as_json=True)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_file_that_windows_wrote_is_read(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / "in.yaml").write_text(mark + write_document(job()).replace("\n", "\r\n"), encoding=encoding)
    (told,) = adopt_documents(list(read_file(tmp_path / "in.yaml")), tmp_path, check=True)
    assert (told.what, told.faults) == ("Job load", ())


SIGN = "x {{ .Values.x }}"
OF_A_SECRET = {"name": "A", "valueFrom": {"secretKeyRef": {"name": SIGN}}}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (job(pod(container(env=[{"name": "DAY", "value": SIGN}]))), "row-may-set: env.DAY"),
        (job(pod(container(env=[{"name": "TASK_ID", "value": SIGN}]))), "write it in the template"),
        (job(pod(container(env=[OF_A_SECRET]))), "write it in the template"),
        (job(pod(container(command=[SIGN]))), "the whole command: dispatcher.internal/row-may-set: command"),
        (job(pod(container(image=SIGN))), "row-may-set: image, and dispatcher.internal/images: those"),
        (job(pod(initContainers=[container(image=SIGN)])), "write it in the template"),
        (job(pod(container(livenessProbe={"exec": {"command": [SIGN]}}))), "write it in the template"),
        (job(pod(beside=({"name": "task", "image": "a"},), main=container(args=[SIGN]))), "write it in the template"),
        (job(pod(beside=({"name": "task", "image": "a", "args": [SIGN]},))), "row-may-set: args"),
        (job(meta={"labels": {"a": SIGN}}), "write it in the template"),
        (job(name=SIGN), "write it in the manifest, and adopt that again"),
        (job(backoffLimit=SIGN), "write it in the manifest, and adopt that again"),
        ({**job(), "metadata": SIGN}, "write it in the manifest, and adopt that again"),
        (cron_job(schedule=SIGN), "write it in the manifest, and adopt that again"),
        (scaled_job(triggers=[{"type": "x", "metadata": {"queue": SIGN}}]), "write it in the manifest, and adopt that"),
        (workflow(step(container={"image": "a", "args": [SIGN]})), "row-may-set: args"),
        (workflow(step(sidecars=[container(args=[SIGN])])), "write it in the template"),
        (workflow(step(nodeSelector={"a": SIGN})), "write it in the template"),
    ],
)
def test_rows_are_named_only_where_they_reach(document: dict[str, Any], words: str) -> None:
    (one,) = unfilled(document)
    assert words in one.words
    assert ("row-may-set" in one.words) is ("row-may-set" in words)


def test_namespace_that_no_template_has_is_not_to_fill_in() -> None:
    assert unfilled(job(meta={"namespace": SIGN})) == []


def test_name_that_no_object_can_have_is_told() -> None:
    found = adopt(job(name="process-%i%"))
    assert isinstance(found, list)
    (words,) = (one.words for one in found[0].fields if (one.did, one.field) == (Did.OPEN, "metadata.name"))
    assert words.startswith("no object can be called 'process-%i%'")


SCRIPT = """kubectl get jobs -o go-template='{{range .items}}{{if .x}}{{"\\n"}}{{end}}{{end}}' | wc -l"""


def test_variables_of_a_script_are_its_own() -> None:
    for document in (
        alone(pod({**SHELL, "args": ["echo ${HOME}"]})),
        workflow({"name": "s", "script": {"image": "a", "command": ["sh"], "source": "echo ${HOME}"}}),
        job(meta={"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "${A}"}}),
        job(meta={"annotations": {"example.com/hook": "echo $HOME"}}),
        alone(pod(container(command=["/usr/bin/pwsh.exe", "-Command", "echo ${HOME}"]))),
        workflow({"name": "s", "script": {"image": "a", "command": ["/usr/bin/env", "-S", "php"], "source": "${X}"}}),
        alone(pod(container(command=["kubectl", "get", "-o", "go-template={{range .items}}{{.x}}{{end}}"]))),
        alone(pod(container(command=["docker"], args=["inspect", "-f", "{{ .State.Status }}"]))),
        workflow(step(container={"image": "a", "command": ["sh", "-c"], "args": ["gh pr --template '{{.x}}'"]})),
        workflow({"name": "s", "script": {"image": "a", "command": ["busybox", "sh"], "source": SCRIPT}}),
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


@pytest.mark.parametrize(
    "document",
    [
        workflow(step(name="main"), kind="CronWorkflow", entrypoint="main"),
        cron_job(pod({"name": "a", "image": 5}), timeZone="Europe/Vienna"),
        cron_job({"nodeSelector": {}}),
        scaled_job(pod({"name": "a", "image": 5})),
    ],
)
def test_document_without_a_template_gives_nothing_to_paste(tmp_path: Path, document: dict[str, Any]) -> None:
    """A row would run the template of another manifest, or none."""
    (tmp_path / "flow.yaml").write_text("another manifest made it")
    (one,) = told_of(tmp_path, document)
    assert (one.to, list(one.sql), one.cron_job, one.is_done) == ("", [], "", False)
    assert not any("below" in words or "delete the old" in words for _, _, words in one.fields)
    assert all("another manifest made it" in words for words in one.faults if "exists" in words)


SPACE = {"namespace": "app"}
OF_A_POD = pod(
    container(envFrom=[{"secretRef": {"name": "s"}}, {"secretRef": {}}],
              args=["--broker=broker:9092", "nc -z db 5432", "/var/data/x", "http://store/a"],
              env=[{"name": "CACHE", "value": "cache"}, {"name": "U", "value": "x.data:80"}]), serviceAccountName="sa",
    imagePullSecrets=[{"name": "pull"}], priorityClassName="low", runtimeClassName="kata",
    volumes=[{"name": "c", "configMap": {"name": "c"}}, {"name": "d", "persistentVolumeClaim": {"claimName": "d"}},
             {"name": "e", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "csi"},
                                   "volumeAttributes": {"secretProviderClass": "vault"}}}],
    resourceClaims=[{"name": "a", "resourceClaimTemplateName": "gpu"}, {"name": "b", "resourceClaimName": "gpu"}],
)  # fmt: skip
OF_A_CLOUD = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/etl"}
BINDING: dict[str, Any] = {
    "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "sa", "namespace": "app"}]
}


def beside(kind: str, name: str, spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, **SPACE}, "spec": spec or {}, **more}


@pytest.mark.parametrize(
    ("document", "did", "words"),
    [
        *((beside(kind, name), Did.OPEN, f"{kind} {name} is named by an adopted Pod: kubectl apply it")
          for kind, name in (("Secret", "s"), ("Secret", "pull"), ("ConfigMap", "c"), ("ServiceAccount", "sa"),
                             ("PersistentVolumeClaim", "d"), ("Secret", "csi"), ("SecretProviderClass", "vault"),
                             ("ResourceClaimTemplate", "gpu"), ("ResourceClaim", "gpu"))),
        *((beside(kind, name, spec), Did.OPEN, f"{kind} {name} makes Secret s, which an adopted Pod names: kubectl ap")
          for kind, name, spec in (("ExternalSecret", "x", {"target": {"name": "s"}}), ("ExternalSecret", "s", {}),
                                   ("SealedSecret", "s", {}), ("Certificate", "x", {"secretName": "s"}),
                                   ("VaultStaticSecret", "x", {"destination": {"name": "s"}}))),
        (beside("ExternalSecret", "s", {"target": {"name": "x"}}), Did.LEFT_OUT, "leave it as it is"),
        *((beside("Service", name), Did.OPEN, f"Service {name} is called by an adopted Pod: elsewhere it is {name}.app")
          for name in ("broker", "store", "db", "cache")),
        (beside("Service", "data"), Did.LEFT_OUT, "leave it as it is"),
        ({"kind": "Service", "metadata": {"name": "db"}}, Did.LEFT_OUT, "elsewhere it is db.NAMESPACE"),
        *(({"kind": kind, "metadata": {"name": name}}, Did.LEFT_OUT, "kubectl apply it, for the whole cluster")
          for kind, name in (("PriorityClass", "low"), ("RuntimeClass", "kata"))),
        ({"kind": "PriorityClass", "metadata": {"name": "x"}}, Did.LEFT_OUT, "leave it as it is"),
        (beside("IngressClass", "x"), Did.LEFT_OUT, "leave it as it is"),
        (beside("Secret", "s"), Did.OPEN, "in the namespace of the dispatcher's Jobs, and not in app"),
        ({"kind": "Secret", "metadata": {"name": "s"}}, Did.LEFT_OUT, "in the namespace of the dispatcher's Jobs"),
        ({"kind": "Secret", "metadata": {"name": "s", "namespace": "other"}}, Did.LEFT_OUT, "leave it as it is"),
        (beside("PersistentVolumeClaim", "d"), Did.OPEN, "and not in app. The new one is empty: copy its data"),
        (beside("SealedSecret", "s"), Did.OPEN, "and not in app. Seal it for that namespace first"),
        ({"kind": "ServiceAccount", "metadata": {"name": "sa", **SPACE, "annotations": OF_A_CLOUD}}, Did.OPEN,
         "Its cloud trusts the old namespace: let it trust that one, too"),
        (beside("Secret", "other"), Did.LEFT_OUT, "leave it as it is"),
        (beside("RoleBinding", "r", **BINDING), Did.OPEN, "stays where it is: add sa of the namespace of the"),
        (beside("ClusterRoleBinding", "r", **BINDING), Did.OPEN, "or change subjects[1].namespace"),
        (beside("RoleBinding", "r", subjects=[{"name": "u"}]), Did.LEFT_OUT, "leave it as it is"),
        (beside("Service", "x", {"selector": {"job-name": "load"}}), Did.OPEN, "no Pod of ours by job-name"),
        (beside("PodDisruptionBudget", "x", {"selector": {"matchExpressions": [{"key": "controller-uid"}]}}), Did.OPEN,
         "no Pod of ours by controller-uid"),
        (beside("NetworkPolicy", "x", {"podSelector": {"matchLabels": {"app": "a"}}}), Did.OPEN, "selects an adopted"),
        (beside("NetworkPolicy", "x", {"podSelector": {}}), Did.OPEN, "selects an adopted Pod"),
        (beside("PodMonitor", "x", {"selector": {"matchLabels": {"app": "b"}}}), Did.LEFT_OUT, "leave it as it is"),
        (beside("Service", "x"), Did.LEFT_OUT, "leave it as it is"),
        ({**beside("NetworkPolicy", "x"), "metadata": {"namespace": "other"}}, Did.LEFT_OUT, "leave it as it is"),
    ],
)  # fmt: skip
def test_object_that_runs_nothing_is_judged_by_the_adopted_pods(
    tmp_path: Path, document: dict[str, Any], did: Did, words: str
) -> None:
    """Also where it stands in front of them."""
    work = job(OF_A_POD, meta=SPACE)
    work["spec"]["template"]["metadata"] = {"labels": {"app": "a"}}
    first, _ = told_of(tmp_path, document, work)
    ((found, _, said),) = first.fields
    assert (found, words in said) == (did, True), said


def owned(kind: str, document: dict[str, Any], **more: Any) -> dict[str, Any]:
    document["metadata"]["ownerReferences"] = [{"kind": "Odd"}, {"kind": kind, "name": "x", "controller": True, **more}]
    return document


@pytest.mark.parametrize(
    ("document", "did", "words"),
    [
        (owned("CronJob", job()), Did.LEFT_OUT, "Job load: CronJob x makes it: adopt that one"),
        (owned("JobSet", job()), Did.OPEN, "JobSet x makes it, which is not known here: remove its ownerReferences"),
        (owned("Job", alone()), Did.LEFT_OUT, "Pod alone: Job x makes it: adopt that one"),
        (owned("ReplicaSet", alone()), Did.LEFT_OUT, "it has no end: leave it"),
        (owned("Magic", job()), Did.OPEN, "Magic x makes it, which is not known here"),
    ],
)
def test_object_that_a_controller_made_is_no_template(document: dict[str, Any], did: Did, words: str) -> None:
    found = adopt(document)
    assert isinstance(found, tuple)
    assert (found[0], words in found[1]) == (did, True), found[1]
    assert isinstance(adopt(owned("CronJob", job(), controller=False)), list)


def test_document_that_says_nothing_is_told(tmp_path: Path) -> None:
    (one,) = told_of(tmp_path, {})
    assert one.fields == [("left out", "", "no manifest: it names no kind")]


def test_item_of_a_list_is_told_at_its_own_line(tmp_path: Path) -> None:
    told = told_of(tmp_path, {"kind": "List", "items": [beside("Secret", "s"), beside("Secret", "t")]})
    assert [one.line for one in told] == [3, 8]


@pytest.mark.parametrize(
    ("document", "place", "line"),
    [
        (job(), "spec.template.spec.containers[0].imag", 10),
        (cron_job(), "spec.jobTemplate.spec.template.spec.containers[0].imag", 13),
        (alone(), "spec.containers[0].imag", 8),
        (workflow(step()), "spec.templates[0].container.imag", 9),
        (workflow(step(sidecars=[{"name": "b", "image": "b"}])), "spec.templates[0].container.imag", 9),
    ],
)
def test_refusal_names_the_place_of_the_manifest(
    tmp_path: Path, document: dict[str, Any], place: str, line: int
) -> None:
    text = write_document(document).replace("image:", "imag:", 1)
    (tmp_path / "in.yaml").write_text(text)
    (one,) = adopt_documents(list(read_file(tmp_path / "in.yaml")), tmp_path, check=False)
    assert text.splitlines()[line - 1].strip(" -").startswith("imag:")
    assert f"{place} is no field of Kubernetes: is it image? (line {line})" in one.faults


def test_export_of_a_large_cluster_is_read(tmp_path: Path) -> None:
    """Six hundred Jobs have more than 4 MiB."""
    (tmp_path / "in.yaml").write_text(f"#{'x' * (8 << 20)}\n{write_document(job())}")
    assert [one.told.what for one in read_file(tmp_path / "in.yaml")] == ["Job load"]


OF_TEXTS: dict[str, Any] = {"labels": {"a": "x", "b": 1}, "annotations": {"a": "x", "b": 1}}


@pytest.mark.parametrize(
    ("document", "places"),
    [
        (cron_job(jobTemplate={"metadata": OF_TEXTS, "spec": job()["spec"]}) | {"metadata": {"name": "a", **OF_TEXTS}},
         [f"spec.jobTemplate.metadata.{kind}.b" for kind in OF_TEXTS]),
        (workflow(step(metadata={"labels": {"b": "x"}}), podMetadata=OF_TEXTS, nodeSelector={"b": 1}),
         ["spec.podMetadata.annotations.b", "spec.nodeSelector.b"]),
        (scaled_job() | {"metadata": {"name": "a", **OF_TEXTS}}, [f"metadata.{kind}.b" for kind in OF_TEXTS]),
    ],
)  # fmt: skip
def test_refusal_of_what_stands_elsewhere_names_that_place(
    tmp_path: Path, document: dict[str, Any], places: list[str]
) -> None:
    """The line of a CronJob's own label was told, which is a text."""
    (tmp_path / "in.yaml").write_text(text := write_document(document))
    (one,) = adopt_documents(list(read_file(tmp_path / "in.yaml")), tmp_path, check=False)
    told = [re.fullmatch(r"(\S+?):? .* \(line (\d+)\)", fault) for fault in one.faults]
    assert [match[1] for match in told if match] == places
    assert {text.splitlines()[int(match[2]) - 1].strip() for match in told if match} == {"b: 1"}


def test_image_to_name_is_no_fault(tmp_path: Path) -> None:
    (one,) = told_of(tmp_path, alone(pod({"name": "a"})))
    assert (list(one.faults), one.to, one.is_done) == ([], "", False)
    (words,) = (words for _, field, words in one.fields if field == "spec.containers[0].image")
    assert words.startswith("name it, or let rows choose")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Job\nspec: {{ .Values.spec }}\n", "`helm template CHART | dispatcher adopt -`"),
        ("kind: Job\nkind: Pod\na: '{{ .x }}'\n", "kubectl takes the last one: remove the first"),
    ],
)
def test_text_that_is_no_manifest_says_the_next_step(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "in.yaml").write_text(text)
    (one,) = (each.told for each in read_file(tmp_path / "in.yaml"))
    assert [words in fault for fault in one.faults] == [True]
    assert "kubectl takes" in words or "kubectl takes" not in str(one.faults)
