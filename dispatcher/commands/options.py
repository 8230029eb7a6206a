"""Parts that several commands share: their begin, options, a row on a command line, documents, times and colours."""

import asyncio
import errno
import math
import os
import re
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from dispatcher.jobs.env import check_env_names
from dispatcher.model.reasons import Turn
from dispatcher.model.stored_json import NotStoredJson, stored_json
from dispatcher.model.tasks import LARGEST_ID, MARKS, printable
from dispatcher.settings.loading import LoadedSettings, load

if TYPE_CHECKING:
    from dispatcher.commands.reaching import Where

T = TypeVar("T")
PROGRAMS: Final = frozenset({"run", "janitor", "extender", "cache-keeper"})
"""The commands that run until SIGTERM."""


def load_settings(log_level: str | None = None) -> LoadedSettings:
    """Loads the settings. `log_level`: in place of the setting, for a command whose output is its result.

    A program logs names that are no setting. `dispatcher config` and the doctor tell them to a person.
    """
    import structlog

    from dispatcher.runtime.logs import configure_logs
    from dispatcher.startup import read_text

    loaded = load(os.environ, read_text)
    configure_logs(log_level or level_here(loaded.settings.service.log_level))
    if is_program():
        for warning in loaded.warnings:
            structlog.get_logger(component="settings").warning(warning)
    return loaded


def level_here(log_level: str) -> str:
    """The setting for a program. Other commands do not log `info`: a pipe and a person want only their findings."""
    return "warning" if log_level == "info" and not is_program() else log_level


def is_program() -> bool:
    context = click.get_current_context(silent=True)
    return context is None or context.info_name in PROGRAMS


def begin() -> None:
    """Calls back when the command has imported what it needs."""
    context = click.get_current_context(silent=True)
    if context is not None and context.obj is not None:
        context.obj()


