"""Waiting rows as the indexes of the database show them."""

from collections.abc import Mapping, Sequence

from dispatcher.model.tasks import IndexedRow


class RowIndex:
    """Answers from a list the three questions that a scan asks about waiting rows."""

    def __init__(self, rows: Sequence[IndexedRow]) -> None:
        self.rows = rows

    async def indexed_rows(self, windows: Mapping[str, int]) -> list[IndexedRow]:
        """The first rows of each queue, in their order."""
        return [row for name, most in windows.items() for row in [r for r in self._ordered() if r.queue == name][:most]]

    async def submitters(self, queues: Sequence[str]) -> list[tuple[str, str]]:
        return sorted({(row.queue, row.submitted_by) for row in self.rows if row.queue in queues})

    async def indexed_rows_of(self, windows: Mapping[tuple[str, str], int]) -> list[IndexedRow]:
        """The first rows of each submitter in a queue, in their order."""
        own: dict[tuple[str, str], list[IndexedRow]] = {}
        for row in self._ordered():
            own.setdefault((row.queue, row.submitted_by), []).append(row)
        return [row for line, most in windows.items() for row in own.get(line, [])[:most]]

    def _ordered(self) -> list[IndexedRow]:
        return sorted(self.rows, key=lambda row: (row.priority, row.id))
