"""`dispatcher demo` on a machine with other accounts: none of them gets anything of it.

Only root can act as a second account. Without root the tests check only modes and owners of files.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from dispatcher_demo.database import LOGINS
from dispatcher_demo.environment import SERVICE_FILE, DemoEnvironment
from dispatcher_demo.postgres import SUPERUSER, has_name
from dispatcher_demo.samples import templates
from dispatcher_demo.statements import demo_query
from tests.controlplane.waiting import wait_for
from tests.rig.demoing import ACCOUNT, GONE_SECONDS, ITS_LAST_WORDS, Demo, demo
from tests.rig.remains import command, pids, read

Json = dict[str, Any]
ATTACK = Path(__file__).parents[1] / "rig" / "second_account.py"
NEWCOMER = 12_345
OPEN_UMASK = ("sh", "-c", 'umask 0; exec "$@"', "sh")
AT_WORK = "import os, time; print('log'); open(os.environ['TMPDIR'] + '/left', 'w').close(); time.sleep(600)"
INSERT = "INSERT INTO dispatch.tasks (template, spec) VALUES ('by-hand', jsonb_build_object('args', ARRAY['-uc', $1]))"
URL = re.compile(r"postgresql://\w+:(\w+)@127")
TOKEN = re.compile(r"token: (\w+)")


async def works(shown: Demo) -> None:
    """Waits until one container works and others have ended."""
    await shown.says(ITS_LAST_WORDS)
    connection = await asyncpg.connect(shown.database_url)
    await connection.execute(INSERT, AT_WORK)
    await connection.close()
    left = "nodes/*/pods/*/containers/*/tmp/left"
    await shown.until(lambda: list(shown.run_folder.glob(left)), "its container is at work")
    await shown.until(lambda: len(shown.remains.ports) >= 4, "all of it listens")


def account_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def paths(folder: Path) -> list[Path]:
    return [folder, *(Path(top, name) for top, folders, files in os.walk(folder) for name in folders + files)]


def open_paths(shown: Demo) -> dict[str, str]:
    """Owner, group and mode of paths that others may use. A group without a name is that of Postgres."""
    owners = {account_of(pid) for pid in (shown.process.pid, shown.pid("postgres"))}
    found = {}
    for path in paths(shown.run_folder):
        with suppress(FileNotFoundError):  # Postgres has removed it
            about = path.lstat()
            others = 0 if path.is_symlink() else 0o077 if has_name(about.st_gid) else 0o007
            if about.st_uid not in owners or about.st_mode & others:
                found[str(path)] = f"{about.st_uid}:{about.st_gid} {stat.S_IMODE(about.st_mode):04o}"
    return found


def secrets_of(shown: Demo) -> set[str]:
    """Passwords and the token, as the owner of the demo finds them."""
    texts = [read(shown.pid(name), "environ").decode() for name in ("dispatcher", "janitor")]
    texts += [path.read_text() for path in shown.run_folder.glob("nodes/*/pods/*/containers/*/spec.json")]
    texts += [shown.said, (shown.run_folder / "kubeconfig").read_text()]
    return {word for text in texts for word in (*URL.findall(text), *TOKEN.findall(text))}


async def attack(shown: Demo, uid: int) -> Json:
    """The report of `second_account.py` for that account."""
    known = {
        "paths": [str(path) for path in paths(shown.run_folder)],
        "pids": [*shown.remains.living()],
        "ports": [*shown.remains.ports.values()],
        "logins": [*LOGINS, SUPERUSER],
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", ATTACK, str(uid), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    report, _ = await child.communicate(json.dumps(known).encode())
    assert child.returncode == 0
    got: Json = json.loads(report)
    return got


@pytest.mark.slow
async def test_a_demo_at_work_gives_nothing_to_a_second_account() -> None:
    async with demo("--keep", "--tasks", 4, through=OPEN_UMASK, COLUMNS="200") as shown:
        await works(shown)
        assert open_paths(shown) == {}
        owner = account_of(shown.process.pid)
        way = [stat.S_IMODE(folder.stat().st_mode) for folder in (shown.run_folder, shown.run_folder / "postgres")]
        assert way == ([0o710] * 2 if owner == 0 else [0o700] * 2)
        secrets = secrets_of(shown)
        assert len(secrets) == 5, "demo, reader, task and janitor, and the token of the API server"

        got = await attack(shown, owner)
        assert len([word for word in secrets if word in got["text"]]) >= 2, "its owner finds what there is to find"
        assert ("task: " in got["databases"], len(got["servers"])) == (True, 1)
        for uid in {ACCOUNT, NEWCOMER} - {owner} if os.geteuid() == 0 else set[int]():
            got = await attack(shown, uid)
            text = got.pop("text")
            assert got == {"files": [], "processes": [], "databases": [], "servers": []}
            assert [word for word in secrets if word in text] == []


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def environment() -> AsyncIterator[DemoEnvironment]:
    async with DemoEnvironment(templates(is_real=False), print) as made:
        yield made


async def may_log_in(url: str) -> bool:
    try:
        await (await asyncpg.connect(url)).close()
    except asyncpg.InvalidPasswordError:
        return False
    return True


@pytest.mark.slow
async def test_the_password_of_a_login_opens_no_other_login(environment: DemoEnvironment) -> None:
    urls = {login: environment.url(login) for login in (*LOGINS, SUPERUSER)}
    for login in urls:
        opened = {whose for whose, url in urls.items() if await may_log_in(url.replace(f"//{whose}:", f"//{login}:"))}
        assert opened == {login}


async def test_passwords_cannot_be_guessed(environment: DemoEnvironment) -> None:
    for login in (*LOGINS, SUPERUSER):
        where = environment.url(login).rpartition("@")[2]
        for guess in (login, "embedded", ""):
            with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
                await asyncpg.connect(f"postgresql://{login}:{guess}@{where}")


async def test_passwords_are_in_nothing_that_others_may_see(environment: DemoEnvironment) -> None:
    """Not in statements of sessions, the log of a failure or arguments of processes, and in one closed file alone."""
    passwords = [URL.findall(environment.url(login))[0] for login in (*LOGINS, SUPERUSER)]
    owner, observer = [await asyncpg.connect(environment.url(login)) for login in (SUPERUSER, "observer")]
    for login, password in zip(LOGINS, passwords, strict=False):
        await owner.fetchval(demo_query("password"), login, password)
        shown = await owner.fetch("SELECT query FROM pg_stat_activity")
        assert not [row for row in shown for word in passwords if word in row["query"]]
    with pytest.raises(asyncpg.DuplicateObjectError):
        await owner.execute(demo_query("logins"))
    await owner.close()
    await observer.close()
    log = environment.templates.parent / "postgres" / "demo.log"
    await wait_for(lambda: 'role "demo" already exists' in log.read_text(), "the failure is logged")
    files = [path for path in paths(environment.templates.parent) if path.is_file()]
    (closed,) = [path for path in files if path.name == SERVICE_FILE]
    assert (stat.S_IMODE(closed.stat().st_mode), closed.stat().st_uid) == (0o600, os.geteuid())
    texts = [path.read_text(errors="replace") for path in files if path != closed]
    texts += [command(pid) for pid in pids()]
    assert not [word for word in passwords for text in texts if word in text]


@pytest.mark.slow
async def test_folder_of_another_account_in_the_way_stops_no_cleanup() -> None:
    """Other accounts see the name of the demo's folder, and may make folders with similar names."""
    async with demo("--keep", "--tasks", 1) as shown:
        await works(shown)
        folder = shown.run_folder
        obstacle = folder.with_name(f"{folder.name}.gone")
        (obstacle / "in").mkdir(parents=True)
        shown.signal(signal.SIGKILL)
        await shown.ends()
        await wait_for(lambda: not folder.exists(), "its folder is gone", GONE_SECONDS)
        shutil.rmtree(obstacle)
