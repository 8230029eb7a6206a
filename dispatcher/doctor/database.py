"""Judges the database, its upkeep, and all clocks. Pure.

`judge_upkeep`: what a database needs over years: vacuum, no forgotten transaction, passwords that last, ids that grow.

`judge_database`: server, schema, indexes, plans, functions, connections, notifications.

`judge_clocks`: the clocks of the database and of the API server against this machine's.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from dispatcher.doctor.checks import Part
from dispatcher.doctor.finding import (
    Finding,
    FindingState,
    Installation,
    fault,
    fault_if,
    good,
    ident,
    or_good,
    relation,
    shell,
    unchecked,
    warning,
)
from dispatcher.doctor.schema import (
    NAMES_IN,
    OWNER,
    PUBLIC,
    READER,
    SCHEMAS,
    LoginRights,
    Objects,
    Plan,
    indexes_of,
    judge_login,
    judge_objects,
    judge_plans,
    other_indexes,
    paths,
)

AHEAD = timedelta(days=30)
"""A password that ends within this time is a warning."""


class PreparedTransaction(Struct, frozen=True):
    """A prepared transaction that nobody has ended."""

    gid: str
    owner: str
    since: datetime


class HeldSnapshot(Struct, frozen=True):
    """What keeps dead rows.

    pid: of the session; 0: it is a replication slot.
    login: of the session, or what else it is.
    transactions: how old its snapshot is.
    next_step: the call that ends it.
    dead: dead rows of the table.
    """

    pid: int
    login: str
    transactions: int
    next_step: str
    dead: int


class GroupLogin(Struct, frozen=True):
    """A login of one of our groups.

    ends: when its password ends; None: never.
    talks: settings of the login by which the server writes keys and plans into its log, or sends them to the caller.
    NAME=VALUE, or IN DATABASE … NAME=VALUE.
    """

    name: str
    ends: datetime | None
    talks: tuple[str, ...]


class MissingRole(Struct, frozen=True):
    """A queue or a submitter whose role was deleted. `mend`: the statement that gives it to another role."""

    what: str
    said: str
    mend: str


class Upkeep(Struct, frozen=True):
    """What the database needs over years.

    autovacuum: whether the server cleans and analyses tables by itself.
    without_triggers: whose sessions run no trigger, as ALTER names them.
    last_id, largest_id: of the sequence of ids, and of the rows; None: not known, or no row.
    """

    now: datetime
    autovacuum: bool
    without_triggers: tuple[str, ...] = ()
    prepared: tuple[PreparedTransaction, ...] = ()
    snapshots: tuple[HeldSnapshot, ...] = ()
    members: tuple[GroupLogin, ...] = ()
    gone: tuple[MissingRole, ...] = ()
    last_id: int | None = None
    largest_id: int | None = None


def judge_upkeep(facts: Upkeep, database: str) -> Iterator[Finding]:
    where = f"database {database}"
    is_off = not facts.autovacuum
    yield fault_if(is_off, "AutovacuumOff", where, "autovacuum or track_counts is off", database=database)
    skipped = (
        fault("TriggersSkipped", where, f"{one.strip()} has session_replication_role = replica", database=database,
              whose=shell(one.strip()))
        for one in facts.without_triggers
    )  # fmt: skip
    yield from or_good(skipped, "TriggersSkipped", where)
    yield from or_good(judge_prepared(facts, database), "PreparedTransaction", where)
    yield from or_good(judge_snapshots(facts, database), "OldSnapshot", where)
    yield from or_good(judge_passwords(facts, database), "PasswordEnds", "logins of the group roles")
    yield from or_good(judge_settings(facts, database), "LoginTalks", "logins of the group roles")
    gone = (warning("RoleGone", one.what, one.said, database=database, statement=shell(one.mend)) for one in facts.gone)
    yield from or_good(gone, "RoleGone", "roles of queues, logins of submitters")
    is_behind = facts.largest_id is not None and (facts.last_id is None or facts.last_id < facts.largest_id)
    said = f"its last value is {facts.last_id}, and there is a row {facts.largest_id}"
    yield fault_if(is_behind, "SequenceBehind", "sequence dispatch_private.tasks_id_seq", said, database=database)


def judge_prepared(facts: Upkeep, database: str) -> Iterator[Finding]:
    for one in facts.prepared:
        said = f"{one.owner} prepared it on {one.since:%Y-%m-%d %H:%M} UTC, and nobody has ended it"
        gid = shell("'" + one.gid.replace("'", "''") + "'")
        yield warning("PreparedTransaction", f"prepared transaction {one.gid}", said, database=database, gid=gid)


def judge_snapshots(facts: Upkeep, database: str) -> Iterator[Finding]:
    for one in facts.snapshots:
        said = f"{one.login} has a snapshot {one.transactions} transactions old; {one.dead} dead rows of tasks are kept"
        where = f"session {one.pid}" if one.pid else one.login
        yield warning("OldSnapshot", where, said, database=database, statement=shell(one.next_step))


def judge_passwords(facts: Upkeep, database: str) -> Iterator[Finding]:
    for one in facts.members:
        if one.ends is not None and one.ends - facts.now < AHEAD:
            said = f"its password is VALID UNTIL {one.ends:%Y-%m-%d %H:%M} UTC"
            yield warning("PasswordEnds", f"login {one.name}", said, database=database, login=ident(one.name))


def judge_settings(facts: Upkeep, database: str) -> Iterator[Finding]:
    for one in facts.members:
        for setting in one.talks:
            scope, _, name = setting.partition("=")[0].rpartition(" ")
            yield fault(
                "LoginTalks", f"login {one.name}", f"each of its sessions has {setting}", database=database,
                login=ident(one.name), scope=shell(f"{scope} ".lstrip()), setting=ident(name),
            )  # fmt: skip


OLDEST_VERSION: Final = 150_000
"""The oldest version of Postgres that is supported."""
LEAST_ROOM: Final = 5
"""Connections that one more replica of `run` opens: for rows, notifications, real use, counts and pages."""
FULLEST_QUEUE: Final = 0.2
"""Used part of the queue of notifications that is a fault. Notifications in flight take hardly any of it. Postgres
itself warns at a half.
"""
BOTH: Final = f"schemas {' and '.join(SCHEMAS)}"


class MigrationState(Struct, frozen=True):
    version: int
    name: str
    checksum: str


class Limit(Struct, frozen=True):
    """A limit of connections. `of`: server, database or login. `most` is below 0 if there is none."""

    of: str
    name: str
    most: int
    used: int


class Server(Struct, frozen=True):
    """The server, as every login may see it.

    collation_made, collation_now: the noted and the present version of the database's collation; None: it has none.
    """

    database: str
    version: int
    search_path: str
    limits: tuple[Limit, ...]
    queue_usage: float
    encoding: str
    collation_made: str | None = None
    collation_now: str | None = None


class Schema(Struct, frozen=True):
    """Both schemas.

    owners: the owner of each schema that exists.
    applied: the migrations in the database; None if the login may not read them.
    known: the migrations of this version.
    applied_functions: checksums of the files of functions in the database; None if the login may not read them.
    known_functions: checksums of the files of this version.
    wanted: the objects that this version makes.
    objects: the objects of the database.
    """

    owners: Mapping[str, str]
    applied: tuple[MigrationState, ...] | None
    known: tuple[MigrationState, ...]
    applied_functions: Mapping[str, str] | None
    known_functions: Mapping[str, str]
    wanted: Objects
    objects: Objects


class DatabaseFacts(Struct, frozen=True):
    """Everything that was read of the database.

    plans: the plan of each frequent query, by file/block of sql/queries; a text says why there is none.
    planned: the group role whose queries these are.
    pages: pages of the tables that grow.
    upkeep: what the database needs over years.
    """

    server: Server
    login: LoginRights
    schema: Schema
    upkeep: Upkeep
    plans: Mapping[str, Plan | str] = {}
    planned: str = READER
    pages: Mapping[str, int] = {}


def judge_database(facts: DatabaseFacts) -> Iterator[Finding]:
    """All checks of a database that answers. If the schema is another one, what rests on it is not checked."""
    server, schema = facts.server, facts.schema
    yield good("DatabaseAway", f"database {server.database}")
    yield good("DatabaseNotPrimary", f"database {server.database}")
    yield from judge_server(server, facts.login.name)
    migrations = tuple(judge_schema(schema, server.database))
    yield from migrations
    yield from judge_upkeep(facts.upkeep, server.database)
    why = not_ours(schema) or "; ".join(one.message for one in migrations if one.state is FindingState.FAULT)
    if why:
        rest = ("IndexMissing", "PlanWithoutIndex", "MissingRight", "ExtraRight", "ObjectChanged")
        for what in rest:
            yield unchecked(what, BOTH, why)
        return
    indexes = tuple(judge_indexes(schema, server.database))
    yield from or_good(indexes, "IndexMissing", BOTH)
    if indexes:
        yield unchecked("PlanWithoutIndex", "frequent queries", "indexes are missing or invalid")
    else:
        others = other_indexes(schema.wanted, schema.objects)
        yield from judge_plans(facts.planned, facts.plans, facts.pages, others, server.database)
    compared = {facts.login.name, facts.login.group, PUBLIC}
    yield from or_good(judge_objects(schema.wanted, schema.objects, compared, server.database), "ObjectChanged", BOTH)
    yield from judge_login(facts.login, server.database)


def judge_refusal(what: str, message: str, installation: Installation) -> Finding:
    """Why there is no connection."""
    if what == "ConnectionRoom":
        return fault(
            what, "DISPATCHER_DATABASE_URL", message, database="DATABASE", limit="ROLE LOGIN CONNECTION LIMIT -1"
        )
    return fault(what, "DISPATCHER_DATABASE_URL", message, **installation.words)


def not_ours(schema: Schema) -> str:
    """Why rights and indexes of the schema cannot be judged; empty: they can be."""
    if schema.applied is None:
        return ""
    newest = max((one.version for one in schema.known), default=0)
    if max((one.version for one in schema.applied), default=0) > newest:
        return f"the schema is newer than this program, whose newest migration is {newest}"
    return ""


def judge_server(server: Server, login: str) -> Iterator[Finding]:
    where = f"database {server.database}"
    is_old = server.version < OLDEST_VERSION
    yield fault_if(is_old, "PostgresTooOld", where, f"the server is Postgres {server.version // 10_000}")
    yield fault_if(
        server.encoding != "UTF8", "DatabaseEncoding", where, f"its encoding is {server.encoding}",
        database=server.database, new=ident(f"{server.database}_utf8"),
    )  # fmt: skip
    is_changed = bool(server.collation_made) and server.collation_made != server.collation_now
    said = f"it was made with version {server.collation_made} of its collation; the server has {server.collation_now}"
    names = {"database": server.database, "object": ident(server.database)}
    yield fault_if(is_changed, "CollationChanged", where, said, **names)
    is_another = paths(server.search_path) != NAMES_IN
    said = f"the session looks up names in {server.search_path}: a pooler drops the settings of the session"
    names = {"database": server.database, "object": f"ROLE {ident(login)}"}
    yield fault_if(is_another, "SearchPath", "the session", said, **names)
    yield from or_good(judge_room(server), "ConnectionRoom", where)
    is_full, said = server.queue_usage > FULLEST_QUEUE, f"{server.queue_usage:.0%} of the queue is taken"
    yield fault_if(is_full, "NotifyQueue", "pg_notification_queue_usage()", said, database=server.database)


def judge_room(server: Server) -> Iterator[Finding]:
    """Limits with less room than a further replica needs. Room is what is left of a limit, not its use alone."""
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


def told_owners(owners: Mapping[str, str]) -> str:
    return f"they belong to {', '.join(sorted(set(owners.values())))}: the database was restored without its roles"


def judge_schema(schema: Schema, database: str) -> Iterator[Finding]:
    foreign = {name: owner for name, owner in schema.owners.items() if owner != OWNER}
    if len(foreign) == len(schema.owners) > 1 and len(set(foreign.values())) == 1:
        yield fault(
            "RestoredWithoutRoles", "schemas dispatch, dispatch_private", told_owners(foreign), database=database
        )
        return
    for name, owner in foreign.items():
        yield fault("SchemaOwner", f"schema {name}", f"it belongs to {owner}", database=database, schema=name)
    if foreign:
        return
    where = "view dispatch.schema_version"
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
        yield from judge_function_files(schema, database)
    said = f"applied with another content: {', '.join(changed)}"
    yield fault_if(bool(changed), "SchemaChanged", where, said, database=database)


def judge_function_files(schema: Schema, database: str) -> Iterator[Finding]:
    """Judges the files of functions. A newer schema has the functions of its own version."""
    where = "table dispatch_private.applied_functions"
    applied, known = schema.applied_functions, schema.known_functions
    if applied is None:
        yield unchecked("SchemaOld", where, "the login may not read it")
    elif why := not_ours(schema):
        yield unchecked("SchemaOld", where, why)
    elif others := [one for one in sorted({*known, *applied}) if applied.get(one) != known.get(one)]:
        yield fault("SchemaOld", where, f"not those of this version: {', '.join(others)}", database=database)
    else:
        yield good("SchemaOld", where)


def judge_indexes(schema: Schema, database: str) -> Iterator[Finding]:
    for name, statement in indexes_of(schema.wanted).items():
        found = schema.objects.get(f"index {name}")
        if found is None:
            made = shell(statement)
            yield fault("IndexMissing", f"index {name}", "it is missing", database=database, statement=made)
        elif found["is valid"] != "true":
            yield fault("IndexInvalid", f"index {name}", "it is invalid", database=database, index=relation(name))


MOST_SECONDS: Final = 5
"""Seconds by which clocks may differ. The API server names whole seconds, and an answer takes a moment."""
THIS_MACHINE: Final = "this machine"


class Clocks(Struct, frozen=True):
    """Seconds by which each clock is ahead of this machine's; None: not known."""

    database: float | None = None
    api_server: float | None = None


def judge_clocks(clocks: Clocks) -> Iterator[Finding]:
    """If the other two clocks agree with each other and not with this machine's, this machine's clock is wrong."""
    known = {"database": clocks.database, "API server": clocks.api_server}
    ahead = {name: seconds for name, seconds in known.items() if seconds is not None}
    wrong = {name: seconds for name, seconds in ahead.items() if abs(seconds) > MOST_SECONDS}
    if len(wrong) == len(known) and max(wrong.values()) - min(wrong.values()) <= MOST_SECONDS:
        wrong = {THIS_MACHINE: -wrong["database"]}
    for name, seconds in wrong.items():
        side = "ahead" if seconds > 0 else "behind"
        found = fault("ClockOff", f"clock of {name}", f"{abs(seconds):.0f} s {side}", machine=name)
        yield in_its_part(found, name)
    for name in ahead if THIS_MACHINE not in wrong else ():
        if name not in wrong:
            yield in_its_part(good("ClockOff", f"clock of {name}"), name)


def in_its_part(found: Finding, name: str) -> Finding:
    return msgspec.structs.replace(found, part=Part.CLUSTER) if name == "API server" else found
