"""`dispatcher adopt FILE…`: makes templates of manifests of other systems, and lists what became of each field."""

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

from dispatcher.commands.adoption import OF_CONTROLLERS, AdoptedField, Adoption, Did, Json, Statement, renamed
from dispatcher.commands.manifests import inserting_cron_job, name_of, of_cron_job, of_job, of_pod, of_scaled_job
from dispatcher.commands.options import as_document
from dispatcher.commands.render import text_of
from dispatcher.commands.workflows import SCRIPTS, of_workflow, texts_at
from dispatcher.jobs.fields import dotted, list_at, object_at
from dispatcher.jobs.offered import why_unusable
from dispatcher.jobs.template_text import Path as Place
from dispatcher.jobs.template_text import read_documents, write_document
from dispatcher.jobs.templates import parse_template
from dispatcher.model import launches as ids
from dispatcher.model.errors import TemplateError
from dispatcher.model.tasks import one_line
from dispatcher.pg.queries import read_sql

SUFFIXES: Final = (".yaml", ".yml", ".json")
OUT: Final = Path("templates")
INPUT: Final = Path("-")
MOST_BYTES: Final = 4 << 20
"""Bytes of a file, at most. It may hold hundreds of manifests."""
MOST_PARTS: Final = 1000
"""Documents of a file that are read one by one, at most. Each is read behind the empty lines before it."""
READERS: Final[Mapping[str, Callable[[Json], Iterator[Adoption]]]] = {
    "Job": of_job, "CronJob": of_cron_job, "ScaledJob": of_scaled_job, "Pod": of_pod, "Workflow": of_workflow,
    "WorkflowTemplate": of_workflow, "ClusterWorkflowTemplate": of_workflow, "CronWorkflow": of_workflow,
}  # fmt: skip
"""The reader of each kind of work."""
GROUPS: Final = frozenset({"batch", "", "argoproj.io", "keda.sh"})
"""Groups of those kinds. Other groups have Jobs and Workflows, too, such as Volcano and Cloud Run."""
BESIDE: Final = "is no work: kubectl apply it, in the namespace of the dispatcher's Jobs"
OF_TRIGGERS: Final = (
    "is no work: an insert of a row is the trigger. Leave it out if only adopted work uses it, and give its login to"
    " whoever inserts"
)
WITHOUT_END: Final = "is work without an end, or scales it: leave it as it is"
IN_A_CLUSTER: Final = "makes others: adopt these by `kubectl get jobs,cronjobs,scaledjobs -o yaml | dispatcher adopt -`"
NO_WORK: Final[Mapping[str, str]] = {
    **dict.fromkeys(("TriggerAuthentication", "ClusterTriggerAuthentication"), OF_TRIGGERS),
    **dict.fromkeys(("Sensor", "EventSource", "EventBus", "WorkflowEventBinding"), OF_TRIGGERS),
    **dict.fromkeys((
        "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "ScaledObject",
        "HorizontalPodAutoscaler", "VerticalPodAutoscaler",
    ), WITHOUT_END),
    **dict.fromkeys((
        "ConfigMap", "Secret", "Service", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
        "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "Namespace", "NetworkPolicy", "Ingress",
        "LimitRange", "ResourceQuota", "PriorityClass", "PodDisruptionBudget",
        "CustomResourceDefinition", "ServiceMonitor", "PodMonitor", "PrometheusRule",
        "ExternalSecret", "SecretStore", "ClusterSecretStore", "SealedSecret", "Certificate", "Issuer",
        "ClusterIssuer", "Event", "Endpoints",
    ), BESIDE),
}  # fmt: skip
"""Kinds that are no work, and what to do with them."""
SOURCES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("Kustomization", "Component"), "names other files: `kubectl kustomize DIR | dispatcher adopt -` adopts them"
    ),
    "Template": "is to be filled in: `oc process -f FILE -o yaml | dispatcher adopt -`",
    **dict.fromkeys(("HelmRelease", "HelmChart", "Application", "ApplicationSet"), IN_A_CLUSTER),
}
"""Kinds of which a tool makes manifests."""
OF_SOURCES: Final = frozenset({
    "", "template.openshift.io", "kustomize.config.k8s.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io",
    "helm.cattle.io", "argoproj.io",
})  # fmt: skip
"""Groups of those kinds. Other groups have a Template and a Component, too, such as Backstage."""
UNKNOWN_KIND: Final = "is a kind that is not known here: if it is work, write its Pod as a Job, and adopt that"


