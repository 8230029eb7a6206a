"""The checks of settings and database. Findings fill in the words in braces."""

from collections.abc import Mapping
from typing import Final

from dispatcher.doctor.check import Check, Part

SETTINGS: Final[Mapping[str, Check]] = {
    "UnknownSetting": Check(
        Part.SETTINGS,
        "Is every DISPATCHER_… variable a setting?",
        "The programs ignore the variable, so what it was meant to change stays as it was.",
        "unset {name}  # in a cluster: take it out of the settings of the installation",
    ),
}
DATABASE: Final[Mapping[str, Check]] = {
    "DatabaseAway": Check(
        Part.DATABASE,
        "Does the database answer?",
        "Without the database nothing is launched and nothing is deleted.",
        'psql "$DISPATCHER_DATABASE_URL" -c "\\conninfo"  # as the program connects; then check server and network',
    ),
    "LoginRefused": Check(
        Part.DATABASE,
        "Does the database accept the login?",
        "Without the database nothing is launched and nothing is deleted.",
        "kubectl -n {namespace} create secret generic {secret} --dry-run=client -o yaml "
        "--from-literal=url='postgresql://LOGIN:PASSWORD@HOST/DATABASE' | kubectl apply -f -  # {secret_is}",
    ),
    "DatabaseNotPrimary": Check(
        Part.DATABASE,
        "Is the server the primary?",
        "Rows of a standby may be old, so no decision uses them.",
        "kubectl -n {namespace} create secret generic {secret} --dry-run=client -o yaml "
        "--from-literal=url='postgresql://LOGIN:PASSWORD@PRIMARY,STANDBY/DATABASE' | kubectl apply -f -  # {secret_is}",
    ),
    "PostgresTooOld": Check(
        Part.DATABASE,
        "Is the server Postgres 15 or later?",
        "Older servers lack what the schema uses, and get no security fixes.",
        "pg_upgrade --help  # to Postgres 15 or later",
    ),
    "SchemaOld": Check(
        Part.DATABASE,
        "Is every migration of this version applied?",
        "The programs do nothing until the schema fits.",
        "DISPATCHER_DATABASE_URL='postgresql://dispatcher_migrate:PASSWORD@HOST/DATABASE' dispatcher migrate",
    ),
    "SchemaChanged": Check(
        Part.DATABASE,
        "Is each applied migration the one of this version?",
        "The schema may differ from what the programs were tested with, and `dispatcher migrate` stops.",
        "psql {database} -c 'SELECT version, name, checksum FROM dispatch.schema_version ORDER BY version'",
    ),
    "SchemaOwner": Check(
        Part.DATABASE,
        "Does the schema belong to dispatch_owner?",
        "Another owner can put functions and tables of its own into the schema, and `dispatcher migrate` stops.",
        "psql {database} -c 'ALTER SCHEMA dispatch OWNER TO dispatch_owner'",
    ),
    "IndexMissing": Check(
        Part.DATABASE,
        "Is each index of the schema there?",
        "Without an index the programs are not ready, or each cycle reads whole tables.",
        "psql {database} -c 'SET ROLE dispatch_owner' -c '{statement}'",
    ),
    "IndexInvalid": Check(
        Part.DATABASE,
        "Is each index of the schema valid?",
        "Postgres does not use an invalid index. The programs are not ready without the indexes that they need.",
        "psql {database} -c 'SET ROLE dispatch_owner' -c 'REINDEX INDEX CONCURRENTLY dispatch.{index}'",
    ),
    "PlanWithoutIndex": Check(
        Part.DATABASE,
        "Does each frequent query use its indexes?",
        "A query that reads the whole table gets slower with each row, and launches stop at its time limit.",
        "psql {database} -c 'ANALYZE dispatch.tasks' -c '\\d dispatch.tasks'  # compare with sql/migrations",
    ),
    "LoginAttributes": Check(
        Part.DATABASE,
        "Has the login no attribute of an administrator?",
        "A program needs none. A stolen password of this login could do much more than the program.",
        "psql {database} -c 'ALTER ROLE {login} {attributes}'",
    ),
    "LoginGroups": Check(
        Part.DATABASE,
        "Is the login a member of its program's role alone: dispatch_reader, or dispatch_janitor for the janitor?",
        "Without its role the program reads no row. With further roles a stolen password could do more.",
        "psql {database} -c '{statement}'",
    ),
    "LoginInherits": Check(
        Part.DATABASE,
        "Does the login inherit the rights of its role?",
        "Without them the program reads no row.",
        # Since Postgres 16 the attribute counts only when the role is granted.
        "psql {database} -c 'ALTER ROLE {login} INHERIT' -c 'REVOKE {group} FROM {login}' "
        "-c 'GRANT {group} TO {login}'",
    ),
    "MissingRight": Check(
        Part.DATABASE,
        "Has the login each right of its role?",
        "The program stops at the first query that it may not run.",
        "psql {database} -c 'SET ROLE dispatch_owner' -c 'GRANT {right} ON {object} TO {group}'",
    ),
    "ExtraRight": Check(
        Part.DATABASE,
        "Has the login only the rights of its role?",
        "A stolen password of this login could do more than the program.",
        "psql {database} -c 'REVOKE {right} ON {object} FROM {holder}'",
    ),
    "RightElsewhere": Check(
        Part.DATABASE,
        "Has the login no object of its own, and no right by name outside of schema dispatch?",
        "A program uses its schema alone. A stolen password of this login could do more.",
        "psql {database} -c 'REASSIGN OWNED BY {login} TO CURRENT_USER' -c 'DROP OWNED BY {login}'",
    ),
    "SearchPath": Check(
        Part.DATABASE,
        "Do the session and the functions look up names only in pg_catalog?",
        "Otherwise whoever creates objects in another schema chooses what runs with the rights of the owner.",
        "psql {database} -c 'ALTER {object} SET search_path = pg_catalog, pg_temp'",
    ),
    "ConnectionRoom": Check(
        Part.DATABASE,
        "Are connections left for a further replica?",
        "A new Pod, or a replica after a fail-over, gets no connection, and launches nothing.",
        "psql {database} -c 'ALTER {limit}'",
    ),
    "NotifyQueue": Check(
        Part.DATABASE,
        "Is the queue of notifications nearly empty?",
        "A session does not read its notifications. If the queue is full, every INSERT of a row fails.",
        "psql {database} -c 'SELECT pid, usename, xact_start, query FROM pg_stat_activity "
        "WHERE xact_start IS NOT NULL ORDER BY xact_start LIMIT 5'  # then pg_terminate_backend(pid)",
    ),
    "ClockOff": Check(
        Part.DATABASE,
        "Do the clocks of database, API server and this machine agree?",
        "Times of rows are compared with times of Jobs. Wrong clocks make waits, limits and logs wrong.",
        "chronyc tracking  # on {machine}; then start its time service",
    ),
}
