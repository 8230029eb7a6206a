"""Reads objects of the API server for the doctor. A refused read gives an `Unread` with the reason."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from dispatcher.doctor.cluster import Unread
from dispatcher.kube.client import KubeClient, Reply
from dispatcher.kube.wire import UNREADABLE
from dispatcher.model.errors import ClusterAway, ClusterRefused

Json = dict[str, Any]
ANSWER_SECONDS: Final = 10
PAGE: Final = 500
FORBIDDEN: Final = 403


def in_namespace(api: str, namespace: str, *names: str) -> str:
    """Path of a collection or an object: `in_namespace("/api/v1", "jobs", "secrets", "one")`."""
    return "/".join([api, "namespaces", *(quote(name, safe="") for name in (namespace, *names))])


class Reading:
    """Questions to one API server. All raise ClusterAway without an answer."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client

    async def get(self, path: str) -> Json | Unread:
        """One object."""
        return read(path, await self.client.request("GET", path, seconds=ANSWER_SECONDS))

    async def each(self, path: str, **which: str) -> list[Json] | Unread:
        """All objects of a collection."""
        found: list[Json] = []
        asked: Mapping[str, str] = {**which, "limit": str(PAGE)}
        while True:
            page = read(path, await self.client.request("GET", path, params=asked, seconds=ANSWER_SECONDS))
            if isinstance(page, Unread):
                return page
            found += page.get("items") or []
            following = page.get("metadata", {}).get("continue")
            if not following:
                return found
            asked = {**which, "limit": str(PAGE), "continue": following}

    async def review(self, kind: str, spec: Json) -> bool | Unread:
        """Whether an access review of this kind is answered with yes. A review is stored nowhere."""
        found = await self._ask("authorization.k8s.io/v1", kind, {"spec": spec})
        return found if isinstance(found, Unread) else bool(found.get("status", {}).get("allowed"))

    async def own_name(self) -> str | Unread:
        """The user name of the account that asks."""
        found = await self._ask("authentication.k8s.io/v1", "SelfSubjectReview", {})
        return found if isinstance(found, Unread) else str(found.get("status", {}).get("userInfo", {}).get("username"))

    async def _ask(self, api: str, kind: str, fields: Json) -> Json | Unread:
        path = f"/apis/{api}/{kind.lower()}s"
        sent = msgspec.json.encode({"apiVersion": api, "kind": kind, **fields})
        return read(path, await self.client.request("POST", path, sent, seconds=ANSWER_SECONDS), "POST")


def read(path: str, reply: Reply, verb: str = "GET") -> Json | Unread:
    """The object of an answer. Raises ClusterAway if a proxy answered instead."""
    try:
        found = msgspec.json.decode(reply.expect(f"{verb} {path}"))
    except ClusterRefused as refused:
        if refused.status == FORBIDDEN:
            return Unread(f"this account may not {verb} {path}")
        return Unread(str(refused), is_absent=refused.status == 404 and refused.reason == "NotFound")
    except UNREADABLE as fault:
        raise ClusterAway(f"read {path}: not an answer of the API server: {fault}") from fault
    if not isinstance(found, dict):
        raise ClusterAway(f"read {path}: not an answer of the API server")
    return found
