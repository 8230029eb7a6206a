"""The commands. Exit status: 0 done; 1 the command failed or found a fault; 2 wrong usage or settings.

Each command imports its program when it runs: all of them together take a third of a second, and `--help` needs none.
"""

import errno
import os
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from dispatcher import __version__
from dispatcher.commands.options import (
    RowId,
    as_document,
    begin,
    coloured,
    how_to_render_a_file,
    how_to_try,
    how_to_wait,
    how_to_write_a_row,
    load_settings,
    place,
    text_option,
    to_json,
    turn,
    where_it_runs,
)
from dispatcher.model.errors import DispatcherError, SettingsError
from dispatcher.model.tasks import printable

if TYPE_CHECKING:
    from dispatcher.commands.explain import Look
    from dispatcher.commands.reaching import DispatcherApi, Where

AN_ID = RowId()
A_FILE = click.Path(path_type=Path, dir_okay=False)
T = TypeVar("T")
OF_OUTPUT: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Faults of the file or the terminal that the output goes to."""


def main(has_loaded: Callable[[], object] | None = None) -> None:
    """Entry point. Our own faults end with one message, without a trace.

    `has_loaded` is called when a command has imported its program, before it works.
    """
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # other encodings than UTF-8 lack some signs
    try:
        invoke(has_loaded)
    except OSError as fault:
        if fault.errno not in OF_OUTPUT or fault.filename is not None:
            raise
        click.echo(f"the output cannot be written: {fault.strerror}. It is not whole", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter writes what is left, at its end
        sys.exit(1)


def invoke(has_loaded: Callable[[], object] | None) -> None:
    try:
        commands.main(standalone_mode=False, obj=has_loaded)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except SettingsError as wrong:
        for fault in wrong.faults:
            click.echo(printable(fault), err=True)
        sys.exit(2)
    except DispatcherError as fault:
        click.echo(printable(str(fault)), err=True)
        sys.exit(1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dispatcher")
def commands() -> None:
    """Turns waiting rows of a Postgres table into Kubernetes Jobs. Settings come from DISPATCHER_… variables."""


@commands.command()
@click.option("--with-extender", is_flag=True, help="Also answer kube-scheduler; readiness and metrics are shared.")
def run(with_extender: bool) -> None:
    """Dispatch until SIGTERM."""
    from dispatcher import app

    loaded = load_settings()
    turn(app.run(loaded.settings, loaded.sources, with_extender=with_extender))


@commands.command("janitor", short_help="End rows that cannot go on, and delete old ones.")
@click.option("--dry-run", is_flag=True, help="Run one round, print what it would do, change nothing.")
def janitor_command(dry_run: bool) -> None:
    """End parked rows and rows that report by exit code, return lost runs, delete old rows. Until SIGTERM."""
    from dispatcher.janitor import janitor

    loaded = load_settings("info" if dry_run else None)  # of a dry run, the log is the result
    turn(janitor.run(loaded.settings, dry_run=dry_run))


@commands.command("extender", short_help="Tell kube-scheduler which nodes a Pod may use.")
@click.option("--print-scheduler-config", is_flag=True, help="Print the KubeSchedulerConfiguration that it needs.")
def extender_command(print_scheduler_config: bool) -> None:
    """Tell kube-scheduler which nodes a Pod may use, and which of them have its cache. Until SIGTERM."""
    from dispatcher.extender import program as extender
    from dispatcher.extender.configuration import build_configuration
    from dispatcher.kube.credentials import in_cluster

    settings = load_settings().settings
    if print_scheduler_config:
        login = in_cluster()
        shown = build_configuration(settings, login.namespace if login else None)
        click.echo(msgspec.yaml.encode(shown).decode().rstrip())
    else:
        turn(extender.run(settings))


@commands.command("cache-keeper", short_help="Keep this node's cache directories below the disk's marks.")
@click.option("--dry-run", is_flag=True, help="Print what a round would remove, and change nothing.")
def cache_keeper_command(dry_run: bool) -> None:
    """Keep the cache directories of this node below the marks of its disk. Until SIGTERM."""
    from dispatcher.keeper import program as cache_keeper

    turn(cache_keeper.run(load_settings().settings, dry_run=dry_run))


@commands.group("cache")
def cache_commands() -> None:
    """Look after cache directories from outside their nodes."""


@cache_commands.command("drop", short_help="Order the removal of the directories of a cache key.")
@text_option("--queue", metavar="NAME", required=True, help="The queue of the cache key.")
@text_option("--key", metavar="KEY", required=True, help="The cache key, as in tasks.cache_key.")
@text_option("--node", metavar="NAME", help="Only on this node.")
@click.option("--namespace", metavar="NAME", help="Namespace of our programs; default: that of the account.")
def cache_drop(queue: str, key: str, node: str | None, namespace: str | None) -> None:
    """Order the cache keepers to remove the directory of a cache key, once no Pod uses it."""
    from dispatcher.keeper.program import drop

    click.echo(turn(drop(load_settings().settings, (queue, key), node, namespace)))


@commands.command(
    "demo",
    short_help="Run the whole system on this machine, for a first look.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--tasks", default=20, show_default=True, type=click.IntRange(1, 5000), help="How many sample tasks.")
@click.option("--keep", is_flag=True, help="Run until Ctrl-C, so that you can insert rows of your own.")
@click.option("--grows", is_flag=True, help="Nodes come while Pods wait, as in a cluster with an autoscaler.")
@click.option("--plain", is_flag=True, help="Print lines instead of a picture.")
@click.option("--sql", type=A_FILE, help="Your own INSERTs, instead of the samples.")
@click.option("--template", type=A_FILE, help="Your own Job manifest, as template `default`.")
@click.option("--kubeconfig", type=A_FILE, help="A real cluster, instead of the one in memory.")
@click.argument("psql", metavar="[psql [ARGS]…]", nargs=-1, type=click.UNPROCESSED)
def demo_command(psql: tuple[str, ...], **asked: Any) -> None:
    """Run Postgres, a cluster and all programs on this machine, and remove everything at the end.

    `demo psql` opens psql on the demo that runs, as a submitter. ARGS go to psql.
    """
    demo = find_demo()
    if psql[:1] not in {(), ("psql",)}:
        raise click.UsageError(f"the demo has no command {psql[0]!r}; it has one command, psql")
    begin()
    sys.exit(demo.connect(psql[1:]) if psql else demo.run_demo(asked))


def find_demo() -> ModuleType:
    """The package of the demo. It is no part of what clusters run, so it is a distribution of its own."""
    try:
        return import_module("dispatcher_demo")
    except ModuleNotFoundError as fault:
        raise DispatcherError("the demo is a package of its own: pip install pg-job-dispatcher-demo") from fault


@commands.command(
    "exec",
    short_help="Run a task's command in its container, and report its end.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED)
def exec_command(cmd: tuple[str, ...]) -> None:
    """Run a task's command in its container and report its outcome: `dispatcher exec [OPTIONS] -- CMD…`."""
    from dispatcher.container.exec import main as run_command

    sys.exit(run_command(cmd))  # only for calls of this module: `__main__` runs `exec` before these imports


