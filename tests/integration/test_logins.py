"""`deploy/logins.sql` on servers that others use, too: it takes over nothing, and changes nothing before it is sure."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import asyncpg
import pytest
import pytest_asyncio

from dispatcher.container.dial import ways_of
from tests.house.tree import ROOT
from tests.integration.installing import in_database, made_logins, own_server, psql, run, script, tried, urls
from tests.rig.pages import INSTALL, find_block, lines_for_a_cluster
from tests.rig.postgres import connect
from tests.rig.postgres_process import Postmaster

TASK, MIGRATE = "task-database", "dispatcher-migrate-database"
ROLES = """
SELECT rolname, rolsuper, rolcanlogin, rolpassword, shobj_description(oid, 'pg_authid'), ARRAY(
    SELECT roleid::regrole::text FROM pg_auth_members WHERE member = pg_authid.oid ORDER BY 1)
FROM pg_authid ORDER BY 1
"""


EVERYTHING = r"""
SET client_min_messages = error;
SELECT format('DROP DATABASE %I (FORCE)', datname)
FROM pg_database WHERE datname <> 'postgres' AND NOT datistemplate \gexec
SELECT format('REVOKE %s FROM %s GRANTED BY %s CASCADE', roleid::regrole, member::regrole, grantor::regrole)
FROM pg_auth_members WHERE member >= 16384 ORDER BY grantor = 10 \gexec
SELECT format('DROP ROLE %I', rolname) FROM pg_roles WHERE oid >= 16384 \gexec
CREATE DATABASE work
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def started() -> AsyncIterator[Postmaster]:
    async with own_server() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def server(started: Postmaster) -> Postmaster:
    """A server as it was made, with an empty database `work`."""
    await psql(started.admin_url, EVERYTHING)
    return started


async def refused(server: Postmaster, url: str, words: str, *variables: str) -> str:
    """Runs the script, which must refuse, name the cause and change no role. Returns the next step that it tells."""
    before = await psql(server.admin_url, ROLES)
    status, out, err = await tried(*script(url, *variables))
    assert (status, out) == (3, ""), err
    assert words in err
    assert await psql(server.admin_url, ROLES) == before
    return err.partition("HINT:  ")[2].strip()


async def logs_in(url: str) -> str:
    connection = await connect(url)
    try:
        return str(await connection.fetchval("SELECT current_user"))
    finally:
        await connection.close()


def work(server: Postmaster) -> str:
    return in_database(server.admin_url, "work")


async def test_logins_carry_the_name_of_the_database_or_a_prefix(server: Postmaster) -> None:
    made = urls(await made_logins(server.admin_url))
    assert {await logs_in(url) for url in made.values()} == {
        "work_dispatcher", "work_dispatcher_janitor", "work_dispatcher_migrate", "work_task"
    }  # fmt: skip
    named = urls(await made_logins(server.admin_url, "prefix=Prod "))
    assert await logs_in(named[TASK]) == "Prod task"


async def test_psqlrc_of_an_administrator_adds_nothing_to_the_secrets(server: Postmaster, tmp_path: Path) -> None:
    """kubectl gets the output, and the logins are made by then."""
    (settings := tmp_path / "psqlrc").write_text("\\timing on\n\\x on\n", encoding="utf-8")
    lines = [line for line in lines_for_a_cluster() if "deploy/logins.sql" in line and "| kubectl" in line]
    assert len(lines) > 1
    for line in lines:
        *command, _ = shlex.split(line.partition(" | ")[0])
        assert len(json.loads(await run(*command, work(server), PSQLRC=str(settings)))["items"]) == 4


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("host=db.example:5433", 'host "db.example:5433" is neither a name nor an address'),
        ("host=10.0.0.1:5433", 'host "10.0.0.1:5433" is neither'),
        ("host=postgresql://db.example", 'host "postgresql://db.example" is neither'),
        ("port=postgres", 'port "postgres" is not a number'),
        ("sslmode=verify_full", 'sslmode "verify_full" is none of disable, '),
    ],
)
async def test_variable_that_makes_no_url_is_refused_before_a_login_is_made(
    server: Postmaster, variable: str, words: str
) -> None:
    assert "-v " in await refused(server, work(server), words, variable)


