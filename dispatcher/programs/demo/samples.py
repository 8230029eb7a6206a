"""The default rows and templates of a demo."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct

Json = dict[str, Any]
CONTAINERS: Final = Path(__file__).with_name("containers")
SECRET: Final = "task-database"  # noqa: S105  # its name
CACHE_ROOT: Final = "/var/cache/tasks"
"""A folder on the disk of each node."""
QUEUES: Final[Mapping[str, tuple[int | None, str]]] = {
    "builds": (1, "one at a time: its tasks share a cache"),
    "reports": (None, "one row of it names a template that has a mistake"),
}
"""Name: most Jobs at once, and the note."""
CPU: Final = "450m"
"""What most tasks request. Two of them and one build fill a node of the demo."""
BUILD_CPU: Final = "100m"
"""So little that a build always fits on the node where its cache is warm."""


class Sample(Struct, frozen=True):
    """One row to insert.

    shows: the purpose of the row, for the summary.
    action: `cancel` or `retry` by its submitter, or empty.

    The other fields are columns of the row.
    """

    shows: str
    queue: str = "default"
    template: str = "default"
    spec: Mapping[str, Any] = {}
    payload: Mapping[str, Any] | None = None
    cache_key: str | None = None
    action: str = ""


def build(key: str) -> Sample:
    args = [sys.executable, str(CONTAINERS / "build.py")]
    return Sample(f"builds from the files of {key!r}", "builds", "build", spec={"args": args}, cache_key=key)


def by_hand(what: str, shows: str, action: str = "") -> Sample:
    return Sample(shows, template="by-hand", spec={"args": [str(CONTAINERS / "by_hand.py"), what]}, action=action)


def in_shell(script: str, shows: str, action: str = "") -> Sample:
    return Sample(shows, spec={"args": [script]}, action=action)


FLAKY: Final = by_hand("flaky", "fails once, is run again")
ENDLESS: Final = by_hand("endless", "runs until it is cancelled", "cancel")
FAILS_ONCE: Final = in_shell(
    'echo "attempt $TASK_ATTEMPT"; test "$TASK_ATTEMPT" = 2', "fails, is retried by its submitter", "retry"
)
SLEEPS: Final = in_shell("sleep 600", "runs until it is cancelled", "cancel")
WAITS_FOR_ITS_AUTHOR: Final = Sample("its template has a mistake", "reports", "reports")


def count(number: int) -> Sample:
    return Sample("counts primes", payload={"up_to": 100_000 + 1000 * number})


def samples(number: int, *, is_real: bool) -> list[Sample]:
    """`number` rows, the instructive ones first. Containers of a real cluster cannot reach the demo's database."""
    if is_real:
        greeting = in_shell('echo "hello from $NODE_NAME"; sleep 2', "says hello")
        return [SLEEPS, FAILS_ONCE, WAITS_FOR_ITS_AUTHOR, *(greeting for _ in range(number))][:number]
    builds = [build("faces"), build("faces"), build("maps")]
    return [
        build("maps"),
        ENDLESS,
        FLAKY,
        build("maps"),
        WAITS_FOR_ITS_AUTHOR,
        *builds,
        *(count(each) for each in range(number)),
    ][:number]


def templates(*, is_real: bool) -> dict[str, str]:
    """Job manifests by name, as an operator writes them."""
    if is_real:
        return written({"default": shell_template(), "reports": mistaken(shell_template())})
    wrapped = [sys.executable, "-m", "dispatcher", "exec", "--"]
    counting = template(wrapped, [sys.executable, str(CONTAINERS / "count.py")])
    made = {"default": counting, "build": template(wrapped, [], BUILD_CPU), "by-hand": template([sys.executable], [])}
    return written({**made, "reports": mistaken(counting)})


def written(jobs: Mapping[str, Json]) -> dict[str, str]:
    return {name: yaml.safe_dump(job, sort_keys=False) for name, job in jobs.items()}


def mistaken(job: Json) -> Json:
    """The template with a mistake that authors make: its Job would run its Pod again by itself."""
    return {**job, "spec": {**job["spec"], "backoffLimit": 3}}


def shell_template() -> Json:
    """A template for any cluster: a public image, whose exit status is the report."""
    job = template(["sh", "-c"], ["true"])
    job["metadata"]["annotations"]["dispatcher.internal/report"] = "exit-code"
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["image"] = "busybox:1.36"
    container["resources"] = {"requests": {"cpu": "50m", "memory": "16Mi"}}
    del container["envFrom"]
    return job


def template(command: list[str], args: list[str], cpu: str = CPU) -> Json:
    container = {
        "name": "task", "image": "this-machine:1", "command": command, "args": args,
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }  # fmt: skip
    openings = {"dispatcher.internal/row-may-set": "env,args,memory", "dispatcher.internal/max-memory": "1Gi"}
    spec = {"terminationGracePeriodSeconds": 2, "containers": [container]}
    head = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"annotations": openings}}
    return {**head, "spec": {"template": {"spec": spec}}}
