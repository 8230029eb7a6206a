"""Writes Chart.yaml, and what the chart has of its `values.yaml`: schema, names, README.md. See `make docs`.

The comments above a value are its description, and its default is its type. What a default cannot tell stands in RULES.
The schema judges values. Names are judged by a template of the chart, which can tell the nearest known name.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from dispatcher import __version__
from dispatcher.pg.tasks import QueueRow
from dispatcher.settings.loading import PREFIX, known_names

CHART: Final = Path(__file__).parents[1] / "deploy" / "chart"
LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAME: Final = f"{LABEL}(\\.{LABEL})*"
CIDR: Final = {"pattern": r"^$|^[0-9a-fA-F.:]+/[0-9]{1,3}$"}
NAMES: Final = {"items": {"type": "string", "pattern": f"^{NAME}$"}}
PEERS: Final = {name: {"type": "object"} for name in ("podSelector", "namespaceSelector", "ipBlock")}
EGRESS: Final = {"ports": {"type": "array"}, "to": {"type": "array", "items": {"type": "object"}}}
REPOSITORY: Final = {"pattern": "^([^@\\s]+/)?[^:@/\\s]+$"}
TAG: Final = {"pattern": "^$|^[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}(@sha256:[0-9a-f]{64})?$"}
SCALAR: Final = {"type": ["string", "number", "boolean"]}
QUEUE: Final = msgspec.json.schema_components([QueueRow])[1]["QueueRow"]
FOLDERS: Final = {"items": {"type": "string", "pattern": "^/[^'\"\\\\]+$"}}
KINDS_OF_VOLUMES: Final = {"items": {"type": "string", "pattern": "^[a-zA-Z]+$"}}
NAMED: Final = ("serviceAccounts", "secrets", "configMaps", "priorityClasses", "runtimeClasses", "schedulers")
MORE_OF_A_TEMPLATE: Final[Mapping[str, Any]] = {
    **{name: {"type": "array", **NAMES} for name in NAMED},
    "volumeKinds": {"type": "array", **KINDS_OF_VOLUMES},
    "hostPathPrefixes": {"type": "array", **FOLDERS},
    "capabilities": {"type": "array", "items": {"type": "string", "pattern": "^[A-Z_]+$"}},
    "hostPorts": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}},
    "privileged": {"type": "boolean"},
}
"""What `policy.templates` may have for one template."""
TEXT: Final = {"type": "string"}
INTEGER: Final = {"type": "integer"}
AMOUNTS: Final = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}


def closed(properties: Mapping[str, Any], *required: str) -> Mapping[str, Any]:
    """An object without other properties, which the API server would refuse in the midst of an upgrade."""
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": list(required)}


RULES: Final[Mapping[str, Mapping[str, Any]]] = {
    "image.repository": REPOSITORY,
    "image.tag": TAG,
    "image.digest": {"pattern": "^$|^sha256:[0-9a-f]{64}$"},
    "imagePullSecrets": NAMES,
    "replicas": {"minimum": 1},
    "scheduler.replicas": {"minimum": 1},
    "installation": {"pattern": f"^{LABEL}$", "maxLength": 16},
    "jobsNamespace": {"pattern": f"^$|^{LABEL}$", "maxLength": 63},
    "settings": {"additionalProperties": SCALAR},
    "templates": {"additionalProperties": {"type": ["object", "string"]}},
    "queues": {"items": {**QUEUE, "additionalProperties": True}},
    "policy.serviceAccounts": NAMES,
    "policy.secrets": NAMES,
    "policy.configMaps": NAMES,
    "policy.priorityClasses": NAMES,
    "policy.runtimeClasses": NAMES,
    "policy.schedulers": NAMES,
    "policy.volumeKinds": KINDS_OF_VOLUMES,
    "policy.hostPathPrefixes": FOLDERS,
    "policy.templates": {
        "propertyNames": {"pattern": f"^{LABEL}$"},
        "additionalProperties": {"type": "object", "additionalProperties": False, "properties": MORE_OF_A_TEMPLATE},
    },
    "monitoring.labels": {"additionalProperties": {"type": "string"}},
    "runAsUser": {"minimum": 0},
    "networkPolicy.from": {"items": closed(PEERS)},
    "networkPolicy.egress": {"items": closed(EGRESS)},
    "networkPolicy.databaseCidr": CIDR,
    "networkPolicy.apiServerCidr": CIDR,
}
RULES_OF_PROGRAMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "tolerations": {
        "items": closed(dict.fromkeys(("key", "operator", "value", "effect"), TEXT) | {"tolerationSeconds": INTEGER})
    },
    "extraEnv": {
        "items": closed({"name": {**TEXT, "minLength": 1}, "value": TEXT, "valueFrom": {"type": "object"}}, "name")
    },
    "podAnnotations": {"additionalProperties": {"type": "string"}},
    "podLabels": {"additionalProperties": {"type": "string"}},
    "nodeSelector": {"additionalProperties": {"type": "string"}},
    "resources": closed({"limits": AMOUNTS, "requests": AMOUNTS, "claims": {"type": "array"}}),
}
MEANINGS_OF_PROGRAMS: Final[Mapping[str, str]] = {
    "resources": "Requests and limits of the container, as in a Pod.",
    "nodeSelector": "Labels of the nodes that may run it, as in a Pod.",
    "tolerations": "Taints that it tolerates, as in a Pod.",
    "priorityClassName": "PriorityClass of its Pods. Empty: the default of the cluster.",
    "podAnnotations": "More annotations of its Pods.",
    "podLabels": "More labels of its Pods, such as sidecar.istio.io/inject. They replace none of ours.",
    "extraEnv": "More variables of the container, as in a Pod: {name, value} or {name, valueFrom}.",
}
"""Of the seven keys that each program has."""
CHART_FILE: Final = """\
# Made by `make docs`: the version is that of the program.
apiVersion: v2
name: dispatcher
description: Turns waiting rows of a Postgres table into Kubernetes Jobs, and says why a row still waits.
type: application
version: {version}
appVersion: {version}
kubeVersion: ">=1.31.0-0"
"""
OF_HELM: Final = ("enabled", "global")
"""Names that a chart with this one in it may hand down: by `enabled` it usually leaves it out (`condition`)."""
TYPES: Final = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
HEAD: Final = """\
<!-- Made from values.yaml by `make docs`. Change it there. -->
# The chart

