"""The templates of the tests, by name. Each container runs the task program with the words of its row."""

from typing import Final

import yaml

from tests.controlplane.api import Json
from tests.node.node import LABEL
from tests.node.place import REGISTRY
from tests.node.registry import EXEC, PYTHON_TASK, TASK
from tests.rig.deployed import DEPLOY

EXAMPLE: Final = DEPLOY.parent / "docs" / "examples" / "without-python.yaml"
RUN: Final = ("/dispatcher/bin/dispatcher", "exec", "--")
PROGRAM: Final = ("/dispatcher/bin/python3", "-I", "/task_program.py")
LOGIN: Final = {"envFrom": [{"secretRef": {"name": "task-database"}}]}
MEMORY: Final = "160Mi"
"""Limit of a container: room for two Pythons."""


def python() -> Json:
    """The image has Python and the dispatcher."""
    container = own_container([*RUN, *PROGRAM]) | {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
    return template({"containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}]})


def leaving() -> Json:
    """Its Pod leaves an unreachable node at once, instead of after the five minutes of the cluster's default."""
    made = python()
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    made["spec"]["template"]["spec"]["tolerations"] = [unreachable | {"tolerationSeconds": 0}]
    return made


def plain() -> Json:
    """The image does not report: the end of its Job is the end of the row."""
    made = template({"containers": [own_container([*PROGRAM])]})
    made["metadata"]["annotations"]["dispatcher.internal/report"] = "exit-code"
    return made


def copied() -> Json:
    """The example of the author's page: an image that has no Python, and `exec` by an init container."""
    found: Json = yaml.safe_load(EXAMPLE.read_text())
    pod = found["spec"]["template"]["spec"]
    pod["initContainers"][0]["image"] = EXEC
    pod["containers"][0] |= own_container([*RUN, *PROGRAM]) | {"image": TASK}
    return template(pod)


def own_container(command: list[str]) -> Json:
    """Small requests, because the machine has few processors."""
    amounts = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": MEMORY}}
    return {"name": "task", "image": PYTHON_TASK, "command": command, "resources": amounts} | LOGIN


def template(pod: Json) -> Json:
    opened = {
        "dispatcher.internal/row-may-set": "args,image",
        "dispatcher.internal/images": f"{REGISTRY}/*, 127.0.0.1:9/*",
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"annotations": opened}}
    pod |= {"nodeSelector": {LABEL: "true"}, "terminationGracePeriodSeconds": 5}
    return job | {"spec": {"template": {"spec": pod}}}


TEMPLATES: Final = {"python": python(), "leaving": leaving(), "copied": copied(), "plain": plain()}
