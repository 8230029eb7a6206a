"""Rows and templates that make the trigger of INSERT run all of its statements."""

from datetime import UTC, datetime
from typing import Any

OFFERED = [
    {
        "name": "default",
        "row_may_set": ["env", "image", "cpu"],
        "bounds": {"cpu": "400m", "seconds": 9},
        "images": ["b/*"],
        "sets": ["A"],
        "note": "x",
    },
    {"name": "open", "row_may_set": None, "note": "kind is 'Pod'"},
]
SPEC = {"image": "a/b:1", "command": ["x"], "args": ["y"], "cpu": "500m", "memory": "1Gi"}
HOSTILE_ROWS: list[dict[str, Any]] = [
    {"env": {"A": "1", "B": "x" * 300}, "spec": SPEC},
    {"spec": {"private_machine": "m"}, "payload": {"a": [1]}, "run_at": datetime(2000, 1, 1, tzinfo=UTC)},
    {"queue": "defalut"}, {"queue": "bounded"}, {"queue": "closed"}, {"queue": "mine"}, {"priority": 1001},
    {"env": {"PYTHONPATH": "/x"}}, {"env": {"a b": "x" * 300}}, {"spec": {"cpu": "0"}}, {"spec": {"memory": "1m"}},
    {"spec": {"odd": "1"}}, {"template": "Odd"}, {"cache_key": ""}, {"dedupe_key": ""}, {"dedupe_key": "nightly"},
    {"timeout_seconds": 0}, {"max_failures": 0}, {"payload": "x" * 1_100_000}, {"timeout_seconds": 10},
    {"template": "opne"}, {"template": "open", "spec": SPEC}, {"env": {"A": "1"}}, {"env": {"B": "1", "PATH": "x"}},
    {"spec": {"cpu": "500m"}}, {"spec": {"image": "c/d"}}, {"labels": {"a": 1}}, {"batch": ""}, {"labels": {"a": "1"}},
]  # fmt: skip
