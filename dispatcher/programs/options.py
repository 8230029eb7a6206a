"""Options that several commands have, and those of the author's commands: `try` and `render --file`."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from dispatcher.programs.reaching import Where

LAST_ATTEMPT: Final = 32_000
LONGEST_SECONDS: Final = 604_800


class Seconds(click.FloatRange):
    """A number of seconds. Python reads `nan` as a number, too, and no bound excludes it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


TRY_OPTIONS: Final = (
    click.option("--payload", metavar="JSON|@FILE", help="The row's payload; without it, null."),
    click.option("--env", metavar="N=V", multiple=True, help="A variable that the row sets; may be repeated."),
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


def where_it_runs(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say where a running dispatcher is."""
    named = "Namespace of the dispatcher's Deployment; it is asked by a port-forward."
    url = click.option("--url", metavar="URL", help="API of the dispatcher, instead of DISPATCHER_API_URL.")
    return url(click.option("--namespace", metavar="NAME", help=named)(command))


def place(url: str | None, namespace: str | None) -> "Where":
    from dispatcher.programs.reaching import Where  # takes a while to import, and `--help` needs none

    if url is not None and namespace is not None:
        raise click.UsageError("give --url or --namespace, not both")
    return Where(url, namespace)


def how_to_try(command: Callable[..., None]) -> Callable[..., Any]:
    """Adds the options of `dispatcher try`."""
    for option in reversed(TRY_OPTIONS):
        command = option(command)
    return command


def how_to_render_a_file(command: Callable[..., None]) -> Callable[..., Any]:
    """Adds the options that need no database."""
    path = click.Path(path_type=Path, dir_okay=False, exists=True)
    row = click.option("--row", metavar="JSON", help="With --file: the columns that the row sets; without it, none.")
    file = click.option("--file", metavar="FILE", type=path, help="A template's file, NAME.yaml; needs no database.")
    return file(row(command))
