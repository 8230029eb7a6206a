"""A URL of libpq is read: its hosts, its times, and what each of its parameters asks for."""

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from dispatcher.commands.options import loop_factory
from dispatcher.container import dial
from dispatcher.container.contract import CONNECT_SECONDS, LONGEST_CONNECT_SECONDS, NewestServer, bundle_of
from dispatcher.container.dial import (
    ASKS_NOTHING,
    FROM_ENV,
    PASSED_OVER,
    UnreadableUrl,
    ways_of,
)  # fmt: skip
from dispatcher.task import by_asyncpg
from dispatcher.task.body import DatabaseFault
from dispatcher.task.by_psycopg import for_psycopg

OF_THE_DRIVER = {
    "dbname", "user", "password", "passfile", "sslmode", "sslcert", "sslkey", "sslrootcert", "sslnegotiation", "sslcrl",
    "sslpassword", "ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib", "service", "options",
    "application_name",
}  # fmt: skip
READ_HERE = {"host", "port", "connect_timeout", "load_balance_hosts"}


def hosts(url: str | None, **env: str) -> list[tuple[str | None, int | None]]:
    return [(way.host, way.port) for way in ways_of(url, env)]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://u:p@a/db", [("a", None)]),
        ("postgres://u:p@a:1,b:2/db", [("a", 1), ("b", 2)]),
        ("postgresql://u@[::1]:5433,10.0.0.1/db", [("::1", 5433), ("10.0.0.1", None)]),
        ("postgresql://a,b?port=7", [("a", 7), ("b", 7)]),
        ("postgresql:///db?host=a,b&port=1,2", [("a", 1), ("b", 2)]),
        ("postgresql://%2Frun%2Fpostgresql:5433/db", [("/run/postgresql", 5433)]),
        ("postgresql:///db?host=/run/postgresql", [("/run/postgresql", None)]),
        ("postgresql:///db?host=/cloudsql/proj:europe-west1:inst", [("/cloudsql/proj:europe-west1:inst", None)]),
        ("postgresql://u@%2Fcloudsql%2Fp%3Ar%3Ai/db?port=7", [("/cloudsql/p:r:i", 7)]),
        ("postgresql:///db?host=::1,fe80::1&port=1,2", [("::1", 1), ("fe80::1", 2)]),
        ("postgresql://", [(None, None)]),
    ],
)
def test_hosts_of_a_url_are_tried_one_by_one(url: str, found: list[tuple[str | None, int | None]]) -> None:
    assert hosts(url) == found


def test_variables_of_libpq_name_hosts_too() -> None:
    assert hosts(None, PGHOST="a,b", PGPORT="1,2") == [("a", 1), ("b", 2)]
    assert hosts("postgresql://c/db", PGHOST="a,b", PGPORT="7") == [("c", 7)]
    assert hosts(None, PGHOST="/cloudsql/p:r:i,::1") == [("/cloudsql/p:r:i", None), ("::1", None)]
    with pytest.raises(UnreadableUrl, match="channel_binding=require is not supported"):
        hosts(None, PGCHANNELBINDING="require")


def test_every_parameter_of_libpq_is_honoured_passed_over_or_refused_by_name() -> None:
    """The list is that of the libpq of this machine. A newer one has more."""
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    placed = [*OF_THE_DRIVER, *READ_HERE, *PASSED_OVER, *ASKS_NOTHING]
    assert known - set(placed) - {"authtype", "tty", "sslcompression", "requiressl"} == set()
    assert len(placed) == len(set(placed))
    assert set(FROM_ENV.values()) <= set(placed)


@pytest.mark.parametrize("name", sorted(ASKS_NOTHING))
def test_demand_that_cannot_be_met_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(UnreadableUrl, match=f"^{name}.*is not supported. Take it out"):
        ways_of(f"postgresql://u@a/db?{name}=require", {})
    for harmless in ASKS_NOTHING[name]:
        assert "?" not in ways_of(f"postgresql://u@a/db?{name}={harmless}", {})[0].dsn


@pytest.mark.parametrize("name", sorted(PASSED_OVER))
def test_parameter_without_a_meaning_does_not_reach_the_server(name: str) -> None:
    assert ways_of(f"postgresql://u@a/db?{name}=1", {})[0].dsn == "postgresql://u@/db"


def test_other_parameters_reach_the_driver() -> None:
    (way,) = ways_of("postgresql://u@a/db?sslmode=require&options=-c%20work_mem%3D4MB&application_name=", {})
    assert way.dsn == "postgresql://u@/db?sslmode=require&options=-c%20work_mem%3D4MB"


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("", CONNECT_SECONDS),
        ("0", CONNECT_SECONDS),
        ("-1", CONNECT_SECONDS),
        ("9", 9),
        ("999", LONGEST_CONNECT_SECONDS),
    ],
)
def test_each_host_has_its_own_time(written: str, seconds: float) -> None:
    assert [way.seconds for way in ways_of(f"postgresql://a,b/db?connect_timeout={written}", {})] == [seconds] * 2


