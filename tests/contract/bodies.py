"""Requests to an extender: a good one, faulty ones that can still be answered, and unreadable ones."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dispatcher.model.cluster import FreeCapacity
from dispatcher.model.launches import HISTORY_NODES as HISTORY
from dispatcher.model.launches import REAL_RESOURCES as REAL

Json = dict[str, Any]
SECRET = "hunter2-hunter2"
GIB = 2**30 * 1000
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
ROOMS = {
    "a": FreeCapacity(3000, 8 * GIB, SINCE),
    "b": FreeCapacity(1000, 8 * GIB, SINCE),
    "c": FreeCapacity(5000, 8 * GIB, SINCE),
}
CONTAINER = {
    "name": "task",
    "env": [{"name": "PASSWORD", "value": SECRET}],
    "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "4Gi"}},
}
METADATA = {"name": "task-1", "namespace": "jobs", "uid": "u", "creationTimestamp": "2026-02-01T00:00:00Z"}
NOTES = {HISTORY: '["b", "a"]', REAL: '[{"cpu": "2", "memory": "2Gi"}]'}
POD = {"metadata": METADATA | {"annotations": NOTES}, "spec": {"containers": [CONTAINER]}}
POINTS = {"a": 2 + 6, "b": 3 + 4, "c": 7}


def asking(pod: object = POD, **keys: object) -> bytes:
    """A complete request; `keys` replace its keys."""
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": ["a", "b"], **keys}).encode()


def noted(**changes: object) -> Json:
    return POD | {"metadata": METADATA | changes}


def written(**changes: object) -> Json:
    return POD | {"spec": {"containers": [CONTAINER | changes]}}


def resourced(amount: object) -> Json:
    """A Pod with `amount` wherever a Pod has quantities."""
    resources = {"requests": {"cpu": amount, "memory": amount}, "limits": {"cpu": amount, "memory": amount}}
    spec = {"containers": [{"resources": resources}], "initContainers": [{"resources": resources}]}
    return POD | {"spec": spec | {"overhead": {"cpu": amount}}}


def whole(*items: object) -> bytes:
    return asking(NodeNames=None, Nodes={"metadata": {}, "items": items})


def node(name: object, **metadata: object) -> Json:
    return {"metadata": {"name": name, "uid": "u", **metadata}, "status": {"phase": "odd"}}


def padded(body: bytes, size: int) -> bytes:
    """The same body, filled up with spaces to `size` bytes."""
    return body[:-1] + b" " * (size - len(body)) + b"}"


def each(what: str, make: Callable[[Any], bytes], *odd: object) -> dict[str, bytes]:
    return {f"{what} {one!r}"[:40]: make(one) for one in odd}


DEEP = "[" * 100_000
HUGE = json.dumps(["n" * 250] * 4000)
UNZONED = "0001-01-01T00:00:00"
PASSES: dict[str, bytes] = {
    "no Pod": json.dumps({"NodeNames": ["a", "b"]}).encode(),
    "Pod without metadata": asking({"spec": POD["spec"]}),
    "Pod without uid": asking(POD | {"metadata": {"name": "task-1", "annotations": NOTES}}),
    "Pod without spec": asking({"metadata": POD["metadata"]}),
    "no text in the Pod": asking().replace(b"task-1", b"\xff\xfe"),
    "a key twice": asking().replace(b'{"Pod"', b'{"NodeNames": ["x"], "Pod"'),
    "unknown keys": asking(Extra={"x": [DEEP]}, nodeNames=5),
    "Nodes of another type": asking(Nodes=[5]),
    **each("Pod", asking, None, 5, "x", [], {}, [[]], {"metadata": 5}, {"spec": []}),
    **each("containers", lambda odd: asking(POD | {"spec": {"containers": odd}}), None, 5, {}, [], [5]),
    **each("resources", lambda odd: asking(written(resources=odd)), None, 5, [], {"requests": ["cpu"]}),
    **each("annotations", lambda odd: asking(noted(annotations=odd)), None, 5, [], "x", {HISTORY: None}),
    **each(
        "notes", lambda odd: asking(noted(annotations={HISTORY: odd, REAL: odd})),
        "", "x", "{}", "5", "null", '["a"', "[null]", DEEP, f'[{{"x":{DEEP}', HUGE,
    ),
    **each("created", lambda odd: asking(noted(creationTimestamp=odd)), None, 5, "x", UNZONED),
    **each(
        "quantity", lambda odd: asking(resourced(odd)),
        "1e3", "0.5", "-1", "1Ki1", "", "9" * 30 + "E", "1e-99", 1, 0.5, None, -1, [], True,
    ),
}  # fmt: skip
"""Requests in which nodes `a` and `b` can be read; only the Pod is faulty."""
READABLE: dict[str, tuple[bytes, list[str]]] = {
    **{what: (body, ["a", "b"]) for what, body in PASSES.items()},
    "names twice": (asking(NodeNames=["c", "a", "c", "b", "a"]), ["c", "a", "b"]),
    "numbers among names": (asking(NodeNames=["a", 5, "b", None, 1.5, True, ["x"], {}]), ["a", "b"]),
    "no name in the list": (asking(NodeNames=[]), []),
    "unknown nodes": (asking(NodeNames=["x", "", "a", "\u00fc\u0000"]), ["x", "", "a", "\u00fc\u0000"]),
    "no text in a name": (asking().replace(b'["a", "b"', b'["\xff\xfe", "a"'), ["a"]),
    "whole nodes": (whole(node("b"), node("a")), ["b", "a"]),
    "whole nodes, none": (whole(), []),
    "whole nodes, null": (asking(NodeNames=None, Nodes={"items": None}), []),
    "whole nodes, twice": (whole(node("a"), node("b"), node("a")), ["a", "b"]),
    "whole nodes, some broken": (whole(5, node("a"), None, {}, node(7), [], node(None), node("b")), ["a", "b"]),
    "whole nodes, odd": (whole(node("a", annotations={"x": 5}), node("b", creationTimestamp="x")), ["a", "b"]),
}
UNREADABLE: dict[str, bytes] = {
    "nothing": b"",
    "HTML": b"<html>",
    "no text": b"\0\xff\xfe",
    "UTF-16": asking().decode().encode("utf-16"),
    "cut": asking()[:-9],
    "cut in the Pod": asking()[:200],
    "more behind it": asking() + b"x",
    "half a character": asking().replace(b"task-1", b"\\ud800"),
    "deep": DEEP.encode(),
    "a deep Pod": asking().replace(b'"jobs"', DEEP.encode() + b"]" * len(DEEP)),
    **each("all of it", lambda odd: json.dumps(odd).encode(), None, 5, "x", [], [POD], {}, {"Pod": POD}),
    **each("NodeNames", lambda odd: asking(NodeNames=odd), None, 5, "a", {"a": 1}, [5, None], [[]]),
    **each("Nodes", lambda odd: asking(NodeNames=None, Nodes=odd), 5, [], "a", {"items": 5}, {"items": [5, {}]}),
}


PEAK_MIB = 180
"""Memory of the program in MiB.

Measured: 134 on a small cluster, 90 of them for the program itself. With 5,000 nodes and 50,000 Pods: 177.
the chart allows 384.
"""


def peak_mib(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024