async def test_addresses_and_several_hosts_come_into_the_url(server: Postmaster) -> None:
    made = urls(await made_logins(server.admin_url, "host=fd00::1", "sslmode=verify-full&sslrootcert=/ca.crt"))
    assert "@[fd00::1]:" in made[TASK]
    assert made[TASK].endswith("?sslmode=verify-full&sslrootcert=/ca.crt")
    several = urls(await made_logins(server.admin_url, "rotate=1", "host=db-1.example,db-2.example", "port=7"))
    assert [way[1:3] for way in ways_of(several[TASK], {})] == [("db-1.example", 7), ("db-2.example", 7)]


async def test_second_installation_of_a_namespace_replaces_no_secret(server: Postmaster) -> None:
    first = urls(await made_logins(server.admin_url))
    await psql(server.admin_url, "REVOKE CONNECT ON DATABASE work FROM PUBLIC; CREATE DATABASE blue")
    await psql(server.admin_url, "REVOKE CONNECT ON DATABASE blue FROM PUBLIC")
    second = urls(await made_logins(server.admin_url, "installation=blue", database="blue"))
    assert second.keys() == {"blue-database", "blue-janitor-database", "blue-migrate-database", "blue-task-database"}
    assert first.keys().isdisjoint(second)
    assert await logs_in(second["blue-task-database"]) == "blue_task"


@pytest.mark.parametrize("role", ["SUPERUSER LOGIN PASSWORD 'theirs'", "LOGIN PASSWORD 'theirs'", "NOLOGIN"])
async def test_role_of_somebody_else_is_not_touched(server: Postmaster, role: str) -> None:
    await psql(server.admin_url, f"CREATE ROLE work_task {role}")
    hint = await refused(server, work(server), 'login "work_task" is there', "rotate=1")
    assert hint.startswith("Give other names: -v prefix=NAME_.")
    assert await logs_in(urls(await made_logins(server.admin_url, "prefix=jobs_"))[TASK]) == "jobs_task"


async def test_login_that_became_a_superuser_gets_no_secret(server: Postmaster) -> None:
    await made_logins(server.admin_url)
    await psql(server.admin_url, "ALTER ROLE work_task SUPERUSER")
    hint = await refused(server, work(server), "has rights that no program", "rotate=1")
    await psql(server.admin_url, hint)
    assert len(await made_logins(server.admin_url, "rotate=1")) == 4


FORGED = """
CREATE ROLE work_dispatcher LOGIN PASSWORD 'theirs';
COMMENT ON ROLE work_dispatcher IS 'pg-job-dispatcher, database work'
"""


async def test_login_with_a_forged_mark_is_not_touched(server: Postmaster) -> None:
    await psql(server.admin_url, FORGED)
    await refused(server, work(server), 'login "work_dispatcher" is a member of no role', "rotate=1")


@pytest.mark.parametrize("role", ["LOGIN PASSWORD 'own'", "CREATEROLE", "SUPERUSER"])
async def test_group_role_that_is_none_is_not_used(server: Postmaster, role: str) -> None:
    await psql(server.admin_url, f"CREATE ROLE dispatch_owner {role}")
    hint = await refused(server, work(server), 'role "dispatch_owner" is no group role')
    assert "DROP ROLE dispatch_owner;" in hint


async def test_group_role_of_an_administrator_of_somebody_else_is_not_used(server: Postmaster) -> None:
    await psql(server.admin_url, "CREATE ROLE other LOGIN CREATEROLE PASSWORD 'x'")
    other = f"postgresql://other:x@127.0.0.1:{server.port}/work"
    await psql(other, "CREATE ROLE dispatch_owner")
    await refused(server, work(server), 'other may give the rights of role "dispatch_owner" to anybody')


