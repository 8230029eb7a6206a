"""`dispatcher migrate` brings the schema to the state of `sql/`, in one transaction; and the doctor's reads.

* `sql/migrations`: tables. Each file is applied once, in order. An applied file must not change: its checksum is
  stored, and another checksum is a fault.
* `sql/functions`: functions, views, triggers and grants, as they are now. All files are applied again when one of them
  has changed. A function that no file has any more is dropped. With them come the rows of `dispatch.reasons`.
* `sql/upgrade`: brings the schema of an earlier version to that of the first migration here.

The command may run twice, also at the same time (advisory lock). The login is an administrator's; all objects belong to
`dispatch_owner`.

`inspect`: reads what `dispatcher doctor` judges: server, login, schema, and plans of queries. Nothing is written: the
session cannot write, and the plans come from EXPLAIN without ANALYZE, so no query runs.
"""

import asyncio
import contextlib
import hashlib
import random
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import asyncpg
import msgspec
import structlog
from msgspec import Struct

from dispatcher.model.errors import DatabaseError, DatabaseUnfit
from dispatcher.model.reasons import reason_rows
from dispatcher.pg.connect import NETWORK_FAULTS, open_connection, translated
from dispatcher.pg.queries import query, read_sql, sql_folder
from dispatcher.runtime.clock import elapsed

log = structlog.get_logger(component="pg.migrate")

BEFORE: Final = 26
"""The last version whose migrations are gone. A file of `sql/upgrade` leads from it to the first migration here."""
LOCK: Final = 0x646973706174  # "dispat"
LONGEST_SECONDS: Final = 3600
"""Seconds for which a migration waits for the advisory lock, and for which one file may run, at most."""
LOCKING_SECONDS: Final = 30
"""Seconds for which it tries to lock all tables and views."""
TOLD_EVERY_SECONDS: Final = 60
"""Seconds between two log lines while it waits."""
OLDEST_POSTGRES: Final = 15
"""The oldest major version that has what the schema uses."""
END_THEM: Final = "end a session by SELECT pg_terminate_backend(pid), a prepared transaction by ROLLBACK PREPARED"
WRITING: Final = {"statement_timeout": "0", "lock_timeout": "3000", "application_name": "dispatcher-migrate"}
ROLES: Final = ("dispatch_owner", "dispatch_reader", "dispatch_submitter", "dispatch_task",
                "dispatch_janitor", "dispatch_operator", "dispatch_observer")  # fmt: skip


class SqlSource(Struct, frozen=True):
    """One file of `sql/`, or one statement with its parameters."""

    name: str
    text: str
    parameters: tuple[str, ...] = ()

    @property
    def checksum(self) -> str:
        return hashlib.sha256("".join((self.text, *self.parameters)).encode()).hexdigest()


class Migration(SqlSource, frozen=True):
    """One file of `sql/migrations`: `NNNN_{pre,post}_what.sql`.

    A post file ships one release after the code that needed the old shape has gone.
    """

    @property
    def version(self) -> int:
        return int(self.name[:4])


S = TypeVar("S", bound=SqlSource)


def read_sources(kind: type[S], folder: str) -> list[S]:
    """The files of a folder of `sql/`, by name."""
    found = [file for file in (sql_folder() / folder).iterdir() if file.name.endswith(".sql")]
    return [kind(file.name, file.read_text(encoding="utf-8")) for file in sorted(found, key=lambda file: file.name)]


def read_functions() -> list[SqlSource]:
    """The sources that are applied again when one has changed: the files of `sql/functions`, and the rows of
    `dispatch.reasons`.
    """
    files = [SqlSource(f"functions/{file.name}", file.text) for file in read_sources(SqlSource, "functions")]
    return [*files, SqlSource("reasons", query("reasons", "migrate"), (msgspec.json.encode(reason_rows()).decode(),))]


def read_migrations() -> list[Migration]:
    return read_sources(Migration, "migrations")


