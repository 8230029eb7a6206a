"""The page of rights, made from manifests and from a catalog: the text of each, and none is left out."""

import pytest

from docs.rights_of_accounts import Json, accounts_part, rights_of
from docs.rights_of_roles import Catalog, Default, Function, Grant, Policy, Relation, Role, roles_part

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


TABLE = Relation("t", "table", "on", ["a", "b"])
EMPTY = Catalog(
    [], [TABLE, Relation("n", "sequence", "off", [])], [Function("f(text)", True, True, [])], [], [], [], []
)


def grant(kind: str, name: str, grantee: str, privilege: str, part: str = "", *, grantable: bool = False) -> Grant:
    return Grant(kind, name, part, grantee, privilege, grantable)


def role_lines(catalog: Catalog) -> list[str]:
    return roles_part(catalog).splitlines()


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (grant("relation", "t", "dispatch_submitter", "SELECT"), "| `a` | S |  |  |  |  |  |  |"),
        (grant("relation", "t", "dispatch_submitter", "SELECT", "b"), "| `b` | s |  |  |  |  |  |  |"),
        (grant("relation", "t", "PUBLIC", "UPDATE", "b", grantable=True), "| `b` |  |  |  |  |  |  | u+ |"),
        (grant("relation", "t", "dispatch_operator", "DELETE"), "| *all of it* |  | D |  |  |  |  |  |"),
        (grant("relation", "t", "dispatch_task", "REPAIR"), "| *all of it* |  |  |  REPAIR |  |  |  |  |"),
        (grant("relation", "t", "anna", "REFERENCES", "a"), "| `a` |  |  |  |  |  |  |  | f |"),
        (grant("relation", "n", "dispatch_task", "USAGE"), "| `n` | task USAGE |"),
        (grant("function", "f(text)", "dispatch_task", "EXECUTE"), "| `f(text)` | its owner, trigger | — | task |"),
        (grant("type", "kind", "PUBLIC", "USAGE"), "| Rights on types | kind: PUBLIC USAGE |"),
        (
            grant("database", "of this installation", "dispatch_task", "CREATE"),
            "| Rights on the database beyond those of a new one | of this installation: task CREATE |",
        ),
        (
            grant("schema", "dispatch", "anna", "CREATE"),
            "| Rights on schema `dispatch` of others than the roles above | dispatch: anna CREATE |",
        ),
    ],
)
def test_a_right_has_its_cell(given: Grant, line: str) -> None:
    assert line in role_lines(EMPTY._replace(grants=[given]))
    assert line not in role_lines(EMPTY)


def test_rights_of_a_cell_have_one_order() -> None:
    given = [grant("relation", "t", "dispatch_task", one) for one in ("UPDATE", "SELECT", "INSERT")]
    given.append(grant("relation", "t", "dispatch_task", "SELECT", "a"))
    assert "| `a` |  |  | SIUs |  |  |  |  |" in role_lines(EMPTY._replace(grants=given))


def test_a_role_shows_attributes_memberships_and_settings() -> None:
    roles = [
        Role("dispatch_task", ["LOGIN", "BYPASSRLS"], ["pg_monitor"], ["role=x"]),
        Role("dispatch_owner", [], [], []),
    ]
    found = role_lines(EMPTY._replace(roles=roles, grants=[grant("schema", "dispatch", "dispatch_task", "USAGE")]))
    assert "| `dispatch_task` | LOGIN, BYPASSRLS | `pg_monitor` | `role=x` | USAGE |" in found
    assert "| `dispatch_owner` | — | — | — | owner |" in found


def test_a_policy_shows_its_expressions() -> None:
    policy = Policy("t", "p", "SELECT", False, ["dispatch_task", "PUBLIC"], "(a || b) = 'x'", "")
    assert r"| `t` | `p` (restrictive) | SELECT | task, PUBLIC | `(a \|\| b) = 'x'` | — |" in role_lines(
        EMPTY._replace(policies=[policy])
    )


def test_a_function_shows_its_settings_and_whose_rights_it_has() -> None:
    function = Function("g()", False, False, ["search_path=pg_catalog"])
    assert "| `g()` | its caller | `search_path=pg_catalog` | — |" in role_lines(EMPTY._replace(functions=[function]))


def test_defaults_and_other_rights_are_shown() -> None:
    default = Default("dispatch_owner", "every schema", "tables", ["PUBLIC: SELECT"])
    found = role_lines(EMPTY._replace(defaults=[default], others=["dispatch_task: owns schema x"]))
    assert "| New tables of `dispatch_owner` in every schema give to others | PUBLIC: SELECT |" in found
    assert [line for line in found if line.endswith("| dispatch_task: owns schema x |")]
