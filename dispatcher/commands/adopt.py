"""`dispatcher adopt FILE…`: makes templates of manifests of other systems, and lists what became of each field."""

import codecs
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.commands.adoption import AdoptedField, Adoption, Did, Statement, objects, renamed
from dispatcher.commands.manifests import (
    in_source,
    inserting_cron_job,
    name_of,
    of_cron_job,
    of_job,
    of_pod,
    of_scaled_job,
)
from dispatcher.commands.neighbours import NO_PODS, group_of, is_source, names_of_pods, word_of_kind, word_of_owner
from dispatcher.commands.options import as_document, read_input
from dispatcher.commands.placeholders import words_of_unfilled
from dispatcher.commands.workflows import of_workflow
from dispatcher.jobs.fields import dotted, object_at
from dispatcher.jobs.offered import why_unusable
from dispatcher.jobs.template_text import Path as Place
from dispatcher.jobs.template_text import places_of, read_documents, text_of, write_document
from dispatcher.jobs.templates import TASK, parse_template
from dispatcher.model import launches as ids
from dispatcher.model.errors import TemplateError
from dispatcher.model.jobs import Json, Manifest
from dispatcher.model.tasks import one_line, printable
from dispatcher.pg.queries import read_sql

SUFFIXES: Final = (".yaml", ".yml", ".json")
OUT: Final = Path("templates")
INPUT: Final = Path("-")
MOST_BYTES: Final = 16 << 20
"""Bytes of a file, at most. It may hold thousands of manifests, as the export of a cluster."""
MOST_PARTS: Final = 1000
"""Documents of a file that are read one by one, at most. Each is read behind the empty lines before it."""
READERS: Final[Mapping[str, Callable[[Json], Iterator[Adoption]]]] = {
    "Job": of_job, "CronJob": of_cron_job, "ScaledJob": of_scaled_job, "Pod": of_pod, "Workflow": of_workflow,
    "WorkflowTemplate": of_workflow, "ClusterWorkflowTemplate": of_workflow, "CronWorkflow": of_workflow,
}  # fmt: skip
"""The reader of each kind of work."""
GROUPS: Final = frozenset({"batch", "", "argoproj.io", "keda.sh"})
"""Groups of those kinds. Other groups have Jobs and Workflows, too, such as Volcano and Cloud Run."""


def adopt(document: Json) -> list[Adoption] | tuple[Did, str]:
    """The templates of one document, or why there is none. It never raises, whatever the document is."""
    if not is_work(document):
        return adopt_inner(document) or word_of_kind(document, NO_PODS)
    if word := word_of_owner(document):
        return word
    head, *others = READERS[document["kind"]](document)
    unknown = [AdoptedField(Did.OPEN, field, "it is not known here") for field in sorted(document.keys() - OF_OBJECTS)]
    told = {one.field for each in (head, *others) for one in each.fields if "nobody fills in" in one.words}
    texts = [(dotted(path), words) for path, words in words_of_unfilled(document, task_of(head))]
    unfilled = [AdoptedField(Did.OPEN, field, words) for field, words in texts if field not in told]
    return [replace(head, fields=[*unknown, *unfilled, *head.fields]), *others]


def task_of(adoption: Adoption) -> int:
    """The place of the task's container among the containers of the Pod."""
    pod = object_at(adoption.manifest, "spec", "template", "spec")
    given = object_at(adoption.manifest, "metadata", "annotations").get(ids.CONTAINER, TASK)
    names = [one.get("name") for one in objects(pod.get("containers"))]
    return names.index(given) if given in names else 0


def is_work(document: Json) -> bool:
    """Whether a reader knows the document's kind, and its group is one of the reader's."""
    kind = document.get("kind")
    is_known = group_of(document) in GROUPS or "apiVersion" not in document
    return isinstance(kind, str) and kind in READERS and is_known


def adopt_inner(document: Json) -> list[Adoption]:
    """The templates of work inside an object of another kind, such as in a trigger of a Sensor."""
    found = list[Adoption]()
    for path, inner in () if is_source(document) else inner_work(document, ()):
        made = adopt(inner)
        for one in made if isinstance(made, list) else ():
            fields = [AdoptedField(each.did, f"{dotted(path)}.{each.field}", each.words) for each in one.fields]
            maker = f"{document['kind']} {name_of(document)}" if document.get("kind") else "what reads this file"
            words = f"{maker} made it, and may write values into it: insert its row then"
            places = [*one.places, (r"^(?=.)", f"{dotted(path)}.")]
            found.append(replace(one, fields=[AdoptedField(Did.OPEN, dotted(path), words), *fields], places=places))
    return found