def turn(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, on uvloop if it is installed."""
    begin()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(work)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes event loops that try the addresses of a name side by side, as psql does: one of them may be dead."""
    try:
        import uvloop  # saves a fifth of the CPU time of a create; the event loop of asyncio works, too
    except ImportError:
        from dispatcher.container.dial import Loop

        return Loop
    from aiohappyeyeballs import start_connection

    from dispatcher.container.asking import NEXT_ADDRESS_SECONDS

    class QuickLoop(uvloop.Loop):
        async def create_connection(  # type: ignore[override]  # any of its forms
            self, factory: Any, host: Any = None, port: Any = None, **how: Any
        ) -> Any:
            found = await self.getaddrinfo(host, port, type=socket.SOCK_STREAM) if host is not None else ()
            if not found:  # its caller has a socket
                return await super().create_connection(factory, host, port, **how)
            taken = await start_connection(found, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, interleave=1, loop=self)
            named = {"server_hostname": how.pop("server_hostname", None) or host} if how.get("ssl") else {}
            return await super().create_connection(factory, sock=taken, **named, **how)

    return QuickLoop


LAST_ATTEMPT: Final = 32_000
"""The highest attempt that can be tried."""
LONGEST_SECONDS: Final = 604_800
"""The highest run limit, in seconds."""


class Seconds(click.FloatRange):
    """A number of seconds. Python reads `nan` as a number, too, and no bound excludes it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class RowId(click.IntRange):
    """The id of a row. Faults have words of ours: click would write `1<=x<=9223372036854775807`."""

    def __init__(self) -> None:
        super().__init__(1, LARGEST_ID)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ARG002  # as click calls it
        written = str(value)
        if not (written.isascii() and written.isdecimal() and written.strip("0")):
            raise click.UsageError(f"{printable(written)[:40]!r} is no id: give a whole number from 1 on", ctx)
        if len(written) > len(str(LARGEST_ID)) or int(written) > LARGEST_ID:
            raise click.UsageError(f"{written[:40]!r} is no id: the largest one is {LARGEST_ID}", ctx)
        return int(written)


class RowText(click.types.StringParamType):
    """A text that a row may hold. A shell hands over any bytes, such as those of a script in Latin-1."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        written = str(value)
        try:
            written.encode()
        except UnicodeEncodeError as fault:  # the value is not shown: it may be one of env
            self.fail(f"no UTF-8 at character {fault.start + 1}, and a row holds nothing else", param, ctx)
        return written


text_option: Final = partial(click.option, type=RowText())
Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def with_options(*options: Decorator) -> Decorator:
    """Adds these options to a command."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


how_to_try: Final = with_options(
    click.option("--payload", metavar="JSON|@FILE", help="The row's payload; without it, null."),
    text_option("--env", metavar="N=V", multiple=True, help="A variable that the row sets; may be repeated."),
    click.option("--cancel-after", metavar="S", type=Seconds(0), help="From then on heartbeats answer cancel."),
    click.option(
        "--timeout", metavar="S", default=3600, show_default=True, type=click.IntRange(1, LONGEST_SECONDS),
        help="The run limit: SIGTERM, and SIGKILL 30 s later.",
    ),
    click.option(
        "--attempt", metavar="N", default=1, show_default=True, type=click.IntRange(1, LAST_ATTEMPT),
        help="The attempt of the row.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Tell the end as a JSON object; CMD's stdout goes to stderr."),
    click.option("--final", metavar="CODES", multiple=True, help="More statuses of CMD that end the row, as for exec."),
    click.option("--retry", metavar="CODES", multiple=True, help="Statuses that do not, as for exec."),
)  # fmt: skip


where_it_runs: Final = with_options(
    click.option("--url", metavar="URL", help="API of the dispatcher, instead of DISPATCHER_API_URL."),
    click.option(
        "--namespace", metavar="NAME", help="Namespace of the dispatcher's Deployment; it is asked by a port-forward."
    ),
)


def place(url: str | None, namespace: str | None) -> "Where":
    from dispatcher.commands.reaching import Where  # takes a while to import, and `--help` needs none

    if url is not None and namespace is not None:
        raise click.UsageError("give --url or --namespace, not both")
    return Where(url, namespace)


how_to_write_a_row: Final = with_options(  # columns of the row, by their names
    text_option("--queue", metavar="NAME", help="The queue; `default` if left out."),
    text_option("--template", metavar="NAME", help="The template; `default` if left out."),
    text_option("--env", metavar="N=V", multiple=True, help="A variable of the container; may be repeated."),
    click.option("--payload", metavar="JSON|@FILE", help="The row's input; `@-` reads the standard input."),
    click.option("--spec", metavar="JSON", help='What the template lets rows set: \'{"memory": "1Gi"}\'.'),
    text_option("--batch", metavar="NAME", help="A name for rows that belong together."),
    text_option("--label", metavar="N=V", multiple=True, help="A mark by which the row is found; may be repeated."),
    click.option("--priority", metavar="N", type=int, help="Lower numbers first; 100 if left out."),
    text_option("--run-at", metavar="TIME", help="Not before this time, UTC without an offset: `2026-12-01 03:00+01`."),
    click.option("--timeout-seconds", metavar="S", type=int, help="The run limit of each launch."),
    click.option("--max-failures", metavar="N", type=int, help="After so many failures the row has failed."),
    text_option("--cache-key", metavar="KEY", help="Rows of the same key share a directory of their node."),
    text_option("--dedupe-key", metavar="KEY", help="If a row of this key waits or runs, print its id, insert none."),
)  # fmt: skip


how_to_wait: Final = with_options(
    click.option("--timeout", "limit", metavar="S", type=Seconds(0), help="Wait so many seconds at most."),
    click.option("--json", "as_json", is_flag=True, help="One JSON object at the end."),
)
how_to_render_a_file: Final = with_options(
    click.option(
        "--file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="A template's file, NAME.yaml; needs no database.",
    ),
    click.option("--row", metavar="JSON", help="With --file: the columns that the row sets; without it, none."),
)  # fmt: skip


COLOURS: Final = {
    Turn.SUBMITTER: "cyan", Turn.AUTHOR: "magenta", Turn.OPERATOR: "red", Turn.CLUSTER: "yellow", Turn.NOBODY: "green",
}  # fmt: skip
TURNS: Final = re.compile(rf"^ *({'|'.join(Turn)})'s turn\b", re.MULTILINE)


def coloured(told: str) -> str:
    """The text with a colour for whose turn it is. click removes the colours where nobody would see them."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return told
    return TURNS.sub(lambda found: click.style(found[0], fg=COLOURS[Turn(found[1])], bold=True), told)


STEERING: Final = re.compile(rf"[\x7f-\x9f]|{MARKS.pattern}")
"""What JSON does not escape."""


def as_document(shown: object, as_json: bool) -> str:
    """The value as JSON, or as YAML that kubectl reads unchanged. No text in it steers a terminal."""
    if as_json:
        written = msgspec.json.format(msgspec.json.encode(shown)).decode().rstrip()
        return STEERING.sub(lambda sign: re.sub("(....)", r"\\u\1", sign[0].encode("utf-16-be").hex()), written)
    from dispatcher.jobs.template_text import write_document

    return write_document(msgspec.to_builtins(shown, str_keys=True)).rstrip()


def at(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S %Z}"


def span(seconds: float) -> str:
    """A duration in its largest whole unit: `2 h`."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


def to_json(shown: msgspec.Struct) -> str:
    """One object for a terminal. JSON escapes only some of the control characters."""
    return printable(msgspec.json.encode(shown).decode())


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


def read_input(most: int) -> bytes:
    """So many bytes of the standard input. Raises OSError if whoever started us has closed it."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "the standard input is closed")
    return sys.stdin.buffer.read(most)


def read_file(name: str) -> str:
    try:
        if name == "-":
            content = read_input(MOST_READ + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(MOST_READ + 1)
    except (OSError, ValueError) as fault:  # the second: a name with NUL
        words = getattr(fault, "strerror", None) or fault
        raise click.UsageError(f"--payload @{printable(name)}: {words}") from fault
    if len(content) > MOST_READ:
        raise click.UsageError(f"--payload @{printable(name)}: larger than {MOST_READ >> 20} MiB; a row takes 1 MiB")
    try:
        return content.decode("utf-8-sig")
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
