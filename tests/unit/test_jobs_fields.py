"""The fields of a manifest: an odd or missing part is a fault with its place, and hurts nobody at a later stage."""

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dispatcher.jobs.catalog import read_file
from dispatcher.jobs.fields import KINDS, at, dotted, field_faults, list_at, object_at
from dispatcher.jobs.manifest import build_job, plan_needs
from dispatcher.jobs.offered import why_unusable
from dispatcher.jobs.policy import check_job
from dispatcher.jobs.row_check import judge_kind
from dispatcher.jobs.templates import Template, judge_template, opening_of
from dispatcher.model.errors import TemplateError
from tests.rig.builders import NOT_PLACED, SITE, a_kind, a_manifest, a_task, a_template, an_order
from tests.rig.whole_job import paths

ODD: list[Any] = [3, "x", True, None, [], [3], {}, {"x": 3}, {1: 2}, [[]], [{}], [None], [{"name": 3}], 0.5, "", 2**70]
POD = ("spec", "template", "spec")
MOUNT = {"name": "v", "mountPath": "/v"}
IN_ZONE = [{"key": "zone", "operator": "Exists"}]
TERMS = {"nodeSelectorTerms": [{"matchExpressions": IN_ZONE, "matchFields": IN_ZONE}]}
PROBE = {"httpGet": {"port": 80, "httpHeaders": [{"name": "a"}]}, "periodSeconds": 5}
FULL: dict[str, Any] = {
    "initContainers": [{"name": "i", "image": "i", "env": [{"name": "A"}], "volumeMounts": [MOUNT],
                        "resources": {"limits": {"cpu": 1}, "requests": {"cpu": "1"}}}],
    "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}], "tolerations": [{"key": "k"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}},
    "nodeSelector": {"a": "b"}, "shareProcessNamespace": False, "terminationGracePeriodSeconds": 5,
}  # fmt: skip


def a_full_manifest() -> dict[str, Any]:
    container = {
        "env": [{"name": "A", "value": "1"}],
        "volumeMounts": [{**MOUNT}],
        "livenessProbe": PROBE,
        "args": ["a"],
    }
    manifest: dict[str, Any] = a_manifest(pod=copy.deepcopy(FULL), container=copy.deepcopy(container))
    manifest["metadata"] |= {"labels": {"a": "b"}, "annotations": {"a": "b"}}
    manifest["spec"]["template"]["metadata"] = {"labels": {"a": "b"}, "annotations": {"a": "b"}}
    return manifest


def put(manifest: Any, path: tuple[Any, ...], value: object) -> None:
    *inner, last = path
    for step in inner:
        manifest = manifest[step]
    manifest[last] = value


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_odd_part_is_a_fault_or_harmless(odd: object) -> None:
    for path in paths(a_full_manifest()):
        manifest = a_full_manifest()
        put(manifest, path, copy.deepcopy(odd))
        try:
            template = judge_template("default", manifest)
        except TemplateError as fault:
            assert fault.faults  # noqa: PT017  # either end is right; the rest must not raise
            continue
        judge_kind(a_kind(), {"default": template}, frozenset(), NOT_PLACED)


def faults_with(path: tuple[Any, ...], value: object) -> list[str]:
    manifest = a_full_manifest()
    put(manifest, path, value)
    return [fault.words for fault in opening_of(manifest, "default")[1]]


