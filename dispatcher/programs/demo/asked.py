"""What a demo is asked for: its options, the user's files, and the command line that starts `dispatcher` again."""

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from dispatcher.jobs.templates import parse_template
from dispatcher.local.containers import why_refused
from dispatcher.model.errors import DispatcherError, TemplateError
from dispatcher.model.verdicts import HoldReason
from dispatcher.programs.demo.samples import templates

PROGRAM: Final = "dispatcher"


class Options(Struct, frozen=True):
    """The options of `dispatcher demo`."""

    tasks: int = 20
    keep: bool = False
    plain: bool = False
    sql: Path | None = None
    template: Path | None = None
    kubeconfig: str | None = None

    @property
    def has_samples(self) -> bool:
        """Whether its rows are the samples for the cluster in memory."""
        return not (self.sql or self.template or self.kubeconfig)


def read_templates(options: Options) -> dict[str, str]:
    """The templates by name. DispatcherError: the user's file is not a usable template."""
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

    The template `default` tells for all samples.
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
