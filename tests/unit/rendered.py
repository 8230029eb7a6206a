"""Templates for rendered Jobs: a closed one, an open one, and requests of a row that the open one allows."""

from typing import Any

import msgspec

from dispatcher.jobs.templates import Template, judge_template
from dispatcher.settings.definition import PlacementSettings
from tests.rig.builders import SITE, a_manifest, a_template

SITE_WITH_ENV = msgspec.structs.replace(
    SITE, passed={"S3_URL": "s3://x"}, placement=PlacementSettings(scheduler_name="warm")
)
SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}
CONTAINERS = [
    {"name": "side", "image": "side:1", "env": [{"name": "SIDE", "value": "1"}]},
    {
        "name": "task", "image": "app:1", "imagePullPolicy": "Always", "command": ["run"], "args": ["x"],
        "env": [{"name": "MODE", "value": "fast"}, {"name": "KEY", "valueFrom": SECRET}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    },
]  # fmt: skip
POD = {
    "containers": CONTAINERS,
    "initContainers": [{"name": "init", "image": "init:1"}],
    "automountServiceAccountToken": False,
    "nodeSelector": {"disk": "ssd"},
    "volumes": [{"name": "scratch", "emptyDir": {}}],
}
CLOSED = a_template(opens="", pod=POD)
OPEN = a_template(
    opens="env,env.MODE,image,command,args,cpu,memory", pod=POD,
    bounds={"images": "team-a/*", "max-cpu": "4", "max-memory": "8Gi", "max-seconds": "7200"},
)  # fmt: skip
ASKED: dict[str, Any] = {
    "env": {"MODE": "slow", "NEW": "5 $"},
    "spec": {"image": "team-a/app:2", "command": ["go"], "args": ["$HOME"], "cpu": "2", "memory": "2Gi"},
}
METADATA = {"labels": {"team": "a"}, "annotations": {"example.com/cost": "7"}}


def a_template_with_metadata() -> Template:
    manifest = a_manifest(pod={"schedulerName": "of-template"})
    manifest["metadata"] = manifest["spec"]["template"]["metadata"] = METADATA
    return judge_template("default", manifest)
