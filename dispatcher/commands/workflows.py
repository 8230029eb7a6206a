"""Reads the workflows of Argo: a template for each step that runs a container. The graph is left to a person. Pure.

    step ─▶ Variables: its parameters as variables of the row ─▶ the Pod of the step ─▶ Adopter

Argo writes the values of `{{…}}` into a step before it makes the Pod. Here nobody does. A parameter in command, args or
a variable becomes `$(NAME)`, which kubelet expands. A variable that consists of one parameter is given by the row.
Every other text with `{{` is left to a person.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain, count
from typing import Any, Final

from msgspec.structs import replace

from dispatcher.commands.adoption import (
    AdoptedField,
    Adoption,
    Did,
    Json,
    MetaOwner,
    WorkSource,
    objects,
    template_name,
    words_of_meta,
)
from dispatcher.commands.job_adoption import Adopter
from dispatcher.commands.manifests import (
    escaped,
    in_time,
    name_of,
    row_in_time,
    times_of,
    word_of_schedule,
    word_of_time,
)
from dispatcher.jobs.env import ENV_NAME, is_closed, is_trusted
from dispatcher.jobs.fields import dotted, list_at, object_at
from dispatcher.jobs.template_text import Path
from dispatcher.jobs.templates import MOST_FAILURES, TASK
from dispatcher.model import launches as ids

PARAMETER: Final = re.compile(r"\{\{\s*((?:inputs|workflow)\.parameters\.([A-Za-z0-9_-]+))\s*\}\}")
PLACEHOLDER: Final = re.compile(r"\{\{")
LONGEST_NAME: Final = 200
"""Characters of a variable, at most, without the part that distinguishes it from others."""


class Variables:
    """The variables of a row by which a step gets its parameters.

    names: the variable of each parameter, such as `inputs.parameters.day`.
    env: the variables of the container that stay in the template.
    """

    def __init__(self, container: Json) -> None:
        self.names: dict[str, list[str]] = {}
        self.env: list[Json] = []
        env = objects(container.get("env"))
        self._taken = {str(one.get("name")) for one in env}
        self._knows_all = not container.get("envFrom")
        for one in env:
            match, name = PARAMETER.fullmatch(str(one.get("value"))), str(one.get("name"))
            if match and not is_closed(name):
                self.names.setdefault(match[1], []).append(name)
            else:
                self.env.append(one)
        self.env = [{**one, "value": self.in_text(one["value"])} if "value" in one else one for one in self.env]

    def in_text(self, text: Any) -> Any:
        """A text of command, args or a variable, with variables in place of parameters. Other values stay."""
        return PARAMETER.sub(lambda match: f"$({self._name(match)})", text) if isinstance(text, str) else text

    def _name(self, match: re.Match[str]) -> str:
        """A name that no other variable has, and that no program trusts."""
        if match[1] not in self.names:
            plain = re.sub(r"[^A-Z0-9_]", "_", match[2].upper())[:LONGEST_NAME]
            others = (f"PARAMETER_{plain}{number}" for number in chain([""], count(2)))
            name = next(one for one in chain([plain] if self._knows_all else [], others) if self._is_free(one))
            self.names[match[1]] = [name]
            self._taken.add(name)
        return self.names[match[1]][0]

    def _is_free(self, name: str) -> bool:
        is_safe = ENV_NAME.fullmatch(name) and not (is_closed(name) or is_trusted(name))
        return bool(is_safe) and name not in self._taken


def of_workflow(document: Json) -> Iterator[Adoption]:
    """A template for each step that runs a container. The graph is left to a person."""
    at: Path = ("spec", "workflowSpec") if document.get("kind") == "CronWorkflow" else ("spec",)
    given = object_at(document, *at)
    whole = {"priorityClassName": given.get("podPriorityClassName"), **given}
    cron = {key: value for key, value in object_at(document, "spec").items() if value is not None and at != ("spec",)}
    first_step = str(whole.get("entrypoint"))
    every = list(steps_of(whole, at))
    steps = [step_of_workflow(one, whole, path) if container_of(one) else graph(one, path) for path, one in every]
    first = next((one for one in steps if one.manifest and one.name == template_name(first_step)), None)
    if first and times_of(cron).get("schedule"):
        row = row_in_time(cron, first.name, given_by(every[steps.index(first)][1], whole))
        steps[steps.index(first)] = in_time(replace(first, statements=[row]), cron, row)
        told = list(words_of_cron(cron))
    else:
        told = [word_of_cron(field) for field in sorted(cron.keys() - {"workflowSpec"})]
    nothing = [AdoptedField(Did.OPEN, dotted((*at, "templates")), "no step is here: adopt the file that has them")]
    head, *others = steps or [Adoption(template_name(name_of(document)), {}, nothing, [])]
    yield replace(head, fields=[*words_of_workflow(document, given, at), *told, *head.fields])
    yield from others


def steps_of(whole: Json, at: Path) -> Iterator[tuple[Path, Json]]:
    """The steps, also those inside a graph, with their places. Each has the values of templateDefaults."""
    defaults = object_at(whole, "templateDefaults")

    def filled(step: Json) -> Json:
        fitting = {key: one for key, one in defaults.items() if key not in OF_WHAT_RUNS or step.get(key) is not None}
        found: Json = with_defaults(step, fitting)
        return found

    for number, step in enumerate(objects(whole.get("templates"))):
        path: Path = (*at, "templates", number)
        yield path, filled(step)
        parts = list(enumerate(objects(object_at(step, "dag").get("tasks"))))
        inner = [((*path, "dag", "tasks", place), one) for place, one in parts]
        for row, group in enumerate(list_at(step, "steps")):
            inner += [((*path, "steps", row, place), one) for place, one in enumerate(objects(group))]
        for where, one in inner:
            if isinstance(one.get("inline"), dict):
                yield (*where, "inline"), filled({"name": one.get("name", "step"), **one["inline"]})


OF_WHAT_RUNS: Final = frozenset({
    "container", "script", "dag", "steps", "resource", "suspend", "http", "plugin", "data", "containerSet",
})  # fmt: skip
"""The fields of a step that say what it runs. A step has one of them, and takes no default for another one."""


def with_defaults(own: Any, theirs: Any) -> Any:
    """A part of a step with the defaults of its workflow. To a list, items with new names are added, as Argo does."""
    if isinstance(own, dict) and isinstance(theirs, dict):
        return {**theirs, **{key: with_defaults(one, theirs.get(key)) for key, one in own.items()}}
    if isinstance(own, list) and isinstance(theirs, list):
        names = {str(one.get("name")) for one in objects(own)}
        return [*(one for one in objects(theirs) if str(one.get("name")) not in names), *own]
    return theirs if own is None else own


def words_of_cron(spec: Json) -> Iterator[AdoptedField]:
    """What becomes of the fields of a CronWorkflow whose first step gets a CronJob."""
    for field in sorted(spec.keys() - {"workflowSpec"}):
        if field in {"schedule", "schedules"}:
            yield AdoptedField(Did.OPEN, dotted(("spec", field)), word_of_schedule(spec, "CronWorkflow"))
        elif word := word_of_time(field, spec[field]):
            yield AdoptedField(word[0], dotted(("spec", field)), word[1])
        else:
            yield word_of_cron(field)


def word_of_cron(field: str) -> AdoptedField:
    did, words = OF_CRON.get(field, (Did.OPEN, NO_LIKE))
    return AdoptedField(did, dotted(("spec", field)), words)


def words_of_workflow(document: Json, whole: Json, at: Path) -> Iterator[AdoptedField]:
    """What becomes of the fields above the steps."""
    for did, path, words in words_of_meta(object_at(document, "metadata"), ("metadata",), MetaOwner.WORKFLOW):
        yield AdoptedField(did, dotted(path), words)
    for field in sorted(whole.keys() - {"templates"}):
        if field == "podMetadata":
            yield AdoptedField(Did.KEPT, dotted((*at, field)), "in each step, but for what the step says otherwise")
        elif field == "volumes":
            yield AdoptedField(Did.KEPT, dotted((*at, field)), "in each step that mounts them")
        elif field in OF_POD or field in {"retryStrategy", "podPriorityClassName"}:
            own = field if field != "podPriorityClassName" else "priorityClassName"
            is_used = any(container_of(one) and one.get(own) is None for _, one in steps_of(whole, at))
            did, words = (
                (Did.KEPT, "in each step that has none of its own") if is_used else (Did.LEFT_OUT, EACH_HAS_OWN)
            )
            yield AdoptedField(did, dotted((*at, field)), words)
        else:
            did, words = OF_WORKFLOW.get(field, (Did.OPEN, OF_BOTH.get(field, NO_LIKE)))
            yield AdoptedField(did, dotted((*at, field)), words)


def given_by(step: Json, whole: Json) -> dict[str, str]:
    """The variables of the row that runs the first step: the arguments of the workflow, else the step's defaults."""
    variables, values = Variables(container_of(step)), dict[str, Any]()
    as_container(step, variables)
    for parts in (object_at(step, "inputs"), object_at(whole, "arguments")):
        for one in objects(parts.get("parameters")):
            value = one.get("value", one.get("default"))
            for scope in ("inputs", "workflow"):
                values |= {f"{scope}.parameters.{one.get('name')}": value} if value is not None else {}
    return {name: as_text(values[one]) for one, names in variables.names.items() if one in values for name in names}


