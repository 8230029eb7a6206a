"""An example of docs/submitter.md: mails each row of yours that fails, also those of the minute before its start.

DATABASE_URL=… MAIL_TO=… SMTP=HOST:PORT python mail_failures.py

It ends when the database goes away: let systemd or a Deployment start it again within that minute. What the mail server
does not take is sent again each minute.
"""

import asyncio
import contextlib
import os
import smtplib
import sys
from datetime import timedelta
from email.message import EmailMessage

import asyncpg

FAILED = """
SELECT ended.id, ended.finished_at, ended.queue, task.error
FROM dispatch.task_ended_since($1) AS ended CROSS JOIN LATERAL dispatch.task(ended.id) AS task
WHERE ended.status = 'failed'
"""


def mail(row: asyncpg.Record) -> None:
    message = EmailMessage()
    message["From"] = message["To"] = os.environ["MAIL_TO"]
    message["Subject"] = f"task {row['id']} of the queue {row['queue']} has failed"
    message.set_content(row["error"] or "It has reported no error: see dispatch.task_history.")
    with smtplib.SMTP(os.environ["SMTP"], timeout=20) as server:
        server.send_message(message)


async def main() -> None:
    connection = await asyncpg.connect(os.environ["DATABASE_URL"], command_timeout=20)
    ended, told = asyncio.Event(), set[tuple[object, ...]]()
    await connection.add_listener("dispatch_done", lambda *_: ended.set())
    connection.add_termination_listener(lambda _: ended.set())
    since = await connection.fetchval("SELECT now()")
    while True:
        now = await connection.fetchval("SELECT now()")
        failed = {
            (row["id"], row["finished_at"]): row for row in await connection.fetch(FAILED, since - timedelta(minutes=1))
        }
        told &= failed.keys()  # looks overlap by a minute: an end is seen when its transaction is over
        try:
            for row in sorted(failed.keys() - told):
                await asyncio.to_thread(mail, failed[row])
                told.add(row)
            since = now
        except (OSError, smtplib.SMTPException) as fault:
            print(f"no mail is sent: {fault}", file=sys.stderr)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), 60)
        ended.clear()
        await asyncio.sleep(1)  # a notification is also for ends that are seen a moment later


if __name__ == "__main__":
    asyncio.run(main())
