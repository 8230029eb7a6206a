"""The example of the submitter's page that mails rows that fail, with a mail server of this test."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage

from tests.controlplane.waiting import wait_for
from tests.house.tree import ROOT
from tests.rig.postgres import Database
from tests.rig.rows import Row, insert_row

PROGRAM = ROOT / "docs" / "examples" / "waiting" / "mail_failures.py"
ASKED = """
SELECT count(*) > 0 FROM pg_stat_activity
WHERE usename = 'team_a' AND datname = current_database() AND state = 'idle' AND query LIKE '%task_ended_since%'
"""

KILL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'team_a' AND datname = current_database()
"""


class MailServer:
    """Takes mails by the few verbs that smtplib speaks."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 test\r\n")
        while line := await reader.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                writer.write(b"354 go on\r\n")
                text = await reader.readuntil(b"\r\n.\r\n")
                self.mails.append(message_from_bytes(text[:-3], policy=policy.default))
            writer.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")
            await writer.drain()
            if verb == b"QUIT":
                break
        writer.close()


@asynccontextmanager
async def mailing(database: Database) -> AsyncIterator[tuple[MailServer, asyncio.subprocess.Process]]:
    mails = MailServer()
    server = await asyncio.start_server(mails.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    given = {"DATABASE_URL": database.url("team_a"), "MAIL_TO": "team-a@example.com", "SMTP": f"127.0.0.1:{port}"}
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), env={"PATH": os.environ["PATH"], **given}, stderr=asyncio.subprocess.PIPE
    )
    try:
        admin = await database.session("admin")
        await wait_for(lambda: admin.fetchval(ASKED), "the program has asked for ends")
        yield mails, program
    finally:
        if program.returncode is None:
            program.kill()
        await program.communicate()
        server.close()
        await server.wait_closed()


async def fail(database: Database, error: str | None, login: str = "team_a") -> Row:
    row = await insert_row(database, login=login, max_failures=1)
    await row.finish(await row.started(), "failed", error=error)
    return row


async def test_each_row_that_fails_is_mailed_once(own_database: Database) -> None:
    before = await fail(own_database, "no disk\nÜbel")
    async with mailing(own_database) as (server, _):
        await wait_for(lambda: len(server.mails) == 1, "the failure of before is mailed")
        await fail(own_database, "another team's", login="team_b")
        good = await insert_row(own_database)
        await good.finish(await good.started(), "succeeded")
        silent = await fail(own_database, None)
        await wait_for(lambda: len(server.mails) == 2, "the failure of now is mailed")
        again = await fail(own_database, "again")
        await wait_for(lambda: len(server.mails) == 3, "a third one")
    first, second, third = server.mails
    assert first["To"] == "team-a@example.com"
    assert first["Subject"] == f"task {before.id} of the queue default has failed"
    assert first.get_content().splitlines() == ["no disk", "Übel"]
    assert str(silent.id) in second["Subject"]
    assert "task_history" in second.get_content()
    assert str(again.id) in third["Subject"]


async def test_program_ends_when_the_database_goes_away(own_database: Database) -> None:
    admin = await own_database.session("admin")
    async with mailing(own_database) as (_, program):
        await admin.execute(KILL)
        async with asyncio.timeout(30):
            assert await program.wait() != 0