NEWEST: Final = max(migration.version for migration in read_migrations())
"""The schema version that this program needs."""


async def migrate(database_url: str | None, *, check: bool = False) -> list[str]:
    """Brings the schema up to date. Returns the files that had to be applied. `check`: apply nothing.

    Raises DatabaseUnfit if an applied migration has changed, and for a database that cannot hold the schema.
    """
    connection = await open_connection(database_url, WRITING, writes=True)
    connection.add_log_listener(tell_notice)
    try:
        with translated():
            check_server(connection.get_server_version().major)
            await check_encoding(connection)
            await connection.execute(query("take_rights", "migrate"))
            if not check:
                await connection.execute(query("no_limit", "migrate"))
                await take_lock(connection)
            await check_owner(connection)
            applied = await read_applied(connection)
            migrations = plan_migrations(applied, read_migrations())
            functions = await plan_functions(connection)
            if (migrations or functions) and not check:
                with naming_event_triggers():
                    await prepare(connection)
                    await apply(connection, migrations, functions, is_upgrade=BEFORE in applied)
            return [one.name for one in [*migrations, *functions]]
    finally:
        await connection.close()


async def check_encoding(connection: asyncpg.Connection) -> None:
    """Raises DatabaseUnfit for an encoding other than UTF8: it may store a text that no program can read."""
    for database, encoding in await connection.fetch(query("encoding", "migrate")):
        if encoding != "UTF8":
            raise DatabaseUnfit(
                f"database {database} has the encoding {encoding}, the schema needs UTF8: make another database by "
                "CREATE DATABASE dispatch ENCODING 'UTF8' TEMPLATE template0"
            )


def check_server(major: int) -> None:
    """Raises DatabaseUnfit for a Postgres that lacks what the schema uses, such as `security_invoker` of views."""
    if major < OLDEST_POSTGRES:
        raise DatabaseUnfit(f"the server is Postgres {major}: the schema needs {OLDEST_POSTGRES} or later")


async def take_lock(connection: asyncpg.Connection) -> None:
    """Waits for the lock of the migration in this database. Any login may take it, so the log names the holder."""
    begun, told_at = elapsed(), float("-inf")
    while not await is_taken(connection):
        holders = await connection.fetch(query("holders", "migrate"), LOCK)
        named = named_holders(holders)
        if elapsed() - begun > LONGEST_SECONDS:
            raise DatabaseUnfit(f"the lock of the migration is held by {named}: {END_THEM}")
        if holders and elapsed() - told_at > TOLD_EVERY_SECONDS:
            told_at = elapsed()
            log.warning("waiting for the lock of the migration", held_by=named,
                        next_step=f"if that is no migration, {END_THEM}")  # fmt: skip


def named_holders(holders: Sequence[asyncpg.Record]) -> str:
    """The holders. A plain login is not told since when another one holds the lock."""
    told = ((row["login"], ", since ".join(str(one) for one in (row["what"], row["since"]) if one)) for row in holders)
    return ", ".join(f"{login} ({what})" for login, what in told)


async def is_taken(connection: asyncpg.Connection) -> bool:
    """Waits for the lock, at most for lock_timeout. Returns whether it is ours."""
    try:
        await connection.execute(query("lock", "migrate"), LOCK)
    except asyncpg.LockNotAvailableError:
        return False
    return True


def tell_notice(_: object, notice: asyncpg.PostgresLogMessage) -> None:
    """Logs a notice of a migration for the operator."""
    if notice.severity_en == "NOTICE" and notice.sqlstate == "00000" and notice.hint:
        log.warning(notice.message, next_step=notice.hint)


