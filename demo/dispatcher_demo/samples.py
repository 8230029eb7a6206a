"""The default rows and templates of a demo, and its options.

`Options`: the options of the command, and the user's files.

`own_command`: the command line that starts `dispatcher` again.
"""

import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import fields

from dispatcher.jobs.templates import parse_template
from dispatcher.model.errors import DispatcherError, TemplateError
from dispatcher.model.stored_json import Json
from dispatcher.model.verdicts import HoldReason
from dispatcher_demo.node.containers import why_refused

CONTAINERS: Final = Path(__file__).with_name("containers")
SECRET: Final = "task-database"  # noqa: S105  # its name
CACHE_ROOT: Final = "/var/cache/tasks"
"""A folder on the disk of each node."""
QUEUES: Final[Mapping[str, tuple[int | None, str]]] = {
    "builds": (1, "one at a time: its tasks share a cache"),
    "reports": (None, "one row of it names a template that has a mistake"),
}
"""The queues by name: most Jobs at once, and the note."""
CPU: Final = "450m"
"""The request of most tasks. Two of them and one build fill a node of the demo."""
BUILD_CPU: Final = "100m"
"""The request of a build, so small that it always fits on the node where its cache is warm."""


class SampleRow(Struct, frozen=True):
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
    max_failures: int | None = None
    action: str = ""


def build(key: str) -> SampleRow:
    args = [sys.executable, str(CONTAINERS / "build.py")]
    return SampleRow(f"builds from the files of {key!r}", "builds", "build", spec={"args": args}, cache_key=key)


def by_hand(what: str, shows: str, action: str = "") -> SampleRow:
    return SampleRow(shows, template="by-hand", spec={"args": [str(CONTAINERS / "by_hand.py"), what]}, action=action)


def in_shell(script: str, shows: str, action: str = "") -> SampleRow:
    return SampleRow(shows, spec={"args": [script]}, action=action)


FLAKY: Final = by_hand("flaky", "fails once, is run again")
ENDLESS: Final = by_hand("endless", "runs until it is cancelled", "cancel")
FAILS_ONCE: Final = msgspec.structs.replace(
    in_shell('echo "attempt $TASK_ATTEMPT"; test "$TASK_ATTEMPT" = 2', "fails, is retried by its submitter", "retry"),
    max_failures=1,  # otherwise it would be run again by itself
)
SLEEPS: Final = in_shell("sleep 600", "runs until it is cancelled", "cancel")
WAITS_FOR_ITS_AUTHOR: Final = SampleRow("its template has a mistake", "reports", "reports")


def count(number: int) -> SampleRow:
    return SampleRow("counts primes", payload={"up_to": 100_000 + 1000 * number})


def samples(number: int, *, is_real: bool) -> list[SampleRow]:
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


PROGRAM: Final = "dispatcher"


class Options(Struct, frozen=True):
    """The options of `dispatcher demo`."""

    tasks: int = 20
    keep: bool = False
    plain: bool = False
    sql: Path | None = None
    template: Path | None = None
    kubeconfig: str | None = None
    grows: bool = False

    @property
    def has_samples(self) -> bool:
        """Whether the rows are the samples for the cluster in memory."""
        return not (self.sql or self.template or self.kubeconfig)

    @property
    def words(self) -> list[str]:
        """The options that were given, but for `--keep`, as words of a command line."""
        found = list[str]()
        for field in (one for one in fields(self) if one.name != "keep"):
            value = getattr(self, field.name)
            if value != field.default:
                found += [f"--{field.name}"] if value is True else [f"--{field.name}", str(value)]
        return found


def read_templates(options: Options) -> dict[str, str]:
    """The templates by name. Raises DispatcherError if the user's file is not a usable template."""
    made = templates(is_real=bool(options.kubeconfig))
    if options.template is None:
        return made
    text = read_text(options.template)
    try:
        pod = parse_template("default", text).pod_spec
    except TemplateError as fault:
        raise DispatcherError(f"{options.template}: {fault}") from fault
    if not options.kubeconfig and (words := why_refused({"spec": {**pod, "restartPolicy": "Never"}})):
        raise DispatcherError(f"{options.template}: {words}")
    return {**made, "default": text}


def find_passing(manifests: Mapping[str, str]) -> frozenset[HoldReason]:
    """Park reasons that end by themselves. With `report: exit-code` a row is parked until the janitor reports.

    The template `default` decides for all samples.
    """
    is_by_exit_code = parse_template("default", manifests["default"]).report == "exit-code"
    return frozenset({HoldReason.EXITED_WITHOUT_REPORT}) if is_by_exit_code else frozenset()


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as fault:
        raise DispatcherError(f"{path} cannot be read: {fault.strerror}") from fault
    except UnicodeDecodeError as fault:
        raise DispatcherError(f"{path} cannot be read: {fault}") from fault


def own_command(script: str, python: str) -> str:
    """The command line that starts `dispatcher` again from this folder. `script`: that of this process.

    The program is not on PATH in a virtual environment that is not active, as after `make demo` in a clone.
    """
    program = Path(script) if Path(script).name == PROGRAM else Path(python).with_name(PROGRAM)
    if not program.exists():
        return f"{shlex.quote(python)} -m {PROGRAM}"
    on_path = shutil.which(PROGRAM)
    if on_path and program.samefile(on_path):
        return PROGRAM
    absolute, here = program.absolute(), Path.cwd()
    is_below = absolute.parent.parent.is_relative_to(here)
    return shlex.quote(str(absolute.relative_to(here) if is_below else absolute))