def inner_work(part: object, path: Place) -> Iterator[tuple[Place, Json]]:
    """Objects that a reader knows, with their places. A reference to an object has no spec, and is none."""
    if isinstance(part, dict) and part.get("apiVersion") and isinstance(part.get("spec"), dict) and is_work(part):
        yield path, part
        return
    for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        yield from inner_work(value, (*path, key))


OF_OBJECTS: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


class AdoptedFile(Struct, frozen=True):
    """What became of one document of a file.

    file, line: where it begins.
    what: its kind and name.
    to: the template's file; empty: there is none.
    fields: what became of each field: fate, place, words.
    sql: statements to paste.
    cron_job: a CronJob to paste, which inserts the rows, or several of them; empty: the document has no schedule.
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
        """Whether no decision is left to a person."""
        return not self.faults and not any(did == Did.OPEN for did, _, _ in self.fields)


class FileDocument(Struct, frozen=True):
    """One document of a file, or what became of a file without documents.

    told: file, line and kind; of a file without documents also why.
    document: None: the file has none.
    text: the text of the file, by whose lines faults are told.
    """

    told: AdoptedFile
    document: Json | None = None
    text: str = ""


def adopt_files(paths: Sequence[Path], out: Path | None, *, check: bool, as_json: bool) -> int:
    """Writes the templates, and prints what it did. Returns the exit status: 1 if something is left to a person."""
    out = out or OUT
    read = [one for path in files_of(paths, out) for one in read_file(path)]
    if not read:
        raise click.UsageError("no manifest here: no file ends in .yaml, .yml or .json, or those that do are blank")
    found = list(adopt_documents(read, out, check=check))
    if as_json:
        click.echo(as_document(found, as_json=True))
    else:
        for one in found:
            click.echo(in_words(one, check=check))
    return 0 if all(one.is_done for one in found) else 1


def adopt_documents(read: Sequence[FileDocument], out: Path, *, check: bool) -> Iterator[AdoptedFile]:
    """All documents are adopted before the first is told: objects beside the work are judged by the names in all Pods.

    A second template of a name gets a number.
    """
    adopted = [(one, None if one.document is None else adopt(one.document)) for one in read]
    pods = names_of_pods((one.document or {}, made) for one, made in adopted if isinstance(made, list))
    taken = set[str]()
    for one, made in adopted:
        document = one.document or {}
        if made is None:
            yield one.told
        elif isinstance(made, tuple):
            did, words = made if is_work(document) else word_of_kind(document, pods)
            yield changed(one.told, fields=[(did.value, "", words)])
        else:
            for each in made:
                last = renamed(each, unique(each.name, taken)) if each.manifest else each
                yield write(last, one, out / f"{last.name}.yaml", check=check)


def files_of(paths: Sequence[Path], out: Path) -> Iterator[Path]:
    """The files, and those in folders and their visible subfolders. For an inner folder `out`, only its own path."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        if is_same(path, out):
            raise click.UsageError(f"{path} is read, and templates are written there: give another --out")
        for folder, inner, names in os.walk(path, onerror=unreadable):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            yield from (Path(folder, name) for name in inner if is_same(Path(folder, name), out))
            inner[:] = [name for name in inner if not is_same(Path(folder, name), out)]
            files = (Path(folder, name) for name in sorted(names) if name.lower().endswith(SUFFIXES))
            yield from (file for file in files if not file.is_fifo())  # nobody may ever write into it


def is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def unreadable(fault: OSError) -> None:
    raise click.UsageError(f"{fault.filename}: {fault.strerror}") from fault


def read_file(path: Path) -> Iterator[FileDocument]:
    """The documents of a file, or why it has none."""
    if path.is_dir():
        words = "templates are written there, so it is not read. If it has manifests, give another --out"
        left = (Did.LEFT_OUT.value, "", words)
        yield FileDocument(AdoptedFile(printable(str(path)), 0, "folder", fields=[left]))
        return
    try:
        content = read_input(MOST_BYTES + 1) if path == INPUT else read_most(path)
        text = text_of(as_utf8(content), MOST_BYTES)
    except OSError as fault:
        yield FileDocument(AdoptedFile(printable(str(path)), 0, NOT_ONE, faults=[str(fault.strerror)]))
    except TemplateError as fault:
        yield from no_manifest(path, fault)
    else:
        yield from read_text(path, text)


