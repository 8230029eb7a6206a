"""No template can hurt anybody: with any part blank, missing or of another type, it is refused, or Jobs can be made."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dispatcher.jobs.catalog import read_file
from dispatcher.jobs.offered import why_unusable
from dispatcher.jobs.templates import Template
from tests.rig.builders import a_manifest, a_template

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


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of the manifest, but its top."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield (*path, key)
        yield from paths(part, (*path, key))


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


@pytest.mark.parametrize("path", list(paths(WHOLE)), ids=lambda path: ".".join(map(str, path)))
def test_template_with_any_part_spoilt_is_refused_or_makes_jobs(tmp_path: Path, path: tuple[Any, ...]) -> None:
    """The fault names the template's part, and is no traceback."""
    for value in VALUES:
        found = read(tmp_path, changed(path, value))
        if isinstance(found, Template):
            assert why_unusable(found) == ""
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
    ],
)  # fmt: skip
def test_blanks_that_helm_leaves_are_named_with_their_place(
    tmp_path: Path, path: tuple[Any, ...], value: Any, said: str
) -> None:
    found = read(tmp_path, changed(path, value))
    assert isinstance(found, str)
    assert said in found
