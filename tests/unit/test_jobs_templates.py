"""Templates (docs/author.md). A field that would break "one launch = one Pod" is a fault with the field's name."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.jobs.templates import OPENABLE, Template, is_image, judge_template, parse_template
from dispatcher.model.errors import TemplateError
from tests.rig.builders import IMAGE, a_manifest, a_template

TEXT = """
apiVersion: batch/v1
kind: Job
metadata:
  annotations:
    dispatcher.internal/row-may-set: env,args
spec:
  template:
    spec:
      containers:
        - {name: sidecar, image: side:1}
        - name: task
          image: app:1
          env: [{name: MODE, value: fast}]
"""


def fault_of(name: str = "default", **parts: Any) -> str:
    with pytest.raises(TemplateError) as raised:
        judge_template(name, a_manifest(**parts))
    return str(raised.value)


def opening(**annotations: str) -> Template:
    return judge_template("t", a_manifest(annotations={k.replace("_", "-"): v for k, v in annotations.items()}))


# Reading


def test_a_file_becomes_a_template() -> None:
    template = parse_template("team-a", TEXT)
    assert template.name == "team-a"
    assert template.opened == {"env", "args"}
    assert template.taken == {"MODE"}
    assert template.task_container["image"] == "app:1"
    assert (template.images, template.report, template.max_seconds) == ((), "sql", 604800)
    assert (template.max_cpu, template.max_memory) == (None, None)


def test_first_container_is_the_task_if_none_is_named_task() -> None:
    two = [{"name": "main", "image": "one"}, {"name": "side", "image": "two"}]
    assert a_template(pod={"containers": two}).task_container["image"] == "one"


def test_template_opens_only_env_by_default() -> None:
    assert a_template().opened == {"env"}
    assert a_template(opens="").opened == frozenset()
    assert a_template(opens=" env.LOG_LEVEL , args ,").opened == {"env.LOG_LEVEL", "args"}


def test_template_can_open_every_openable_field() -> None:
    template = opening(row_may_set=",".join(OPENABLE), images="r/*", max_cpu="2", max_memory="4Gi")
    assert template.opened == OPENABLE == {
        "image", "command", "args", "cpu", "memory", "env", "private_machine", "special_machine",
    }  # fmt: skip
    assert template.images == ("r/*",)
    assert template.max_cpu == 2
    assert template.max_memory == 4 * 2**30


def test_annotations_of_other_domains_are_ignored() -> None:
    manifest = a_manifest()
    manifest["metadata"]["annotations"] = {"example.com/owner": "team-a", "example.com/blank": None}
    assert judge_template("t", manifest).opened == {"env"}


@pytest.mark.parametrize("metadata", [None, {}, {"annotations": None, "labels": None}])
def test_metadata_may_be_left_out(metadata: object) -> None:
    assert judge_template("t", a_manifest() | {"metadata": metadata}).opened == {"env"}


@pytest.mark.parametrize(("written", "bound"), [("500m", Fraction(1, 2)), ("2", 2), ("1e1", 10)])
def test_a_bound_is_exact(written: str, bound: Fraction) -> None:
    assert opening(row_may_set="cpu", max_cpu=written).max_cpu == bound


def test_limit_of_the_container_is_the_default_bound() -> None:
    template = opening(row_may_set="cpu,memory")
    assert template.max_cpu == 1
    assert template.max_memory == 2**30


def test_a_limit_may_be_written_as_a_number() -> None:
    template = a_template(opens="cpu", container={"resources": {"limits": {"cpu": 2}}})
    assert template.max_cpu == 2


def test_bound_of_a_closed_field_is_none() -> None:
    assert opening(row_may_set="env", max_cpu="8").max_cpu is None


def test_the_run_limit_of_rows_is_a_week_or_less() -> None:
    assert opening(max_seconds="1").max_seconds == 1
    assert opening(max_seconds="604800").max_seconds == 604800


def test_the_template_has_a_run_limit_of_its_own() -> None:
    assert opening().timeout_seconds == 0
    assert opening(timeout_seconds="7200").timeout_seconds == 7200
    assert opening(timeout_seconds="60", max_seconds="60").timeout_seconds == 60
    assert (opening().max_failures, opening(max_failures="1").max_failures) == (0, 1)


HELPERS = [{"name": "proxy", "image": "p"}, {"name": "work", "image": "w"}]


@pytest.mark.parametrize(
    ("containers", "annotations", "index"),
    [
        (HELPERS, {}, 0),
        ([*HELPERS, {"name": "task", "image": "t"}], {}, 2),
        ([*HELPERS, {"name": "task", "image": "t"}], {"container": "work"}, 1),
        (HELPERS, {"container": "work"}, 1),
    ],
)
def test_the_tasks_container_is_the_named_one_or_task_or_the_first(
    containers: list[Any], annotations: dict[str, str], index: int
) -> None:
    assert a_template(pod={"containers": containers}, bounds=annotations).container == index


LOGIN = {"env": [{"name": "TASK_DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
UNREPORTED = (
    "nothing in this template reports: add TASK_DATABASE_URL and a report, or dispatcher.internal/report: exit-code"
)


UNLESS = UNREPORTED.replace(":", ", unless its ConfigMap has the login:", 1)
PASSED = "PASS_ENV gives A, which win over keys of that name in envFrom: name those in env"
HOOKED = "preStop runs before SIGTERM: a program that it ends with 0 counts as done. Let it signal process 1"
HOOKS: list[dict[str, Any]] = [{"exec": {"command": ["pkill", "app"]}}, {"httpGet": {"port": 8080, "path": "/stop"}}]
UNFILLED = "image '${REGISTRY}/app' is none that a node can pull: did nobody fill it in?"
DIGEST = f"sha256:{'0' * 64}"
SMALL = {"requests": {"memory": "1Mi", "ephemeral-storage": 0}, "limits": {"memory": "512m", "ephemeral-storage": 64}}
TOO_SMALL = [
    "limits.memory of container task is 512m, less than 1Mi: has it the right unit?",
    "limits.ephemeral-storage of container task is 64, less than 1Mi: has it the right unit?",
]


@pytest.mark.parametrize(
    "image",
    ["app", "app:1", "a/b/c:v1.2-x", "localhost:5000/app", "reg.example:443/team_a/app.x__y--z:T_1", f"a@{DIGEST}",
     f"[::1]:5000/a:1@{DIGEST}", "EU.gcr.io/p/a"],
)  # fmt: skip
def test_image_that_nodes_can_pull_is_no_doubt(image: str) -> None:
    assert is_image(image)


@pytest.mark.parametrize(
    ("parts", "passed", "told"),
    [
        ({}, [], [UNREPORTED]),
        ({}, ["TASK_DATABASE_URL"], []),
        ({"container": LOGIN}, [], []),
        ({"container": {"envFrom": [{"secretRef": {"name": "s"}}]}}, [], []),
        ({"container": {"envFrom": [{"configMapRef": {"name": "c"}}]}}, [], [UNLESS]),
        ({"container": {"envFrom": [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}]}}, [], []),
        *(({"container": LOGIN | {"lifecycle": {"preStop": hook}}}, [], [HOOKED]) for hook in HOOKS),
        ({"container": LOGIN | {"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}}, [], []),
        ({"container": LOGIN | {"lifecycle": {"postStart": HOOKS[0]}}}, [], []),
        ({"container": {"envFrom": [{"secretRef": {"name": "s"}}]}}, ["A"], [PASSED]),
        ({"container": {"image": "${REGISTRY}/app"}, "bounds": {"report": "exit-code"}}, [], [UNFILLED]),
        ({"container": LOGIN | {"resources": SMALL}}, [], TOO_SMALL),
        ({"bounds": {"report": "exit-code"}}, [], []),
        ({"bounds": {"report": "exit-code", "container": "work"}, "pod": {"containers": HELPERS}}, [], []),
        (
            {"bounds": {"report": "exit-code"}, "pod": {"containers": HELPERS}},
            [],
            ["of the containers proxy, work, proxy is taken as the task's: name it by dispatcher.internal/container"],
        ),
    ],
)
def test_doubts_about_a_template_are_told(parts: dict[str, Any], passed: list[str], told: list[str]) -> None:
    assert list(a_template(**parts).doubts(passed)) == told


@pytest.mark.parametrize("scheduler", ["", "volcano", "ours"])
def test_scheduler_that_gives_way_to_the_operators_is_told(scheduler: str) -> None:
    template = a_template(bounds={"report": "exit-code"}, pod={"schedulerName": "volcano"})
    told = ["schedulerName volcano is not used: DISPATCHER_SCHEDULER_NAME is ours"] if scheduler == "ours" else []
    assert list(template.doubts((), scheduler)) == told
    assert list(a_template(bounds={"report": "exit-code"}).doubts((), scheduler)) == []


def test_a_template_may_report_by_exit_code() -> None:
    assert opening(report="exit-code").report == "exit-code"


def test_digest_depends_on_the_content_but_not_on_the_order_of_keys() -> None:
    manifest = a_manifest()
    backwards = dict(reversed(manifest.items()))
    assert judge_template("a", manifest).digest == judge_template("b", backwards).digest
    assert judge_template("a", a_manifest(container={"image": "x"})).digest != judge_template("a", manifest).digest


# Faults


@pytest.mark.fault(48)
@pytest.mark.parametrize(
    "field",
    ["completionMode", "managedBy", "manualSelector", "maxFailedIndexes", "podReplacementPolicy", "selector",
     "successPolicy", "suspend", "ttlSecondsAfterFinished"],
)  # fmt: skip
def test_field_that_the_dispatcher_sets_is_a_fault(field: str) -> None:
    assert fault_of(spec={field: 1}) == f"spec.{field} is '1': the dispatcher decides it: leave it out"


@pytest.mark.parametrize(
    ("spec", "pod", "annotation"),
    [
        ({"activeDeadlineSeconds": 7200}, {}, "timeout-seconds"), ({}, {"activeDeadlineSeconds": 9}, "timeout-seconds"),
        ({"backoffLimit": 3}, {}, "max-failures"), ({"backoffLimitPerIndex": 3}, {}, "max-failures"),
        ({}, {"restartPolicy": "OnFailure"}, "max-failures"), ({"podFailurePolicy": {"rules": []}}, {}, "final-codes"),
    ],
)  # fmt: skip
def test_field_with_a_like_names_its_annotation(spec: dict[str, Any], pod: dict[str, Any], annotation: str) -> None:
    """Left out, two hours would be one, and each failure the last."""
    assert f"dispatcher.internal/{annotation}" in fault_of(spec=spec, pod=pod)


@pytest.mark.parametrize(
    "spec",
    [{"suspend": False, "completionMode": "NonIndexed", "manualSelector": False, "podReplacementPolicy": "Failed"},
     dict.fromkeys(["suspend", "backoffLimit", "completions", "selector", "ttlSecondsAfterFinished"])],
    ids=["what holds anyway", "null"],
)  # fmt: skip
def test_field_that_says_what_holds_without_it_is_no_fault(spec: dict[str, Any]) -> None:
    assert isinstance(a_template(spec=spec, pod={"restartPolicy": None, "activeDeadlineSeconds": None}), Template)


@pytest.mark.parametrize(
    ("field", "only", "wrong"), [("parallelism", 1, 2), ("completions", 1, 0), ("backoffLimit", 0, 6)]
)
def test_field_against_one_pod_per_launch_is_a_fault(field: str, only: int, wrong: object) -> None:
    assert f"spec.{field} is '{wrong}': must be {only}" in fault_of(spec={field: wrong})
    assert isinstance(a_template(spec={field: only}), Template)


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ({"restartPolicy": "OnFailure"}, "restartPolicy is 'OnFailure': must be Never"),
        ({"activeDeadlineSeconds": 5}, "the Pod's activeDeadlineSeconds is '5': use the annotation dispatcher"),
        ({"containers": []}, "containers is '[]': a task needs one"),
        (
            {"initContainers": [{"restartPolicy": "OnFailure"}]},
            "initContainers[0].restartPolicy is 'OnFailure'",
        ),
        (
            {"containers": [{"restartPolicy": "Always"}]},
            "restartPolicy is 'Always': a container runs once",
        ),
        ({"containers": [{"restartPolicy": "OnFailure"}]}, "containers[0].restartPolicy is 'OnFailure'"),
        *(
            (
                {kind: [{"restartPolicy": "Never", "restartPolicyRules": [{"action": action}]}]},
                f"{kind}[0].restart",
            )
            for kind in ("containers", "initContainers")
            for action in ("Restart", "RestartAllContainers")
        ),
    ],
)
def test_pod_must_run_once_and_have_a_container(pod: dict[str, Any], said: str) -> None:
    assert said in fault_of(pod=pod)


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        (
            {"row-may-set": "everything"},
            "dispatcher.internal/row-may-set is 'everything': known are args, command, cpu",
        ),
        ({"row-may-set": "env.TASK_ID"}, "'env.TASK_ID'"),
        ({"row-may-set": "env.LD_PRELOAD"}, "'env.LD_PRELOAD'"),
        ({"row-may-set": "env."}, "'env.'"),
        ({"row-may-set": "env.A-B"}, "'env.A-B'"),
        ({"row-may-set": "machine"}, "'machine'"),
        ({"row-may-set": "image"}, "dispatcher.internal/images is '': rows may set the image, so say which"),
        ({"row-may-set": "image", "images": " , "}, "so say which"),
        ({"row-may-set": "image", "images": "a/*\nb/*"}, "images is 'a/*\\nb/*': write commas between globs"),
        ({"machines": "a b"}, "dispatcher.internal/machines is 'a b': write commas between globs"),
        ({"row-may-set": "cpu", "max-cpu": "0"}, "max-cpu is '0': must be above 0"),
        ({"row-may-set": "memory", "max-memory": "-1Gi"}, "max-memory is '-1Gi': must be above 0"),
        ({"max-seconds": "0"}, "dispatcher.internal/max-seconds is '0': 1..604800"),
        ({"max-seconds": "604801"}, "1..604800"),
        ({"timeout-seconds": "1h"}, "dispatcher.internal/timeout-seconds is '1h': a whole number"),
        ({"timeout-seconds": "61", "max-seconds": "60"}, "dispatcher.internal/timeout-seconds is '61': 1..60"),
        ({"max-failures": "0"}, "dispatcher.internal/max-failures is '0': 1..100"),
        ({"max-failures": "some"}, "dispatcher.internal/max-failures is 'some': a whole number"),
        ({"container": "work"}, "dispatcher.internal/container is 'work': the containers are"),
        ({"max-bytes": "1"}, "dispatcher.internal/max-bytes is '1': 1Ki to 256Ki"),
        ({"max-bytes": "257Ki"}, "1Ki to 256Ki"),
        ({"max-bytes": "much"}, "max-bytes: "),
        ({"report": "sometimes"}, "dispatcher.internal/report is 'sometimes': sql or exit-code"),
        (
            {"final-codes": "3"},
            "dispatcher.internal/final-codes is '3': it needs dispatcher.internal/report: exit-code",
        ),
        (
            {"final-codes": "0", "report": "exit-code"},
            "'0': exit statuses from 1 to 255, such as 2,64-68",
        ),
        ({"final-codes": "64-256", "report": "exit-code"}, "final-codes is '64-256': exit statuses from 1 to 255"),
        ({"final-codes": "1,x", "report": "exit-code"}, "final-codes is '1,x': exit statuses from 1 to 255"),
        ({"final-codes": "", "report": "exit-code"}, "final-codes is '': exit statuses from 1 to 255"),
        ({"final-codes": 3, "report": "exit-code"}, "dispatcher.internal/final-codes is '3': annotations are strings"),
        ({"identity": "x"}, "an annotation is 'dispatcher.internal/identity': known are"),
        ({"max-cpus": "4"}, "an annotation is 'dispatcher.internal/max-cpus'"),
        ({"max-cpu": 4}, "dispatcher.internal/max-cpu is '4': annotations are strings: quote it"),
        ({"max-cpu": None}, "dispatcher.internal/max-cpu is 'null': annotations are strings: quote it"),
    ],
)
def test_invalid_annotation_is_a_fault(annotations: dict[str, Any], said: str) -> None:
    assert said in fault_of(annotations=annotations)


def test_open_resource_without_a_bound_is_a_fault() -> None:
    fault = fault_of(annotations={"row-may-set": "cpu"}, container={"resources": None})
    wanted = "dispatcher.internal/max-cpu is missing: rows may set cpu, so set it or the container's limit"
    assert fault == wanted


@pytest.mark.fault(54)
@pytest.mark.museum("duplicate env names")
@pytest.mark.parametrize(
    ("own", "said"),
    [
        ([{"name": "TASK_ID", "value": "1"}], "env is 'TASK_ID': this name is the dispatcher's"),
        ([{"name": "POD_NAME", "value": "1"}], "env is 'POD_NAME'"),
        ([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], "env is 'A': a name stands once"),
    ],
)
def test_closed_or_repeated_name_in_template_env_is_a_fault(own: list[Any], said: str) -> None:
    assert said in fault_of(container={"env": own})


@pytest.mark.parametrize("name", ["", "Team", "-a", "a-", "a" * 64, "a_b", "a.b", "a\n"])
def test_invalid_template_name_is_a_fault(name: str) -> None:
    assert fault_of(name).startswith("its name is ")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"apiVersion": "v1"}, "apiVersion is 'v1': must be batch/v1"),
        ({"kind": "CronJob"}, "kind is 'CronJob': must be Job"),
        ({"metadata": {"namespace": "x"}}, "metadata.namespace is 'x': leave it out"),
        ({"metadata": {"labels": {"dispatcher.internal/queue": "x"}}}, "the dispatcher sets these"),
    ],
)
def test_manifest_must_be_a_job_without_namespace_and_dispatcher_labels(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TemplateError, match=said):
        judge_template("t", a_manifest() | changes)


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_pod_metadata_of_the_dispatcher_domain_is_a_fault(part: str) -> None:
    manifest = a_manifest()
    manifest["spec"]["template"]["metadata"] = {part: {"dispatcher.internal/shape": "x"}}
    with pytest.raises(TemplateError, match="the dispatcher sets these"):
        judge_template("t", manifest)


def test_annotation_of_a_template_that_stands_at_its_pod_is_told_where_it_belongs() -> None:
    manifest = a_manifest()
    manifest["spec"]["template"]["metadata"] = {"annotations": {"dispatcher.internal/report": "exit-code"}}
    with pytest.raises(TemplateError, match=r"report': write it into metadata\.annotations, of the Job$"):
        judge_template("t", manifest)


@pytest.mark.parametrize("name", ["job-name", "controller-uid"])
@pytest.mark.parametrize("prefix", ["", "batch.kubernetes.io/"])
def test_label_of_an_exported_job_that_the_api_server_refuses_is_a_fault(prefix: str, name: str) -> None:
    manifest = a_manifest()
    manifest["spec"]["template"]["metadata"] = {"labels": {f"{prefix}{name}": "old", "team": "a"}}
    with pytest.raises(TemplateError, match=f"^a label of the Pod is '{prefix}{name}': the API server gives each Job"):
        judge_template("t", manifest)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "just words", "a: [", "a: 1\n---\nb: 2", "apiVersion: batch/v1\nkind: Job", "\0", "a: &a [*a]",
     "apiVersion: batch/v1\nkind: Job\nspec: 3", "apiVersion: batch/v1\nkind: Job\nspec: {template: []}",
     TEXT.replace("name: MODE", "value: x"), TEXT.replace("row-may-set: env,args", "max-seconds: 'soon'")],
)  # fmt: skip
def test_fault_of_a_file_without_a_job_manifest_names_the_template(text: str) -> None:
    with pytest.raises(TemplateError, match=r"^template broken: "):
        parse_template("broken", text)


@given(st.text(max_size=60))
def test_any_text_raises_only_template_error(text: str) -> None:
    with pytest.raises(TemplateError):
        parse_template("any", text)


@pytest.mark.parametrize(("key", "value"), [("max-seconds", "soon"), ("max-cpu", "lots"), ("max-memory", "1GB")])
def test_fault_of_an_invalid_bound_names_its_field(key: str, value: str) -> None:
    annotations = {"dispatcher.internal/row-may-set": "cpu,memory", f"dispatcher.internal/{key}": value}
    manifest = a_manifest() | {"metadata": {"annotations": annotations}}
    with pytest.raises(TemplateError, match=key):
        parse_template("t", msgspec.yaml.encode(manifest).decode())


def test_fault_of_a_file_names_the_template() -> None:
    with pytest.raises(TemplateError, match=r"^template t: spec.suspend is 'true'"):
        parse_template("t", TEXT.replace("spec:\n  template", "spec:\n  suspend: true\n  template", 1))


def test_fault_shortens_a_long_value() -> None:
    assert len(fault_of(spec={"selector": "x" * 5000})) < 200


def test_default_template_of_the_tests_has_the_default_image() -> None:
    assert a_template().task_container["image"] == IMAGE


def test_mark_by_which_a_tool_deletes_jobs_is_told() -> None:
    """Argo CD and Rancher prune them, kube-janitor ends them, and Reloader makes also a finished one again."""
    manifest = a_manifest(annotations={"report": "exit-code"})
    manifest["metadata"]["labels"] = {"app.kubernetes.io/instance": "shop", "app.kubernetes.io/name": "etl"}
    manifest["metadata"]["labels"]["objectset.rio.cattle.io/hash"] = "0"
    manifest["metadata"]["annotations"] |= {"janitor/ttl": "2d", "reloader.stakater.com/ignore": "true"}
    of_pod = {"labels": {"app.kubernetes.io/instance": "shop"}, "annotations": {"reloader.stakater.com/auto": "true"}}
    manifest["spec"]["template"]["metadata"] = of_pod
    told = judge_template("etl", manifest).doubts(())
    assert [words.partition(",")[0] for words in told] == [
        "by app.kubernetes.io/instance", "by objectset.rio.cattle.io/hash", "by janitor/ttl",
        "by reloader.stakater.com/auto",
    ]  # fmt: skip