def plan_migrations(applied: dict[int, tuple[str, str]], known: list[Migration]) -> list[Migration]:
    """Migrations that are not applied yet. Raises DatabaseUnfit for a changed one, and for a schema that is too new."""
    check_newer([name for version, (name, _) in sorted(applied.items()) if version > NEWEST])
    if applied and max(applied) < BEFORE:
        raise DatabaseUnfit(
            f"the schema has version {max(applied)}, which was never released: drop schema dispatch with its rows, "
            f"or apply the migrations up to {BEFORE} from the history of this project first"
        )
    for migration in known:
        name, checksum = applied.get(migration.version, (migration.name, migration.checksum))
        if checksum != migration.checksum:
            raise DatabaseUnfit(
                f"migration {name} was applied with checksum {checksum[:12]} and is now {migration.checksum[:12]}: "
                "an applied file is never changed; restore it and write a new one"
            )
    return [migration for migration in known if migration.version not in applied]


def check_newer(names: Sequence[str]) -> None:
    """Refuses a schema of a newer version that has lost what this version needs. `names`: migrations unknown here.

    A `pre` migration only adds, so the version before it works on. A `post` migration removes.
    """
    if removing := [name for name in names if "_post_" in name]:
        raise DatabaseUnfit(
            f"migration {removing[0]} of a newer version has removed what this version needs: "
            "install the newer version again, or restore a backup from before that migration"
        )


async def read_applied(connection: asyncpg.Connection) -> dict[int, tuple[str, str]]:
    if await connection.fetchval(query("is_new", "migrate")):
        return {}
    rows = await connection.fetch(query("applied", "migrate"))
    return {row["version"]: (row["name"], row["checksum"]) for row in rows}


async def prepare(connection: asyncpg.Connection) -> None:
    """Creates the schema, and the roles if the login may create roles."""
    await connection.execute(query("as_itself", "migrate"))
    if await connection.fetchval(query("may_create_roles", "migrate")):
        await connection.execute(read_sql("roles.sql"))
    missing = await connection.fetch(query("missing_roles", "migrate"), list(ROLES))
    if missing:
        names = ", ".join(row["name"] for row in missing)
        raise DatabaseUnfit(
            f"roles {names} are missing and this login may not create them: run sql/roles.sql as an administrator"
        )
    await connection.execute(query("take_rights", "migrate"))
    if why_not := await connection.fetchval(query("why_not_owner", "migrate")):
        raise DatabaseUnfit(why_not)
    await connection.execute(query("schema", "migrate"))
    await check_owner(connection)


async def check_owner(connection: asyncpg.Connection) -> None:
    """Refuses a schema of another owner, who may have put functions into it. Call this before reading the schema."""
    for schema, owner in await connection.fetch(query("schema_owner", "migrate")):
        if owner != "dispatch_owner":
            raise DatabaseUnfit(
                f"schema {schema} belongs to {owner}, which could put functions of its own into it: "
                f"look at what it holds, then ALTER SCHEMA {schema} OWNER TO dispatch_owner, or drop it"
            )


async def plan_functions(connection: asyncpg.Connection) -> list[SqlSource]:
    """All sources of `read_functions` if one of them has changed, otherwise none."""
    known = read_functions()
    if await connection.fetchval(query("has_functions", "migrate")):
        rows = await connection.fetch(query("applied_functions", "migrate"))
        if dict(map(tuple, rows)) == {source.name: source.checksum for source in known}:
            return []
    return known


async def apply(
    connection: asyncpg.Connection, migrations: list[Migration], functions: list[SqlSource], *, is_upgrade: bool
) -> None:
    """Applies everything or nothing. `is_upgrade`: the tables exist in the form of version BEFORE."""
    async with locked(connection), naming_dependents():
        for migration in migrations:
            is_base = is_upgrade and migration.version == BEFORE + 1
            text = read_sql(f"upgrade/from_{BEFORE}.sql") if is_base else migration.text
            await connection.execute(text, timeout=LONGEST_SECONDS)
            await connection.execute(query("record", "migrate"), migration.version, migration.name, migration.checksum)
            if is_base:
                await connection.execute(query("forget_earlier", "migrate"), migration.version)
        for source in functions:
            await connection.execute(source.text, *source.parameters, timeout=LONGEST_SECONDS)
        if functions:
            names, checksums = [s.name for s in functions], [s.checksum for s in functions]
            await connection.execute(query("record_functions", "migrate"), names, checksums)
        if is_upgrade:
            await connection.execute(query("cancel_calls", "migrate"))


