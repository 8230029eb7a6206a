"""`docs/rights.md` says what the manifests give, and the real API server allows every account exactly that.

The accounts, roles and bindings are applied under the names with which they are rendered. The roles of kube-scheduler
count as the server has them.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from itertools import product
from typing import NamedTuple

import pytest
import pytest_asyncio

from docs.make_rights import installations
from docs.rights_of_accounts import accounts_of, accounts_part
from tests.contract.accounts import (
    Account,
    account,
    discovered,
    has_all,
    has_none,
    judged,
    paths_review,
    rules_review,
)
from tests.controlplane.api import Api, Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import RBAC_KINDS, VARIANTS
from tests.rig.written import differences

EVERYTHING = pytest.mark.parametrize("site", ["everything"], indirect=True)
"""Tens of thousands of questions, so only for one variant. The others need only the server's list of rules."""
NEEDED = {
    ("", "secrets"),
    ("", "pods/exec"),
    ("", "pods/ephemeralcontainers"),
    ("", "nodes/proxy"),
    ("", "serviceaccounts/token"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
}
"""Some resources that discovery must list; otherwise the questions are too few."""


class Site(NamedTuple):
    plane: ControlPlane
    accounts: Mapping[str, Account]
    places: tuple[str, ...]


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=VARIANTS)
async def site(control_plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """The rights of an installation, in force; removed at the end."""
    objects = [one for one in installations()[request.param] if one["kind"] in RBAC_KINDS]
    found = {one["metadata"]["namespace"] for one in objects if "namespace" in one["metadata"]}
    other = await control_plane.create_namespace()
    paths: list[str] = []
    accounts: dict[str, Account] = {}
    try:
        for one in objects:
            paths += [await applied(control_plane, one)]
        for name in sorted(accounts_of(objects)):
            accounts[name] = await account(control_plane, name, objects)
            await control_plane.wait_for(partial(has_all, accounts[name]), f"the rights of {name} are in force", 30)
        yield Site(control_plane, accounts, (*sorted(found | {"kube-system"}), other, ""))
    finally:
        await removed(control_plane, paths, accounts.values())
        await control_plane.delete_namespace(other)


async def removed(plane: ControlPlane, paths: Iterable[str], accounts: Iterable[Account]) -> None:
    """Deletes rights before accounts: an account that is gone cannot be asked whether it still has rights."""
    for path in paths:
        if "/serviceaccounts/" not in path:
            await plane.admin("DELETE", path)
    for one in accounts:
        await plane.wait_for(partial(has_none, one), "the rights are gone", 30)
        await one.api.close()
    for path in paths:
        if "/serviceaccounts/" in path:
            await plane.admin("DELETE", path)


async def applied(plane: ControlPlane, one: Json) -> str:
    """Creates the namespace and the object under its own name. Returns its path."""
    namespace = one["metadata"].get("namespace", "")
    if namespace:
        await created(plane, "/api/v1/namespaces", {"metadata": {"name": namespace}})
    collection, _ = await plane._place(one, namespace)
    await plane.remove(f"{collection}/{one['metadata']['name']}")  # other tests leave cluster roles of the same names
    await plane.admin("POST", collection, one)
    return f"{collection}/{one['metadata']['name']}"


async def created(plane: ControlPlane, collection: str, one: Json) -> None:
    try:
        await plane.admin("POST", collection, one)
    except KubeFault as fault:
        if fault.status != 409:
            raise


def test_rights_page_says_what_the_manifests_give() -> None:
    found = differences(accounts_part(installations()))
    assert not found, found


@pytest.mark.slow
async def test_rules_of_every_account_are_exactly_those_of_the_page(site: Site) -> None:
    for (name, one), namespace in product(site.accounts.items(), site.places):
        if namespace:
            assert await rules_review(one, namespace) == one.allowed(namespace), f"{name} in {namespace}"


async def test_every_account_may_open_only_the_paths_that_all_accounts_may(site: Site) -> None:
    other = site.places[-2]
    nobody = Api(site.plane.url, site.plane.ca_file, await site.plane.service_account_token(other, "default"))
    try:
        least = await paths_review(nobody, other)
    finally:
        await nobody.close()
    for one in site.accounts.values():
        assert await paths_review(one.api, other) == least


@EVERYTHING
@pytest.mark.parametrize(
    "rule",
    [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["another"], "verbs": ["*"]},
        {"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["patch"]},
    ],
    ids=str,
)
async def test_right_that_the_page_lacks_is_found(site: Site, rule: Json) -> None:
    """The right is given in a namespace where the installation has none."""
    one = site.accounts["`dispatcher/dispatcher`"]
    other = site.places[-2]
    group = "rbac.authorization.k8s.io"
    path = f"/apis/{group}/v1/namespaces/{other}"
    subject = {"kind": "ServiceAccount", "name": "dispatcher", "namespace": one.namespace}
    role = {"apiGroup": group, "kind": "Role", "name": "more"}
    await site.plane.admin("POST", f"{path}/roles", {"metadata": {"name": "more"}, "rules": [rule]})
    bound = {"metadata": {"name": "more"}, "roleRef": role, "subjects": [subject]}
    await site.plane.admin("POST", f"{path}/rolebindings", bound)

    async def has_only_what_is_written() -> bool:
        return await rules_review(one, other) == one.allowed(other)

    async def has_more() -> bool:
        return not await has_only_what_is_written()

    try:
        await site.plane.wait_for(has_more, "the rule is in force")
        allowed, written = await judged(site.plane, one, other, await discovered(site.plane))
        assert allowed > written
    finally:
        await site.plane.admin("DELETE", f"{path}/rolebindings/more")
        await site.plane.admin("DELETE", f"{path}/roles/more")
        await site.plane.wait_for(has_only_what_is_written, "the rule is gone")
