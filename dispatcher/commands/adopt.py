"""`dispatcher adopt FILE…`: templates of manifests of other systems, and a list of what became of each field."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct

from dispatcher.commands.adoption import Adoption, Did, Statement
from dispatcher.commands.manifests import adopt, inserting_cron_job
from dispatcher.commands.options import as_document
from dispatcher.commands.render import read_bounded
from dispatcher.jobs.fields import object_at
from dispatcher.jobs.offered import why_unusable
from dispatcher.jobs.template_text import read_documents, write_document
from dispatcher.jobs.templates import parse_template
from dispatcher.model.errors import TemplateError
from dispatcher.model.tasks import one_line
from dispatcher.pg.queries import read_sql

SUFFIXES: Final = (".yaml", ".yml", ".json")
OUT: Final = Path("templates")


class AdoptedFile(Struct, frozen=True):
    """What became of one document of a file.

    file, line: where it begins.
    what: its kind and name.
    to: the template's file; empty: there is none.
    fields: what became of each field: its fate, its place, words.
    sql: statements to paste.
    cron_job: a CronJob to paste, which inserts the rows; empty: it had no schedule.
    faults: why there is no template, or why the dispatcher would refuse it.
    """

    file: str
    line: int
    what: str
    to: str = ""
    fields: Sequence[tuple[str, str, str]] = ()
    sql: Sequence[str] = ()
    cron_job: str = ""
    faults: Sequence[str] = ()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to a person."""
        return not self.faults and not any(did == Did.OPEN for did, _, _ in self.fields)


def adopt_files(paths: Sequence[Path], out: Path | None, *, check: bool, as_json: bool) -> int:
    """Writes the templates, and tells what it did. Returns the exit status: 1 if something is left to a person."""
    out, found, taken = out or OUT, list[AdoptedFile](), set[str]()
    for path in files_of(paths):
        found += list(adopt_file(path, out, taken, check=check))
    if not found:
        raise click.UsageError("no file here ends in .yaml, .yml or .json")
    if as_json:
        click.echo(as_document(found, as_json=True))
    else:
        for one in found:
            click.echo(in_words(one, check=check))
    return 0 if all(one.is_done for one in found) else 1


def files_of(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file())
        else:
            yield path


def adopt_file(path: Path, out: Path, taken: set[str], *, check: bool) -> Iterator[AdoptedFile]:
    """`taken`: names of templates that this call has made; a second one of a name gets a number."""
    try:
        documents = read_documents(read_bounded(path))
    except OSError as fault:
        raise click.UsageError(f"{path}: {fault.strerror}") from fault
    except TemplateError as fault:
        yield from (AdoptedFile(str(path), one.line, "no manifest", faults=[one.words]) for one in fault.faults)
        return
    for line, document in documents:
        what = f"{document.get('kind')} {object_at(document, 'metadata').get('name', '')}".strip()
        made = adopt(document)
        if isinstance(made, str):
            yield AdoptedFile(str(path), line, what, fields=[(Did.LEFT_OUT, "", made)])
            continue
        for one in made:
            to = out / f"{unique(one.name, taken)}.yaml"
            yield write(one, AdoptedFile(str(path), line, what), to, check=check)


def unique(name: str, taken: set[str]) -> str:
    free = next(one for one in (name, *(f"{name[:60]}-{number}" for number in range(2, 1000))) if one not in taken)
    taken.add(free)
    return free


def write(adoption: Adoption, source: AdoptedFile, to: Path, *, check: bool) -> AdoptedFile:
    """Writes one template. A file that is there stays as it is."""
    fields = [(one.did.value, one.field, one.words) for one in adoption.fields]
    told: dict[str, Any] = {"fields": fields, "sql": [written(one, to.stem) for one in adoption.statements]}
    if not adoption.manifest:
        return changed(source, **told)
    if adoption.schedule:
        told["cron_job"] = write_document(
            inserting_cron_job(to.stem, adoption.schedule, " ".join(told["sql"][0].split("\n")))
        )
    text = write_document(adoption.manifest)
    faults = refusals(to.stem, text)
    if not check:
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            with to.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            faults = [*faults, f"{to} exists, and stays as it is: remove it, or give another --out"]
    return changed(source, to=str(to), faults=faults, **told)


def refusals(name: str, text: str) -> list[str]:
    """Why the dispatcher would refuse the template."""
    try:
        template = parse_template(name, text)
    except TemplateError as fault:
        return [one.words for one in fault.faults]
    return [why] if (why := why_unusable(template)) else []


def changed(source: AdoptedFile, **parts: Any) -> AdoptedFile:
    return AdoptedFile(source.file, source.line, source.what, **parts)


def written(statement: Statement, template: str) -> str:
    """A statement with its variables written out, as psql does. `template`: its name, which may have got a number."""
    lines = read_sql(f"adopt/{statement.file}.sql").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("--"))
    for name, value in {**statement.values, "template": template}.items():
        quoted = "'{}'".format(str(value).replace("'", "''"))
        text = text.replace(f":'{name}'", quoted).replace(f":{name}", str(value))
    return text


def in_words(one: AdoptedFile, *, check: bool) -> str:
    """One block for a document. Names in it are those of the file, so they may hold control characters."""
    head = f"{one.file}:{one.line}: {one.what}{f' → {one.to}' if one.to and not check else ''}"
    fields = [f"  {did:11} {field}{f': {words}' if words and field else words}" for did, field, words in one.fields]
    faults = [f"  refused     {words}" for words in one.faults]
    sql = [f"  {line}" for text in one.sql for line in text.splitlines()]
    pasted = [f"  {line}" for line in one.cron_job.splitlines()]
    blocks = [*(["  SQL:", *sql] if sql else []), *(["  CronJob that inserts the row:", *pasted] if pasted else [])]
    return "\n".join([*map(one_line, [head, *fields, *faults]), *blocks])