@commands.command(
    "try",
    short_help="Run a task's command as `exec` does, on this machine.",
    context_settings={"allow_interspersed_args": False},
)
@how_to_try
@click.argument("cmd", metavar="-- CMD…", nargs=-1, type=click.UNPROCESSED)
def try_command(cmd: tuple[str, ...], **asked: Any) -> None:
    """Run a task's command as `exec` does, but on this machine, without a database and a cluster.

    Heartbeats are shown each second; `exec` sends one each 15 s. SIGTERM and Ctrl-C reach CMD as SIGTERM. The exit
    status is the one of `exec`.
    """
    from dispatcher.commands.trying import asked_of, try_command

    begin()
    sys.exit(try_command(asked_of(cmd, **asked)))


@commands.command()
@click.option("--check", is_flag=True, help="Apply nothing; exit 1 if a migration is pending.")
@click.option(
    "--queues",
    type=A_FILE,
    help="JSON list of queues; inserts those that are missing, and changes none but `*` and `default` at first.",
)
def migrate(check: bool, queues: Path | None) -> None:
    """Migrate the database to this version's schema."""
    from dispatcher.pg.migrate import migrate as apply_migrations
    from dispatcher.pg.tasks import declare_queues, read_queues

    if check and queues:
        raise click.UsageError("give --check or --queues, not both")
    url, declared = load_settings().settings.database.url, read_queues(queues) if queues else []
    pending = turn(apply_migrations(url, check=check))
    for name in pending:
        click.echo(f"{'pending' if check else 'applied'} {name}")
    if not pending:
        click.echo("up to date")
    made = turn(declare_queues(url, declared)) if declared else []
    for queue in declared:
        click.echo(f"queue {queue.name} {'is as declared' if queue.name in made else 'exists and stays as it is'}")
    sys.exit(1 if check and pending else 0)