async def test_mark_on_a_role_of_a_stranger_is_no_installation(server: Postmaster) -> None:
    await psql(server.admin_url, "CREATE DATABASE payroll")
    await psql(server.admin_url, "CREATE ROLE spy; COMMENT ON ROLE spy IS 'pg-job-dispatcher, database payroll'")
    assert len(await made_logins(server.admin_url)) == 4


@pytest.mark.slow
async def test_change_of_passwords_does_not_wait_for_a_container_for_ever(server: Postmaster) -> None:
    made = urls(await made_logins(server.admin_url))
    container = await connect(made[TASK])
    held = container.transaction()
    await held.start()
    await container.execute("ALTER ROLE CURRENT_USER PASSWORD 'x'")
    status, out, err = await tried(*script(work(server), "rotate=1"))
    assert (status, out) == (3, "")
    assert "lock timeout" in err
    await held.rollback()
    await container.close()


async def test_passwords_change_only_if_asked_for(server: Postmaster) -> None:
    first = urls(await made_logins(server.admin_url))
    assert "-v rotate=1 gives each of them a new password" in await refused(server, work(server), "are there")
    assert await logs_in(first[TASK]) == "work_task"
    second = urls(await made_logins(server.admin_url, "rotate=1"))
    with pytest.raises(asyncpg.InvalidPasswordError):
        await logs_in(first[TASK])
    assert await logs_in(second[TASK]) == "work_task"


async def test_change_of_passwords_under_another_prefix_makes_no_login(server: Postmaster) -> None:
    """Whoever forgets the prefix, or renames the database, must not believe that the passwords have changed."""
    await made_logins(server.admin_url, "prefix=acme_")
    told = await refused(server, work(server), 'there is no login "work_dispatcher"', "rotate=1")
    assert '"acme_task" (pg-job-dispatcher, database work)' in told
    assert "-v prefix=NAME_" in told


async def test_login_of_containers_waits_for_no_lock_for_long(server: Postmaster) -> None:
    """Behind a pooler a call that its client has given up would keep its session of the server."""
    made = urls(await made_logins(server.admin_url))
    connection = await connect(made[TASK])
    assert await connection.fetchval("SELECT current_setting('statement_timeout')") == "8s"
    await connection.close()


async def test_login_that_is_missing_is_made_and_the_others_stay(server: Postmaster) -> None:
    first = urls(await made_logins(server.admin_url))
    await psql(server.admin_url, "DROP ROLE work_task")
    again = urls(await made_logins(server.admin_url))
    assert list(again) == [TASK]
    assert await logs_in(first[MIGRATE]) == "work_dispatcher_migrate"


async def test_two_installations_of_a_server_do_not_mix(server: Postmaster) -> None:
    """A team of one database cannot use the other one, nor can a program."""
    prod = urls(await made_logins(server.admin_url))
    await psql(server.admin_url, "CREATE DATABASE dev")
    words = 'database "work" of this server has a dispatcher, too'
    hint = await refused(server, in_database(server.admin_url, "dev"), words)
    await psql(server.admin_url, hint.partition(" and to each team")[0])
    dev = urls(await made_logins(server.admin_url, database="dev"))
    await psql(server.admin_url, "CREATE ROLE team_a LOGIN PASSWORD 'a' IN ROLE dispatch_submitter")
    await psql(server.admin_url, "GRANT CONNECT ON DATABASE work TO team_a")
    team = urlsplit(prod[TASK])._replace(netloc=f"team_a:a@127.0.0.1:{server.port}", path="/work").geturl()
    assert await logs_in(team) == "team_a"
    for url in [*prod.values(), *dev.values()]:
        assert await logs_in(url)
    for url in [team, *prod.values()]:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="CONNECT"):
            await logs_in(in_database(url, "dev"))
    for url in dev.values():
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="CONNECT"):
            await logs_in(in_database(url, "work"))


