"""Judges the database: server, schema, indexes, plans, functions, connections, notifications."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from dispatcher.doctor.finding import Finding, State, fault, good, ident, or_good, shell, signature, unchecked
from dispatcher.doctor.group_rights import READER
from dispatcher.doctor.installation import Installation
from dispatcher.doctor.plans import Plan, judge_plans
from dispatcher.doctor.rights import Login, judge_login

OLDEST_VERSION: Final = 150_000
NAMES_IN: Final = ("pg_catalog", "pg_temp")
"""The schemas in which sessions and functions of ours look up names."""
LEAST_ROOM: Final = 5
"""Connections that one more replica of `run` opens: for rows, notifications, real use, counts and pages."""
FULLEST_QUEUE: Final = 0.2
"""Notifications in flight take hardly any of the queue. Postgres itself warns at a half."""
INDEX: Final = re.compile(r"^CREATE (?:UNIQUE )?INDEX (\w+) ON (?:dispatch\.)?([^;]*);", re.MULTILINE)
RENAMED: Final = re.compile(r"^ALTER INDEX dispatch\.(\w+) RENAME TO (\w+);", re.MULTILINE)
PRIMARY: Final = re.compile(r"ADD CONSTRAINT (\w+) PRIMARY KEY")


class Migration(Struct, frozen=True):
    version: int
    name: str
    checksum: str


class Limit(Struct, frozen=True):
    """A limit of connections. `of`: server, database or login. `most` is below 0 if there is none."""

    of: str
    name: str
    most: int
    used: int


class Function(Struct, frozen=True):
    signature: str
    is_definer: bool
    settings: tuple[str, ...]


class Server(Struct, frozen=True):
    """The server, as every login may see it."""

    database: str
    version: int
    search_path: str
    limits: tuple[Limit, ...]
    queue_usage: float


class Schema(Struct, frozen=True):
    """The schema.

    owner: None if there is no schema.
    applied: the migrations in the database; None if the login may not read them.
    known: the migrations of this version.
    wanted_indexes: the statement that makes each index.
    indexes: whether each index of the schema is valid.
    """

    owner: str | None
    applied: tuple[Migration, ...] | None
    known: tuple[Migration, ...]
    wanted_indexes: Mapping[str, str]
    indexes: Mapping[str, bool]
    functions: tuple[Function, ...]


class Facts(Struct, frozen=True):
    """All facts.

    plans: the plan of each frequent query, by its file in sql/; a text says why there is none.
    planned: the group role whose queries these are.
    pages: of the tables that grow.
    """

    server: Server
    login: Login
    schema: Schema
    plans: Mapping[str, Plan | str] = {}
    planned: str = READER
    pages: Mapping[str, int] = {}


def wanted_indexes(migrations: Iterable[str], primary: Iterable[str]) -> dict[str, str]:
    """The indexes that these files make, in their order, each with its statement for schema dispatch.

    primary: the files with the statements for primary keys.
    """
    found = dict[str, str]()
    for text in primary:
        statement = " ".join(line for line in text.splitlines() if not line.startswith("--"))
        found |= dict.fromkeys(PRIMARY.findall(statement), statement)
    for text in migrations:
        for made in INDEX.finditer(text):
            kind = made[0].partition(" ON ")[0]
            found[made[1]] = f"{kind} ON dispatch.{' '.join(made[2].split())}"
        for old, new in RENAMED.findall(text):
            found[new] = found.pop(old).replace(f"INDEX {old} ", f"INDEX {new} ", 1)
    return found


def judge_database(facts: Facts) -> Iterator[Finding]:
    """All checks of a database that answers. Where the schema is another one, what rests on it is not checked."""
    server, schema = facts.server, facts.schema
    yield good("DatabaseAway", f"database {server.database}")
    yield good("DatabaseNotPrimary", f"database {server.database}")
    yield from judge_server(server, facts.login.name)
    migrations = tuple(judge_schema(schema, server.database))
    yield from migrations
    why = not_ours(schema) or "; ".join(one.message for one in migrations if one.state is State.FAULT)
    if why:
        for what in ("IndexMissing", "PlanWithoutIndex", "MissingRight", "ExtraRight", "SearchPath"):
            yield unchecked(what, "schema dispatch", why)
        return
    indexes = tuple(judge_indexes(schema, server.database))
    yield from or_good(indexes, "IndexMissing", "schema dispatch")
    if indexes:
        yield unchecked("PlanWithoutIndex", "frequent queries", "indexes are missing or invalid")
    else:
        yield from judge_plans(facts.planned, facts.plans, facts.pages, server.database)
    yield from or_good(judge_functions(schema, server.database), "SearchPath", "schema dispatch")
    yield from judge_login(facts.login, server.database)


def judge_refusal(what: str, message: str, installation: Installation) -> Finding:
    """Why there is no connection."""
    if what == "ConnectionRoom":
        return fault(
            what, "DISPATCHER_DATABASE_URL", message, database="DATABASE", limit="ROLE LOGIN CONNECTION LIMIT -1"
        )
    return fault(what, "DISPATCHER_DATABASE_URL", message, **installation.words)


def not_ours(schema: Schema) -> str:
    """Why rights and indexes of the schema cannot be judged; empty: they can."""
    if schema.applied is None:
        return ""
    newest = max((one.version for one in schema.known), default=0)
    if max((one.version for one in schema.applied), default=0) > newest:
        return f"the schema is newer than this program, whose newest migration is {newest}"
    return ""


def judge_server(server: Server, login: str) -> Iterator[Finding]:
    where = f"database {server.database}"
    if server.version < OLDEST_VERSION:
        yield fault("PostgresTooOld", where, f"the server is Postgres {server.version // 10_000}")
    else:
        yield good("PostgresTooOld", where)
    if paths(server.search_path) != NAMES_IN:
        said = f"the session looks up names in {server.search_path}: a pooler drops the settings of the session"
        yield fault("SearchPath", "the session", said, database=server.database, object=f"ROLE {ident(login)}")
    yield from or_good(judge_room(server), "ConnectionRoom", where)
    if server.queue_usage > FULLEST_QUEUE:
        said = f"{server.queue_usage:.0%} of the queue is taken"
        yield fault("NotifyQueue", "pg_notification_queue_usage()", said, database=server.database)
    else:
        yield good("NotifyQueue", "pg_notification_queue_usage()")


def judge_room(server: Server) -> Iterator[Finding]:
    """Limits with less room than a further replica needs. The most room that a limit has counts, not its use alone."""
    for one in server.limits:
        if one.most >= 0 and one.most - one.used < LEAST_ROOM:
            said = f"{one.used} of {one.most} connections are used, and a further replica opens {LEAST_ROOM}"
            yield fault("ConnectionRoom", f"{one.of} {one.name}", said, database=server.database, limit=raised(one))


def raised(limit: Limit) -> str:
    """The limit with room for several replicas."""
    most = limit.used + 4 * LEAST_ROOM
    kinds = {"database": "DATABASE", "login": "ROLE"}
    if limit.of in kinds:
        return f"{kinds[limit.of]} {ident(limit.name)} CONNECTION LIMIT {most}"
    return f"SYSTEM SET max_connections = {most}  -- and restart the server"


def judge_schema(schema: Schema, database: str) -> Iterator[Finding]:
    where = "table dispatch.schema_version"
    if schema.owner not in {None, "dispatch_owner"}:
        yield fault("SchemaOwner", "schema dispatch", f"it belongs to {schema.owner}", database=database)
        return
    if schema.applied is None:
        yield unchecked("SchemaOld", where, "the login may not read it")
        return
    applied = {one.version: one for one in schema.applied}
    pending = [one.name for one in schema.known if one.version not in applied]
    changed = [
        one.name for one in schema.known if one.version in applied and applied[one.version].checksum != one.checksum
    ]
    if pending:
        said = f"not applied: {', '.join(pending)}" if applied else "no migration was ever applied"
        yield fault("SchemaOld", where, said, database=database)
    else:
        yield good("SchemaOld", where)
    if changed:
        yield fault("SchemaChanged", where, f"applied with another content: {', '.join(changed)}", database=database)
    else:
        yield good("SchemaChanged", where)


def judge_indexes(schema: Schema, database: str) -> Iterator[Finding]:
    for name, statement in schema.wanted_indexes.items():
        if name not in schema.indexes:
            made = shell(statement)
            yield fault("IndexMissing", f"index dispatch.{name}", "it is missing", database=database, statement=made)
        elif not schema.indexes[name]:
            yield fault("IndexInvalid", f"index dispatch.{name}", "it is invalid", database=database, index=name)


def judge_functions(schema: Schema, database: str) -> Iterator[Finding]:
    """A function that runs with the rights of its owner has its own search_path."""
    for one in schema.functions:
        path = next((text.partition("=")[2] for text in one.settings if text.startswith("search_path=")), None)
        if one.is_definer and (path is None or paths(path) != NAMES_IN):
            said = "it has no search_path of its own" if path is None else f"its search_path is {path}"
            where = f"function dispatch.{one.signature}"
            yield fault(
                "SearchPath", where, said, database=database, object=f"FUNCTION dispatch.{signature(one.signature)}"
            )


def paths(written: str) -> tuple[str, ...]:
    return tuple(one.strip().strip('"') for one in written.split(","))
