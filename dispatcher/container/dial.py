"""How every program of ours reaches the primary that a Postgres URL names.

A URL that psql takes works here, too. Each host gets its own time: the driver has one limit for all hosts together, and
a first host that accepts and never answers would use it up. Parameters that only libpq knows are read here: they are
honoured, skipped if they ask for nothing, or refused by name. No parameter is ignored that somebody relies on.

It runs in containers of tasks, too, so it needs only the driver and the standard library.
"""

import asyncio
import os
import random
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlencode

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from dispatcher.container.asking import NEXT_ADDRESS_SECONDS, in_thread
from dispatcher.container.contract import (
    BUNDLES,
    PINNED,
    SERVER,
    URL_FORM,
    NewestServer,
    OldPrimary,
    bundle_of,
    host_seconds,
)

CALL_SECONDS: Final = 10
"""The longest time for the answer to a call of a container, in seconds."""
URL: Final = re.compile(r"(postgres(?:ql)?://(?:[^/?@]*@)?)([^/?@]*)([^?@]*)(?:\?(.*))?", re.DOTALL)
"""The parts of a URL: what stands before the hosts, the hosts, the path, the query."""
PASSED_OVER: Final = frozenset({
    "client_encoding",  # the driver always uses UTF8
    "fallback_application_name",  # each of our programs names itself
    "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",  # ours are shorter
    "sslcompression", "sslsni", "min_protocol_version",
})  # fmt: skip
"""Parameters of libpq that change nothing for our programs."""
ASKS_NOTHING: Final = {
    "channel_binding": {"disable", "prefer"}, "gssencmode": {"disable", "prefer"}, "gssdelegation": {"0"},
    "require_auth": set(), "requirepeer": set(), "replication": {"false", "off", "no", "0"}, "hostaddr": set(),
    "sslcertmode": {"allow"}, "sslcrldir": set(), "sslkeylogfile": set(), "max_protocol_version": {"3.0", "latest"},
    "scram_client_key": set(), "scram_server_key": set(), "servicefile": set(), "oauth_issuer": set(),
    "oauth_client_id": set(), "oauth_client_secret": set(), "oauth_scope": set(),
    "target_session_attrs": {"any", "primary", "read-write", "prefer-standby"},
}  # fmt: skip
"""Parameters that the driver cannot honour, with the values that change nothing."""
VERIFIES: Final = frozenset({"verify-ca", "verify-full"})
VERSIONS: Final = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
CHOICES: Final = {
    "sslmode": ("disable", "allow", "prefer", "require", *sorted(VERIFIES)),
    "ssl_min_protocol_version": VERSIONS, "ssl_max_protocol_version": VERSIONS,
    "load_balance_hosts": ("disable", "random"), "sslnegotiation": ("postgres", "direct"), "gsslib": ("gssapi", "sspi"),
}  # fmt: skip
"""Parameters that take one of some words. For another word, the driver says only that the URL is wrong."""
LOGIN: Final = {"user": "user", "password": "password", "dbname": "database", "database": "database"}
"""Parameters that win over the login before the query, as in libpq, and their names in the driver."""
ROOT: Final = ".postgresql/root.crt"
"""The file, below the home folder, in which libpq and the driver look for certificates of authorities."""
FROM_ENV: Final = {
    "PGCHANNELBINDING": "channel_binding", "PGGSSENCMODE": "gssencmode", "PGREQUIREAUTH": "require_auth",
    "PGREQUIREPEER": "requirepeer", "PGHOSTADDR": "hostaddr", "PGSSLCERTMODE": "sslcertmode",
    "PGCONNECT_TIMEOUT": "connect_timeout", "PGLOADBALANCEHOSTS": "load_balance_hosts",
    "PGSSLROOTCERT": "sslrootcert", "PGSSLMODE": "sslmode", "PGSSLCERT": "sslcert",
    "PGSSLNEGOTIATION": "sslnegotiation", "PGGSSLIB": "gsslib",
    "PGSSLMINPROTOCOLVERSION": "ssl_min_protocol_version", "PGSSLMAXPROTOCOLVERSION": "ssl_max_protocol_version",
}  # fmt: skip
"""Variables that libpq reads, and the driver does not, or about which it says little."""
INSTEAD: Final = {
    "channel_binding": "sslmode=verify-full protects against the same",
    "require_auth": "sslmode=verify-full keeps the password from others",
    "hostaddr": "name the address as the host",
    "target_session_attrs": "our programs need the primary",
}
FAULTS: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""All exceptions of the driver, except the one for an unreadable URL."""
OF_LOGIN_OR_OUTAGE: Final = frozenset({"28", "3D", "53", "57"})
"""Classes of SQLSTATEs with which a server refuses a session, whatever its settings are."""
LOOKUP_SECONDS: Final = 20
"""The longest time for the lookup of a name, in seconds."""
NO_NAME: Final = re.compile(r"/|[\d.]+$|.*:")
"""A folder of a socket, or an address."""
DEFAULT_PORT: Final = 5432
LARGEST_PORT: Final = 2**16
FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


class UnreadableUrl(Exception):
    """The URL cannot be used. The message names the parameter and the next step, and no part of the password."""


class HostRoute(NamedTuple):
    """How to reach one host of a URL.

    dsn: for the driver, without hosts and without parameters that it does not know.
    host, port: None: the driver looks where libpq does.
    seconds: the longest time for the host.
    has_public_roots: whether the server's certificate is checked against the machine's authorities.
    login: user, password and database of the query, by the driver's names.
    """

    dsn: str
    host: str | None
    port: int | None
    seconds: float
    has_public_roots: bool
    login: Mapping[str, str] = {}


class Loop(asyncio.SelectorEventLoop):
    """Tries the addresses of a name side by side, because psql gives each its own time: the first may be dead.

    A name is looked up in a thread of its own, which keeps no program from its end.
    """

    async def create_connection(  # type: ignore[override]  # any of its forms
        self, factory: Any, host: Any = None, port: Any = None, **how: Any
    ) -> Any:
        if host is not None:
            how.setdefault("happy_eyeballs_delay", NEXT_ADDRESS_SECONDS)
        return await super().create_connection(factory, host, port, **how)

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
        return await asyncio.wrap_future(in_thread(lambda: socket.getaddrinfo(host, port, **how)), loop=self)


async def dial(
    url: str | None,
    settings: Mapping[str, str],
    newest: NewestServer,
    *,
    answer_seconds: float,
    cached_statements: int = 100,
) -> asyncpg.Connection:
    """A session with the primary. Without one, raises the first fault of a host.

    Raises UnreadableUrl, OldPrimary, or what the driver raises. A refused login ends the search, as it does in libpq.
    """
    first: Exception | None = None
    for way in ways_of(url, os.environ):
        try:
            connection = await connected(way, settings, answer_seconds, cached_statements)
            return await recognised(connection, newest)
        except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError):
            raise
        except (*FAULTS, OldPrimary) as fault:
            fault.add_note(f"(host {way.host or 'of the local socket'}, port {way.port or DEFAULT_PORT})")
            first = first or fault
    assert first is not None
    raise first


async def ask_once(
    url: str, name: str, newest: NewestServer, statement: str, parameters: Sequence[object]
) -> asyncpg.Record | None:
    """One call of a container, in a session of its own. `name`: the application's. Raises the same as `dial`."""
    settings = {"application_name": name}
    dialled = partial(dial, url, newest=newest, answer_seconds=CALL_SECONDS, cached_statements=0)  # perhaps a pooler
    try:
        connection = await dialled(settings | PINNED)
    except asyncpg.PostgresError as fault:
        if str(fault.sqlstate)[:2] in OF_LOGIN_OR_OUTAGE:
            raise
        connection = await dialled(settings)  # as a pooler wants it: our statements name every schema
    try:
        return await connection.fetchrow(statement, *parameters)
    finally:
        connection.terminate()  # no clean close: a frozen server would not answer
        await asyncio.sleep(0)  # the turn of the loop that closes the socket