def as_text(value: object) -> str:
    """The value of a parameter as Argo writes it: a text unchanged, and every other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def graph(step: Json, path: Path) -> Adoption:
    what = ", ".join(sorted(step.keys() - {"name", "inputs", "outputs"})) or "nothing"
    words = "no single container to launch: insert rows in the order that it says"
    if "script" in step:
        words = "this program is not known here: name it in command, and give it the source by args"
    told = AdoptedField(Did.OPEN, dotted(path), f"{what}: {words}")
    return Adoption(template_name(step.get("name", "")), {}, [told], [])


NO_LIKE: Final = "it has no like here"
EACH_HAS_OWN: Final = "each step has its own"
OF_STEP: Final = frozenset({
    "container", "script", "sidecars", "initContainers", "volumes", "name", "inputs", "metadata",
    "activeDeadlineSeconds", "retryStrategy",
})  # fmt: skip
OF_POD: Final = frozenset({
    "nodeSelector", "tolerations", "affinity", "serviceAccountName", "securityContext", "hostAliases",
    "priorityClassName", "schedulerName", "automountServiceAccountToken", "imagePullSecrets", "dnsPolicy", "dnsConfig",
    "hostNetwork",
})  # fmt: skip
OF_CRON: Final = {
    "schedule": (Did.OPEN, "somebody inserts the rows at these times, such as pg_cron or a CronJob"),
    "schedules": (Did.OPEN, "somebody inserts the rows at these times, as for schedule"),
    "timezone": (Did.OPEN, "the one who inserts needs it"),
    "suspend": (Did.OPEN, "do not begin to insert yet"),
    "concurrencyPolicy": (Did.OPEN, "a dedupe_key: no second row while one is alive"),
    "startingDeadlineSeconds": (Did.LEFT_OUT, "a row waits as long as it must"),
    "successfulJobsHistoryLimit": (Did.LEFT_OUT, "the janitor keeps rows as long as the operator says"),
    "failedJobsHistoryLimit": (Did.LEFT_OUT, "the janitor keeps rows as long as the operator says"),
}
OF_WORKFLOW: Final = {
    "entrypoint": (Did.LEFT_OUT, "each row names the template that it wants"),
    "arguments": (Did.OPEN, "each row gives them, by env"),
    "activeDeadlineSeconds": (Did.OPEN, "it was that of all steps together: each row has a limit of its own"),
    "ttlStrategy": (Did.LEFT_OUT, "the dispatcher removes finished Jobs"),
    "podGC": (Did.LEFT_OUT, "the dispatcher removes finished Jobs"),
    "onExit": (Did.OPEN, "insert its row when the others have ended"),
    "templateDefaults": (Did.KEPT, "in each step that has none of its own"),
    "workflowTemplateRef": (Did.OPEN, "adopt the file of the workflow template that it names"),
    "volumeClaimTemplates": (Did.OPEN, "no claim is made for a run: make one, and add it to volumes of the templates"),
}
OF_BOTH: Final = {
    "parallelism": "give the rows a queue of their own, with max_jobs",
    "synchronization": "give the rows a queue of their own: max_jobs 1 for a mutex, else the limit of its semaphore",
    "priority": "give it to the rows: priority",
    "timeout": f"{ids.TIMEOUT_SECONDS}: how many seconds may a try run?",
    "podSpecPatch": "write it into the template",
}
"""Fields that a workflow and a step may have."""
OF_RETRIES: Final = {
    ("backoff", ""): (Did.OPEN, "pauses are 10 s, doubled up to 10 min, for every row"),
    ("retryPolicy", "OnFailure"): (Did.LEFT_OUT, "it is so anyway"),
    ("retryPolicy", "Always"): (Did.LEFT_OUT, "a disruption is repeated anyway, and costs no failure"),
    ("retryPolicy", "OnTransientError"): (Did.OPEN, f"every status but 0 is tried again: {ids.FINAL_CODES}"),
    ("retryPolicy", "OnError"): (
        Did.OPEN,
        f"only what others caused was tried again: {ids.MAX_FAILURES} 1",
    ),
}


SCRIPTS: Final = {
    **dict.fromkeys(("sh", "bash", "ash", "dash", "zsh", "ksh", "python", "python2", "python3"), "-c"),
    **dict.fromkeys(("node", "nodejs", "ruby", "perl"), "-e"),
}
"""Programs that take a script as an argument, and how."""


def container_of(step: Json) -> Json:
    """The container that a step runs, or its script as a container; empty: it runs neither."""
    if isinstance(step.get("container"), dict):
        return object_at(step, "container")
    script = object_at(step, "script")
    command = list_at(script, "command")
    flag = SCRIPTS.get(str(command[0]).rpartition("/")[2]) if command else None
    if flag is None or not isinstance(script.get("source"), str):
        return {}
    rest = {key: value for key, value in script.items() if key != "source"}
    options = list_at(script, "args")  # Argo gives the program its script behind them
    return {**rest, "command": [*command, *options, flag], "args": [escaped(script["source"])]}


def as_container(step: Json, variables: Variables) -> dict[str, Any]:
    """The container of the step, with the variables in place of its parameters."""
    container = dict(container_of(step))
    container["name"] = container.get("name") or TASK
    for field in container.keys() & {"command", "args"}:
        if isinstance(container[field], list):
            container[field] = [variables.in_text(one) for one in container[field]]
    if isinstance(container.get("env"), list):
        container.pop("env")
        container |= {"env": variables.env} if variables.env else {}
    return container


def step_of_workflow(step: Json, whole: Json, path: Path) -> Adoption:
    """The template of one step. `whole`: the workflow, whose fields replace missing fields of the step."""
    variables = Variables(container_of(step))
    container = as_container(step, variables)
    strategy = inherited("retryStrategy", step, whole)
    limit = str(strategy.get("limit")) if isinstance(strategy, Mapping) else ""
    meta = merged(object_at(whole, "podMetadata"), object_at(step, "metadata"))
    spec = {
        "backoffLimit": int(limit) if LIMIT.fullmatch(limit) else 0,
        "template": {"metadata": meta, "spec": pod_of_step(step, whole, container)},
    }
    found = Adopter(WorkSource(str(step.get("name", "step")), spec, {}, path, has_sidecars=True))
    found.given = sorted({name for names in variables.names.values() for name in names})
    made = found.adopt()
    above = {dotted((*path, field)) for field in OF_POD if step.get(field) is None}
    found.fields[:] = [one for each in found.fields if (one := as_of_step(each, path)).field not in above]
    for did, at, words in (*words_of_step(step, path), *words_of_retries(strategy, path)):
        found.tell(did, at, words)
    lost = dict(texts_at(made.manifest["spec"], path, PLACEHOLDER))
    for did, at, words in words_of_parameters(step, path, variables, " ".join(lost.values())):
        found.tell(did, at, words)
    told = [(at, word_of(at, text)) for at, text in lost.items() if at[-1] != "image"]
    found.fields += [as_of_step(AdoptedField(Did.OPEN, dotted(at), words), path) for at, words in told]
    return made


LIMIT: Final = re.compile(r"[0-9]{1,9}")


def texts_at(part: object, path: Path, pattern: re.Pattern[str]) -> Iterator[tuple[Path, str]]:
    """The texts of a part, and its keys, that contain the pattern, with their places."""
    if isinstance(part, str) and pattern.search(part):
        yield path, part
    elif isinstance(part, Mapping):
        for key, value in part.items():
            yield from texts_at(f"{key}: " if pattern.search(str(key)) else value, (*path, key), pattern)
    elif isinstance(part, list):
        for number, value in enumerate(part):
            yield from texts_at(value, (*path, number), pattern)


def word_of(path: Path, text: str) -> str:
    """What to do with a text that nobody fills in here."""
    what = f"nobody fills in {text!r:.80} here"
    if "env" in path:
        return f"{what}: write it, or let rows give the whole value: {ids.ROW_MAY_SET}: env.NAME"
    return what


def merged(theirs: Json, own: Json) -> Json:
    """Labels and annotations of both. For a repeated key, the step's own value counts."""
    both = {field: {**object_at(theirs, field), **object_at(own, field)} for field in ("labels", "annotations")}
    return {**theirs, **own, **{field: values for field, values in both.items() if values}}


