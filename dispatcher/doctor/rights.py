"""Judges the rights of a program's login: exactly those of its group role."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from dispatcher.doctor.finding import Finding, fault, good, ident, or_good, signature
from dispatcher.doctor.group_rights import GROUPS, READER

PUBLIC: Final = "PUBLIC"
SHOWN: Final = 8
"""Most columns that a message names."""


class Member(Struct, frozen=True):
    """A role that the login is a member of. `inherits`: whether the login has its rights without SET ROLE."""

    role: str
    inherits: bool


class Grant(Struct, frozen=True):
    """One privilege on an object of the schema. `part`: the column; empty: the whole object."""

    kind: str
    name: str
    part: str
    grantee: str
    privilege: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.kind, self.name, self.part, self.privilege


class Login(Struct, frozen=True):
    """The login and its rights.

    attributes: attributes of an administrator.
    groups: the roles that it is a member of, also through others.
    grants: all privileges in schema dispatch, of every role.
    elsewhere: rights of the login itself on objects of other schemas, and objects that it owns.
    group: the role that it is to be a member of.
    """

    name: str
    attributes: tuple[str, ...] = ()
    groups: tuple[Member, ...] = ()
    grants: tuple[Grant, ...] = ()
    elsewhere: tuple[str, ...] = ()
    group: str = READER


def judge_login(login: Login, database: str) -> Iterator[Finding]:
    """A superuser has every right, so the other checks are left out for it."""
    if login.attributes:
        yield fault(
            "LoginAttributes", f"login {login.name}", f"it has {', '.join(login.attributes)}",
            database=database, login=ident(login.name), attributes=" ".join(f"NO{one}" for one in login.attributes),
        )  # fmt: skip
        return
    yield good("LoginAttributes", f"login {login.name}")
    groups = tuple(judge_groups(login, database))
    yield from or_good(groups, "LoginGroups", f"login {login.name}, of {login.group}")
    if not groups:
        yield from or_good(missing(login, database), "MissingRight", f"login {login.name}")
    yield from or_good(extra(login, database), "ExtraRight", f"login {login.name}")
    yield from or_good(elsewhere(login, database), "RightElsewhere", f"login {login.name}")


def judge_groups(login: Login, database: str) -> Iterator[Finding]:
    group, where = login.group, f"login {login.name}"
    names = {"database": database, "login": ident(login.name), "group": group}
    own = next((one for one in login.groups if one.role == group), None)
    if own is None:
        statement = f"GRANT {group} TO {names['login']}"
        yield fault("LoginGroups", where, f"it is not a member of {group}", database=database, statement=statement)
    elif not own.inherits:
        yield fault("LoginInherits", where, f"it is a member of {group}, but does not inherit its rights", **names)
    others = [one.role for one in login.groups if one.role != group]
    if others:
        statement = f"REVOKE {', '.join(map(ident, others))} FROM {names['login']}"
        said = f"it is also a member of {', '.join(others)}"
        yield fault("LoginGroups", where, said, database=database, statement=statement)


def held(login: Login) -> list[Grant]:
    """The privileges of the login itself, of its group and of PUBLIC. Other groups are a fault by themselves."""
    holders = {login.name, PUBLIC, login.group}
    return [grant for grant in login.grants if grant.grantee in holders]


def missing(login: Login, database: str) -> Iterator[Finding]:
    has = {grant.key for grant in held(login)}
    whole = {(kind, name, privilege) for kind, name, part, privilege in has if not part}
    lacks: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for kind, name, part, privilege in sorted(GROUPS[login.group].rights - has):
        if (kind, name, privilege) not in whole:
            lacks[kind, name, privilege].append(part)
    for (kind, name, privilege), parts in lacks.items():
        yield fault(
            "MissingRight", object_of(kind, name), f"{login.group} lacks {right_of(privilege, parts, SHOWN)}",
            database=database, group=login.group, right=right_of(privilege, parts), object=sql_of(kind, name),
        )  # fmt: skip


def extra(login: Login, database: str) -> Iterator[Finding]:
    found: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    wanted = GROUPS[login.group].rights
    for grant in held(login):
        if grant.key not in wanted and is_judged(grant):
            found[grant.kind, grant.name, grant.grantee, grant.privilege].append(grant.part)
    for (kind, name, holder, privilege), parts in sorted(found.items()):
        where = database if kind == "database" else name
        yield fault(
            "ExtraRight", object_of(kind, where), f"{holder} has {right_of(privilege, parts, SHOWN)}",
            database=database, right=right_of(privilege, parts), object=sql_of(kind, where), holder=sql_role(holder),
        )  # fmt: skip


def elsewhere(login: Login, database: str) -> Iterator[Finding]:
    for what in login.elsewhere:
        yield fault("RightElsewhere", f"login {login.name}", f"it {what}", database=database, login=ident(login.name))


def is_judged(grant: Grant) -> bool:
    """A right to connect, or to use a type, gives nothing away."""
    return grant.kind in {"relation", "schema", "function"} or (grant.kind, grant.privilege) == ("database", "CREATE")


def right_of(privilege: str, parts: Iterable[str], most: int | None = None) -> str:
    names = sorted(part for part in parts if part)
    more = f" and {len(names) - most} more" if most is not None and len(names) > most else ""
    return f"{privilege} ({', '.join(map(ident, names[:most]))}{more})" if names else privilege


def object_of(kind: str, name: str) -> str:
    """The object in words."""
    return {"relation": f"table dispatch.{name}", "function": f"function dispatch.{name}"}.get(kind, f"{kind} {name}")


def sql_of(kind: str, name: str) -> str:
    """The object as GRANT and REVOKE name it."""
    words: Mapping[str, str] = {
        "relation": f"dispatch.{ident(name)}",
        "function": f"FUNCTION dispatch.{signature(name)}",
        "schema": "SCHEMA dispatch",
    }
    return words.get(kind, f"DATABASE {ident(name)}")


def sql_role(name: str) -> str:
    return name if name == PUBLIC else ident(name)
