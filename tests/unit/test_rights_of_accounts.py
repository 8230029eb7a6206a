"""The page of rights, made from manifests: the accounts, the place and the text of each rule."""

import pytest

from docs.rights_of_accounts import Json, accounts_part, rights_of

ACCOUNT = {"kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "n"}}
SUBJECT = {"kind": "ServiceAccount", "name": "a", "namespace": "n"}
PODS = {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["patch", "get"]}
LEASE = {"apiGroups": ["x.example"], "resources": ["leases/status"], "resourceNames": ["one"], "verbs": ["update"]}


def role(kind: str, *rules: Json, namespace: str = "", **labels: str) -> Json:
    return {"kind": kind, "metadata": {"name": "r", "namespace": namespace, "labels": labels}, "rules": rules}


def binding(kind: str, role_kind: str, *subjects: Json, name: str = "r") -> Json:
    metadata = {"name": "b", "namespace": "n"} if kind == "RoleBinding" else {"name": "b"}
    return {"kind": kind, "metadata": metadata, "roleRef": {"kind": role_kind, "name": name}, "subjects": subjects}


def lines(*objects: Json) -> list[str]:
    return accounts_part({"base": objects}).splitlines()


def test_a_role_reaches_its_namespace() -> None:
    found = lines(ACCOUNT, role("Role", PODS, LEASE, namespace="n"), binding("RoleBinding", "Role", SUBJECT))
    assert "| `n/a` | n | `pods` |  | get patch | base |" in found
    assert "| `n/a` | n | `pods/status` |  | get patch | base |" in found
    assert "| `n/a` | n | `leases.x.example/status` | `one` | update | base |" in found


@pytest.mark.parametrize(("kind", "where"), [("RoleBinding", "n"), ("ClusterRoleBinding", "*cluster*")])
def test_a_cluster_role_reaches_as_far_as_its_binding(kind: str, where: str) -> None:
    found = lines(role("ClusterRole", PODS), binding(kind, "ClusterRole", SUBJECT))
    assert f"| `n/a` | {where} | `pods` |  | get patch | base |" in found


def test_a_binding_does_not_use_a_role_of_another_namespace() -> None:
    found = lines(role("Role", PODS, namespace="m"), binding("RoleBinding", "Role", SUBJECT))
    assert "| `n/a` | n | `Role r` |  | everything that it allows | base |" in found
    assert "| whoever has `r` | m | `pods` |  | get patch | base |" in found


def test_a_role_that_only_the_cluster_has_is_named_without_its_rules() -> None:
    found = lines(binding("ClusterRoleBinding", "ClusterRole", SUBJECT, name="admin"))
    assert "| `n/a` | *cluster* | `ClusterRole admin` |  | everything that it allows | base |" in found


@pytest.mark.parametrize("kind", ["Group", "User"])
def test_groups_and_users_have_lines_of_their_own(kind: str) -> None:
    found = lines(
        role("ClusterRole", PODS), binding("ClusterRoleBinding", "ClusterRole", {"kind": kind, "name": "all"})
    )
    assert f"| {kind} `all` | *cluster* | `pods` |  | get patch | base |" in found


def test_an_aggregated_role_is_shown_for_its_target_even_if_it_is_bound() -> None:
    labels = {"rbac.authorization.k8s.io/aggregate-to-edit": "true", "rbac.authorization.k8s.io/aggregate-to-view": ""}
    given = role("ClusterRole", PODS, **labels)
    for objects in ([given], [given, binding("ClusterRoleBinding", "ClusterRole", SUBJECT)]):
        whose = {right.subject for right in rights_of(objects)}
        assert whose - {"`n/a`"} == {"whoever has `edit`"}


def test_paths_and_wildcards_are_written_as_they_are() -> None:
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    rules.append({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})
    found = lines(role("ClusterRole", *rules), binding("ClusterRoleBinding", "ClusterRole", SUBJECT))
    assert "| `n/a` | *cluster* | `/metrics` |  | get | base |" in found
    assert "| `n/a` | *cluster* | `*.*` |  | * | base |" in found


def test_an_account_without_rights_is_shown() -> None:
    assert "| `n/a` | — | — |  | — | base |" in lines(ACCOUNT)


def test_installations_with_equal_rights_share_a_line() -> None:
    objects = [role("Role", PODS, namespace="n"), binding("RoleBinding", "Role", SUBJECT)]
    less = [role("Role", {**PODS, "verbs": ["get"]}, namespace="n"), objects[1]]
    found = accounts_part({"two": objects, "one": objects, "three": less}).splitlines()
    assert "| `n/a` | n | `pods` |  | get patch | one, two |" in found
    assert "| `n/a` | n | `pods` |  | get | three |" in found


def test_a_role_whose_rules_come_from_others_is_refused() -> None:
    given = {**role("ClusterRole"), "aggregationRule": {}}
    with pytest.raises(ValueError, match="name the rules"):
        rights_of([given])