def adopt(document: Json) -> list[Adoption] | tuple[Did, str]:
    """The templates of one document, or why there is none. It never raises, whatever the document is."""
    if not is_work(document):
        return adopt_inner(document) or word_of_kind(document)
    head, *others = READERS[document["kind"]](document)
    unknown = [AdoptedField(Did.OPEN, field, "it is not known here") for field in sorted(document.keys() - OF_OBJECTS)]
    told = {one.field for each in (head, *others) for one in each.fields if "nobody fills in" in one.words}
    unfilled = [one for one in words_of_unfilled(document) if one.field not in told]
    return [replace(head, fields=[*unknown, *unfilled, *head.fields]), *others]


def group_of(document: Json) -> str:
    return str(document.get("apiVersion") or "").rpartition("/")[0]


def is_source(document: Json) -> bool:
    return str(document.get("kind")) in SOURCES and group_of(document) in OF_SOURCES


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
            words = (
                f"{document.get('kind')} {name_of(document)} made it, and may write values into it: insert its row then"
            )
            found.append(replace(one, fields=[AdoptedField(Did.OPEN, dotted(path), words), *fields]))
    return found


def inner_work(part: object, path: Place) -> Iterator[tuple[Place, Json]]:
    """Objects that a reader knows, with their places. A reference to an object has no spec, and is none."""
    if isinstance(part, dict) and part.get("apiVersion") and isinstance(part.get("spec"), dict) and is_work(part):
        yield path, part
        return
    for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        yield from inner_work(value, (*path, key))


def word_of_kind(document: Json) -> tuple[Did, str]:
    """What becomes of a document that is no work."""
    kind, group = str(document.get("kind") or ""), group_of(document)
    if not kind:
        return (Did.OPEN, "it names no kind: is it a Job or a Pod?") if "spec" in document else (
            Did.LEFT_OUT, "no manifest: it names no kind"
        )  # fmt: skip
    if kind.endswith("List") and "items" in document:
        return Did.LEFT_OUT, f"the {kind} has no items"
    known = NO_WORK.get(kind) if kind not in READERS else None
    of_others = f" of {group or document.get('apiVersion')}" if kind in READERS else ""
    what = f"{kind}{of_others} {name_of(document)}"
    if is_source(document):
        return Did.OPEN, f"{what} {SOURCES[kind]}"
    parts = {field: part for field, part in document.items() if field != "metadata"}
    if held := next(texts_at(parts, (), HELD_WORK), None):
        return Did.OPEN, f"{what} holds work in {dotted(held[0])}: write it into a file, and adopt that"
    space = object_at(document, "metadata").get("namespace")
    if space and known == BESIDE:
        return Did.OPEN, f"{what} {BESIDE}, and not in {space}"
    return (Did.LEFT_OUT, f"{what} {known}") if known else (Did.OPEN, f"{what} {UNKNOWN_KIND}")


HELD_WORK: Final = re.compile(
    rf"""(?:^|[{{,])[ \t-]*["']?kind["']?[ ]*:[ ]*["']?(?:{"|".join(READERS)})["']?[ ]*(?:$|[,}}#\r])""", re.MULTILINE
)
"""The kind of a manifest inside a text, in YAML or JSON."""
FILLED_IN: Final = re.compile(r"\{\{.{0,200}?\}\}|\{\{|\{%.{0,200}?%\}|<%.{0,200}?%>|\$\{\w{1,200}\}", re.DOTALL)
"""Parts that Helm, Jinja, ERB and envsubst fill in. Bounded, so that an endless text takes no time."""


def words_of_unfilled(document: Json) -> Iterator[AdoptedField]:
    """The texts that nobody fills in here. The reader of Argo's workflows reports those that Argo fills in."""
    is_argo = group_of(document) == "argoproj.io"
    read = {field: document[field] for field in ("metadata", "spec") if field in document}
    for path, text in texts_at(read, (), FILLED_IN):
        is_step = "templates" in path and (path[-3:-2], path[-1]) != (("templates",), "name")
        theirs = ("${" if is_script(document, path) else " ", "{{" if is_argo and is_step else " ")
        found = [one for one in FILLED_IN.findall(text) if not one.startswith(theirs)]
        if found and not OF_CONTROLLERS.fullmatch(str(path[-1])):
            of_rows = f", or let rows give it: {ids.ROW_MAY_SET}" if {"env", "command", "args"} & {*path} else ""
            yield AdoptedField(Did.OPEN, dotted(path), f"nobody fills in {found[0]!r:.80} here: write it{of_rows}")


def is_script(document: Json, path: Place) -> bool:
    """Whether a shell or another interpreter reads the text: there `${NAME}` has its usual meaning."""
    owner: Any = document
    for step in path:
        if step in {"command", "args"}:
            words = [*list_at(owner, "command"), *list_at(owner, "args")]
            return any(str(one).rpartition("/")[2] in SCRIPTS for one in words)
        owner = owner[step]
    return path[-1] == "source"


