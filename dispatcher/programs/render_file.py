"""`dispatcher render --file`: the Job that a template's file and a row would become, or every fault of both.

It reads no database and no cluster. The code of the dispatcher judges: the checks of templates, the bounds of rows, the
builder of Jobs and the check of the finished Job.
"""

from pathlib import Path
from typing import Any, Final

import click
import msgspec
from msgspec import Struct

from dispatcher.jobs.manifest import build_job
from dispatcher.jobs.overrides import denials, judge_kind
from dispatcher.jobs.policy import violations
from dispatcher.jobs.row_columns import UNCHECKED, column_faults
from dispatcher.jobs.template_shape import dotted
from dispatcher.jobs.template_text import MOST_BYTES, line_of
from dispatcher.jobs.templates import Template, parse_template
from dispatcher.model.cache_history import CacheHistory
from dispatcher.model.errors import Fault, TemplateError
from dispatcher.model.jobs import Manifest
from dispatcher.model.stored_json import NotStoredJson, stored_json
from dispatcher.model.tasks import Kind, Request, Task
from dispatcher.model.texts import one_line
from dispatcher.model.verdicts import Hold
from dispatcher.programs.render import NO_DATABASE, a_new_row, preview_order
from dispatcher.programs.startup import placed_by_of, site_of
from dispatcher.programs.words import as_document
from dispatcher.settings.definition import Settings

SUFFIX: Final = ".yaml"
ROW: Final = "--row"


class Located(Struct, frozen=True):
    """A fault and its place.

    file: the file, or `--row`.
    line: line of the file; 0: the fault is the row's.
    path: the field.
    words: what is wrong.
    """

    file: str
    line: int
    path: str
    words: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return one_line(": ".join(filter(None, (where, self.path, self.words))))


def show_file(path: Path, row: str | None, settings: Settings, as_json: bool) -> int:
    """Prints the Job, or all faults. Returns the exit status."""
    try:
        found = render_file(path, row, settings)
    except OSError as fault:
        raise click.UsageError(f"--file {path}: {fault.strerror}") from fault
    if not isinstance(found, list):
        click.echo(as_document(found, as_json))
        click.echo(f"not checked, because only the database knows: {UNCHECKED}", err=True)
        return 0
    if as_json:
        click.echo(as_document({"faults": found}, as_json))
    for one in () if as_json else found:
        click.echo(str(one), err=True)
    return 1


def render_file(path: Path, row: str | None, settings: Settings) -> Manifest | list[Located]:
    """The Job, or all faults. OSError: the file cannot be read."""
    written, row_faults = read_row(row)
    try:
        template = read_template(path)
    except TemplateError as fault:
        return [*located(path, fault.faults), *row_faults]
    if written.get("template", template.name) != template.name:
        words = f"{written['template']!r:.80} is another template than the file's, {template.name}: leave it out"
        row_faults.append(Located(ROW, 0, "template", words))
    return row_faults or built(template, written, settings)


def read_template(path: Path) -> Template:
    """The template of the file, judged as the dispatcher judges it. Reads no more than a template may have."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    try:
        text = content.decode()
    except UnicodeDecodeError as wrong:
        line = content.count(b"\n", 0, wrong.start) + 1
        raise TemplateError(Fault((), f"no UTF-8 text: byte 0x{content[wrong.start]:02x}", line)) from wrong
    faults: tuple[Fault, ...] = ()
    if path.suffix != SUFFIX:
        faults = (Fault((), f"the file's name is {path.name!r:.80}: the dispatcher reads NAME{SUFFIX} alone", 1),)
    try:
        template = parse_template(path.stem, text)
    except TemplateError as fault:
        places = (one._replace(line=one.line or line_of(text, one.path)) for one in fault.faults)
        raise TemplateError(*faults, *places) from None
    if faults:
        raise TemplateError(*faults)
    return template


def located(path: Path, faults: tuple[Fault, ...]) -> list[Located]:
    named = [(dotted(fault.path), fault) for fault in faults]
    found = [Located(str(path), one.line, name, one.words.removeprefix(f"{name} ")) for name, one in named]
    return sorted(found, key=lambda one: one.line)


def read_row(row: str | None) -> tuple[dict[str, Any], list[Located]]:
    """The columns of the row, and the faults of them that an INSERT would have."""
    try:
        stored = stored_json(row if row is not None else "{}")
    except NotStoredJson as fault:
        return {}, [Located(ROW, 0, "", f"no JSON that Postgres stores: {fault.rule}, {fault.detail}")]
    try:
        written = msgspec.json.decode(stored, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as fault:
        return {}, [Located(ROW, 0, "", f"not an object of columns: {fault}")]
    return written, [Located(ROW, 0, name, words) for name, words in column_faults(written)]


def built(template: Template, written: dict[str, Any], settings: Settings) -> Manifest | list[Located]:
    site = site_of(settings, settings.kube.namespace or "default")
    task, kind, request = row_of(template, written)
    passed = frozenset(site.passed)
    if denied := list(denials(kind, template, passed)):
        return [Located(ROW, 0, "", words) for words in denied]
    offer = judge_kind(kind, {template.name: template}, passed, placed_by_of(settings))
    assert not isinstance(offer, Hold)  # nothing is denied, and the template is known
    order = preview_order(task, (request, CacheHistory()), offer, NO_DATABASE, settings)
    job = build_job(order, template, site)
    found = [Located(ROW, 0, "", f"PolicyDenied: {words}") for words in violations(job, order, template, site)]
    return found or job


def row_of(template: Template, written: dict[str, Any]) -> tuple[Task, Kind, Request]:
    """The row as the dispatcher reads it. Columns that its Job does not show are left out."""
    spec, env = written.get("spec", {}), written.get("env", {})
    chosen = {name: written[name] for name in ("queue", "timeout_seconds") if name in written}
    task = msgspec.structs.replace(a_new_row(template.name), **chosen)
    texts = {name: value for name, value in spec.items() if name not in {"command", "args"}}
    kind = Kind(b"", template.name, task.timeout_seconds, texts, frozenset(spec), frozenset(env))
    return task, kind, Request(task.id, task.attempt, env, spec, written.get("cache_key"))
