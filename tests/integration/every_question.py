"""Every query of the dispatcher, asked once. The rows: ended, running, cancelled, waiting, all of batch b."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from dispatcher.model.history import RowFilter
from dispatcher.model.tasks import Status, Task
from dispatcher.pg.questions import Questions

KEYS = [("default", "maps"), ("other", "maps")]
Question = Callable[[Questions, list[int]], Awaitable[object]]
QUESTIONS: dict[str, Question] = {
    "candidates": lambda rows, _: rows.indexed_rows({"default": 10}),
    "candidates_of": lambda rows, _: rows.indexed_rows_of({("default", "team_b"): 10}),
    "contenders": lambda rows, ids: rows.waiting(ids),
    "counts": lambda rows, _: rows.counts(),
    "histories": lambda rows, _: rows.histories(KEYS),
    "kinds": lambda rows, ids: rows.kinds(ids),
    "launches": lambda rows, ids: rows.launches(ids[1]),
    "line": lambda rows, ids: of_task(rows, ids[-1], rows.line),
    "marks": lambda rows, ids: rows.marks(ids[1]),
    "matching": lambda rows, _: rows.find(RowFilter(), None, None),
    "matching_among": lambda rows, ids: rows.find(RowFilter(), None, ids),
    "matching_of_batch": lambda rows, _: rows.find(RowFilter(queue="default", submitted_by="b", batch="b"), None, None),
    "matching_of_submitter": lambda rows, _: rows.find(RowFilter(submitted_by="team_b"), None, None),
    "few_of_batch": lambda rows, _: rows.few(RowFilter(batch="b"), None),
    "owners_of_batch": lambda rows, _: rows.owners(None, None, "b"),
    "few_of_status": lambda rows, _: rows.find(RowFilter(status=Status.FAILED), None, None),
    "newest_waiting": lambda rows, _: rows.find(RowFilter(status=Status.WAITING), None, None),
    "few_with_labels": lambda rows, _: rows.find(RowFilter(), '{"a": "b"}', None),
    "page": lambda rows, ids: rows.page(ids),
    "sources": lambda rows, ids: rows.sources(ids),
    "batches": lambda rows, _: rows.batches(None, None, "b"),
    "failed": lambda rows, _: rows.failed(rows.now - timedelta(days=1)),
    "failed_of_batch": lambda rows, _: rows.failed_of_batch("default", "team_b", "b"),
    "ends": lambda rows, _: rows.ends(rows.now - timedelta(days=1), rows.now),
    "queue_ends": lambda rows, _: rows.queue_ends("default", 20),
    "queue_settings": lambda rows, _: rows.queue_settings("default"),
    "queue_starts": lambda rows, _: rows.queue_starts("default"),
    "queue_times": lambda rows, _: rows.queue_times("default", 1000),
    "requests": lambda rows, ids: rows.requests(ids),
    "runs": lambda rows, _: rows.runs(KEYS),
    "starts": lambda rows, ids: of_task(rows, ids[1], rows.starts),
    "start_secret": lambda rows, _: rows.start_secret(),
    "statuses": lambda rows, ids: rows.still_waiting(ids),
    "submitters": lambda rows, _: rows.submitters(["default"]),
    "tasks": lambda rows, ids: rows.tasks(ids),
    "templates": lambda rows, _: rows.templates(),
    "warm_keys": lambda rows, _: rows.warm_keys(["node-1"], 1000),
}


async def of_task(rows: Questions, number: int, ask: Callable[[Task], Awaitable[object]]) -> object:
    task = await rows.task(number)
    assert task
    return await ask(task)