def as_utf8(content: bytes) -> bytes:
    """Windows PowerShell writes the output of kubectl into a file as UTF-16."""
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16", errors="replace").encode() if is_wide else content


def read_text(path: Path, text: str) -> Iterator[FileDocument]:
    """The documents of a text. If one is unreadable, each is read alone, so that it spoils no other."""
    try:
        documents = read_documents(text, MOST_BYTES)
    except TemplateError as fault:
        parts = parts_of(text)
        if 1 < len(parts) <= MOST_PARTS:
            for part in parts:
                yield from read_text(path, part)
        elif KIND.search(text):
            yield from no_manifest(path, fault, HELM if "{{" in text else "")
        else:
            left = Did.LEFT_OUT.value, "", f"it names no kind: {fault.faults[0].words}"
            yield FileDocument(AdoptedFile(printable(str(path)), fault.faults[0].line, NOT_ONE, fields=[left]))
        return
    unnamed = {"kind": "Kustomization"} if path.stem == "kustomization" else {}
    for line, document in ((line, {**unnamed, **one}) for line, one in documents):
        what = f"{document.get('kind') or 'document'} {object_at(document, 'metadata').get('name', '')}".strip()
        yield FileDocument(AdoptedFile(printable(str(path)), line, what), document, text)


def parts_of(text: str) -> list[str]:
    """The documents of a text, each behind as many empty lines as were before it, so that line numbers stay."""
    before, found = 0, list[str]()
    for part in re.split(r"^(?=---(?:\s|$))", text, flags=re.MULTILINE):
        if not all(line.startswith("%") or not line.strip() for line in part.splitlines()):  # directives stand alone
            found.append("\n" * before + part)
        before += part.count("\n")
        if len(found) > MOST_PARTS:
            break
    return found


KIND: Final = re.compile(r"""(?:^|[{,\s])["']?kind["']?\s*:""")
"""Each manifest has a kind. Files of other programs may have tags that are not known here, or a list."""
NOT_ONE: Final = "no manifest"
HELM: Final = ". Is it a template of Helm? `helm template CHART | dispatcher adopt -` adopts it"
TWICE: Final = ". kubectl takes the last one: remove the first"


def no_manifest(path: Path, fault: TemplateError, hint: str = "") -> Iterator[FileDocument]:
    for one in fault.faults:
        words = one.words + (TWICE if "stands twice in one object" in one.words else hint)
        yield FileDocument(AdoptedFile(printable(str(path)), one.line, NOT_ONE, faults=[words]))


