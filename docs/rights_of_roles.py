"""The first part of `docs/rights.md`: the rights of the group roles in the database. `make_rights` reads the catalog.

A right without a letter in this file has its full name on the page, so no right is left out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from string import ascii_uppercase
from typing import Final, NamedTuple

PREFIX: Final = "dispatch_"
OWNER: Final = "dispatch_owner"
PUBLIC: Final = "PUBLIC"
ROLES: Final = tuple(
    PREFIX + name for name in ("submitter", "operator", "task", "reader", "janitor", "observer")
)  # of all but the owner; people first
LETTERS: Final = {
    "SELECT": "s",
    "INSERT": "i",
    "UPDATE": "u",
    "REFERENCES": "f",
    "DELETE": "D",
    "TRUNCATE": "T",
    "TRIGGER": "G",
    "MAINTAIN": "M",
}
BY_COLUMN: Final = ("SELECT", "INSERT", "UPDATE", "REFERENCES")
"""Rights that a column can have. On a table they hold for every column, also for later columns."""
NOTHING: Final = "—"
HEAD: Final = """\
## Database

Schema `dispatch` has the views and functions for everybody, `dispatch_private` has the tables. A right in a schema is
of use to roles with USAGE of the schema. Others reach what is granted to them in `dispatch_private` only through a view
or function of `dispatch`, which names it for them.