TASK = (*POD, "containers", 0)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ((*POD, "volumMounts"), [], "spec.template.spec.volumMounts is no field of Kubernetes: is it volumes?"),
        ((*TASK, "imag"), "x", "spec.template.spec.containers[0].imag is no field of Kubernetes: is it image?"),
        ((*TASK, "Image"), "x", "spec.template.spec.containers[0].Image is no field of Kubernetes: is it image?"),
        ((*POD, "zzz"), 1, "spec.template.spec.zzz is no field of Kubernetes"),
        (("spec", "schedule"), "@daily", "spec.schedule is no field of Kubernetes"),
        (("metadata", "lables"), {}, "metadata.lables is no field of Kubernetes: is it labels?"),
        ((*TASK, "env", 0, "value"), 8080, "containers[0].env[0].value has another type: must be a text: quote it"),
        ((*TASK, "env", 0, "value"), False, "containers[0].env[0].value has another type: must be a text: quote it"),
        ((*TASK, "env", 0, "name"), "", "containers[0].env[0].name is missing: it must be a text"),
        ((*TASK, "env", 0), None, "containers[0].env[0] is missing: it must be an object"),
        (("metadata", "labels", "version"), 1.1, "metadata.labels.version is '1.1': must be a text: quote it"),
        ((*TASK, "resources"), {"limits": {"memory": "64MB"}}, 'is \'64MB\': must be a Kubernetes quantity such as'),
        ((*TASK, "resources"), {"limits": ["cpu"]}, "resources.limits is '[\"cpu\"]': must be an object"),
        ((*POD, "volumes", 0, "emptyDir", "sizeLimit"), "lots", "sizeLimit is 'lots': must be a Kubernetes quantity"),
        ((*POD, "volumes", 0), None, "spec.template.spec.volumes[0] is missing: it must be an object"),
        ((*POD, "volumes"), {"v": {}}, "spec.template.spec.volumes is '{\"v\": {}}': must be a list"),
        ((*TASK, "volumeMounts", 0, "mountPath"), None, "volumeMounts[0].mountPath is missing: it must be a text"),
        ((*TASK, "image"), None, "containers[0].image is missing: a container needs one"),
        ((*POD, "initContainers", 0, "image"), "", "initContainers[0].image is missing: a container needs one"),
        ((*TASK, "livenessProbe", "periodSeconds"), "5", "periodSeconds is '5': must be a whole number"),
        ((*TASK, "livenessProbe", "periodSeconds"), 2**31, "must be a whole number of 32 bits"),
        ((*POD, "terminationGracePeriodSeconds"), 1.5, "must be a whole number, without quotes"),
        ((*TASK, "livenessProbe", "httpGet", "port"), [80], "port is '[80]': must be a whole number or a text"),
        ((*POD, "shareProcessNamespace"), "no", "shareProcessNamespace is 'no': must be true or false, without quotes"),
        ((*TASK, "args"), "one", "containers[0].args has another type: must be a list"),
        (("spec", "template", "spec"), None, "spec.template.spec is missing: it must be an object"),
        (("spec",), None, "spec is missing: it must be an object"),
        (("spec", "backoffLimit"), "3", "must be 0: one launch = one Pod, see dispatcher.internal/max-failures"),
    ],
)  # fmt: skip
def test_fault_names_the_place_and_the_rule(path: tuple[Any, ...], value: object, words: str) -> None:
    told = faults_with(path, value)
    assert len([one for one in told if words in one]) == 1, told


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*TASK, "args", 0), None),
        ((*TASK, "env", 0, "value"), ""),
        ((*TASK, "resources"), {"limits": {"cpu": 0.5, "nvidia.com/gpu": 1, "memory": "1e3"}, "requests": None}),
        ((*TASK, "livenessProbe", "httpGet", "port"), "http"),
        (("metadata", "ownerReferences"), [{"name": "x"}]),
        (("metadata", "creationTimestamp"), None),
        (("status",), {"active": 1, "odd": 2}),
        ((*POD, "volumes"), None),
    ],
)
def test_part_that_the_api_server_takes_or_never_sees_is_no_fault(path: tuple[Any, ...], value: object) -> None:
    assert faults_with(path, value) == []


def test_fields_of_another_kind_are_not_judged() -> None:
    told = opening_of({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"schedule": "@daily"}}, "t")[1]
    words = "kind is 'CronJob': must be Job. Of other kinds `dispatcher adopt` makes templates"
    assert [fault.words for fault in told] == [words]


def test_every_kind_of_the_file_is_reached() -> None:
    named = {one.lstrip("[]{}") for kind in KINDS.values() for one in (kind.needed | kind.others).values()}
    assert KINDS.keys() - named == {"Job"}
    assert list(field_faults({"Job": 1}, "FieldsV1")) == []


def test_full_manifest_has_no_fault() -> None:
    assert opening_of(a_full_manifest(), "default")[1] == ()


def test_key_that_is_no_text_is_a_fault() -> None:
    assert faults_with(("metadata", "labels"), {1: "x"}) == ["metadata.labels has a key that is no text: quote it"]


def test_manifest_that_json_cannot_hold_is_a_fault() -> None:
    with pytest.raises(TemplateError, match="not a Job manifest"):
        judge_template("t", a_full_manifest() | {"status": {(1, 2): 3}})


def test_parts_are_found_only_in_parents_of_their_shape() -> None:
    assert (at({"a": [1]}, "a", 0), at({"a": [1]}, "a", 1), at({"a": 3}, "a", 0), at([], "a")) == (1, None, None, None)
    assert (object_at({"a": {"b": 1, 2: 3}}, "a"), object_at({"a": 3}, "a")) == ({"b": 1}, {})
    assert (list_at({"a": [1]}, "a"), list_at({"a": 3}, "a")) == ([1], [])


def test_path_is_told_as_people_write_it() -> None:
    assert dotted(("spec", "containers", 0, "a/b")) == "spec.containers[0][a/b]"
    assert dotted(()) == ""


