"""The calls of our programs to an API server, recorded from the audit log of a real one.

A call is a verb, a resource, the query's parameters (with values only for CHOICES), and a status code.
`tests/journey/test_recorded_calls.py` shows that our programs make no other call. `tests/contract/
test_calls_as_recorded.py` shows that the embedded cluster answers each call like the real API server.
"""

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from tests.controlplane.audit import AuditEvent

CHOICES = frozenset({"fieldValidation", "dryRun", "resourceVersionMatch", "watch", "allowWatchBookmarks"})
LIST = "labelSelector limit"
WATCH = "allowWatchBookmarks=true resourceVersion timeoutSeconds watch=1"


class Call(NamedTuple):
    verb: str
    resource: str
    query: str
    code: int


RECORDED = frozenset({
    Call("create", "selfsubjectaccessreviews", "", 201),
    Call("create", "jobs", "fieldValidation=Strict timeout", 201),
    Call("create", "jobs", "fieldValidation=Strict timeout", 409),
    Call("create", "jobs", "fieldValidation=Strict timeout", 422),
    Call("create", "jobs", "dryRun=All fieldValidation=Strict timeout", 201),
    Call("create", "jobs", "dryRun=All fieldValidation=Strict timeout", 422),
    Call("get", "jobs", "", 200),
    Call("get", "jobs", "", 404),
    Call("delete", "jobs", "timeout", 200),
    Call("delete", "jobs", "timeout", 404),
    Call("delete", "jobs", "timeout", 409),
    Call("list", "jobs", LIST, 200),
    Call("list", "jobs", f"continue {LIST}", 200),
    Call("list", "jobs", f"{LIST} resourceVersion resourceVersionMatch=Exact", 200),
    Call("list", "jobs", "labelSelector", 200),
    Call("watch", "jobs", f"allowWatchBookmarks=true labelSelector {WATCH.partition(' ')[2]}", 200),
    Call("delete", "pods", "timeout", 200),
    Call("list", "pods", LIST, 200),
    Call("list", "pods", f"continue {LIST}", 200),
    Call("list", "pods", f"{LIST} resourceVersion resourceVersionMatch=Exact", 200),
    Call("watch", "pods", f"allowWatchBookmarks=true labelSelector {WATCH.partition(' ')[2]}", 200),
    Call("list", "pods", "limit", 200),
    Call("list", "pods", "continue limit", 200),
    Call("list", "pods", "limit resourceVersion resourceVersionMatch=Exact", 200),
    Call("watch", "pods", WATCH, 200),
    Call("list", "priorityclasses", "limit", 200),
    Call("watch", "priorityclasses", WATCH, 200),
    Call("create", "events", "", 201),
    Call("create", "events", "", 409),
    Call("list", "resourcequotas", "limit", 200),
    Call("watch", "resourcequotas", WATCH, 200),
    Call("list", "nodes", "labelSelector limit", 200),
    Call("list", "nodes", "limit", 200),
    Call("watch", "nodes", WATCH, 200),
    Call("get", "leases", "", 200),
    Call("get", "leases", "", 404),
    Call("create", "leases", "timeout", 201),
    Call("update", "leases", "timeout", 200),
    Call("update", "leases", "timeout", 409),
    Call("create", "configmaps", "", 201),
    Call("create", "configmaps", "", 409),
    Call("get", "configmaps", "", 200),
    Call("get", "configmaps", "", 404),
    Call("update", "configmaps", "", 200),
    Call("update", "configmaps", "", 404),
    Call("list", "configmaps", "fieldSelector limit", 200),
    Call("list", "configmaps", "fieldSelector limit resourceVersion resourceVersionMatch=Exact", 200),
    Call("watch", "configmaps", f"allowWatchBookmarks=true fieldSelector {WATCH.partition(' ')[2]}", 200),
    # the demo
    Call("list", "pods", "labelSelector", 200),
    Call("list", "nodes", "", 200),
    Call("delete", "jobs", "", 200),
    Call("delete", "leases", "", 200),
    Call("delete", "leases", "", 404),
    Call("create", "secrets", "", 201),
    # the process kubelet
    Call("get", "nodes", "", 200),
    Call("get", "nodes", "", 404),
    Call("create", "nodes", "", 201),
    Call("update", "nodes/status", "", 200),
    Call("create", "leases", "", 201),
    Call("update", "leases", "", 200),
    Call("list", "pods", "fieldSelector limit", 200),
    Call("watch", "pods", f"allowWatchBookmarks=true fieldSelector {WATCH.partition(' ')[2]}", 200),
    Call("update", "pods/status", "", 200),
    Call("update", "pods/status", "", 404),
    Call("update", "pods/status", "", 409),
    Call("delete", "pods", "", 200),
    Call("delete", "pods", "", 404),
    Call("get", "secrets", "", 200),
    Call("get", "secrets", "", 404),
})  # fmt: skip


def calls(events: Iterable[AuditEvent]) -> set[Call]:
    """The calls of these requests."""
    return {Call(one.verb, resource_of(one), query_of(one.uri), one.code) for one in events}


def resource_of(event: AuditEvent) -> str:
    ref = event.object_ref
    return f"{ref.resource}/{ref.subresource}" if ref.subresource else ref.resource


def query_of(uri: str) -> str:
    """The parameters of the query, sorted. Empty ones are left out."""
    pairs = parse_qsl(urlsplit(uri).query)
    return " ".join(sorted(f"{name}={value}" if name in CHOICES else name for name, value in pairs))