async def test_database_that_not_everybody_may_connect_to_is_opened_for_the_logins(server: Postmaster) -> None:
    await psql(server.admin_url, "REVOKE CONNECT ON DATABASE work FROM PUBLIC")
    for url in urls(await made_logins(server.admin_url)).values():
        assert await logs_in(url)


async def test_administrator_without_the_rights_changes_nothing(server: Postmaster) -> None:
    await psql(server.admin_url, "CREATE ROLE dba LOGIN CREATEROLE PASSWORD 'x'; CREATE ROLE plain LOGIN PASSWORD 'x'")
    as_dba, as_plain = (f"postgresql://{one}:x@127.0.0.1:{server.port}/work" for one in ("dba", "plain"))
    assert "Without the right to create roles" in await refused(server, as_plain, '"plain" may not create roles')
    hint = await refused(server, as_dba, 'database "work" belongs to')
    await psql(server.admin_url, hint.partition(" runs: ")[2])
    made = urls(await made_logins(as_dba))
    assert await logs_in(made[MIGRATE]) == "work_dispatcher_migrate"


async def test_second_administrator_changes_passwords_once_it_is_allowed(server: Postmaster) -> None:
    await psql(server.admin_url, "CREATE ROLE admins; GRANT CREATE ON DATABASE work TO admins WITH GRANT OPTION")
    for one in ("anna", "bert", "carl"):
        await psql(server.admin_url, f"CREATE ROLE {one} LOGIN CREATEROLE PASSWORD 'x' IN ROLE admins")
    anna, bert = (f"postgresql://{one}:x@127.0.0.1:{server.port}/work" for one in ("anna", "bert"))
    await made_logins(anna)
    if await psql(server.admin_url, "SELECT current_setting('server_version_num')::int < 160000") == ["t"]:
        return  # who may create roles may change every password
    hint = await refused(server, bert, '"bert" may not administrate role', "rotate=1")
    assert hint.endswith("WITH ADMIN OPTION;")
    await made_logins(anna, "rotate=1", "admins=admins")
    assert len(await made_logins(bert, "rotate=1", "admins=admins")) == 4
    assert await psql(server.admin_url, "SELECT pg_has_role('carl', 'dispatch_owner', 'USAGE')") == ["f"]