It installs one dispatcher: `run`, `janitor`, `migrate`, and, where they are enabled, the cache keeper, a kube-scheduler
with the extender and the kind NodeReservation. docs/install.md shows how. It makes no namespace, no Secret, and nothing
in the namespace of Jobs but rights.

| value | default | meaning |
|---|---|---|
"""


def schema(values: Mapping[str, Any], meanings: Mapping[str, str]) -> dict[str, Any]:
    """The JSON schema of the values."""
    found = {"$schema": "http://json-schema.org/draft-07/schema#", **part("", values, meanings)}
    found["properties"] = {**found["properties"], "enabled": {"const": True}}
    return found


def part(path: str, value: Any, meanings: Mapping[str, str]) -> dict[str, Any]:
    described = {"description": meaning(path, meanings)} if path else {}
    found = {"type": TYPES[type(value)], **described, **rules(path)}
    if isinstance(value, dict) and is_closed(path):
        found["properties"] = {name: part(f"{path}.{name}".strip("."), one, meanings) for name, one in value.items()}
    return found


def rules(path: str) -> Mapping[str, Any]:
    return RULES.get(path) or RULES_OF_PROGRAMS.get(path.rpartition(".")[2], {})


def names(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """The known names, by the path of what has them. The path of a list stands for each of its items."""
    groups = {path: sorted(group) for path, group in groups_of("", values)}
    return {
        **groups,
        "": sorted([*groups[""], *OF_HELM]),
        "queues": sorted(QUEUE["properties"]),
        "settings": sorted(name.removeprefix(PREFIX) for name in known_names()),
    }


def groups_of(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path, values
    for name, value in values.items():
        full = f"{path}.{name}".strip(".")
        if isinstance(value, dict) and is_closed(full):
            yield from groups_of(full, value)


def is_closed(path: str) -> bool:
    """Whether its names are those of values.yaml."""
    is_open = path in {"settings", "templates", "policy.templates", "monitoring.labels"}
    return not is_open and path.rpartition(".")[2] not in RULES_OF_PROGRAMS


def meanings_of(text: str) -> dict[str, str]:
    """The comment above each value, by its path."""
    found, path, comment = dict[str, str](), [""], list[str]()
    for line in text.split("\n\n", 1)[1].splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        if line.strip().startswith("#"):
            comment.append(line.strip().removeprefix("#").strip())
        elif named := re.match(r"\s*(\w+):", line):
            path = [*path[:depth], named[1]]
            if comment:
                found[".".join(path)] = " ".join(comment)
            comment = []
        else:
            comment = []
    return found


def page(values: Mapping[str, Any], meanings: Mapping[str, str]) -> str:
    return HEAD + "".join(rows("", values, meanings))


def rows(path: str, values: Mapping[str, Any], meanings: Mapping[str, str]) -> Iterator[str]:
    for name, value in values.items():
        full = f"{path}.{name}".strip(".")
        is_group = isinstance(value, dict) and value and is_closed(full)
        shown = "" if is_group else f"`{json.dumps(value)}`"
        yield f"| `{full}` | {shown} | {meaning(full, meanings).replace('|', '/')} |\n"
        if is_group:
            yield from rows(full, value, meanings)


def meaning(path: str, meanings: Mapping[str, str]) -> str:
    """What the value is. Raises KeyError for a value that nobody has described."""
    key = path.rpartition(".")[2]
    return meanings.get(path) or MEANINGS_OF_PROGRAMS[key]


def made() -> dict[Path, str]:
    """The text of each file."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    values, meanings = yaml.safe_load(text), meanings_of(text)
    return {
        CHART / "values.schema.json": json.dumps(schema(values, meanings), indent=2) + "\n",
        CHART / "Chart.yaml": CHART_FILE.format(version=__version__),
        CHART / "files" / "names.json": json.dumps(names(values), indent=1) + "\n",
        CHART / "README.md": page(values, meanings),
    }


if __name__ == "__main__":
    for file, content in made().items():
        file.write_text(content, encoding="utf-8")
