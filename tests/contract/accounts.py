"""The rights of a ServiceAccount by the answers of the API server, and by `docs/rights.md`.

The server is asked for the complete list of rules that apply to the account, with names. Then it is asked for every
resource with every verb, as the authorizer is asked for a request.
"""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from docs.rights_of_accounts import ALL_OF_ROLE, CLUSTER, VERBS, Right, rights_of, rules
from tests.controlplane.api import Api, Json
from tests.controlplane.cluster import ControlPlane

SELF = {
    ("authorization.k8s.io", "selfsubjectaccessreviews", "", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "", "create"),
    ("authentication.k8s.io", "selfsubjectreviews", "", "create"),
}
"""Every account of a cluster may ask who it is and what it may do."""
SPECIAL = {
    ("", "users"): ["impersonate"],
    ("", "groups"): ["impersonate"],
    ("", "serviceaccounts"): ["impersonate"],
    ("authentication.k8s.io", "uids"): ["impersonate"],
    ("authentication.k8s.io", "userextras/scopes"): ["impersonate"],
    ("rbac.authorization.k8s.io", "roles"): ["escalate", "bind"],
    ("rbac.authorization.k8s.io", "clusterroles"): ["escalate", "bind"],
    ("certificates.k8s.io", "signers"): ["approve", "sign", "attest"],
    ("*", "*"): ["*"],
}
"""Verbs that only these resources have."""
AT_ONCE = 24
Allowed = tuple[str, str, str, str]
"""Group, resource, name (empty: every object) and verb."""


class Account(NamedTuple):
    """One ServiceAccount.

    * user: the account as the API server names it.
    * rights: the rights of the page, with the roles of the server expanded.
    """

    namespace: str
    user: Json
    api: Api
    rights: frozenset[Right]

    def allowed(self, namespace: str) -> set[Allowed]:
        """The rights that the page gives in a namespace; empty namespace: cluster-wide."""
        return {
            (one.group, one.resource, one.name, one.verb) for one in self.rights if one.where in (CLUSTER, namespace)
        }

    def places(self) -> set[str]:
        """Namespaces in which the account has any right, and its own."""
        return {self.namespace, *(one.where for one in self.rights)} - {CLUSTER}


async def account(plane: ControlPlane, subject: str, objects: Iterable[Json]) -> Account:
    namespace, name = subject.strip("`").split("/")
    api = Api(plane.url, plane.ca_file, await plane.service_account_token(namespace, name))
    review = await api.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    written = {right for right in rights_of(objects) if right.subject == subject}
    rights = {right for one in written for right in await expanded(plane, one)}
    return Account(namespace, review["status"]["userInfo"], api, frozenset(rights))


async def expanded(plane: ControlPlane, right: Right) -> set[Right]:
    """The rights that a role of the server gives, as the server has it; any other right is itself."""
    if right.verb != ALL_OF_ROLE:
        return {right}
    kind, name = right.name.split(" ")
    place = "clusterroles" if kind == "ClusterRole" else f"namespaces/{right.where}/roles"
    role = await plane.admin("GET", f"/apis/rbac.authorization.k8s.io/v1/{place}/{name}")
    return set(rules(right.subject, right.where, {key: role[key] for key in ("kind", "metadata", "rules")}))


async def reviewed(api: Api, namespace: str) -> Json:
    """The rules that apply to the account there, as the server tells the account itself."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    status: Json = (await api.request("POST", path, {"spec": {"namespace": namespace}}))["status"]
    assert not status["incomplete"]
    return status


async def rules_review(one: Account, namespace: str) -> set[Allowed]:
    """The rules for objects; `paths_review` has the others."""
    rows = (await reviewed(one.api, namespace))["resourceRules"]
    found = {
        each
        for row in rows
        for each in product(row["apiGroups"], row.get("resources", ()), row.get("resourceNames") or [""], row["verbs"])
    }
    return found - SELF


async def has_all(one: Account) -> bool:
    return all([one.allowed(place) <= await rules_review(one, place) for place in one.places()])


async def has_none(one: Account) -> bool:
    return not any([await rules_review(one, place) for place in one.places()])


async def paths_review(api: Api, namespace: str) -> set[tuple[str, str]]:
    rows = (await reviewed(api, namespace)).get("nonResourceRules") or ()
    return {each for row in rows for each in product(row["nonResourceURLs"], row["verbs"])}


async def judged(
    plane: ControlPlane, one: Account, namespace: str, resources: Iterable[tuple[str, str]]
) -> tuple[set[Allowed], set[Allowed]]:
    """Asks every question. Returns what the server allows, and what the page allows."""
    written = one.allowed(namespace)
    told = await rules_review(one, namespace or one.namespace)
    asked = list(questions(resources, {*told, *written, *one.allowed(one.namespace)}))
    allowed = await allowed_of(plane, one, namespace, asked)
    return allowed - SELF, {each for each in asked if any(covers(right, each) for right in written)}


async def discovered(plane: ControlPlane) -> set[tuple[str, str]]:
    """Group and resource, of every version that the server knows, with subresources."""
    groups = (await plane.admin("GET", "/apis"))["groups"]
    places = [("", "/api/v1")]
    places += [(group["name"], f"/apis/{one['groupVersion']}") for group in groups for one in group["versions"]]
    return {(group, one["name"]) for group, path in places for one in (await plane.admin("GET", path))["resources"]}


def questions(resources: Iterable[tuple[str, str]], known: Iterable[Allowed]) -> Iterator[Allowed]:
    """Every resource with every verb, also resources that are known but not installed; named objects by two names."""
    every = {(group, resource, "") for group, resource in resources}
    every |= {(group, resource, asked) for group, resource, name, _ in known for asked in (name, name and "another")}
    for group, resource, name in sorted(every):
        yield from ((group, resource, name, verb) for verb in VERBS)
    for (group, resource), verbs in SPECIAL.items():
        yield from ((group, resource, "", verb) for verb in verbs)


def covers(written: Allowed, asked: Allowed) -> bool:
    """A right to every object covers each name. A wildcard, as in the roles of kube-scheduler, covers each word."""
    group, resource, name, verb = written
    words = ((group, asked[0]), (resource, asked[1]), (verb, asked[3]))
    return name in ("", asked[2]) and all(word in (one, "*") for word, one in words)


async def allowed_of(plane: ControlPlane, one: Account, namespace: str, asked: Iterable[Allowed]) -> set[Allowed]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def answer(each: Allowed) -> Allowed | None:
        async with gate:
            return each if await is_allowed(plane, one.user, namespace, each) else None

    return {each for each in await asyncio.gather(*map(answer, asked)) if each}


async def is_allowed(plane: ControlPlane, user: Json, namespace: str, asked: Allowed) -> bool:
    group, whole, name, verb = asked
    resource, _, part = whole.partition("/")
    attributes = {"namespace": namespace, "group": group, "resource": resource, "subresource": part}
    spec = {
        "user": user["username"],
        "groups": user["groups"],
        "uid": user["uid"],
        "resourceAttributes": attributes | {"name": name, "verb": verb},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool((await plane.admin("POST", path, {"spec": spec}))["status"]["allowed"])
