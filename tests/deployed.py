"""What `deploy/` puts into a cluster: its objects as kustomize renders them, and the rights that they give."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.controlplane.api import Json
from tests.controlplane.binaries import KUSTOMIZE, programs

DEPLOY = Path(__file__).parents[1] / "deploy"
BASE = DEPLOY / "base"
NAMESPACED = DEPLOY / "overlays" / "namespaced"
RBAC_KINDS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


class Right(NamedTuple):
    """One verb on one resource, in the namespace of the installation or cluster-wide."""

    where: str
    group: str
    resource: str
    verb: str


def rendered(folder: Path) -> tuple[Json, ...]:
    """What `kubectl apply -k FOLDER` sends."""
    done = subprocess.run(
        [programs(KUSTOMIZE)["kustomize"], "build", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, f"kustomize warns: {done.stderr}"
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)


def overlaid(folder: Path, source: Path = BASE, **more: object) -> tuple[Json, ...]:
    """An operator's own overlay of `source`, written into `folder`; `more`: fields of its kustomization."""
    text = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(source.resolve(), folder.resolve())],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(text | more))
    return rendered(folder)


def pod_templates(objects: tuple[Json, ...]) -> dict[str, Json]:
    """Every Pod template, by what runs in it."""
    templates = [one["spec"]["template"] for one in objects if "template" in one.get("spec", {})]
    return {template["spec"]["containers"][0]["args"][0]: template for template in templates}


def granted(objects: tuple[Json, ...], account: str) -> set[Right]:
    """What the ServiceAccount may do once the objects are there."""
    return {right for binding in objects if _binds(binding, account) for right in _rights(objects, binding)}


def _binds(binding: Json, account: str) -> bool:
    subjects = binding.get("subjects", ())
    return any((subject["kind"], subject["name"]) == ("ServiceAccount", account) for subject in subjects)


def _rights(objects: tuple[Json, ...], binding: Json) -> Iterator[Right]:
    where = "namespace" if binding["kind"] == "RoleBinding" else "cluster"
    (role,) = [
        one
        for one in objects
        if (one["kind"], one["metadata"]["name"]) == (binding["roleRef"]["kind"], binding["roleRef"]["name"])
    ]
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from (Right(where, group, resource, verb) for verb in rule["verbs"])