def pod_of_step(step: Json, whole: Json, container: Json) -> Json:
    """The Pod's spec. It has those of the workflow's volumes that a container of the step mounts."""
    containers = [container, *objects(step.get("sidecars")), *objects(step.get("initContainers"))]
    mounted = {str(one.get("name")) for each in containers for one in objects(each.get("volumeMounts"))}
    own = objects(step.get("volumes"))
    named = {str(one.get("name")) for one in own}
    theirs = [one for one in objects(whole.get("volumes")) if str(one.get("name")) in mounted - named]
    volumes = [*own, *theirs]
    return {
        **{field: found for field in OF_POD if (found := inherited(field, step, whole)) is not None},
        **({"initContainers": step["initContainers"]} if step.get("initContainers") else {}),
        **({"activeDeadlineSeconds": whole_number(limit)} if (limit := step.get("activeDeadlineSeconds")) else {}),
        **({"volumes": volumes} if volumes else {}),
        "containers": [container, *objects(step.get("sidecars"))],
    }


def inherited(field: str, step: Json, whole: Json) -> object:
    """The field of the step; if it is blank, that of the workflow."""
    return whole.get(field) if step.get(field) is None else step[field]


def whole_number(value: object) -> object:
    """A number, also from a text: Argo accepts both."""
    return int(value) if isinstance(value, str) and LIMIT.fullmatch(value) else value