@contextlib.contextmanager
def naming_event_triggers() -> Iterator[None]:
    """Raises DatabaseUnfit for a fault of a function of others: only an event trigger calls one here."""
    try:
        yield
    except NETWORK_FAULTS:
        raise
    except asyncpg.PostgresError as fault:
        if named := re.search(r"PL/pgSQL function (?!dispatch)(\S+\.\S+)", fault.context or ""):
            raise DatabaseUnfit(
                f"the function {named[1]} fails: {fault} ({fault.sqlstate}). An event trigger of this database "
                "(psql: \\dy) calls it as dispatch_owner, without public in the search_path: its owner makes it "
                "SECURITY DEFINER with a search_path of its own, or disables the trigger meanwhile"
            ) from fault
        raise


@contextlib.asynccontextmanager
async def naming_dependents() -> AsyncIterator[None]:
    """Raises DatabaseUnfit for objects of teams that need what is dropped. The server's hint, CASCADE, drops them."""
    try:
        yield
    except asyncpg.DependentObjectsStillExistError as fault:
        raise DatabaseUnfit(
            f"{fault.message}\nDETAIL:  {fault.detail}\nNothing was changed. The owners of these objects drop them,"
            " and make them again afterwards; one in pg_temp goes with its session"
        ) from fault


@contextlib.asynccontextmanager
async def locked(connection: asyncpg.Connection, seconds: float = LOCKING_SECONDS) -> AsyncIterator[None]:
    """A transaction that holds all our tables and views.

    It takes all locks or none, and tries again for `seconds`. So it never waits for one lock while it holds another,
    which would be a deadlock with an INSERT or a look. Raises DatabaseUnfit, with the holders, if it gets no lock.
    """
    begun = elapsed()
    while True:
        transaction = connection.transaction()
        await transaction.start()
        try:
            await connection.execute(query("as_owner", "migrate"))
            await connection.execute(query("lock_tables", "migrate"))
            break
        except asyncpg.LockNotAvailableError:
            await transaction.rollback()
            if elapsed() - begun > seconds:
                raise await in_a_transaction(connection) from None
            await asyncio.sleep(random.uniform(0, 0.2))  # noqa: S311  # lets others come in between, keeps no secret
    try:
        yield
    except asyncpg.LockNotAvailableError:  # an index or a sequence: any login may lock one by its number
        await transaction.rollback()
        raise await in_a_transaction(connection) from None
    except BaseException:  # cancellation, too
        await transaction.rollback()
        raise
    await transaction.commit()


async def in_a_transaction(connection: asyncpg.Connection) -> DatabaseUnfit:
    """Who holds our tables."""
    holders = named_holders(await connection.fetch(query("holders", "migrate"), None))
    return DatabaseUnfit(
        f"our tables are in an open transaction of {holders or 'a session that has just ended'}: "
        f"{END_THEM}, and run migrate again"
    )


Row = Mapping[str, Any]
TOO_MANY: Final = "53300"
NAME: Final = "dispatcher-doctor"
MOST_SUBMITTERS: Final = 1000
"""Submitters of each queue that are asked for, at most."""