def read_most(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def unique(name: str, taken: set[str]) -> str:
    others = (f"{name[:55]}-{number}" for number in count(2))
    free = next(one for one in chain([name], others) if one not in taken)
    taken.add(free)
    return free


def write(adoption: Adoption, source: FileDocument, to: Path, *, check: bool) -> AdoptedFile:
    """Writes one template, unless the dispatcher would refuse it. An existing file stays as it is.

    Without the template nothing is to be pasted: rows would run another one of its name, or none.
    """
    if not adoption.manifest:
        return changed(source.told, fields=without_cron_job(adoption.fields))
    text = write_document(adoption.manifest)
    faults, open_fields = refusals(to.stem, text, adoption, source)
    if not open_fields:
        faults = faults or written_to(to, text, check=check)
    if faults or open_fields:
        return changed(source.told, fields=without_cron_job([*open_fields, *adoption.fields]), faults=faults)
    told: dict[str, Any] = {"sql": [written(one, to.stem) for one in adoption.statements]}
    if adoption.in_time is not None:
        lines = written(adoption.in_time, to.stem).split("\n")
        statement = " ".join(line for line in lines if not line.startswith("--"))
        told["cron_job"] = "---\n".join(map(write_document, pasted_cron_jobs(adoption, to.stem, statement)))
    return changed(source.told, to=printable(str(to)), fields=as_told(adoption.fields), **told)


def pasted_cron_jobs(adoption: Adoption, name: str, statement: str) -> Iterator[Manifest]:
    """One for each schedule."""
    for number, schedule in enumerate([adoption.schedule, *adoption.more_schedules], 1):
        yield inserting_cron_job(name, schedule, statement, number)


def as_told(fields: Sequence[AdoptedField]) -> list[tuple[str, str, str]]:
    return [(one.did.value, one.field, one.words) for one in fields]


def without_cron_job(fields: Sequence[AdoptedField]) -> list[tuple[str, str, str]]:
    """The words of a document that gets no template, and so no CronJob that inserts its rows."""
    words = "who inserts the rows? The CronJob for it is printed when the template is written"
    return as_told([replace(one, did=Did.OPEN, words=words) if BELOW.search(one.words) else one for one in fields])


BELOW: Final = re.compile(r"CronJobs? (?:as the one )?below")


def written_to(to: Path, text: str, *, check: bool) -> list[str]:
    """Writes a new file. Returns why it cannot. With `check` it writes nothing."""
    try:
        if check:
            return [] if not to.exists() else [f"{to} exists, and would stay as it is{IS_THERE}"]
        to.parent.mkdir(parents=True, exist_ok=True)
        with to.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return [f"{to} exists, and stays as it is{IS_THERE}"]
    except OSError as fault:
        return [f"{fault.filename} cannot be written: {fault.strerror}"]
    return []


IS_THERE: Final = (
    ": another manifest made it, or an earlier call. Remove it if this manifest made it, else give another --out, or"
    " another metadata.name"
)


def refusals(name: str, text: str, adoption: Adoption, source: FileDocument) -> tuple[list[str], list[AdoptedField]]:
    """Why the dispatcher would refuse the template, with the lines of the manifest. An image to name is no fault."""
    try:
        template = parse_template(name, text)
    except TemplateError as fault:
        lines = {dotted(path): line for path, line in places_of(source.text, source.told.line, MOST_BYTES).items()}
        told = list[str]()
        missing = list[AdoptedField]()
        for one in fault.faults:
            place = in_source(dotted(one.path), adoption.places)
            if one.words.startswith(f"{dotted(one.path)} is missing: a container needs one"):
                missing.append(AdoptedField(Did.OPEN, place, NO_IMAGE))
                continue
            has_place = one.words.startswith(dotted(one.path))
            words = (
                place + one.words.removeprefix(dotted(one.path))
                if has_place
                else f"{place}: {one.words}".removeprefix(": ")
            )
            told.append(f"{words} (line {line_of_place(place, lines) or source.told.line})")
        return told, missing
    return ([why] if (why := why_unusable(template)) else []), []


NO_IMAGE: Final = f"name it, or let rows choose: {ids.ROW_MAY_SET}: image, and {ids.IMAGES}. Then adopt it again"


def line_of_place(place: str, lines: Mapping[str, int]) -> int:
    """The line of the place, or of the innermost part around it that is there."""
    while place and place not in lines:
        place = re.sub(r"(?:\.|^)[^.\[\]]*$|\[[^\[\]]*\]$", "", place, count=1)
    return lines.get(place, 0)


def changed(source: AdoptedFile, **parts: Any) -> AdoptedFile:
    return AdoptedFile(source.file, source.line, source.what, **parts)


def written(statement: Statement, template: str) -> str:
    """A statement with its variables written out, as psql does. `template`: its name, which may have got a number.

    The comment stays: it says which role may run the statement.
    """
    text = read_sql(f"adopt/{statement.file}.sql").strip()
    queue = template if statement.has_own_queue else "default"
    values = {"queue": queue, **statement.values, "template": template}

    def value_of(match: re.Match[str]) -> str:
        value = str(values[match["quoted"] or match["plain"]])
        return "'{}'".format(value.replace("'", "''")) if match["quoted"] else value

    return VARIABLE.sub(value_of, text)


VARIABLE: Final = re.compile(r"(?<!:):(?:'(?P<quoted>\w+)'|(?P<plain>\w+))")
"""A variable of psql. `::` is a cast."""


def in_words(one: AdoptedFile, *, check: bool) -> str:
    """One block of text for a document. Names in it are those of the file, so they may hold control characters."""
    head = f"{one.file}:{one.line}: {one.what}{f' → {one.to}' if one.to and not check else ''}"
    fields = [f"  {did:11} {field}{f': {words}' if words and field else words}" for did, field, words in one.fields]
    faults = [f"  refused     {words}" for words in one.faults]
    sql = [f"  {line}" for text in one.sql for line in text.splitlines()]
    pasted = [f"  {line}" for line in one.cron_job.splitlines()]
    blocks = [*(["  SQL:", *sql] if sql else []), *(["  CronJob that inserts the row:", *pasted] if pasted else [])]
    return "\n".join([*map(one_line, [head, *fields, *faults]), *blocks])