@commands.command()
@click.argument("task_id", metavar="[ID]", type=AN_ID, required=False)
@text_option("--template", metavar="NAME", help="Use a row that names this template and sets nothing else.")
@how_to_render_a_file
@click.option("--json", "as_json", is_flag=True, help="JSON instead of YAML.")
def render(task_id: int | None, template: str | None, file: Path | None, row: str | None, as_json: bool) -> None:
    """Show the Job of a row, or of a template. For a row, stderr tells whether a node has room for it now."""
    from dispatcher.commands.render import preview_row, preview_template, read_catalog, show_file, tell_room

    if [task_id, template, file].count(None) != 2 or (row is not None and file is None):
        raise click.UsageError("give the ID of a row, or --template NAME, or --file FILE with or without --row JSON")
    settings = load_settings().settings
    if file is not None:
        sys.exit(show_file(file, row, settings, as_json))
    if task_id is not None:
        shown = turn(preview_row(task_id, settings))
    else:
        shown = preview_template(str(template), settings, read_catalog(settings))
    click.echo(as_document(shown, as_json))
    if task_id is not None and (told := turn(tell_room(shown, settings))):
        click.echo(told, err=True)  # beside the Job, so that the output can be applied


A_SOURCE: Final = click.Path(path_type=Path, exists=True, allow_dash=True)


