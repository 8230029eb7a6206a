"""The work of a task's container. This file stands in the task images, and runs with the Python that `exec` brings.

`task_program.py ACTION [NUMBER]` writes a line into the table `trace` when it begins and one when it ends. The lines
show how often a row really ran, whatever the row says of itself.
"""

import asyncio
import os
import subprocess
import sys
import time

import asyncpg

TRACE = """
INSERT INTO public.trace (task_id, attempt, launch, pod, what) VALUES ($1, $2, $3, $4, $5)
"""
RELEASED = "SELECT EXISTS (SELECT FROM public.released WHERE task_id = $1)"
OUTAGE_SECONDS = 120
"""So long a database that is away is asked again: the test stops it while tasks run."""


def trace(what: str) -> None:
    """Writes the line, and prints the word for readers of the log."""
    print(what, flush=True)  # noqa: T201  # the output of the task
    limit = time.monotonic() + OUTAGE_SECONDS
    while True:
        try:
            asyncio.run(write(what))
        except asyncpg.InvalidAuthorizationSpecificationError:
            raise  # the password of this environment does not change
        except (OSError, asyncpg.PostgresError, TimeoutError):
            if time.monotonic() > limit:
                raise
            time.sleep(0.5)
        else:
            return


async def write(what: str) -> None:
    connection = await asyncpg.connect(os.environ["TASK_DATABASE_URL"], timeout=10)
    numbers = [int(os.environ[f"TASK_{name}"]) for name in ("ID", "ATTEMPT", "LAUNCH")]
    await connection.execute(TRACE, *numbers, os.environ["POD_NAME"], what)
    await connection.close()


def act(action: str, number: float) -> int:
    if action == "sleep":
        time.sleep(number)
    if action == "hold":
        hold()
    if action == "eat":
        eat()
    if action == "child":  # the child ends by the kernel, and CMD by the child's status
        code = "b = [bytearray(1 << 20) for _ in range(4096)]"
        return subprocess.run([sys.executable, "-I", "-c", code], check=False).returncode % 256
    return int(number) if action == "exit" else 0


def hold() -> None:
    """Waits until the test releases the row."""
    while not asyncio.run(is_released()):
        time.sleep(0.5)


async def is_released() -> bool:
    connection = await asyncpg.connect(os.environ["TASK_DATABASE_URL"], timeout=10)
    found: bool = await connection.fetchval(RELEASED, int(os.environ["TASK_ID"]))
    await connection.close()
    return found


def eat() -> None:
    held = []
    while True:
        held.append(bytearray(os.urandom(1) * (1 << 20)))


if __name__ == "__main__":
    trace("start")
    status = act(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0)
    trace("end")
    sys.exit(status)
