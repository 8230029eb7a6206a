"""Parts of API objects in JSON."""

import json
from datetime import UTC, datetime
from typing import Any

from dispatcher.jobs.manifest import build_job
from dispatcher.model.launches import Launch
from tests.rig.builders import SITE, a_task, a_template, an_order

AT = "2026-03-14T11:00:00Z"
THEN = datetime(2026, 3, 14, 11, tzinfo=UTC)
DOMAIN = "dispatcher.internal"


def written(wire: object) -> bytes:
    return json.dumps(wire).encode()


def a_condition(kind: str, status: str = "True", reason: str = "because", at: str = AT) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": at, "lastProbeTime": at}


def a_wire_job(**changes: Any) -> dict[str, Any]:
    """A Job as the API server returns it: our manifest, the server's fields, and changes such as spec__suspend."""
    order = an_order(task=a_task(attempt=2), launch=Launch(3, unstarted=1, disrupted=1))
    wire = build_job(order, a_template(), SITE)
    wire["metadata"] |= {"uid": "u-1", "resourceVersion": "771", "creationTimestamp": AT, "managedFields": [{}]}
    wire["spec"] |= {"suspend": False, "selector": {"matchLabels": {}}, "completionMode": "NonIndexed"}
    wire["status"] = {"active": 1, "ready": 0, "startTime": AT}
    for path, value in changes.items():
        part, key = path.split("__")
        wire[part][key] = value
    return wire