`dispatch_owner` owns everything and is left out below. Column heads name roles without `dispatch_`. The letters for
columns are S SELECT, I INSERT, U UPDATE, F REFERENCES. A capital letter is a right on the whole table and on columns
that come later. A small letter is a right on that column alone. The letters for the whole table are D DELETE, T
TRUNCATE, G TRIGGER, M MAINTAIN. `+` means that the role may pass the right on.
"""


class Role(NamedTuple):
    name: str
    attributes: Sequence[str]
    member_of: Sequence[str]
    settings: Sequence[str]


class Relation(NamedTuple):
    """A table, a view or a sequence. `name`: with its schema. `row_security` is on, off or forced."""

    name: str
    kind: str
    row_security: str
    columns: Sequence[str]


class Function(NamedTuple):
    signature: str
    security_definer: bool
    is_trigger: bool
    settings: Sequence[str]


class Policy(NamedTuple):
    """A policy of row security; `visible` is its USING, `writable` its WITH CHECK."""

    relation: str
    name: str
    command: str
    permissive: bool
    roles: Sequence[str]
    visible: str
    writable: str


class Grant(NamedTuple):
    """One privilege of one grantee on an object; `part` is a column, or empty for the whole object."""

    kind: str
    name: str
    part: str
    grantee: str
    privilege: str
    grantable: bool


class Default(NamedTuple):
    """The rights that new objects of an owner give to other roles."""

    owner: str
    place: str
    objects: str
    grants: Sequence[str]


class Catalog(NamedTuple):
    """The rights in the catalog of a migrated database."""

    roles: Sequence[Role]
    relations: Sequence[Relation]
    functions: Sequence[Function]
    policies: Sequence[Policy]
    grants: Sequence[Grant]
    defaults: Sequence[Default]
    others: Sequence[str]


def roles_part(catalog: Catalog) -> str:
    """The part of the page as Markdown."""
    holders = holders_of(catalog.grants)
    sections = [HEAD, role_section(catalog)]
    sections += [relation_section(one, catalog.grants, holders) for one in catalog.relations if one.kind != "sequence"]
    sections += [sequence_section(catalog), function_section(catalog), policy_section(catalog.policies)]
    return "\n".join([*sections, rest_section(catalog)])


def holders_of(grants: Iterable[Grant]) -> tuple[str, ...]:
    """The roles of the project and PUBLIC, then all other roles with a right."""
    strangers = {grant.grantee for grant in grants} - {*ROLES, PUBLIC}
    return (*ROLES, PUBLIC, *sorted(strangers))


def role_section(catalog: Catalog) -> str:
    schemas = schemas_of(catalog.grants)
    rows = [
        (
            code([role.name]),
            listed(role.attributes),
            code(role.member_of),
            code(role.settings),
            *(rights_on(schema, role, catalog.grants) for schema in schemas),
        )
        for role in catalog.roles
    ]
    heads = ("role", "attributes", "member of", "settings", *(f"schema `{schema}`" for schema in schemas))
    return section("Roles", heads, rows)


def schemas_of(grants: Iterable[Grant]) -> list[str]:
    """The schemas on which somebody has a right."""
    return sorted({grant.name for grant in grants if grant.kind == "schema"})


def rights_on(schema: str, role: Role, grants: Iterable[Grant]) -> str:
    wanted = ("schema", schema, role.name)
    found = [grant.privilege for grant in grants if (grant.kind, grant.name, grant.grantee) == wanted]
    return "owner" if role.name == OWNER else listed(sorted(found))


def relation_section(relation: Relation, grants: Sequence[Grant], holders: Sequence[str]) -> str:
    own = [grant for grant in grants if (grant.kind, grant.name) == ("relation", relation.name)]
    rows = [("*all of it*", *(whole_letters(own, holder) for holder in holders))]
    rows += [
        (f"`{column}`", *(column_letters(own, column, holder) for holder in holders)) for column in relation.columns
    ]
    title = f"{relation.kind.capitalize()} `{relation.name}`, row security {relation.row_security}"
    return section(title, ("column", *map(short, holders)), rows)


def whole_letters(own: Sequence[Grant], holder: str) -> str:
    """Rights on the whole table that a column cannot have."""
    return letters(one for one in own if one.grantee == holder and not one.part and one.privilege not in BY_COLUMN)


def column_letters(own: Sequence[Grant], column: str, holder: str) -> str:
    """Capital letters are granted on the table, so on every column; small letters on this column alone."""
    theirs = [one for one in own if one.grantee == holder and one.privilege in BY_COLUMN]
    return letters(one for one in theirs if not one.part).upper() + letters(one for one in theirs if one.part == column)


def letters(grants: Iterable[Grant]) -> str:
    """One letter per right; `+` means that the right may be passed on."""
    return "".join(LETTERS.get(one.privilege, f" {one.privilege}") + "+" * one.grantable for one in ordered(grants))


def ordered(grants: Iterable[Grant]) -> list[Grant]:
    known = list(LETTERS)
    return sorted(grants, key=lambda one: (known.index(one.privilege) if one.privilege in known else len(known), one))


def sequence_section(catalog: Catalog) -> str:
    names = [relation.name for relation in catalog.relations if relation.kind == "sequence"]
    rows = [(f"`{name}`", listed(holdings(catalog.grants, "relation", name))) for name in names]
    return section("Sequences", ("sequence", "who may do what"), rows)


def function_section(catalog: Catalog) -> str:
    sets = shared_settings(catalog.functions)
    rows = [
        (
            f"`{one.signature}`",
            whose_rights(one),
            f"set {sets[tuple(one.settings)]}" if tuple(one.settings) in sets else code(one.settings),
            listed(callers(catalog.grants, one.signature)),
        )
        for one in catalog.functions
    ]
    made = section("Functions", ("function", "runs with the rights of", "settings", "may be called by"), rows)
    named = section("Settings of functions", ("set", "settings"), [(name, code(one)) for one, name in sets.items()])
    return f"{made}\n{named}"


def shared_settings(functions: Iterable[Function]) -> dict[tuple[str, ...], str]:
    """A letter for each set of several settings that several functions have."""
    found = Counter(tuple(one.settings) for one in functions if len(one.settings) > 1)
    return dict(zip(sorted(one for one, number in found.items() if number > 1), ascii_uppercase, strict=False))


def callers(grants: Iterable[Grant], signature: str) -> list[str]:
    found = [one for one in grants if (one.kind, one.name) == ("function", signature)]
    return [short(one.grantee) + "+" * one.grantable for one in found]


def whose_rights(function: Function) -> str:
    who = "its owner" if function.security_definer else "its caller"
    return f"{who}, trigger" if function.is_trigger else who


def policy_section(policies: Sequence[Policy]) -> str:
    rows = [
        (
            f"`{one.relation}`",
            f"`{one.name}`" + ("" if one.permissive else " (restrictive)"),
            one.command,
            listed([short(role) for role in one.roles]),
            code([one.visible] if one.visible else []),
            code([one.writable] if one.writable else []),
        )
        for one in policies
    ]
    return section("Policies", ("table", "policy", "for", "roles", "rows it shows", "rows it lets in"), rows)


def rest_section(catalog: Catalog) -> str:
    """Kinds of rights that most installations do not have."""
    strangers = [one for one in catalog.grants if one.grantee not in ROLES]
    named: Mapping[str, Sequence[str]] = {
        "Rights on types": told(catalog.grants, "type"),
        "Rights on the database beyond those of a new one": told(catalog.grants, "database"),
        **{
            f"Rights on schema `{schema}` of others than the roles above": told(
                [one for one in strangers if one.name == schema], "schema"
            )
            for schema in schemas_of(catalog.grants)
        },
        "Rights of these roles outside of both schemas, and objects in them that are not the owner's": catalog.others,
    }
    rows = [(what, listed(found)) for what, found in named.items()]
    rows += [
        (f"New {one.objects} of `{one.owner}` in {one.place} give to others", listed(one.grants))
        for one in catalog.defaults
    ]
    return section("Everything else", ("what", "which"), rows)


def told(grants: Iterable[Grant], kind: str) -> list[str]:
    """One line for each right on a kind of object."""
    return [f"{one.name}: {in_words(one)}" for one in grants if one.kind == kind]


def holdings(grants: Iterable[Grant], kind: str, name: str) -> list[str]:
    return [in_words(one) for one in grants if (one.kind, one.name) == (kind, name)]


def in_words(grant: Grant) -> str:
    return f"{short(grant.grantee)} {grant.privilege}{'+' * grant.grantable}"


def section(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return f"### {title}\n\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def short(role: str) -> str:
    return role.removeprefix(PREFIX)


def listed(words: Sequence[str]) -> str:
    return ", ".join(words) or NOTHING


def code(words: Sequence[str]) -> str:
    """Words as code. A bar is escaped, because it would end the cell of the table."""
    return listed(["`" + word.replace("|", r"\|").replace("\n", " ") + "`" for word in words])
