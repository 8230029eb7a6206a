"""A call through psycopg 3."""

import contextlib
import os
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dispatcher.container.contract import (
    LOGIN_REFUSED,
    PINNED,
    SERVER,
    URL_FORM,
    NewestServer,
    OldPrimary,
    WrongEnvironment,
    bundle_of,
    host_seconds,
    variables_of_libpq,
)
from dispatcher.task.body import DatabaseFault

ANSWERED: Final = re.compile(r": \w+:  ")  # a word of the server's language or of a pooler: FATAL, ERROR, ВАЖНО
OF_THE_LOGIN: Final = "password authentication failed"


def ask(url: str, newest: NewestServer, statement: str, parameters: Sequence[object]) -> tuple[Any, ...] | None:
    """The first row of the answer. `newest`: the newest server that this task saw."""
    try:
        # A copy of the socket has a number of its own, which no other socket gets meanwhile.
        with connect(url) as connection, socket.socket(fileno=os.dup(connection.fileno())) as copy:
            alarm = threading.Timer(10, cut, [copy])  # the driver itself would wait for ever
            alarm.daemon = True
            with contextlib.suppress(RuntimeError):  # no thread can be started now
                alarm.start()
            try:
                recognise(connection, newest)
                return connection.execute(re.sub(r"\$\d+", "%s", statement).encode(), parameters).fetchone()
            finally:
                alarm.cancel()
    except (OSError, psycopg.Error, OldPrimary) as fault:
        refused = LOGIN_REFUSED if OF_THE_LOGIN in str(fault) else None  # it gives no code for it
        raise DatabaseFault(fault, getattr(fault, "sqlstate", None) or refused) from fault
    except WrongEnvironment:
        raise
    except Exception as fault:  # whatever it is, the report may arrive later
        raise DatabaseFault(fault, None) from fault


def recognise(connection: psycopg.Connection[tuple[Any, ...]], newest: NewestServer) -> None:
    """Raises OldPrimary if the server must not be used."""
    with contextlib.suppress(psycopg.Error):  # some providers refuse the question; then any primary is taken
        row = connection.execute(SERVER).fetchone()
        assert row is not None  # it has one row
        newest.learn(*row)


def cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed by now
        connection.shutdown(socket.SHUT_RDWR)


def connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    with contextlib.suppress(psycopg.ProgrammingError):  # its message may contain the password
        url, seconds, options = for_psycopg(url, os.environ)
        try:
            pinned = ("-c {}={}".format(name, value.replace(" ", "\\ ")) for name, value in PINNED.items())
            return connect_with(url, seconds, " ".join((options, *pinned)))
        except psycopg.OperationalError as fault:
            if ANSWERED.search(str(fault)) and OF_THE_LOGIN not in str(fault):  # perhaps our settings: a pooler
                return connect_with(url, seconds, options)  # our statements name the schema of each object
            if "connection is bad: invalid" not in str(fault):
                raise
    raise WrongEnvironment(f"TASK_DATABASE_URL cannot be read: {URL_FORM}{variables_of_libpq(os.environ)}")


def for_psycopg(url: str, env: Mapping[str, str]) -> tuple[str, int, str]:
    """The URL as psycopg needs it, the seconds for each host, and the options. Refuses parts of a password."""
    given = conninfo_to_dict(url)
    if "@" in str(given.get("host", "")) or re.search(r"[^\d,]", str(given.get("port", ""))):
        raise psycopg.ProgrammingError  # these are parts of a password
    if given.get("sslrootcert") == "system" and (bundle := bundle_of(env)):  # psycopg[binary] finds no file
        url = make_conninfo(url, sslrootcert=bundle, sslmode="verify-full")
    limit = given.get("connect_timeout") or env.get("PGCONNECT_TIMEOUT", "")
    return url, host_seconds(str(limit)), str(given.get("options", ""))


def connect_with(url: str, seconds: int, options: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(
        url, autocommit=True, connect_timeout=seconds, options=options, client_encoding="utf8",
        prepare_threshold=None,  # one statement, perhaps through a pooler
        application_name="dispatcher/task", target_session_attrs=primary_for(psycopg.pq.version()),
    )  # fmt: skip


def primary_for(libpq: int) -> str:
    """The value that asks this version of libpq for the primary. Older images have version 13, without `primary`."""
    return "primary" if libpq >= KNOWS_PRIMARY else "read-write"


KNOWS_PRIMARY: Final = 140_000
