"""The objects of `deploy/` as kustomize renders them, and the rights that they give."""

import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from dispatcher.local.environment import resolve
from dispatcher.settings.loading import Loaded, load
from tests.controlplane.api import Json
from tests.controlplane.binaries import KUSTOMIZE, programs

DEPLOY = Path(__file__).parents[1] / "deploy"
BASE = DEPLOY / "base"
NAMESPACED = DEPLOY / "overlays" / "namespaced"
ONE_NAMESPACE = DEPLOY / "overlays" / "one-namespace"
NAMES = DEPLOY / "names"
RBAC_KINDS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
POLICY_KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
CLUSTER_KINDS = ("ClusterRole", "ClusterRoleBinding", *POLICY_KINDS)
"""The kinds in `deploy/base` that belong to no namespace. kustomize does not know this of the last two."""


class Right(NamedTuple):
    """One verb on one resource.

    * where: the namespace, or `cluster`.
    * name: the object; empty: every object.
    """

    where: str
    group: str
    resource: str
    verb: str
    name: str = ""


def rendered(folder: Path) -> tuple[Json, ...]:
    """The objects that `kubectl apply -k FOLDER` sends."""
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


def moved(
    folder: Path,
    source: Path,
    namespaces: tuple[str, str],
    settings: Mapping[str, str] | None = None,
    lists: Mapping[str, str] | None = None,
) -> tuple[Json, ...]:
    """The objects of a second installation: programs in the first of two namespaces, Jobs in the second.

    `lists`: what Jobs may name.
    """
    ours, jobs = namespaces
    values = {"NAMESPACE": jobs, **(settings or {})}
    literals = {
        "dispatcher-settings": [f"DISPATCHER_{name}={value}" for name, value in values.items()],
        "dispatcher-policy": [f"{name}={value}" for name, value in (lists or {}).items()],
    }
    maps = [{"name": name, "behavior": "merge", "literals": given} for name, given in literals.items() if given]
    more = {"namespace": ours, "nameSuffix": f"-{ours}", "transformers": [os.path.relpath(NAMES, folder.resolve())]}
    return overlaid(folder, source, configMapGenerator=maps, **more)


def pod_templates(objects: tuple[Json, ...]) -> dict[str, Json]:
    """Every Pod template, by the command of its first container."""
    templates = [one["spec"]["template"] for one in objects if "template" in one.get("spec", {})]
    return {template["spec"]["containers"][0]["args"][0]: template for template in templates}


def settings_of(objects: tuple[Json, ...], command: str) -> Loaded:
    """The settings that the program in that container would read."""
    template = pod_templates(objects)[command]
    maps = {
        ("ConfigMap", one["metadata"]["name"]): one.get("data", {}) for one in objects if one["kind"] == "ConfigMap"
    }
    environ = resolve(template["spec"]["containers"][0], template, maps)
    return load(environ, lambda path: "postgresql://login@db/work")


def granted(objects: tuple[Json, ...], account: str) -> set[Right]:
    """The rights of the ServiceAccount once the objects are there."""
    return {right for binding in objects if _binds(binding, account) for right in _rights(objects, binding)}


def _binds(binding: Json, account: str) -> bool:
    subjects = binding.get("subjects", ())
    return any((subject["kind"], subject["name"]) == ("ServiceAccount", account) for subject in subjects)


def _rights(objects: tuple[Json, ...], binding: Json) -> Iterator[Right]:
    where = binding["metadata"]["namespace"] if binding["kind"] == "RoleBinding" else "cluster"
    (role,) = [
        one
        for one in objects
        if (one["kind"], one["metadata"]["name"]) == (binding["roleRef"]["kind"], binding["roleRef"]["name"])
    ]
    assert role["metadata"].get("namespace", "cluster") == where, "a Role is bound in its own namespace alone"
    for rule in role["rules"]:
        for group, resource, verb in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"]):
            yield from (Right(where, group, resource, verb, name) for name in rule.get("resourceNames", [""]))
