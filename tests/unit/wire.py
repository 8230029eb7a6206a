"""Parts of API objects in JSON."""

import json
from datetime import UTC, datetime

AT = "2026-03-14T11:00:00Z"
THEN = datetime(2026, 3, 14, 11, tzinfo=UTC)
DOMAIN = "dispatcher.internal"


def written(wire: object) -> bytes:
    return json.dumps(wire).encode()


def a_condition(kind: str, status: str = "True", reason: str = "because", at: str = AT) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": at, "lastProbeTime": at}
