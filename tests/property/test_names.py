"""I15: versions that run side by side agree on every name, label and annotation.

The golden file holds the names of existing installations. It only grows. A change that would alter a line is a fault of
the code.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dispatcher.jobs.manifest import build_job
from dispatcher.model.launches import Launch, LaunchSpec, Offer
from tests.rig.builders import SITE, a_request, a_task, a_template

GOLDEN = json.loads((Path(__file__).parent / "golden_names.json").read_text(encoding="utf-8"))


def metadata(asked: dict[str, Any]) -> dict[str, Any]:
    """The metadata of the Job and its Pod for these inputs."""
    at = datetime.fromisoformat(asked["created_at"])
    task = a_task(id=asked["id"], created_at=at, queue=asked["queue"], attempt=asked["attempt"],
                  template=asked["template"], submitted_by=asked["submitted_by"])  # fmt: skip
    launch = Launch(asked["launch"], asked["unstarted"], asked["disrupted"])
    request = a_request(task_id=task.id, cache_key=asked["cache_key"])
    order = LaunchSpec(task, request, launch, Offer("app:1", asked["shape"], task.template), asked["database_id"])
    site = msgspec.structs.replace(SITE, installation=asked["installation"])
    job = build_job(order, a_template(asked["template"]), site)
    return {"job": job["metadata"], "pod": job["spec"]["template"]["metadata"]}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden["made"]["job"]["name"])
def test_names_equal_the_golden_file(golden: dict[str, Any]) -> None:
    assert metadata(golden["asked"]) == golden["made"]
