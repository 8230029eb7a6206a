"""`dispatcher migrate`: applies the files of `sql/migrations` in order, each one once, in a separate transaction.

The command may run twice, also at the same time (advisory lock). An applied file must not change: its checksum is
stored, and another checksum is a fault. The login is an administrator's; all objects belong to `dispatch_owner`.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import asyncpg
import structlog
from msgspec import Struct

from dispatcher.model.errors import DatabaseUnfit
from dispatcher.pg.connect import open_connection, translated
from dispatcher.pg.queries import query, sql_folder
from dispatcher.runtime.clock import elapsed

log = structlog.get_logger(component="pg.migrate")

LOCK: Final = 0x646973706174  # "dispat"
LONGEST_SECONDS: Final = 3600
TOLD_EVERY_SECONDS: Final = 60
OLDEST_POSTGRES: Final = 15
WRITING: Final = {
    "default_transaction_read_only": "off",
    "statement_timeout": "0",
    "lock_timeout": "3000",
    "application_name": "dispatcher-migrate",
}
ROLES: Final = ("dispatch_owner", "dispatch_reader", "dispatch_submitter", "dispatch_task",
                "dispatch_janitor", "dispatch_operator", "dispatch_observer")  # fmt: skip


class Migration(Struct, frozen=True):
    """One file of `sql/migrations`: `NNNN_{pre,post}_what.sql`.

    A post file ships one release after the code that needed the old shape has gone.
    """

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def read_migrations() -> list[Migration]:
    folder = sql_folder() / "migrations"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(int(file.name[:4]), file.name, file.read_text(encoding="utf-8")) for file in found]


NEWEST: Final = max(migration.version for migration in read_migrations())
"""The schema version that this program needs."""


async def migrate(database_url: str | None, *, check: bool = False) -> list[str]:
    """Applies pending migrations and returns their names. `check`: apply nothing.

    Raises DatabaseUnfit if an applied file has changed.
    """
    connection = await open_connection(database_url, **WRITING)
    connection.add_log_listener(tell_notice)
    try:
        with translated():
            check_server(connection.get_server_version().major)
            if not check:
                await take_lock(connection)
            await check_owner(connection)
            pending = plan_migrations(await read_applied(connection), read_migrations())
            if pending and not check:
                await prepare(connection)
            for migration in () if check else pending:
                await apply(connection, migration)
            return [migration.name for migration in pending]
    finally:
        await connection.close()


def check_server(major: int) -> None:
    """Raises DatabaseUnfit for a Postgres that lacks what the schema uses, such as `security_invoker` of views."""
    if major < OLDEST_POSTGRES:
        raise DatabaseUnfit(f"the server is Postgres {major}: the schema needs {OLDEST_POSTGRES} or later")


async def take_lock(connection: asyncpg.Connection) -> None:
    """Waits for the lock of the migration in this database. Any login may take it, so the log names the holder."""
    begun, told_at = elapsed(), float("-inf")
    while not await is_taken(connection):
        holders = await connection.fetch(query("holders", "migrate"), LOCK)
        named = ", ".join(f"{row['login']} (pid {row['pid']}, connected {row['since']})" for row in holders)
        if elapsed() - begun > LONGEST_SECONDS:
            raise DatabaseUnfit(f"the lock of the migration is held by {named}: end that session")
        if holders and elapsed() - told_at > TOLD_EVERY_SECONDS:
            told_at = elapsed()
            log.warning("waiting for the lock of the migration", held_by=named,
                        next_step="if that is no migration, end it: SELECT pg_terminate_backend(pid)")  # fmt: skip


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
    if await connection.fetchval(query("may_create_roles", "migrate")):
        await connection.execute((sql_folder() / "roles.sql").read_text(encoding="utf-8"))
    missing = await connection.fetch(query("missing_roles", "migrate"), list(ROLES))
    if missing:
        names = ", ".join(row["name"] for row in missing)
        raise DatabaseUnfit(
            f"roles {names} are missing and this login may not create them: run sql/roles.sql as an administrator"
        )
    await connection.execute(query("schema", "migrate"))
    await check_owner(connection)


async def check_owner(connection: asyncpg.Connection) -> None:
    """Refuses a schema of another owner, who may have put functions into it. Call this before reading the schema."""
    owner = await connection.fetchval(query("schema_owner", "migrate"))
    if owner not in {None, "dispatch_owner"}:
        raise DatabaseUnfit(
            f"schema dispatch belongs to {owner}, which could put functions of its own into it: "
            "look at what it holds, then ALTER SCHEMA dispatch OWNER TO dispatch_owner, or drop it"
        )


async def apply(connection: asyncpg.Connection, migration: Migration) -> None:
    async with connection.transaction():
        await connection.execute(query("as_owner", "migrate"))
        await connection.execute(migration.text, timeout=LONGEST_SECONDS)
        await connection.execute(query("record", "migrate"), migration.version, migration.name, migration.checksum)
