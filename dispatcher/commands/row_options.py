"""How a person writes a row on a command line. A wrong value is named with its rule."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from dispatcher.jobs.env import check_env_names
from dispatcher.model.stored_json import NotStoredJson, stored_json
from dispatcher.model.tasks import printable

PAYLOAD_BYTES: Final = 1 << 20
MOST_READ: Final = 8 << 20
"""A payload may be written with many spaces, which the row does not keep."""


def read_payload(given: str | None) -> str:
    """The payload as `task_start` gives it out. `@FILE`: the content of a file; `@-`: of the standard input."""
    if given is None:
        return "null"
    payload = read_json("--payload", read_file(given[1:]) if given.startswith("@") else given)
    if (size := len(payload.encode())) > PAYLOAD_BYTES:
        raise click.UsageError(
            f"--payload has {size} bytes: a row takes {PAYLOAD_BYTES} (1 MiB). "
            "Put large input into object storage and its address into the payload"
        )
    return payload


def read_json(option: str, text: str) -> str:
    """The value as Postgres stores it."""
    try:
        return stored_json(text)
    except NotStoredJson as fault:
        raise click.UsageError(f"{option} is no JSON that Postgres stores: {fault.rule}, {fault.detail}") from fault


def read_file(name: str) -> str:
    try:
        if name == "-":
            content = sys.stdin.buffer.read(MOST_READ + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(MOST_READ + 1)
    except (OSError, ValueError) as fault:  # the second: a name with NUL
        words = getattr(fault, "strerror", None) or fault
        raise click.UsageError(f"--payload @{printable(name)}: {words}") from fault
    if len(content) > MOST_READ:
        raise click.UsageError(f"--payload @{printable(name)}: larger than {MOST_READ >> 20} MiB; a row takes 1 MiB")
    try:
        return content.decode()
    except UnicodeDecodeError as fault:
        raise click.UsageError(f"--payload @{printable(name)}: no UTF-8 at byte {fault.start}") from fault


def read_pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    pairs = dict[str, str]()
    for pair in given:
        name, has_value, value = pair.partition("=")
        if not has_value:
            raise click.UsageError(f"{option} {printable(name)[:80]!r} has no `=`: write {option} NAME=VALUE")
        pairs[name] = value
    return pairs


def read_env(given: Sequence[str]) -> dict[str, str]:
    """The variables that a row sets. A name that no row may set is refused by the rule of rows."""
    env = read_pairs("--env", given)
    for name in env:
        if refused := check_env_names([name], frozenset({f"env.{name}"}), frozenset()):
            raise click.UsageError(
                f"--env {printable(name)[:80]!r}: {refused}. Names are [A-Za-z_][A-Za-z0-9_]*, at most 255 characters; "
                "the prefixes TASK_, DISPATCHER_, KUBERNETES_ and LD_, and NODE_NAME, POD_NAME, POD_NAMESPACE and "
                "JOB_UID, are set by the dispatcher or closed"
            )
    return env
