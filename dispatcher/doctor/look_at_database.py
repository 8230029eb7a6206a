"""Reads the database and judges it. A database that is away is one finding."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from functools import cache

import msgspec

from dispatcher.doctor.database import (
    DatabaseFacts,
    GroupLogin,
    HeldSnapshot,
    Limit,
    MigrationState,
    MissingRole,
    PreparedTransaction,
    Schema,
    Server,
    Upkeep,
    judge_database,
    judge_refusal,
)
from dispatcher.doctor.finding import Finding, Installation
from dispatcher.doctor.schema import (
    INDEXES,
    PUBLIC,
    ForeignRight,
    Grant,
    LoginRights,
    Membership,
    Objects,
    group_of,
    rights_of,
)
from dispatcher.model.errors import DatabaseAway, DatabaseError, DatabaseNotPrimary
from dispatcher.pg.connect import Url
from dispatcher.pg.migrate import Inspection, Row, are_connections_used_up, inspect, read_functions, read_migrations
from dispatcher.pg.queries import read_sql


async def look_at_database(
    url: Url, installation: Callable[[], Awaitable[Installation]], now: Callable[[], datetime]
) -> tuple[list[Finding], float | None]:
    """The findings, and the seconds by which the server's clock is ahead. `installation`: reads how it was made."""
    try:
        found = await inspect(url(), frequent)
    except DatabaseError as fault:
        return [judge_refusal(kind_of(fault), str(fault), await installation())], None
    ahead = (found.server["now"] - now()).total_seconds()
    group = group_of(found.login["groups"], (await installation()).program)
    return list(judge_database(facts_of(found, group))), ahead


def frequent(login: Row) -> Iterable[str]:
    """The frequent queries of the program that has such a login."""
    return INDEXES[group_of(login["groups"])]


def kind_of(fault: DatabaseError) -> str:
    if are_connections_used_up(fault):
        return "ConnectionRoom"
    if isinstance(fault, DatabaseNotPrimary):
        return "DatabaseNotPrimary"
    return "DatabaseAway" if isinstance(fault, DatabaseAway) else "LoginRefused"


def facts_of(found: Inspection, group: str) -> DatabaseFacts:
    """The facts. `group`: the role that the login is to have."""
    return DatabaseFacts(
        server_of(found.server),
        login_of(found, group),
        schema_of(found),
        upkeep_of(found),
        plans=found.plans,
        planned=group_of(found.login["groups"]),
        pages={row["name"]: row["pages"] for row in found.pages},
    )


def upkeep_of(found: Inspection) -> Upkeep:
    (ids,) = found.ids or ({"last": None, "largest": None},)
    return Upkeep(
        now=found.server["now"],
        autovacuum=found.server["autovacuum"],
        without_triggers=tuple(found.server["without_triggers"]),
        prepared=tuple(PreparedTransaction(**row) for row in found.prepared),
        snapshots=tuple(
            HeldSnapshot(row["pid"], row["login"], row["transactions"], row["next_step"], row["dead"])
            for row in found.snapshots
            if keeps_many(row)
        ),
        members=tuple(GroupLogin(row["name"], row["ends"], tuple(row["talks"])) for row in found.members),
        gone=tuple(MissingRole(**row) for row in found.roles_gone or ()),
        last_id=ids["last"],
        largest_id=ids["largest"],
    )


def server_of(row: Row) -> Server:
    limits = [
        Limit("server", "max_connections", row["most_of_server"], row["used_of_server"]),
        Limit("database", row["database"], row["most_of_database"], row["used_of_database"]),
        Limit("login", row["login"], row["most_of_login"], row["used_of_login"]),
    ]
    return Server(
        row["database"],
        row["version"],
        row["search_path"],
        tuple(limits),
        row["queue_usage"],
        row["encoding"],
        row["collation_made"],
        row["collation_now"],
    )


def login_of(found: Inspection, group: str) -> LoginRights:
    own = found.login
    return LoginRights(
        name=found.server["login"],
        attributes=tuple(own["attributes"]),
        groups=tuple(Membership(role, role in own["inherited"]) for role in own["groups"]),
        grants=tuple(
            Grant(row["kind"], row["name"], row["part"], row["grantee"], row["privilege"]) for row in found.grants
        ),
        elsewhere=tuple(ForeignRight(**row) for row in found.elsewhere),
        group=group,
        wanted=rights_of(group, wanted_objects()) | rights_of(PUBLIC, wanted_objects()),
    )


def schema_of(found: Inspection) -> Schema:
    migrations = read_migrations()
    applied, functions = found.applied, found.applied_functions
    return Schema(
        owners=found.owners,
        applied=None if applied is None else tuple(MigrationState(**row) for row in applied),
        known=tuple(MigrationState(one.version, one.name, one.checksum) for one in migrations),
        applied_functions=None if functions is None else {row["name"]: row["checksum"] for row in functions},
        known_functions={one.name: one.checksum for one in read_functions()},
        wanted=wanted_objects(),
        objects=objects_of(found.objects),
    )


@cache
def wanted_objects() -> Objects:
    """The objects that this version makes."""
    return msgspec.json.decode(read_sql("objects.json"), type=dict[str, dict[str, str]])


def objects_of(rows: Iterable[Row]) -> Objects:
    found = defaultdict[str, dict[str, str]](dict)
    for row in rows:
        found[row["object"]][row["fact"]] = row["value"]
    return found


def keeps_many(row: Row) -> bool:
    """Whether a session or a slot keeps many dead rows. A prepared transaction has a check of its own."""
    return bool(row["dead"] and row["transactions"] > 100 and not row["next_step"].startswith("ROLLBACK"))
