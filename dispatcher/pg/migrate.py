"""`dispatcher migrate`: applies `sql/` in order, each file once, in a transaction of its own.

Safe to run twice and from two places at once (advisory lock). A file that was applied is never changed: its checksum is
kept, and a difference is a fault. It runs as an administrator's login; objects belong to `dispatch_owner`.
"""

import hashlib
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
WRITING: Final = {
    "default_transaction_read_only": "off",
    "statement_timeout": "0",
    "lock_timeout": "3000",
    "application_name": "dispatcher-migrate",
}
ROLES: Final = ("dispatch_owner", "dispatch_reader", "dispatch_submitter", "dispatch_task",
                "dispatch_janitor", "dispatch_operator", "dispatch_observer")  # fmt: skip


class Migration(Struct, frozen=True):
    """One file of `sql/migrations`: `NNNN_{pre,post}_what.sql`. Post files ship a release after the code that left."""

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
"""The schema that this version was written for."""


async def migrate(database_url: str | None, *, check: bool = False) -> list[str]:
    """Applies what is pending and names it; with `check` only names it. DatabaseUnfit names a changed file."""
    connection = await open_connection(database_url, **WRITING)
    connection.add_log_listener(tell_notice)
    try:
        with translated():
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


async def take_lock(connection: asyncpg.Connection) -> None:
    """One migration at a time in this database. Any login may take the lock, so its holder is named while we wait."""
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
    """Waits for the lock as long as lock_timeout says."""
    try:
        await connection.execute(query("lock", "migrate"), LOCK)
    except asyncpg.LockNotAvailableError:
        return False
    return True


def tell_notice(_: object, notice: asyncpg.PostgresLogMessage) -> None:
    """What a migration has to say to the operator."""
    if notice.severity_en == "NOTICE" and notice.sqlstate == "00000" and notice.hint:
        log.warning(notice.message, next_step=notice.hint)


def plan_migrations(applied: dict[int, tuple[str, str]], known: list[Migration]) -> list[Migration]:
    """What is still to be applied."""
    for migration in known:
        name, checksum = applied.get(migration.version, (migration.name, migration.checksum))
        if checksum != migration.checksum:
            raise DatabaseUnfit(
                f"migration {name} was applied with checksum {checksum[:12]} and is now {migration.checksum[:12]}: "
                "an applied file is never changed; restore it and write a new one"
            )
    return [migration for migration in known if migration.version not in applied]


async def read_applied(connection: asyncpg.Connection) -> dict[int, tuple[str, str]]:
    if await connection.fetchval(query("is_new", "migrate")):
        return {}
    rows = await connection.fetch(query("applied", "migrate"))
    return {row["version"]: (row["name"], row["checksum"]) for row in rows}


async def prepare(connection: asyncpg.Connection) -> None:
    """Roles where the login may make them, and the schema."""
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
    """Before anything in the schema is read: whoever owns it may have put things of their own there."""
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
