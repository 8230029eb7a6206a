"""Templates as a janitor brings them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dispatcher.jobs.offered import offered_templates
from dispatcher.jobs.templates import Template
from dispatcher.pg.tasks import Closings
from tests.rig.builders import a_template
from tests.rig.postgres import Database

PASSED = frozenset({"S3_HOST"})
TEMPLATES: Mapping[str, Template | str] = {
    "default": a_template(),
    "train": a_template(
        "train",
        opens="env,image,args,cpu,memory,env.MODE,env.PYTHONPATH,private_machine,special_machine",
        bounds={
            "images": "registry/team-a/*, exact:1, reg_istry/v?, registry/team-[c-e]/*:[12]", "machines": "team-a-*",
            "max-cpu": "2500m", "max-memory": "4Gi", "max-seconds": "600", "max-bytes": "1Ki",
        },
        container={"env": [{"name": "MODE", "value": "fast"}, {"name": "OWN", "value": "x"}]},
    ),
    "closed": a_template("closed", opens="env.DATE,env.PATH"),
    "nothing": a_template("nothing", opens=""),
    "bare": a_template("bare", opens="env,image", bounds={"images": "exact:1"}, container={"image": None}),
    "broken": "template broken: kind is 'Pod': must be Job",
}  # fmt: skip
VARIABLES = ["MONTH", "MODE", "OWN", "S3_HOST", "DATE", "PATH", "PGHOST", "Http_Proxy", "PYTHONPATH", "NODE_X", "A"]
FIELDS: Mapping[str, Sequence[object]] = {
    "image": [
        "exact:1", "registry/team-a/x:2", "registry/team-b/x", "regXistry/v2", "reg_istry/v22", "registry/team-a/a//b",
        "Exact:1", "registry/team-c/x:1", "registry/team-f/x:1", "registry/team-d/x:3",
    ],
    "cpu": ["1", "2500m", "2.5", "2501m", "0.0025k"],
    "memory": ["1Gi", "4Gi", "4096Mi", "4294967297", "4G"],
    "private_machine": ["team-a-1", "team-b-1"],
    "special_machine": ["team-a-x.y", "x"],
    "command": [["a"]],
    "args": [[]],
}  # fmt: skip


async def bring(database: Database, templates: Mapping[str, Template | str], *, are_all: bool = True) -> int:
    """As the janitor does."""
    calls = Closings(lambda: database.url("janitor"))
    try:
        changed, refused = await calls.templates(offered_templates(templates, PASSED), are_all=are_all)
        assert not refused
        return changed
    finally:
        await calls.close()


def some_rows(number: int, seed: int) -> Iterator[dict[str, Any]]:
    chosen = random.Random(seed)
    for _ in range(number):
        fields = chosen.sample([*FIELDS], chosen.choice([0, 0, 0, 1, 1, 2]))
        yield {
            "template": chosen.choice([*TEMPLATES, "gone"]),
            "env": dict.fromkeys(chosen.sample(VARIABLES, chosen.choice([0, 0, 1, 1, 2, 3])), "v"),
            "spec": {name: chosen.choice(FIELDS[name]) for name in fields},
            "timeout_seconds": chosen.choice([None, None, None, 600, 601]),
        }