async def test_database_of_another_encoding_is_refused(server: Postmaster) -> None:
    await psql(server.admin_url, "CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    assert "UTF8" in await refused(server, in_database(server.admin_url, "ascii"), "has the encoding SQL_ASCII")


async def test_odd_names_and_lookalikes_of_functions_are_no_way_in(server: Postmaster) -> None:
    """Somebody who may create objects in schema public must not get a password, nor an administrator's rights."""
    name = "we/ird %41 \u00fc"
    await psql(server.admin_url, f'CREATE DATABASE "{name}"')
    there = in_database(server.admin_url, quote(name, safe=""))
    steals = """
        CREATE FUNCTION public.gen_random_uuid() RETURNS uuid LANGUAGE sql AS 'SELECT pg_catalog.md5(''x'')::uuid';
        CREATE FUNCTION public.replace(text, text, text) RETURNS text LANGUAGE sql AS 'SELECT $1';
    """
    await psql(there, steals)
    status, out, err = await tried(*script(there, "prefix=odd_"))
    assert (status, err) == (0, "")
    (url,) = [line.split('"')[3] for line in out.splitlines() if "TASK_DATABASE_URL" in line]
    assert await logs_in(url) == "odd_task"
    assert hashlib.md5(b"x", usedforsecurity=False).hexdigest() not in url


async def test_no_statement_holds_a_password(server: Postmaster) -> None:
    """The log holds them where no superuser runs the script, and pg_stat_statements does anyway."""
    await psql(server.admin_url, "CREATE ROLE dba LOGIN CREATEROLE PASSWORD 'x'; ALTER DATABASE work OWNER TO dba")
    await psql(server.admin_url, "ALTER SYSTEM SET log_statement = 'all'")
    await psql(server.admin_url, "ALTER SYSTEM SET log_min_duration_statement = 0")
    await psql(server.admin_url, "SELECT pg_reload_conf()")
    made = urls(await made_logins(f"postgresql://dba:x@127.0.0.1:{server.port}/work"))
    log = server.log_path.read_text()
    assert "ALTER ROLE work_task LOGIN PASSWORD 'SCRAM-SHA-256$4096:" in log
    for url in made.values():
        assert str(urlsplit(url).password) not in log


async def test_server_that_takes_no_verifier_gets_the_passwords(server: Postmaster) -> None:
    """Neon refuses a verifier when the logins are committed, and the extension credcheck at once."""
    await psql(server.admin_url, "CREATE ROLE dba LOGIN CREATEROLE PASSWORD 'x'; ALTER DATABASE work OWNER TO dba")
    await psql(server.admin_url, "ALTER ROLE dba SET log_statement = 'all'")
    made = urls(await made_logins(f"postgresql://dba:x@127.0.0.1:{server.port}/work", "plain=1"))
    said = f"ALTER ROLE work_task LOGIN PASSWORD '{urlsplit(made[TASK]).password}'"
    assert said in server.log_path.read_text()
    assert await logs_in(made[TASK]) == "work_task"


async def test_nothing_is_printed_of_logins_that_were_not_committed(server: Postmaster, tmp_path: Path) -> None:
    """kubectl would put their passwords in the place of those that are valid."""
    text = (ROOT / "deploy" / "logins.sql").read_text(encoding="utf-8").replace("../sql/", f"{ROOT}/sql/")
    assert "\nCOMMIT;" in text
    (failing := tmp_path / "logins.sql").write_text(text.replace("\nCOMMIT;", "\nSELECT 1 / 0; COMMIT;"), "utf-8")
    status, out, err = await tried("psql", "-Xf", str(failing), "-v", "host=db.example", work(server))
    assert (status, out, "division by zero" in err) == (3, "", True)


async def test_administrator_of_the_server_does_it_by_hand(server: Postmaster) -> None:
    """For somebody who gets one database, and may create no roles."""
    await psql(work(server), find_block(INSTALL, "\\i sql/roles.sql"))
    by_hand = f"postgresql://work_dispatcher_migrate:{quote('…')}@127.0.0.1:{server.port}/work"
    migrated = await run(sys.executable, "-m", "dispatcher", "migrate", DISPATCHER_DATABASE_URL=by_hand)
    assert "applied 0027" in migrated
    limits = "SELECT unnest(setconfig) FROM pg_db_role_setting WHERE setrole = 'work_task'::regrole ORDER BY 1"
    assert await psql(server.admin_url, limits) == ["idle_in_transaction_session_timeout=10min", "statement_timeout=8s"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("taken", "words"),
    [
        ("REVOKE dispatch_owner FROM work_dispatcher_migrate", "GRANT dispatch_owner TO work_dispatcher_migrate"),
        ("REVOKE CREATE ON DATABASE work FROM dispatch_owner", "GRANT CREATE ON DATABASE work TO dispatch_owner"),
    ],
)
async def test_migration_names_the_right_that_it_lacks(server: Postmaster, taken: str, words: str) -> None:
    url = urls(await made_logins(server.admin_url))[MIGRATE]
    await psql(server.admin_url, taken)
    status, _, err = await tried(sys.executable, "-m", "dispatcher", "migrate", DISPATCHER_DATABASE_URL=url)
    assert status != 0
    assert words in err
    await psql(server.admin_url, words)
    assert "applied 0027" in await run(sys.executable, "-m", "dispatcher", "migrate", DISPATCHER_DATABASE_URL=url)