async def connected(
    way: HostRoute, settings: Mapping[str, str], answer_seconds: float, cached_statements: int
) -> asyncpg.Connection:
    try:
        connection: asyncpg.Connection = await asyncpg.connect(
            way.dsn,
            host=way.host,
            port=way.port,
            timeout=way.seconds + await lookup_seconds(way.host, way.port or DEFAULT_PORT),
            command_timeout=answer_seconds,
            statement_cache_size=cached_statements,
            server_settings=dict(settings),
            target_session_attrs=SessionAttribute.primary,
            ssl=True if way.has_public_roots else None,
            user=way.login.get("user"),
            password=way.login.get("password"),
            database=way.login.get("database"),
        )
    except (KeyError, OSError) as fault:
        # Before ValueError: a certificate that does not verify is both. Its owner may renew it while the work goes on.
        if (lack := lack_of_the_account(fault)) is None:
            raise
        raise UnreadableUrl(lack) from None
    except RuntimeError as fault:  # a name is looked up in a thread, and none can be started now
        raise OSError(str(fault)) from fault
    except (ValueError, OverflowError):  # the driver's message may contain the password
        raise UnreadableUrl(f"it is not {URL_FORM}") from None
    except asyncpg.UndefinedObjectError as fault:  # the driver passes on what it does not know
        named = re.search(r'"([\w.]{1,100})"', str(fault))
        raise UnreadableUrl(
            f"{named[1] if named else fault} is known neither to libpq nor to the server. Take it out"
        ) from None
    return connection