def as_of_step(told: AdoptedField, path: Path) -> AdoptedField:
    """The word with the place of the field in the step, not in a Job."""
    step = re.escape(dotted(path))
    field = re.sub(rf"^{step}\.template\.spec\.containers(\[0\]|$)", f"{dotted(path)}.container", told.field)
    field = re.sub(
        rf"^{step}\.template\.spec\.containers\[(\d+)\]", lambda at: f"{dotted(path)}.sidecars[{int(at[1]) - 1}]", field
    )
    field = re.sub(rf"^{step}\.template\.(spec\.)?", f"{dotted(path)}.", field)
    return replace(told, field=re.sub(rf"^{step}\.backoffLimit$", f"{dotted(path)}.retryStrategy.limit", field))


def words_of_step(step: Json, path: Path) -> Iterator[tuple[Did, Path, str]]:
    """What becomes of the fields of a step that no Job has."""
    yield Did.MOVED, (*path, "name"), "the name of the template"
    for field in sorted(step.keys() & {"sidecars", "metadata"}):
        yield Did.KEPT, (*path, field), ""
    if "container" not in step:
        yield Did.TRANSLATED, (*path, "script", "source"), "it is an argument of its program"
    for field in sorted(object_at(step, "inputs").keys() - {"parameters"}):
        yield Did.OPEN, (*path, "inputs", field), "let the container fetch them"
    for field in sorted(step.keys() - OF_STEP - OF_POD):
        yield Did.OPEN, (*path, field), OF_BOTH.get(field, NO_LIKE)


