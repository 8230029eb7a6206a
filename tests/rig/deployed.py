"""The objects of the chart as helm renders them, and the rights that they give."""

import functools
import itertools
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml

from dispatcher.settings.loading import LoadedSettings, load
from dispatcher_demo.node.containers import resolve
from tests.controlplane.api import Json
from tests.controlplane.binaries import HELM, programs

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "chart"
RENDERED = DEPLOY / "rendered"
VARIANTS = ("default", "namespaced", "one-namespace", "everything")
"""Names of the files in `deploy/rendered/values`."""
RBAC_KINDS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
POLICY_KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
CLUSTER_KINDS = ("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", *POLICY_KINDS)
"""The kinds of the chart that belong to no namespace."""


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


def helm(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [programs(HELM)["helm"], *map(str, words)], input=stdin, capture_output=True, text=True, check=False
    )


def template(variant: str = "default", namespace: str = "dispatcher", **values: object) -> str:
    """The manifest that helm makes of the chart. `values` come on top of those of the variant."""
    given = ("--values", RENDERED / "values" / f"{variant}.yaml", "--values", "-")
    done = helm("template", "dispatcher", CHART, "--namespace", namespace, *given, stdin=_json(values))
    assert done.returncode == 0, done.stderr
    assert not done.stderr, f"helm warns: {done.stderr}"
    return done.stdout


def rendered(
    variant: str = "default", namespace: str = "dispatcher", only: str = "", **values: object
) -> tuple[Json, ...]:
    """The objects of the chart, in the order of helm. Each call returns objects of its own.

    A variant as it is comes from `deploy/rendered`, without helm.
    only: those of one template, for example `rbac`.
    """
    sourced: list[tuple[str, Json]] = msgspec.json.decode(_rendered(variant, namespace, _json(values)))
    return tuple(one for source, one in sourced if only in ("", source))


@functools.cache
def _rendered(variant: str, namespace: str, values: str) -> bytes:
    is_shipped = (namespace, values) == ("dispatcher", "{}")
    text = _shipped(variant) if is_shipped else template(variant, namespace, **msgspec.json.decode(values))
    return msgspec.json.encode([(_source(part), yaml.load(part, yaml.CSafeLoader)) for part in text.split("---\n")[1:]])


def _shipped(variant: str) -> str:
    return (RENDERED / f"{variant}.yaml").read_text(encoding="utf-8")


def _source(part: str) -> str:
    """The name of the template that helm made this document of."""
    found = re.match(r"# Source: dispatcher/templates/(\S+)\.yaml\n", part)
    assert found, part[:200]
    return found[1]


def _json(values: Mapping[str, object]) -> str:
    return msgspec.json.encode(values).decode()


def pod_templates(objects: tuple[Json, ...]) -> dict[str, Json]:
    """Every Pod template, by the command of its first container."""
    templates = [one["spec"]["template"] for one in objects if "template" in one.get("spec", {})]
    return {template["spec"]["containers"][0]["args"][0]: template for template in templates}


def settings_of(objects: tuple[Json, ...], command: str) -> LoadedSettings:
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
