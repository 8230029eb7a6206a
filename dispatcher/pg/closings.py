"""The janitor's calls: one compare-and-set each, on a session of its own that may write."""

from typing import Final

from dispatcher.pg.connect import Session, Url
from dispatcher.pg.queries import query

LOCKED: Final = "locked"
WRITING: Final = {
    "default_transaction_read_only": "off",
    "application_name": "dispatcher-janitor",
    "lock_timeout": "1000",  # rows are never waited for; this is for what locks whole tables
}
DELETED_AT_ONCE: Final = 1000


class Closings:
    """As `dispatch_janitor`. Each answer is the row's new status; None: somebody else was faster, nothing changed;
    LOCKED: another transaction holds the row, nothing changed.
    """

    def __init__(self, url: Url) -> None:
        self._session = Session(url, WRITING)

    async def close(self) -> None:
        await self._session.close()

    async def give_back(self, task_id: int, fence: tuple[int, int, bytes], failures: int, error: str) -> str | None:
        """The run of (attempt, launch, digest of its token): next attempt, or failed."""
        return await self._call("return", task_id, *fence, failures, error)

    async def end(self, task_id: int, fence: tuple[int, int, str | None], outcome: str, error: str) -> str | None:
        """By the Job of (attempt, launch, UID); without a UID only a row of which no Job was made."""
        return await self._call("end", task_id, *fence, outcome, error)

    async def cancel(self, task_id: int, attempt: int, run_digest: bytes) -> str | None:
        return await self._call("cancel", task_id, attempt, run_digest)

    async def delete_old(self, days: int) -> int:
        """Rows deleted: a batch at most."""
        return int(await self._call("delete", days, DELETED_AT_ONCE) or 0)

    async def count_old(self, days: int) -> int:
        """Rows that `delete_old` would delete."""
        return int(await self._call("old", days, DELETED_AT_ONCE) or 0)

    async def _call(self, name: str, *parameters: object) -> str | None:
        async with self._session.use() as connection:
            answer: str | None = await connection.fetchval(query(name, "janitor"), *parameters)
        return answer