def test_hosts_may_be_tried_in_any_order() -> None:
    orders = {tuple(hosts("postgresql://a,b/db?load_balance_hosts=random")) for _ in range(200)}
    assert len(orders) == 2


def test_certificates_of_the_machine_may_be_named() -> None:
    (way,) = ways_of("postgresql://a/db?sslrootcert=system&sslmode=verify-full", {})
    assert (way.dsn, way.has_public_roots) == ("postgresql:///db", True)


def test_certificates_of_an_image_are_found_where_openssl_does_not_look(tmp_path: Path) -> None:
    """The Python that an init container brings has Debian's places, and the image is another one's."""
    places = ssl.DefaultVerifyPaths("", "", "", "/usr/lib/ssl/cert.pem", "", "/usr/lib/ssl/certs")
    absent, bundle = str(tmp_path / "absent.pem"), tmp_path / "cert.pem"
    with pytest.raises(UnreadableUrl, match="this image has no certificates of public authorities: name a file"):
        dial.roots_of(places, [absent])
    bundle.write_text("-----BEGIN CERTIFICATE-----")
    assert dial.roots_of(places, [absent, str(bundle)]) == str(bundle)
    assert dial.roots_of(places._replace(capath="/usr/lib/ssl/certs"), [str(bundle)]) is None


def test_psycopg_gets_the_certificates_of_the_image() -> None:
    """The OpenSSL of psycopg[binary] looks where no image has any."""
    asked = "postgresql://u@a/db?sslrootcert=system"
    given = [conninfo_to_dict(for_psycopg(asked, env)[0]) for env in ({}, {"SSL_CERT_FILE": "own.pem"})]
    assert [one["sslrootcert"] for one in given] == [bundle_of({}), "system"]
    assert given[0]["sslmode"] == "verify-full"


def test_psycopg_gives_a_host_as_much_time() -> None:
    urls = (f"postgresql://u@a/db?connect_timeout={written}" for written in ("", "0", "-1", "9", "999"))
    assert [for_psycopg(url, {})[1] for url in urls] == [CONNECT_SECONDS] * 3 + [9, LONGEST_CONNECT_SECONDS]


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
def test_faulty_file_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableUrl, match=f"{name}=.*/none cannot be read: No such file"):
        ways_of(f"postgresql://a/db?{name}={tmp_path / 'none'}", {})
    (tmp_path / "empty").touch()
    with pytest.raises(UnreadableUrl, match=f"{name}=.*/empty holds nothing in PEM form"):
        ways_of(f"postgresql://a/db?{name}={tmp_path / 'empty'}", {})
    assert ways_of(f"postgresql://a/db?sslmode=disable&{name}={tmp_path / 'none'}", {})


@pytest.mark.parametrize(
    "url",
    [
        "hush", "mysql://u:hush@a/db", "postgresql://u:12/hush@a/db", "postgresql://u:hu?sh=hush@a/db",
        "postgresql://u:12?channel_binding=hush@a/db", "postgresql://u:12?connect_timeout=hush@a/db",
        "postgresql://u:12?sslcert=/hush@a/db", "postgresql://u:hush,hush,hush/db?port=1,2",
        "postgresql://u:12@hush@a/db",
    ],
)  # fmt: skip
def test_no_message_has_a_part_of_the_password(url: str) -> None:
    with pytest.raises(UnreadableUrl) as caught:
        ways_of(url, {})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("sslmode=verify_full", "sslmode=verify_full is none of disable, allow"),
        ("sslmode=verify-full", "sslmode=verify-full needs sslrootcert=FILE, or sslrootcert=system"),
        ("ssl_min_protocol_version=TLSv1.9", "ssl_min_protocol_version=TLSv1.9 is none of TLSv1, "),
        ("load_balance_hosts=bogus", "load_balance_hosts=bogus is none of disable, random"),
        ("sslnegotiation=bogus", "sslnegotiation=bogus is none of postgres, direct"),
        ("sslnegotiation=direct", "sslnegotiation=direct needs sslmode=require"),
        ("port=99999", "port 99999 is not from 1 to 65535"),
    ],
)
def test_parameter_with_a_wrong_word_is_named(query: str, told: str) -> None:
    with pytest.raises(UnreadableUrl, match=re.escape(told)):
        ways_of(f"postgresql://u@a/db?{query}", {"HOME": "/nonexistent"})


def test_variable_of_libpq_is_judged_as_its_parameter_is() -> None:
    with pytest.raises(UnreadableUrl, match="sslmode=verify-ca needs sslrootcert"):
        ways_of("postgresql://u@a/db", {"HOME": "/nonexistent", "PGSSLMODE": "verify-ca"})


