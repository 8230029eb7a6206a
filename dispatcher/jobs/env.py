"""The container's environment. Later sources win: PASS_ENV, template, row, contract.

Every value that is not the template's own arrives in the container unchanged. kubelet expands `$(NAME)` and reads `$$`
as `$`, so each `$` is doubled. Otherwise a row could print a secret of its template, and a `$` in a value would change.
The result is a new list in a fixed order, so that a repeated create sends the same bytes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from dispatcher.jobs.trusted_env import is_trusted
from dispatcher.model.identity import CONTROLLER_UID

ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
CONTRACT: Final = frozenset({
    "TASK_ID", "TASK_QUEUE", "TASK_ATTEMPT", "TASK_LAUNCH", "TASK_START_KEY", "TASK_TIMEOUT_SECONDS", "TASK_CACHE_DIR",
    "NODE_NAME", "POD_NAME", "POD_NAMESPACE", "JOB_UID",
})  # fmt: skip
CLOSED_PREFIXES: Final = ("TASK_", "DISPATCHER_", "KUBERNETES_", "LD_")
NEVER_PASSED: Final = ("DISPATCHER_*", "PG*", "KUBERNETES_*", "PATH", "HOME", "LD_*")
FIELDS: Final = {
    "NODE_NAME": "spec.nodeName",
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "JOB_UID": f"metadata.labels['{CONTROLLER_UID}']",
}
"""Variables that only the cluster can fill. `exec` and the task functions identify their container by them."""

EnvVar = dict[str, Any]
FROM_THE_CLUSTER: Final[dict[str, EnvVar]] = {
    name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in sorted(FIELDS.items())
}


def is_closed(name: str) -> bool:
    """Whether neither a row nor a template may set this name."""
    return name in CONTRACT or name.startswith(CLOSED_PREFIXES)


def pass_env(environ: Mapping[str, str], globs: Iterable[str]) -> dict[str, str]:
    """Variables of this process that every container gets."""
    wanted = tuple(globs)
    return {
        name: value
        for name, value in sorted(environ.items())
        if ENV_NAME.fullmatch(name)
        and any(fnmatchcase(name, glob) for glob in wanted)
        and not any(fnmatchcase(name, glob) for glob in NEVER_PASSED)
    }


def check_env_names(names: Iterable[str], opened: frozenset[str], taken: frozenset[str]) -> str:
    """Why a row may not set these names; empty: it may. `taken`: names that PASS_ENV or the template sets."""
    return next(env_denials(names, opened, taken), "")


def env_denials(names: Iterable[str], opened: frozenset[str], taken: frozenset[str]) -> Iterator[str]:
    """Why a row may not set these names: a reason for each that it may not."""
    for name in sorted(names):
        if not ENV_NAME.fullmatch(name):
            yield "env has an illegal name"
        elif is_closed(name):
            yield f"env.{name} is closed to rows"
        elif f"env.{name}" in opened:
            continue
        elif is_trusted(name):
            yield f"env.{name} changes what programs run or trust: the template has to open it by name"
        elif "env" not in opened:
            yield f"the template does not open env.{name}"
        elif name in taken:
            yield f"env.{name} is set by the template or PASS_ENV, and not opened"


def build_env(
    passed: Mapping[str, str], own: Iterable[EnvVar], row: Mapping[str, str], contract: Mapping[str, str]
) -> list[EnvVar]:
    """The variables of the container. The template's order is kept, because a `$(X)` refers to an earlier variable."""
    layers: dict[str, EnvVar] = {name: literal(name, value) for name, value in sorted(passed.items())}
    for variable in own:
        layers.pop(variable["name"], None)  # otherwise it would come before variables that its value refers to
        layers[variable["name"]] = dict(variable)
    for name, value in sorted(row.items()):
        layers[name] = literal(name, value)
    for name, value in sorted(contract.items()):
        layers[name] = literal(name, value)
    return list((layers | FROM_THE_CLUSTER).values())


def literal(name: str, value: str) -> EnvVar:
    """A variable that reaches the container unchanged."""
    return {"name": name, "value": escape(value)}


def escape(text: str) -> str:
    """The text with each `$` doubled. kubelet's expansion of env values, command and args turns it back."""
    return text.replace("$", "$$")