OF_OBJECTS: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


class AdoptedFile(Struct, frozen=True):
    """What became of one document of a file.

    file, line: where it begins.
    what: its kind and name.
    to: the template's file; empty: there is none.
    fields: what became of each field: fate, place, words.
    sql: statements to paste.
    cron_job: a CronJob to paste, which inserts the rows; empty: the document has no schedule.
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


def adopt_files(paths: Sequence[Path], out: Path | None, *, check: bool, as_json: bool) -> int:
    """Writes the templates, and prints what it did. Returns the exit status: 1 if something is left to a person."""
    out, found, taken = out or OUT, list[AdoptedFile](), set[str]()
    for path in files_of(paths, out):
        found += list(adopt_file(path, out, taken, check=check))
    if not found:
        raise click.UsageError("no manifest here: no file ends in .yaml, .yml or .json, or those that do are blank")
    if as_json:
        click.echo(as_document(found, as_json=True))
    else:
        for one in found:
            click.echo(in_words(one, check=check))
    return 0 if all(one.is_done for one in found) else 1


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
            yield from (Path(folder, name) for name in sorted(names) if name.lower().endswith(SUFFIXES))


def is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def unreadable(fault: OSError) -> None:
    raise click.UsageError(f"{fault.filename}: {fault.strerror}") from fault


def adopt_file(path: Path, out: Path, taken: set[str], *, check: bool) -> Iterator[AdoptedFile]:
    """The result of each document of a file. `taken`: names of templates made so far; a repeated name gets a number."""
    if path.is_dir():
        words = "templates are written there, so it is not read. If it has manifests, give another --out"
        left = (Did.LEFT_OUT.value, "", words)
        yield AdoptedFile(str(path), 0, "folder", fields=[left])
        return
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
    """The result of each document of a text. If one is unreadable, each is read alone, so that it spoils no other."""
    try:
        documents = read_documents(text, MOST_BYTES)
    except TemplateError as fault:
        parts = parts_of(text)
        if 1 < len(parts) <= MOST_PARTS:
            for part in parts:
                yield from adopt_text(path, part, out, taken, check=check)
        else:
            yield from no_manifest(path, fault, HELM if FILLED_IN.search(text) else "")
        return
    unnamed = {"kind": "Kustomization"} if path.stem == "kustomization" else {}
    for line, document in ((line, {**unnamed, **one}) for line, one in documents):
        what = f"{document.get('kind') or 'document'} {object_at(document, 'metadata').get('name', '')}".strip()
        made = adopt(document)
        if isinstance(made, tuple):
            yield AdoptedFile(str(path), line, what, fields=[(made[0], "", made[1])])
            continue
        for one in made:
            last = renamed(one, unique(one.name, taken)) if one.manifest else one
            to = out / f"{last.name}.yaml"
            yield write(last, AdoptedFile(str(path), line, what), to, check=check)


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


HELM: Final = ". Is it a template of Helm? `helm template CHART | dispatcher adopt -` adopts it"


def no_manifest(path: Path, fault: TemplateError, hint: str = "") -> Iterator[AdoptedFile]:
    return (AdoptedFile(str(path), one.line, "no manifest", faults=[one.words + hint]) for one in fault.faults)


def read_most(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def unique(name: str, taken: set[str]) -> str:
    others = (f"{name[:55]}-{number}" for number in count(2))
    free = next(one for one in chain([name], others) if one not in taken)
    taken.add(free)
    return free


def write(adoption: Adoption, source: AdoptedFile, to: Path, *, check: bool) -> AdoptedFile:
    """Writes one template, unless the dispatcher would refuse it. An existing file stays as it is."""
    fields = [(one.did.value, one.field, one.words) for one in adoption.fields]
    told: dict[str, Any] = {"fields": fields, "sql": [written(one, to.stem) for one in adoption.statements]}
    if not adoption.manifest:
        return changed(source, **told)
    if adoption.in_time is not None:
        lines = written(adoption.in_time, to.stem).split("\n")
        statement = " ".join(line for line in lines if not line.startswith("--"))
        told["cron_job"] = write_document(inserting_cron_job(to.stem, adoption.schedule, statement))
    text = write_document(adoption.manifest)
    faults = refusals(to.stem, text) or written_to(to, text, check=check)
    return changed(source, to="" if faults else str(to), faults=faults, **told)


def written_to(to: Path, text: str, *, check: bool) -> list[str]:
    """Writes a new file. Returns why it cannot. With `check` it writes nothing."""
    try:
        if check:
            return (
                [] if not to.exists() else [f"{to} exists, and would stay as it is: remove it, or give another --out"]
            )
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