async def lookup_seconds(host: str | None, port: int) -> float:
    """How long the name server takes for the host. A dead one costs each lookup 5 s, and psql does not count them."""
    if host is None or NO_NAME.match(host):
        return 0
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError as fault:
        raise TimeoutError(f"no name server has told the address within {LOOKUP_SECONDS} s") from fault
    return loop.time() - began


def lack_of_the_account(fault: Exception) -> str | None:
    """What this account lacks for the URL. None: the fault is another one, and may pass."""
    if isinstance(fault, KeyError) or "No username" in str(fault):  # getpass says so since Python 3.13
        return "it names no user, and this account has no name: write USER@ before the host"
    try:
        own_roots(os.environ).stat()
    except PermissionError as closed:  # root's: it started the program, which went on as another user
        if isinstance(fault, PermissionError):
            folder = Path(closed.filename).parent
            return f"the driver looks into {folder}, which is closed to this account: set HOME to a folder of its own"
    except (OSError, RuntimeError):
        pass
    return None


async def recognised(connection: asyncpg.Connection, newest: NewestServer) -> asyncpg.Connection:
    """The connection. Raises OldPrimary if its server must not be used."""
    try:
        found = await connection.fetchrow(SERVER)
        assert found is not None  # it has one row
        newest.learn(*found)
    except asyncpg.PostgresError:
        pass  # some providers refuse the question; then any primary is taken
    except BaseException:  # cancellation, too: no caller has the connection yet
        connection.terminate()
        raise
    return connection


def ways_of(url: str | None, env: Mapping[str, str]) -> list[HostRoute]:
    """How to reach each host. `env`: for libpq's variables. Raises UnreadableUrl for what cannot be honoured."""
    try:
        return routes_of(url, env)
    except UnreadableUrl as fault:
        set_here = [name for name in (*FROM_ENV, "PGHOST", "PGPORT") if env.get(name)]
        try:
            routes_of(url, {name: value for name, value in env.items() if name not in set_here})
        except UnreadableUrl:
            raise fault from None
        raise UnreadableUrl(f"{fault} (of the environment, which has {', '.join(set_here)})") from None


def routes_of(url: str | None, env: Mapping[str, str]) -> list[HostRoute]:
    parts = URL.fullmatch((url or "postgresql://").strip())  # a Secret that was made with `echo` ends with a newline
    if parts is None:
        raise UnreadableUrl(f"it is not {URL_FORM}")
    before, netloc, path, query = parts.groups("")
    given = {name: env[variable] for variable, name in FROM_ENV.items() if env.get(variable)} | parameters_in(query)
    login = {theirs: given.pop(name) for name, theirs in LOGIN.items() if given.get(name)}
    if given.get("ssl") == "true":
        given |= {"sslmode": given.get("sslmode") or "require"}
        del given["ssl"]
    check_words(given)
    named = given.pop("host", "") or ("" if netloc else env.get("PGHOST", ""))
    hosts = [(name, "") for name in named.split(",")] if named else hosts_before_the_path(netloc)
    found = with_ports(hosts, given.pop("port", "") or env.get("PGPORT", ""))
    seconds = seconds_of(given.pop("connect_timeout", ""))
    if given.pop("load_balance_hosts", "") == "random":
        random.shuffle(found)
    if given.get("sslrootcert") == "system" and (bundle := roots_of(ssl.get_default_verify_paths())):
        given |= {"sslrootcert": bundle, "sslmode": "verify-full"}
    if has_public_roots := given.get("sslrootcert") == "system":  # it means sslmode=verify-full
        given = {name: value for name, value in given.items() if name not in {"sslrootcert", "sslmode"}}
    for name in FILES if given.get("sslmode") != "disable" else ():
        check_file(name, given.get(name, ""))
    if given.get("sslmode") in VERIFIES and not (given.get("sslrootcert") or has_own_roots(env)):
        raise UnreadableUrl(f"sslmode={given['sslmode']} needs sslrootcert=FILE, or sslrootcert=system")
    kept = urlencode({name: value for name, value in given.items() if is_for_the_driver(name, value)}, quote_via=quote)
    start = (before + path).translate(RAW)
    return [HostRoute(f"{start}?{kept}" if kept else start, *one, seconds, has_public_roots, login) for one in found]


RAW: Final = str.maketrans({one: quote(one) for one in "#[]"})
"""Characters that libpq takes unescaped in a password, and the driver does not."""


