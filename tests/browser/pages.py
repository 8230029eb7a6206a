"""The pages that the tests look at."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from tests.browser.texts import BATCH

PAGES: Final[Mapping[str, str]] = {
    "overview": "/",
    "tasks": "/tasks",
    "tasks of a queue": "/tasks?queue=quiet",
    "tasks that are not there": "/tasks?submitted_by=nobody",
    "failed tasks": "/tasks?status=failed",
    "batches": "/batches",
    "batches of a queue": "/batches?queue=quiet",
    "batch": "/batches?batch=nightly",
    "batch with a hostile name": "/batches?" + urlencode({"batch": BATCH}),
    "failures": "/failures",
    "failed task": "/tasks/{failed}",
    "task with 8 KiB of error": "/tasks/{failed with 8 KiB}",
    "task that runs": "/tasks/{noted}",
    "task that waits for an image": "/tasks/{Launched ImagePull}",
    "task that waits for room": "/tasks/{NoRoomNow}",
    "task that is parked": "/tasks/{Poison}",
    "task that was retried": "/tasks/{retried}",
    "queue": "/queues/default",
    "queue that is paused": "/queues/quiet",
    "nodes": "/nodes",
    "nodes that a Pod fits": "/nodes?cpu=1&memory=1Gi",
    "about": "/about",
    "task that is not there": "/tasks/9223372036854775807",
}
"""Path by name. `{NAME}` is the id of a row of the world."""
REFUSED: Final[Mapping[str, int]] = {"task that is not there": 404}
"""Status of the pages that are no answer."""