def words_of_retries(strategy: object, path: Path) -> Iterator[tuple[Did, Path, str]]:
    at = (*path, "retryStrategy")
    if not isinstance(strategy, Mapping):
        return
    if not LIMIT.fullmatch(str(strategy.get("limit"))):
        yield Did.OPEN, (*at, "limit"), f"how often? {ids.MAX_FAILURES}, at most {MOST_FAILURES}"
    for field in sorted(strategy.keys() - {"limit"}):
        key = (field, "" if field == "backoff" else str(strategy[field]))
        did, words = OF_RETRIES.get(key, (Did.OPEN, NO_LIKE))
        yield did, (*at, field), words


OF_PARAMETER: Final = frozenset({"name", "value", "default", "description", "globalName"})


def words_of_parameters(step: Json, path: Path, variables: Variables, lost: str) -> Iterator[tuple[Did, Path, str]]:
    """What becomes of the parameters. `lost`: the texts that nobody fills in."""
    listed = enumerate(objects(object_at(step, "inputs").get("parameters")))
    parameters = {f"inputs.parameters.{one.get('name')}": (number, one) for number, one in listed}
    for parameter, (number, one) in parameters.items():
        at, names = (*path, "inputs", "parameters", number), variables.names.get(parameter, [])
        if names:
            yield Did.TRANSLATED, at, f"{', '.join(names)} in env of the row"
        elif parameter in lost:
            yield Did.OPEN, at, "it stands where no variable is read"
        else:
            yield Did.LEFT_OUT, at, "its container does not use it"
        if names and (value := one.get("value", one.get("default"))) is not None:
            yield (
                Did.OPEN,
                at,
                f"put {as_text(value)!r} into env of the template, in front, or of each row that gives none",
            )
        for field in sorted(one.keys() - OF_PARAMETER) if names else ():
            has_like = field == "valueFrom"
            yield Did.OPEN, (*at, field), "put it into env of the template, as valueFrom" if has_like else NO_LIKE
    for parameter in sorted(variables.names.keys() - parameters.keys()):
        words = f"parameter {parameter.rpartition('.')[2]}: {', '.join(variables.names[parameter])} in env of the row"
        yield Did.TRANSLATED, (*path, "container"), words
