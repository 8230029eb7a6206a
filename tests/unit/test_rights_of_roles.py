"""The page of rights, made from a catalog: the text of each right, and that no right is left out."""

import pytest

from docs.rights_of_roles import Catalog, Default, Function, Grant, Policy, Relation, Role, roles_part

TABLE = Relation("t", "table", "on", ["a", "b"])
EMPTY = Catalog(
    [], [TABLE, Relation("n", "sequence", "off", [])], [Function("f(text)", True, True, [])], [], [], [], []
)


def grant(kind: str, name: str, grantee: str, privilege: str, part: str = "", *, grantable: bool = False) -> Grant:
    return Grant(kind, name, part, grantee, privilege, grantable)


def lines(catalog: Catalog) -> list[str]:
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
    assert line in lines(EMPTY._replace(grants=[given]))
    assert line not in lines(EMPTY)


def test_rights_of_a_cell_have_one_order() -> None:
    given = [grant("relation", "t", "dispatch_task", one) for one in ("UPDATE", "SELECT", "INSERT")]
    given.append(grant("relation", "t", "dispatch_task", "SELECT", "a"))
    assert "| `a` |  |  | SIUs |  |  |  |  |" in lines(EMPTY._replace(grants=given))


def test_a_role_shows_attributes_memberships_and_settings() -> None:
    roles = [
        Role("dispatch_task", ["LOGIN", "BYPASSRLS"], ["pg_monitor"], ["role=x"]),
        Role("dispatch_owner", [], [], []),
    ]
    found = lines(EMPTY._replace(roles=roles, grants=[grant("schema", "dispatch", "dispatch_task", "USAGE")]))
    assert "| `dispatch_task` | LOGIN, BYPASSRLS | `pg_monitor` | `role=x` | USAGE |" in found
    assert "| `dispatch_owner` | — | — | — | owner |" in found


def test_a_policy_shows_its_expressions() -> None:
    policy = Policy("t", "p", "SELECT", False, ["dispatch_task", "PUBLIC"], "(a || b) = 'x'", "")
    assert r"| `t` | `p` (restrictive) | SELECT | task, PUBLIC | `(a \|\| b) = 'x'` | — |" in lines(
        EMPTY._replace(policies=[policy])
    )


def test_a_function_shows_its_settings_and_whose_rights_it_has() -> None:
    function = Function("g()", False, False, ["search_path=pg_catalog"])
    assert "| `g()` | its caller | `search_path=pg_catalog` | — |" in lines(EMPTY._replace(functions=[function]))


def test_defaults_and_other_rights_are_shown() -> None:
    default = Default("dispatch_owner", "every schema", "tables", ["PUBLIC: SELECT"])
    found = lines(EMPTY._replace(defaults=[default], others=["dispatch_task: owns schema x"]))
    assert "| New tables of `dispatch_owner` in every schema give to others | PUBLIC: SELECT |" in found
    assert [line for line in found if line.endswith("| dispatch_task: owns schema x |")]