TERM = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a"]}], "matchFields": []}
WHOLE: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "labels": {"team": "a"},
        "annotations": {"dispatcher.internal/row-may-set": "env,cpu", "dispatcher.internal/max-cpu": "4", "note": "x"},
    },
    "spec": {
        "backoffLimit": 0,
        "template": {
            "metadata": {"labels": {"team": "a"}, "annotations": {"note": "x"}},
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {"pool": "a"},
                "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]},
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}],
                    },
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
                        ]
                    },
                },
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                     "labelSelector": {"matchLabels": {"a": "b"}}}
                ],
                "securityContext": {"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
                "imagePullSecrets": [{"name": "pull"}],
                "volumes": [
                    {"name": "data", "emptyDir": {}},
                    {"name": "keys", "secret": {"secretName": "keys", "items": [{"key": "a", "path": "b"}]}},
                    {"name": "all", "projected": {"sources": [{"secret": {"name": "keys"}}]}},
                ],
                "initContainers": [
                    {"name": "first", "image": "a:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
                ],
                "containers": [
                    {
                        "name": "task", "image": "app:1", "command": ["a"], "args": ["b", "$(MODE)"],
                        "env": [{"name": "MODE", "value": "x"},
                                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}}],
                        "envFrom": [{"secretRef": {"name": "keys"}}],
                        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                        "ports": [{"containerPort": 80}],
                        "lifecycle": {"preStop": {"exec": {"command": ["a"]}}},
                        "securityContext": {"capabilities": {"drop": ["ALL"]}},
                    },
                    {"name": "proxy", "image": "b:1", "resources": {"requests": {"cpu": "100m"}}},
                ],
            },
        },
    },
}  # fmt: skip
REMOVED = object()
VALUES: tuple[Any, ...] = (REMOVED, None, "", "x", 0, 1.5, True, [], {}, [None], [[]], {"": None}, {"x": 1})


def changed(path: tuple[Any, ...], value: Any) -> Any:
    whole = copy.deepcopy(WHOLE)
    place = whole
    for step in path[:-1]:
        place = place[step]
    if value is REMOVED:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return whole


def read(folder: Path, manifest: Any) -> Template | str:
    file = folder / "one.yaml"
    file.write_bytes(msgspec.yaml.encode(manifest))
    return read_file(file)


def test_whole_template_is_usable(tmp_path: Path) -> None:
    assert isinstance(read(tmp_path, WHOLE), Template)


@pytest.mark.parametrize("path", paths(WHOLE), ids=lambda path: ".".join(map(str, path)))
def test_template_with_any_part_spoilt_is_refused_or_makes_jobs(tmp_path: Path, path: tuple[Any, ...]) -> None:
    """The fault names the template's part, and is no traceback."""
    for value in VALUES:
        found = read(tmp_path, changed(path, value))
        if isinstance(found, Template):
            assert why_unusable(found) == ""
            assert b"null" not in msgspec.json.encode(found.manifest), value
            order = an_order(found, task=a_task(template=found.name))
            assert check_job(build_job(order, found, SITE), order, found, SITE) == "", value
        else:
            assert found.startswith("template one: "), found


def test_template_that_no_check_refused_and_no_job_can_be_made_of_is_unusable() -> None:
    """The wall behind the checks: no list of them is complete."""
    broken = msgspec.structs.replace(a_template("t"), manifest=a_manifest(pod={"volumes": [None]}))
    assert why_unusable(broken).startswith("template t: a part is blank or of another type, and no Job can be made: ")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("spec", "template", "spec", "volumes"), [None], "volumes[0] is missing: it must be an object"),
        (("spec", "template", "spec", "containers", 0, "volumeMounts"), [{"name": "data", "mountPath": None}],
         "containers[0].volumeMounts[0].mountPath is missing: it must be a text"),
        (("spec", "template", "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
         {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu"}]}]},
         "matchExpressions[0].operator is missing: it must be a text"),
        (("spec", "template", "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
         {"nodeSelectorTerms": [{"matchExpressions": None}]}, "nodeSelectorTerms[0] is empty: it fits no node"),
    ],
)  # fmt: skip
def test_blanks_that_helm_leaves_are_named_with_their_place(
    tmp_path: Path, path: tuple[Any, ...], value: Any, said: str
) -> None:
    found = read(tmp_path, changed(path, value))
    assert isinstance(found, str)
    assert said in found


def test_blank_that_is_no_fault_is_read_as_the_api_server_reads_it() -> None:
    """Its field is not set. In labels and the like it is an empty text, and so it is in a list of texts."""
    blank = a_manifest(
        spec={"completions": None, "suspend": None},
        pod={"priorityClassName": None, "nodeSelector": {"disk": None}, "tolerations": [{"key": "a", "value": None}]},
        container={"args": ["--day", None], "env": [{"name": "A", "value": None}]},
    )
    blank["metadata"]["labels"] = {"team": None}
    plain = a_manifest(
        pod={"nodeSelector": {"disk": ""}, "tolerations": [{"key": "a"}]},
        container={"args": ["--day", ""], "env": [{"name": "A"}]},
    )
    plain["metadata"]["labels"] = {"team": ""}
    assert judge_template("t", blank).manifest == plain
    assert plan_needs(judge_template("t", blank), {}, NOT_PLACED) is not None