def parameters_in(query: str) -> dict[str, str]:
    """The parameters, as libpq reads them: a plus sign is a plus sign."""
    pairs = (pair.partition("=") for pair in query.split("&") if pair)
    return {unquote(name): unquote(value) for name, _, value in pairs if value}


def roots_of(openssl: ssl.DefaultVerifyPaths, bundles: Sequence[str] = BUNDLES) -> str | None:
    """The image's file of public authorities. None: OpenSSL finds its own.

    An init container brings the OpenSSL of Debian into images of others. It looks in the places of Debian alone.
    """
    if openssl.cafile or openssl.capath:
        return None
    if found := bundle_of({}, bundles):
        return found
    raise UnreadableUrl("sslrootcert=system, but this image has no certificates of public authorities: name a file")


def own_roots(env: Mapping[str, str]) -> Path:
    """Where libpq and the driver look for certificates of authorities. RuntimeError: the account has no home folder."""
    return Path(env.get("HOME") or Path.home(), ROOT)


def has_own_roots(env: Mapping[str, str]) -> bool:
    try:
        own_roots(env).stat()
    except (OSError, RuntimeError):
        return False
    return True


def check_words(given: Mapping[str, str]) -> None:
    for name, words in CHOICES.items():
        if given.get(name) and given[name] not in words:
            raise UnreadableUrl(f"{name}{shown(given[name])} is none of {', '.join(words)}")
    is_strong = given.get("sslmode") in {"require", *VERIFIES} or given.get("sslrootcert") == "system"
    if given.get("sslnegotiation") == "direct" and not is_strong:
        raise UnreadableUrl("sslnegotiation=direct needs sslmode=require, or a stronger one")


def hosts_before_the_path(netloc: str) -> list[tuple[str, str]]:
    """Hosts with their ports, as in `a:5432,[::1],%2Frun%2Fpostgresql`. A colon of a name is percent-encoded here.

    In `host=` and PGHOST no port stands beside a name, as in libpq: its colons are those of a folder or an address.
    """
    found = list[tuple[str, str]]()
    for written in netloc.split(","):
        parts = re.fullmatch(r"(?:\[([^\]]*)\]|([^:/\[\]]*))(?::(\d*))?", written)
        if parts is None:
            raise UnreadableUrl(f"it is not {URL_FORM}")  # the parts may be those of a password
        found.append((unquote(parts[1] or parts[2]), parts[3] or ""))
    return found


def with_ports(hosts: Sequence[tuple[str, str]], ports: str) -> list[tuple[str | None, int | None]]:
    """Hosts with their ports. `ports`: the parameter: one for all, or one for each."""
    numbers = ports.split(",")
    if len(numbers) not in {1, len(hosts)}:
        raise UnreadableUrl(f"{len(hosts)} hosts with {len(numbers)} ports: name one port, or one for each host")
    found: list[tuple[str | None, int | None]] = []
    for (name, own), number in zip(hosts, numbers * len(hosts), strict=False):
        port = own or number
        if not re.fullmatch(r"\d{0,5}", port):
            raise UnreadableUrl(f"it is not {URL_FORM}")
        if port and not 0 < int(port) < LARGEST_PORT:
            raise UnreadableUrl(f"port {port} is not from 1 to {LARGEST_PORT - 1}")
        found.append((name or None, int(port) if port else None))
    return found


def seconds_of(written: str) -> int:
    """The time for one host."""
    if not re.fullmatch(r"(-?\d+)?", written):
        raise UnreadableUrl(f"connect_timeout{shown(written)} must be a number of seconds")
    return host_seconds(written)


def is_for_the_driver(name: str, value: str) -> bool:
    """Whether the driver honours the parameter, or passes it on as a setting of the session."""
    if name in ASKS_NOTHING and value not in ASKS_NOTHING[name]:
        written = "" if name.endswith(("key", "secret")) else shown(value)
        next_step = f": {INSTEAD[name]}" if name in INSTEAD else ""
        raise UnreadableUrl(f"{name}{written} is not supported. Take it out{next_step}")
    return name not in ASKS_NOTHING and name not in PASSED_OVER


def check_file(name: str, path: str) -> None:
    """Raises UnreadableUrl if a file of TLS cannot be used. The driver would not name the file."""
    try:
        is_pem = not path or b"-----BEGIN " in Path(path).read_bytes()
    except OSError as fault:
        raise UnreadableUrl(f"{name}{shown(path)} cannot be read: {fault.strerror}") from fault
    if not is_pem:
        raise UnreadableUrl(f"{name}{shown(path)} holds nothing in PEM form (-----BEGIN …)")


def shown(value: str) -> str:
    """The value for a message. Anything that may be part of a password is left out: it may contain `?`."""
    return f"={value}" if re.fullmatch(r"[\w./-]{1,200}", value) else ""