@pytest.mark.parametrize(
    ("url", "dsn", "login"),
    [
        ("postgresql://u:p#q@a/db", "postgresql://u:p%23q@/db", {}),
        ("postgresql://u:p[q]@a/db", "postgresql://u:p%5Bq%5D@/db", {}),
        ("postgresql://u@a/?password=a+b%2Bc", "postgresql://u@/", {"password": "a+b+c"}),
        ("postgresql://u@a/postgres?dbname=x&user=v", "postgresql://u@/postgres", {"database": "x", "user": "v"}),
    ],
)
def test_login_and_database_are_read_as_libpq_reads_them(url: str, dsn: str, login: dict[str, str]) -> None:
    (way,) = ways_of(url, {})
    assert (way.dsn, way.login) == (dsn, login)


@pytest.mark.parametrize(
    "env",
    [
        {"PGHOSTADDR": "10.0.0.5"}, {"PGSSLROOTCERT": "/of/another.pem"}, {"PGREQUIREAUTH": "md5"},
        {"PGSSLCERT": "/of/another.pem"}, {"PGSSLNEGOTIATION": "direct"}, {"PGSSLMINPROTOCOLVERSION": "TLSv9"},
        {"PGGSSLIB": "other"},
    ],
)  # fmt: skip
def test_variable_of_the_images_own_database_is_blamed_and_not_the_url(env: dict[str, str]) -> None:
    with pytest.raises(UnreadableUrl, match=rf"\(of the environment, which has {next(iter(env))}\)$"):
        ways_of("postgresql://u@a/d", env)
    with pytest.raises(UnreadableUrl, match=r"^((?!of the environment).)*$"):
        ways_of("postgresql://u@a/d?hostaddr=10.0.0.5", env)


@pytest.mark.parametrize(
    "fault", [KeyError("getpwuid(): uid not found: 7"), OSError("No username set in the environment")]
)
async def test_account_without_a_name_is_told_to_write_one(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container with any number as its user. Python says it in another way since 3.13."""

    def getuser() -> str:
        raise fault

    monkeypatch.setattr("getpass.getuser", getuser)
    monkeypatch.delenv("PGUSER", raising=False)
    with pytest.raises(UnreadableUrl, match="this account has no name: write USER@ before the host"):
        await dial.dial("postgresql://127.0.0.1:1/d", {}, NewestServer(), answer_seconds=1)


# The addresses of a name


@pytest.fixture
def silent_address() -> Iterator[tuple[str, int]]:
    """An address at which nobody answers: its line of waiting connections is full."""
    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(socket.socket())
        silent.bind(("127.0.0.2", 0))
        silent.listen(0)
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(silent.getsockname())
        yield silent.getsockname()


@pytest.mark.parametrize("make", [dial.Loop, loop_factory()], ids=["containers", "programs"])
def test_name_with_a_dead_address_first_is_reached(make: type[Any], silent_address: tuple[str, int]) -> None:
    """As psql reaches it, which gives each address a time of its own."""

    class Named(make):  # type: ignore[misc]  # either of two classes
        async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
            if host != "db.example":
                return await super().getaddrinfo(host, port, **how)
            of_tcp = socket.AF_INET, socket.SOCK_STREAM, 6, ""
            return [(*of_tcp, silent_address), (*of_tcp, ("127.0.0.1", port))]

    async def reached() -> Any:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, asyncio.timeout(4):
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, "db.example", port)
            found = transport.get_extra_info("peername")
            transport.close()
        return found == ("127.0.0.1", port)

    with asyncio.Runner(loop_factory=Named) as runner:
        assert runner.run(reached())


def test_lookup_of_a_name_takes_no_time_of_the_host() -> None:
    """Where the first name server is dead, each lookup takes 5 s: the whole time of a host."""

    class SlowNames(dial.Loop):
        passed = 0.0

        def time(self) -> float:
            return super().time() + self.passed

        async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
            self.passed += CONNECT_SECONDS
            return await super().getaddrinfo("127.0.0.1", port, **how)

    async def fault_of(url: str) -> Exception:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            try:
                await dial.ask_once(url.format(server.sockets[0].getsockname()[1]), "", NewestServer(), "", ())
            except Exception as fault:  # noqa: BLE001  # it is what is asked for
                return fault
        raise AssertionError("the server closes each connection")

    with asyncio.Runner(loop_factory=SlowNames) as runner:
        fault = runner.run(fault_of("postgresql://u@db.example:{}/d?sslmode=disable"))
    assert not isinstance(fault, TimeoutError), fault


def test_name_is_looked_up_by_the_loop_of_containers() -> None:
    with asyncio.Runner(loop_factory=dial.Loop) as runner:
        found = runner.run(runner.get_loop().getaddrinfo("127.0.0.1", 5432, type=socket.SOCK_STREAM))
    assert [one[4] for one in found] == [("127.0.0.1", 5432)]


async def test_call_that_cannot_be_made_now_is_asked_again_later() -> None:
    """gevent runs all threads in one: while a heartbeat is under way, no other loop can run."""
    with pytest.raises(DatabaseFault, match="another loop is running"):
        by_asyncpg.ask("postgresql://u@127.0.0.1/d", NewestServer(), "SELECT 1", ())
