"""The janitor's calls. Each one is a compare-and-set, on a separate session that may write."""

from datetime import datetime
from typing import Final

from dispatcher.pg.connect import Session, Url
from dispatcher.pg.queries import query

LOCKED: Final = "locked"
WRITING: Final = {
    "default_transaction_read_only": "off",
    "application_name": "dispatcher-janitor",
    "lock_timeout": "1000",  # for locks of whole tables; the functions never wait for a row
}
DELETED_AT_ONCE: Final = 1000


class Closings:
    """Calls with a login of `dispatch_janitor`. An answer is the row's new status, None or LOCKED.

    None: the row is no longer as judged, so nothing changed.
    LOCKED: another transaction holds the row, so nothing changed.
    """

    def __init__(self, url: Url) -> None:
        self._session = Session(url, WRITING)

    async def close(self) -> None:
        await self._session.close()

    async def give_back(self, task_id: int, fence: tuple[int, int, bytes], failures: int, error: str) -> str | None:
        """Returns a run: next attempt, or failed. `fence`: attempt, launch and token digest of the run."""
        return await self._call("return", task_id, *fence, failures, error)

    async def end(self, task_id: int, fence: tuple[int, int, str | None], outcome: str, error: str) -> str | None:
        """Ends a row. `fence`: attempt, launch and uid of the Job judged; without a uid only a waiting row matches."""
        return await self._call("end", task_id, *fence, outcome, error)

    async def cancel(self, task_id: int, attempt: int, run_digest: bytes) -> str | None:
        return await self._call("cancel", task_id, attempt, run_digest)

    async def told(self, most: int) -> list[tuple[int, int, str, datetime, str]]:
        """Reasons that were brought over, `most` of them: (task, attempt, reason, since, message)."""
        async with self._session.use() as connection:
            return [tuple(row) for row in await connection.fetch(query("told", "janitor"), most)]

    async def tell(self, report: str) -> int | None:
        """Brings reasons over. Returns the number of changed rows; None: another janitor has brought newer ones."""
        async with self._session.use() as connection:
            changed: int | None = await connection.fetchval(query("tell", "janitor"), report)
        return changed

    async def templates(self, offered: str, *, are_all: bool) -> int:
        """Brings the table `templates` in step. `are_all`: others are deleted. Returns the number of changed rows."""
        async with self._session.use() as connection:
            changed: int = await connection.fetchval(query("templates", "janitor"), offered, are_all)
        return changed

    async def ended(self, ends: str) -> int:
        """Writes down what ended launches. Returns the number of launches that were changed."""
        async with self._session.use() as connection:
            changed: int = await connection.fetchval(query("ended", "janitor"), ends)
        return changed

    async def delete_old(self, days: int) -> int:
        """Deletes rows that ended `days` ago, one batch at most. Returns their number."""
        return int(await self._call("delete", days, DELETED_AT_ONCE) or 0)

    async def count_old(self, days: int) -> int:
        """Number of rows that `delete_old` would delete."""
        return int(await self._call("old", days, DELETED_AT_ONCE) or 0)

    async def _call(self, name: str, *parameters: object) -> str | None:
        async with self._session.use() as connection:
            answer: str | None = await connection.fetchval(query(name, "janitor"), *parameters)
        return answer
