"""The options of `dispatcher try`, as they are read. A wrong one is named with its value, the rule and the place."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dispatcher.jobs.env import check_env_names
from dispatcher.model.stored_json import NotStoredJson, stored_json
from dispatcher.model.texts import printable
from dispatcher.programs.exec_codes import WrongOption

PAYLOAD_BYTES: Final = 1 << 20
MOST_READ: Final = 8 << 20
"""A payload may be written with many spaces, which the row does not keep."""
RUN_UID: Final = "00000000-0000-0000-0000-000000000000"
NULL: Final = "null"


def read_payload(given: str | None) -> str:
    """The payload as `task_start` gives it out. `@FILE`: the content of a file."""
    if given is None:
        return NULL
    text = read_file(given[1:]) if given.startswith("@") else given
    try:
        payload = stored_json(text)
    except NotStoredJson as fault:
        raise WrongOption(f"--payload is no JSON that Postgres stores: {fault.rule}, {fault.detail}") from fault
    if (size := len(payload.encode())) > PAYLOAD_BYTES:
        raise WrongOption(
            f"--payload has {size} bytes: a row takes {PAYLOAD_BYTES} (1 MiB). "
            "Put large input into object storage and its address into the payload"
        )
    return payload


def read_file(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            content = file.read(MOST_READ + 1)
    except (OSError, ValueError) as fault:  # the second: a name with NUL
        raise WrongOption(f"--payload @{printable(name)}: {getattr(fault, 'strerror', None) or fault}") from fault
    if len(content) > MOST_READ:
        raise WrongOption(f"--payload @{printable(name)}: larger than {MOST_READ >> 20} MiB; a row takes 1 MiB")
    try:
        return content.decode()
    except UnicodeDecodeError as fault:
        raise WrongOption(f"--payload @{printable(name)}: no UTF-8 at byte {fault.start}") from fault


def read_env(given: Sequence[str]) -> dict[str, str]:
    """The variables that a row sets. A name that no row may set is refused by the rule of rows."""
    env = dict[str, str]()
    for pair in given:
        name, has_value, value = pair.partition("=")
        if not has_value:
            raise WrongOption(f"--env {printable(name)[:80]!r} has no `=`: write --env NAME=VALUE")
        if refused := check_env_names([name], frozenset({f"env.{name}"}), frozenset()):
            raise WrongOption(
                f"--env {printable(name)[:80]!r}: {refused}. Names are [A-Za-z_][A-Za-z0-9_]*, at most 255 characters; "
                "the prefixes TASK_, DISPATCHER_, KUBERNETES_ and LD_, and NODE_NAME, POD_NAME, POD_NAMESPACE and "
                "JOB_UID, are set by the dispatcher or closed"
            )
        env[name] = value
    return env


def closed_by_default(env: Mapping[str, str]) -> list[str]:
    """What a template has to open by name, so that rows may set these variables."""
    return [told for name in env if (told := check_env_names([name], frozenset({"env"}), frozenset()))]


def env_of_cmd(env: Mapping[str, str], attempt: int, limit_seconds: int) -> dict[str, str]:
    """The environment of CMD: that of this shell, the row's variables, and the contract of a container."""
    contract = {
        "TASK_ID": "1",
        "TASK_QUEUE": "default",
        "TASK_ATTEMPT": str(attempt),
        "TASK_LAUNCH": "1",
        "TASK_START_KEY": RUN_UID,
        "TASK_TIMEOUT_SECONDS": str(limit_seconds),
        "TASK_CACHE_DIR": "",
        "NODE_NAME": "node",
        "POD_NAME": "pod",
        "POD_NAMESPACE": "default",
        "JOB_UID": RUN_UID,
    }
    return {**os.environ, **env, **contract}
