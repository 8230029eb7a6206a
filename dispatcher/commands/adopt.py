"""`dispatcher adopt FILE…`: templates of manifests of other systems, and a list of what became of each field."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.commands.adoption import AdoptedField, Adoption, Did, Json, Statement
from dispatcher.commands.manifests import inserting_cron_job, name_of, of_cron_job, of_job, of_pod, of_scaled_job
from dispatcher.commands.options import as_document
from dispatcher.commands.render import text_of
from dispatcher.commands.workflows import of_workflow
from dispatcher.jobs.fields import object_at
from dispatcher.jobs.offered import why_unusable
from dispatcher.jobs.template_text import read_documents, write_document
from dispatcher.jobs.templates import parse_template
from dispatcher.model.errors import TemplateError
from dispatcher.model.tasks import one_line
from dispatcher.pg.queries import read_sql

SUFFIXES: Final = (".yaml", ".yml", ".json")
OUT: Final = Path("templates")
INPUT: Final = Path("-")
MOST_BYTES: Final = 4 << 20
"""Of a file. It may hold hundreds of manifests."""
MOST_PARTS: Final = 1000
"""Documents of a file that are read one by one. Each is read behind the empty lines before it."""
READERS: Final[Mapping[str, Callable[[Json], Iterator[Adoption]]]] = {
    "Job": of_job, "CronJob": of_cron_job, "ScaledJob": of_scaled_job, "Pod": of_pod, "Workflow": of_workflow,
    "WorkflowTemplate": of_workflow, "ClusterWorkflowTemplate": of_workflow, "CronWorkflow": of_workflow,
}  # fmt: skip
GROUPS: Final = frozenset({"batch", "", "argoproj.io", "keda.sh"})
"""Of those kinds. Others have Jobs and Workflows of their own, such as Volcano and Cloud Run."""
BESIDE: Final = "is no work: kubectl apply it as it is"
OF_TRIGGERS: Final = (
    "is no work: an insert of a row is the trigger, so leave it out, and give its login to whoever inserts"
)
WITHOUT_END: Final = "is work without an end: leave it as it is"
NO_WORK: Final[Mapping[str, str]] = {
    **dict.fromkeys(("TriggerAuthentication", "ClusterTriggerAuthentication", "ScaledObject"), OF_TRIGGERS),
    **dict.fromkeys(("Sensor", "EventSource", "EventBus", "WorkflowEventBinding"), OF_TRIGGERS),
    **dict.fromkeys(("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController"), WITHOUT_END),
    **dict.fromkeys((
        "ConfigMap", "Secret", "Service", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
        "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "Namespace", "NetworkPolicy", "Ingress",
        "LimitRange", "ResourceQuota", "PriorityClass", "PodDisruptionBudget", "HorizontalPodAutoscaler",
        "CustomResourceDefinition", "Kustomization", "ServiceMonitor", "PodMonitor", "PrometheusRule",
        "ExternalSecret", "SecretStore", "ClusterSecretStore", "SealedSecret", "Certificate", "Issuer",
        "ClusterIssuer", "Event", "Endpoints",
    ), BESIDE),
}  # fmt: skip
UNKNOWN_KIND: Final = "is a kind that is not known here: if it is work, write its Pod as a Job, and adopt that"


def adopt(document: Json) -> list[Adoption] | tuple[Did, str]:
    """The templates of one document, or why there is none. Of whatever shape it is, this raises nothing."""
    kind, group = str(document.get("kind")), str(document.get("apiVersion") or "").rpartition("/")[0]
    reader = READERS.get(kind) if group in GROUPS or "apiVersion" not in document else None
    if reader is None:
        known = NO_WORK.get(kind)
        kind = kind if kind not in READERS else f"{kind} of {group or document['apiVersion']}"
        return (Did.LEFT_OUT, f"{kind} {name_of(document)} {known}") if known else (
            Did.OPEN, f"{kind} {name_of(document)} {UNKNOWN_KIND}"
        )  # fmt: skip
    head, *others = reader(document)
    unknown = [AdoptedField(Did.OPEN, field, "it is not known here") for field in sorted(document.keys() - OF_OBJECTS)]
    return [replace(head, fields=[*unknown, *head.fields]), *others]


OF_OBJECTS: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


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
        raise click.UsageError("no manifest here: no file ends in .yaml, .yml or .json, or those that do are blank")
    if as_json:
        click.echo(as_document(found, as_json=True))
    else:
        for one in found:
            click.echo(in_words(one, check=check))
    return 0 if all(one.is_done for one in found) else 1


def files_of(paths: Sequence[Path]) -> Iterator[Path]:
    """The files, and those of folders, also of inner ones that are not hidden."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, inner, names in os.walk(path, onerror=unreadable):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            yield from (Path(folder, name) for name in sorted(names) if name.lower().endswith(SUFFIXES))


def unreadable(fault: OSError) -> None:
    raise click.UsageError(f"{fault.filename}: {fault.strerror}") from fault


