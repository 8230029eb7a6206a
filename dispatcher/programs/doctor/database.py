"""Reads the database and judges it. A database that is away is one finding."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

from dispatcher.doctor import database as judged
from dispatcher.doctor.database import Facts, Function, Limit, Migration, Schema, Server
from dispatcher.doctor.finding import Finding
from dispatcher.doctor.group_rights import group_of
from dispatcher.doctor.installation import Installation
from dispatcher.doctor.plans import INDEXES
from dispatcher.doctor.rights import Grant, Login, Member
from dispatcher.model.errors import DatabaseAway, DatabaseError, DatabaseNotPrimary
from dispatcher.pg.connect import Url
from dispatcher.pg.inspection import Inspection, Row, are_connections_used_up, inspect
from dispatcher.pg.migrate import read_migrations
from dispatcher.pg.queries import query


async def look(
    url: Url, installation: Callable[[], Awaitable[Installation]], now: Callable[[], datetime]
) -> tuple[list[Finding], float | None]:
    """The findings, and the seconds by which the server's clock is ahead. `installation`: how it was made."""
    try:
        found = await inspect(url(), frequent)
    except DatabaseError as fault:
        return [judged.judge_refusal(kind_of(fault), str(fault), await installation())], None
    ahead = (found.server["now"] - now()).total_seconds()
    group = group_of(found.login["groups"], (await installation()).program)
    return list(judged.judge_database(facts_of(found, group))), ahead


def frequent(login: Row) -> Iterable[str]:
    """The frequent queries of the program that has such a login."""
    return INDEXES[group_of(login["groups"])]


def kind_of(fault: DatabaseError) -> str:
    if are_connections_used_up(fault):
        return "ConnectionRoom"
    if isinstance(fault, DatabaseNotPrimary):
        return "DatabaseNotPrimary"
    return "DatabaseAway" if isinstance(fault, DatabaseAway) else "LoginRefused"


def facts_of(found: Inspection, group: str) -> Facts:
    """`group`: the role that the login is to have."""
    return Facts(
        server_of(found.server),
        login_of(found, group),
        schema_of(found),
        plans=found.plans,
        planned=group_of(found.login["groups"]),
        pages={row["name"]: row["pages"] for row in found.pages},
    )


def server_of(row: Row) -> Server:
    limits = [
        Limit("server", "max_connections", row["most_of_server"], row["used_of_server"]),
        Limit("database", row["database"], row["most_of_database"], row["used_of_database"]),
        Limit("login", row["login"], row["most_of_login"], row["used_of_login"]),
    ]
    return Server(row["database"], row["version"], row["search_path"], tuple(limits), row["queue_usage"])


def login_of(found: Inspection, group: str) -> Login:
    own = found.login
    return Login(
        name=found.server["login"],
        attributes=tuple(own["attributes"]),
        groups=tuple(Member(role, role in own["inherited"]) for role in own["groups"]),
        grants=tuple(
            Grant(row["kind"], row["name"], row["part"], row["grantee"], row["privilege"]) for row in found.grants
        ),
        elsewhere=tuple(row["what"] for row in found.elsewhere),
        group=group,
    )


def schema_of(found: Inspection) -> Schema:
    migrations = read_migrations()
    primary = [query(f"primary_key_of_{table}", "doctor") for table in ("tasks", "launches")]
    applied = found.applied
    return Schema(
        owner=found.owner,
        applied=None if applied is None else tuple(Migration(**row) for row in applied),
        known=tuple(Migration(one.version, one.name, one.checksum) for one in migrations),
        wanted_indexes=judged.wanted_indexes((one.text for one in migrations), primary),
        indexes={row["name"]: row["valid"] for row in found.indexes},
        functions=tuple(
            Function(row["signature"], row["is_definer"], tuple(row["settings"])) for row in found.functions
        ),
    )