class Inspection(Struct, frozen=True):
    """Rows as the database has them.

    owners: the owner of each schema of ours that exists.
    applied: migrations; None: the login may not read them.
    applied_functions: the sources of `read_functions` at the last migration; None: the login may not read them.
    plans: the plan of each query, by file/block of sql/queries; a text says why there is none.
    pages: pages of the tables that grow.
    ids: the last value of the sequence of ids, and the largest id; None: the login may not read them.
    roles_gone: objects that name a deleted role; None: the login may not read it.
    """

    server: Row
    login: Row
    owners: Mapping[str, str]
    applied: list[Row] | None
    applied_functions: list[Row] | None
    objects: list[Row]
    grants: list[Row]
    elsewhere: list[Row]
    plans: Mapping[str, Row | str]
    pages: list[Row]
    prepared: list[Row]
    snapshots: list[Row]
    members: list[Row]
    ids: list[Row] | None
    roles_gone: list[Row] | None


def are_connections_used_up(fault: DatabaseError) -> bool:
    """Whether the server, the database or the login has no connection left."""
    return getattr(fault.__cause__, "sqlstate", None) == TOO_MANY


Explained = Callable[[Row], Iterable[str]]
"""Returns the queries to explain for a login, each as file/block of sql/queries."""


def none(_: Row) -> Iterable[str]:
    return ()


async def inspect(url: str | None, explained: Explained = none) -> Inspection:
    """Reads everything over one connection. Raises DatabaseError."""
    connection = await open_connection(url, {"application_name": NAME})
    try:
        with translated():
            return await read(connection, explained)
    finally:
        connection.terminate()


async def read(connection: asyncpg.Connection, explained: Explained) -> Inspection:
    async def rows(statement: str, *parameters: object) -> list[Row]:
        return [dict(row) for row in await connection.fetch(statement, *parameters)]

    (server,), (login,) = await rows(query("server", "doctor")), await rows(query("login", "doctor"))
    (records,) = await rows(query("records", "doctor"))
    owners = {row["schema"]: row["owner"] for row in await rows(query("schema_owner", "migrate"))}
    # A view in a schema of somebody else would run code of its owner with the rights of the login.
    is_ours = all(owner == "dispatch_owner" for owner in owners.values())

    async def recorded(name: str, statement: str, *parameters: object) -> list[Row] | None:
        try:
            return await rows(statement, *parameters) if records[name] and is_ours else []
        except asyncpg.InsufficientPrivilegeError:
            return None

    living = await recorded("applied_functions", query("submitters", "cycle"), None, MOST_SUBMITTERS)
    names = sorted({row["submitted_by"] for row in living or ()})
    return Inspection(
        server=server,
        login=login,
        owners=owners,
        applied=await recorded("applied", query("applied", "migrate")),
        applied_functions=await recorded("applied_functions", query("applied_functions", "migrate")),
        objects=await rows(query("objects", "doctor")),
        grants=await rows(query("grants", "rights")),
        elsewhere=await rows(query("elsewhere", "doctor")),
        plans={name: await read_plan(connection, name) for name in explained(login)} if owners and is_ours else {},
        pages=await rows(query("pages", "doctor")),
        prepared=await rows(query("prepared", "doctor")),
        snapshots=await rows(query("oldest_snapshot", "janitor")),
        members=await rows(query("members", "doctor")),
        ids=await recorded("applied_functions", query("ids", "doctor")),
        roles_gone=await recorded("applied_functions", query("roles_gone", "doctor"), names),
    )


async def read_plan(connection: asyncpg.Connection, name: str) -> Row | str:
    """The plan for any parameters, as a session of the dispatcher has it."""
    file, _, block = name.partition("/")
    text = query(block, file)  # house: doctor/schema.py names them
    count = max((int(number) for number in re.findall(r"\$(\d+)", text)), default=0)
    parameters = f"({', '.join(['NULL'] * count)})" * bool(count)
    try:
        with translated():
            await connection.execute(f"PREPARE doctor_looks_at AS {text}")
            told = await connection.fetchval(query("plan", "doctor").rstrip() + parameters)
            await connection.execute(query("forget", "doctor"))
    except DatabaseUnfit as fault:
        return str(fault)
    plan: Row = msgspec.json.decode(told)[0]["Plan"]
    return plan