def adopt_file(path: Path, out: Path, taken: set[str], *, check: bool) -> Iterator[AdoptedFile]:
    """`taken`: names of templates that this call has made; a second one of a name gets a number."""
    try:
        content = sys.stdin.buffer.read(MOST_BYTES + 1) if path == INPUT else read_most(path)
        text = text_of(content, MOST_BYTES)
    except OSError as fault:
        yield AdoptedFile(str(path), 0, "no manifest", faults=[str(fault.strerror)])
    except TemplateError as fault:
        yield from no_manifest(path, fault)
    else:
        yield from adopt_text(path, text, out, taken, check=check)


def adopt_text(path: Path, text: str, out: Path, taken: set[str], *, check: bool) -> Iterator[AdoptedFile]:
    """If one of the documents is none, each is read for itself: it spoils no other."""
    try:
        documents = read_documents(text, MOST_BYTES)
    except TemplateError as fault:
        parts = parts_of(text)
        if 1 < len(parts) <= MOST_PARTS:
            for part in parts:
                yield from adopt_text(path, part, out, taken, check=check)
        else:
            yield from no_manifest(path, fault)
        return
    for line, document in documents:
        what = f"{document.get('kind')} {object_at(document, 'metadata').get('name', '')}".strip()
        made = adopt(document)
        if isinstance(made, tuple):
            yield AdoptedFile(str(path), line, what, fields=[(made[0], "", made[1])])
            continue
        for one in made:
            to = out / f"{unique(one.name, taken)}.yaml"
            yield write(one, AdoptedFile(str(path), line, what), to, check=check)


def parts_of(text: str) -> list[str]:
    """The documents of a text, each behind as many empty lines as were before it, so that it keeps its lines."""
    before, found = 0, list[str]()
    for part in re.split(r"^(?=---(?:\s|$))", text, flags=re.MULTILINE):
        if not all(line.startswith("%") or not line.strip() for line in part.splitlines()):  # directives stand alone
            found.append("\n" * before + part)
        before += part.count("\n")
        if len(found) > MOST_PARTS:
            break
    return found


def no_manifest(path: Path, fault: TemplateError) -> Iterator[AdoptedFile]:
    return (AdoptedFile(str(path), one.line, "no manifest", faults=[one.words]) for one in fault.faults)


def read_most(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def unique(name: str, taken: set[str]) -> str:
    others = (f"{name[:55]}-{number}" for number in count(2))
    free = next(one for one in chain([name], others) if one not in taken)
    taken.add(free)
    return free


def write(adoption: Adoption, source: AdoptedFile, to: Path, *, check: bool) -> AdoptedFile:
    """Writes one template. A file that is there stays as it is."""
    fields = [(one.did.value, one.field, one.words) for one in adoption.fields]
    told: dict[str, Any] = {"fields": fields, "sql": [written(one, to.stem) for one in adoption.statements]}
    if not adoption.manifest:
        return changed(source, **told)
    if adoption.in_time is not None:
        statement = " ".join(written(adoption.in_time, to.stem).split("\n"))
        told["cron_job"] = write_document(inserting_cron_job(to.stem, adoption.schedule, statement))
    text = write_document(adoption.manifest)
    faults = refusals(to.stem, text)
    if not check:
        faults += written_to(to, text)
    return changed(source, to=str(to), faults=faults, **told)


def written_to(to: Path, text: str) -> list[str]:
    """Writes a new file. Returns why it cannot."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with to.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return [f"{to} exists, and stays as it is: remove it, or give another --out"]
    except OSError as fault:
        return [f"{fault.filename} cannot be written: {fault.strerror}"]
    return []


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
    values = {**statement.values, "template": template}

    def value_of(match: re.Match[str]) -> str:
        value = str(values[match["quoted"] or match["plain"]])
        return "'{}'".format(value.replace("'", "''")) if match["quoted"] else value

    return VARIABLE.sub(value_of, text)


VARIABLE: Final = re.compile(r"(?<!:):(?:'(?P<quoted>\w+)'|(?P<plain>\w+))")
"""A variable of psql. `::` is a cast."""


def in_words(one: AdoptedFile, *, check: bool) -> str:
    """One block for a document. Names in it are those of the file, so they may hold control characters."""
    head = f"{one.file}:{one.line}: {one.what}{f' → {one.to}' if one.to and not check else ''}"
    fields = [f"  {did:11} {field}{f': {words}' if words and field else words}" for did, field, words in one.fields]
    faults = [f"  refused     {words}" for words in one.faults]
    sql = [f"  {line}" for text in one.sql for line in text.splitlines()]
    pasted = [f"  {line}" for line in one.cron_job.splitlines()]
    blocks = [*(["  SQL:", *sql] if sql else []), *(["  CronJob that inserts the row:", *pasted] if pasted else [])]
    return "\n".join([*map(one_line, [head, *fields, *faults]), *blocks])