@commands.command("adopt", short_help="Make templates of Jobs, CronJobs, Pods and workflows.")
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=A_SOURCE)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), help="Folder of the templates.")
@click.option("--check", is_flag=True, help="Write nothing.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def adopt_command(files: tuple[Path, ...], out: Path | None, check: bool, as_json: bool) -> None:
    """Make templates of Jobs, CronJobs, ScaledJobs, Pods and Argo workflows; a FILE may be a folder, or -.

    Tells what became of each field. Exits with 1 if something is left to a person.
    """
    from dispatcher.commands.adopt import adopt_files

    sys.exit(adopt_files(files, out, check=check, as_json=as_json))


@commands.command("wait", short_help="Wait until rows have ended.")
@click.argument("ids", metavar="[ID…]", nargs=-1, type=AN_ID)
@text_option("--batch", metavar="NAME", help="Wait for all rows of a batch.")
@text_option("--queue", metavar="NAME", help="With --batch: of this queue alone.")
@how_to_wait
def wait_command(
    ids: tuple[int, ...], batch: str | None, queue: str | None, limit: float | None, as_json: bool
) -> None:
    """Wait until rows have ended, with a submitter's DISPATCHER_DATABASE_URL.

    Exit status: 0 all succeeded; 1 not all; 3 the time is over; 4 the database could not be asked.
    """
    from dispatcher.commands.wait import WaitOptions, wait

    if bool(ids) == (batch is not None) or (queue and batch is None):
        raise click.UsageError("give ids, or --batch NAME with or without --queue NAME")
    options = WaitOptions(database_url(), limit, as_json)
    sys.exit(turn(wait(ids, batch, queue, options)))


@commands.command("submit", short_help="Insert one row, and print its id.")
@how_to_write_a_row
@click.option(
    "--wait", "waits", is_flag=True, help="Wait until the row has ended; the exit status tells how, as for wait."
)
@how_to_wait
def submit_command(waits: bool, limit: float | None, as_json: bool, **columns: Any) -> None:
    """Insert one row with a submitter's DISPATCHER_DATABASE_URL, and print its id."""
    from dispatcher.commands.wait import WaitOptions, columns_of, submit

    if limit is not None and not waits:
        raise click.UsageError("--timeout needs --wait")
    env, label = columns.pop("env"), columns.pop("label")
    options = WaitOptions(database_url(), limit, as_json)
    sys.exit(turn(submit(columns_of(env, label, columns), options, waits=waits)))


def database_url() -> Callable[[], str | None]:
    """Reads the setting at each connect: a file may hold the URL, with a password that changes."""
    load_settings("error")
    return lambda: load_settings("error").settings.database.url


@commands.command("explain", short_help="Tell why rows wait, and what would change it.")
@click.argument("ids", metavar="ID…", nargs=-1, required=True, type=AN_ID)
@click.option("--watch", "is_watching", is_flag=True, help="Go on, and print what changes, until the rows are over.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@where_it_runs
def explain_command(ids: tuple[int, ...], is_watching: bool, as_json: bool, **where: str | None) -> None:
    """Tell why rows wait, whose turn it is, and what would change it."""
    from dispatcher.commands import explain as explaining

    tell = to_json if as_json else lambda found: coloured(explaining.in_words(found))
    if is_watching:
        rows = explaining.RowWatch(ids, tell, click.echo)
        watch(place(**where), rows.look)
        sys.exit(1 if rows.unknown else 0)
    else:
        sys.exit(ask(place(**where), lambda api: explaining.explain(ids, api, tell, click.echo)))


@commands.command("status")
@click.option("--parked", is_flag=True, help="Only the parked rows, which wait for a person: up to 100.")
@click.option("--watch", "is_watching", is_flag=True, help="Go on, and print what changes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@where_it_runs
def status_command(parked: bool, is_watching: bool, as_json: bool, **where: str | None) -> None:
    """Show queues, caps, parked rows, and what is missing."""
    from dispatcher.commands import explain as status

    words = status.parked_only if parked else status.status_in_words
    tell = to_json if as_json else lambda found: coloured(words(found))
    if is_watching:
        watch(place(**where), status.StatusWatch(tell, click.echo).look)
    else:
        click.echo(tell(ask(place(**where), status.ask_status)))


@commands.command("logs", short_help="Show the output of a row's container.")
@click.argument("task", metavar="ID", type=AN_ID)
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt; otherwise of the newest.")
@click.option("--launch", type=click.IntRange(1), help="Of this launch; otherwise of the newest.")
@click.option("--follow", is_flag=True, help="Wait until the container starts, and go on until it ends.")
@click.option("--tail", metavar="N", type=click.IntRange(0), help="The last N lines alone.")
@where_it_runs
def logs_command(task: int, url: str | None, namespace: str | None, **which: Any) -> None:
    """Show the output of a row's container; if its Pod is gone, what is known of its end."""
    from dispatcher.commands.logs import LogSelection, logs

    sys.exit(turn(logs(LogSelection(task, **which), place(url, namespace), load_settings().settings)))


@commands.command("doctor", short_help="Ask whether this installation is right. Changes nothing.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@click.option("--namespace", metavar="NAME", help="Namespace of our programs; default: that of the account.")
def doctor_command(as_json: bool, namespace: str | None) -> None:
    """Ask whether this installation is right, and tell what is wrong with it. Changes nothing."""
    from dispatcher.doctor import program as doctor

    found = turn(doctor.examine(load_settings(), doctor.DoctorEnvironment(namespace)))
    click.echo(to_json(found) if as_json else doctor.in_words(found.findings))
    sys.exit(doctor.exit_status(found.findings))


@commands.command()
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def config(as_json: bool) -> None:
    """Show the effective settings and the origin of each."""
    loaded = load_settings()
    if as_json:
        click.echo(as_document(loaded.sources, as_json))
    else:
        for source in loaded.sources:
            click.echo(f"{'DISPATCHER_' + source.name:36} {source.value:32} {source.origin}")
    if loaded.warnings:
        raise SettingsError(loaded.warnings)


def ask(where: "Where", question: Callable[["DispatcherApi"], Awaitable[T]]) -> T:
    """Asks a running dispatcher a question."""
    from dispatcher.commands.reaching import reached

    settings = load_settings().settings

    async def reach() -> T:
        async with reached(where, settings) as api:
            return await question(api)

    return turn(reach())


def watch(where: "Where", look: "Look") -> None:
    """Asks a running dispatcher again and again."""
    from dispatcher.commands import explain as explaining
    from dispatcher.commands.reaching import reached

    settings = load_settings().settings
    turn(explaining.watch(lambda: reached(where, settings), look))
