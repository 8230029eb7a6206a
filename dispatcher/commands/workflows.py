"""Reads the workflows of Argo: a template for each step that runs a container. The graph is left to a person. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from dispatcher.commands.adoption import (
    AdoptedField,
    Adoption,
    Did,
    MetaOwner,
    entries,
    objects,
    template_name,
    words_of_meta,
)
from dispatcher.commands.manifests import (
    every_time,
    in_time,
    name_of,
    row_in_time,
    told_times,
    word_of_schedule,
    word_of_time,
)
from dispatcher.commands.placeholders import program_of, script_flag
from dispatcher.commands.steps import (
    NO_LIKE,
    OF_BOTH,
    OF_POD,
    ON_PLACES,
    as_text,
    container_of,
    given_by,
    is_above,
    is_filled_in,
    other_script,
    step_of_workflow,
    variables_of,
)
from dispatcher.jobs.fields import dotted, list_at, object_at
from dispatcher.jobs.template_text import Path
from dispatcher.model.jobs import Json


def of_workflow(document: Json) -> Iterator[Adoption]:
    """A template for each step that runs a container. The graph is left to a person."""
    at: Path = ("spec", "workflowSpec") if document.get("kind") == "CronWorkflow" else ("spec",)
    given = object_at(document, *at)
    whole = {"priorityClassName": given.get("podPriorityClassName"), **given}
    cron = {key: value for key, value in object_at(document, "spec").items() if value is not None and at != ("spec",)}
    times, every = times_of(cron), list(steps_of(whole, at))
    is_alone = sum(bool(container_of(one)) for _, one in every) == 1
    space = object_at(document, "metadata").get("namespace")
    steps = [
        step_of_workflow(one, whole, path, step_name(name_of(document), one, is_alone=is_alone), space)
        if container_of(one) else graph(one, path)
        for path, one in every
    ]  # fmt: skip
    entry = (number for number, (_, one) in enumerate(every) if str(one.get("name")) == str(whole.get("entrypoint")))
    first = next((number for number in entry if steps[number].manifest), None)
    is_pasted = first is not None and bool(every_time(times))
    if first is not None and is_pasted:
        env = {name: value for name, value in given_by(every[first][1], whole).items() if value is not None}
        row = row_in_time(times, steps[first].name, env)
        steps[first] = in_time(replace(steps[first], statements=[row]), times, row)
    told = [
        AdoptedField(did, dotted(("spec", field)), words)
        for field in sorted(cron.keys() - {"workflowSpec"})
        for did, words in [word_of_cron(cron, field, is_pasted=is_pasted)]
    ]
    nothing = [AdoptedField(Did.OPEN, dotted((*at, "templates")), "no step is here: adopt the file that has them")]
    head, *others = steps or [Adoption(template_name(name_of(document)), {}, nothing, [])]
    yield replace(head, fields=[*words_of_workflow(document, given, at), *told, *head.fields])
    yield from others


LATENESS: Final = "startingDeadlineSeconds"
SHORTEST_SECONDS: Final = 10
"""How late a CronJob may be, at least. Its controller looks every 10 s, and with 0 it never makes a Job."""


def times_of(cron: Json) -> Json:
    """The spec of a CronWorkflow as a CronJob may have it. Argo asks how late a run is only after an outage."""
    return {field: value for field, value in cron.items() if not (field == LATENESS and is_too_short(value))}


def is_too_short(value: object) -> bool:
    return isinstance(value, int) and value < SHORTEST_SECONDS


def step_name(workflow: str, step: Json, *, is_alone: bool) -> str:
    """The name of a step's template. Steps of other workflows are called `main`, too."""
    if is_alone:
        return template_name(workflow)
    own = template_name(step.get("name", "step"))
    return template_name(f"{template_name(workflow)[: max(LONGEST_NAME - len(own) - 1, 8)]}-{own}")


LONGEST_NAME: Final = 63


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


def word_of_cron(spec: Json, field: str, *, is_pasted: bool) -> tuple[Did, str]:
    """What becomes of a field of a CronWorkflow. `is_pasted`: whether its first step gets a CronJob."""
    if field == "schedule" and spec.get("schedules"):
        return Did.LEFT_OUT, "its schedules count"
    if is_pasted and field == LATENESS and is_too_short(spec[field]):
        return (
            Did.LEFT_OUT,
            f"a CronJob with {spec[field]} may never run: after an outage it makes up for a missed time",
        )
    if field in {"schedule", "schedules"}:
        times = every_time(spec)
        if is_pasted or not times:
            return Did.OPEN, word_of_schedule(spec, "CronWorkflow")
        words = "its entrypoint is no step with a container, so no CronJob comes: insert the first rows of its graph at"
        return Did.OPEN, f"{words} {told_times(times)}, by pg_cron or a CronJob of yours"
    return word_of_time(field, spec[field], is_pasted=is_pasted) or OF_CRON.get(field, (Did.OPEN, NO_LIKE))


def words_of_workflow(document: Json, whole: Json, at: Path) -> Iterator[AdoptedField]:
    """What becomes of the fields above the steps."""
    steps = [one for _, one in steps_of(whole, at) if container_of(one)]
    meta, name = object_at(document, "metadata"), name_of(document) if steps else ""
    for did, path, words in words_of_meta(meta, ("metadata",), MetaOwner.WORKFLOW, name):
        yield AdoptedField(did, dotted(path), words)
    told = {"templates", "activeDeadlineSeconds"} if len(steps) == 1 else {"templates"}  # a step alone tells it
    for field in sorted(whole.keys() - told):
        did, words = word_of_field(field, steps)
        if did is Did.KEPT and not steps:
            names = sorted(set(names_elsewhere(whole)))
            which = f"the file that {', '.join(names)} names" if names else "what its steps become"
            did, words = Did.OPEN, f"no step here runs a container: give it to the templates of {which}"
        yield AdoptedField(did, dotted((*at, field)), words)
    for place, words in words_of_arguments(whole, steps):
        yield AdoptedField(Did.OPEN, dotted((*at, "arguments", "parameters", place)), words)


def words_of_arguments(whole: Json, steps: Sequence[Json]) -> Iterator[tuple[int, str]]:
    """Arguments that Argo makes when a workflow begins, by their places."""
    for place, one in enumerate(objects(object_at(whole, "arguments").get("parameters"))):
        value = one.get("value")
        if value is None or not is_filled_in(value):
            continue
        keys = [f"{scope}.parameters.{one.get('name')}" for scope in ("inputs", "workflow")]
        read = (variables_of(step).names.get(key, []) for step in steps for key in keys)
        names = sorted({name for each in read for name in each}) or [str(one.get("name"))]
        such = f", such as jsonb_build_object('{names[0]}', now())" if OF_NOW.search(as_text(value)) else ""
        yield place, f"nobody fills in {value!r:.80} here: the one who inserts gives {' and '.join(names)} by env{such}"


OF_NOW: Final = re.compile(r"workflow\.(?:scheduledTime|creationTimestamp)")


def word_of_field(field: str, steps: Sequence[Json]) -> tuple[Did, str]:
    """What becomes of a field above the steps. `steps`: those that run a container."""
    if field == "podMetadata":
        return Did.KEPT, "in each step, but for what the step says otherwise"
    if field == "volumes":
        return Did.KEPT, "in each step that mounts them"
    if field == "hostAliases":
        return Did.KEPT, "in each step, in front of its own"
    if field in OF_POD or field in {"retryStrategy", "podPriorityClassName"}:
        own = field if field != "podPriorityClassName" else "priorityClassName"
        is_used = not steps or any(is_above(own, one) for one in steps)
        return (Did.KEPT, "in each step that has none of its own") if is_used else (Did.LEFT_OUT, EACH_HAS_OWN)
    return OF_WORKFLOW.get(field) or OF_BOTH.get(field, (Did.OPEN, NO_LIKE))


def names_elsewhere(part: object) -> Iterator[str]:
    """The names of workflow templates that a workflow and its steps refer to."""
    for key, value in entries(part):
        if key in {"workflowTemplateRef", "templateRef"} and isinstance(value, dict):
            yield str(value.get("name"))
        else:
            yield from names_elsewhere(value)


def graph(step: Json, path: Path) -> Adoption:
    """What a person does with a step that runs no container."""
    kind = next((one for one in OF_KIND if step.get(one) is not None), "")
    words = OF_KIND.get(kind, "it runs nothing")
    if kind == "script":
        words = word_of_script(object_at(step, "script"))
    elif kind == "resource":
        words = word_of_resource(object_at(step, "resource"))
    told = [AdoptedField(Did.OPEN, dotted(path), f"{kind or 'step'} {step.get('name', '')}: {words}")]
    for field in sorted(step.keys() & ON_PLACES):
        words = f"Argo gives it to the Pods of the steps that it calls: write it into the templates of {called(step)}"
        told.append(AdoptedField(Did.OPEN, dotted((*path, field)), words))
    for field in sorted((step.keys() & (OF_BOTH | OF_GRAPH).keys()) - {kind, "outputs"}):
        did, words = (OF_GRAPH | OF_BOTH)[field]
        told.append(AdoptedField(did, dotted((*path, field)), words))
    return Adoption(template_name(step.get("name", "")), {}, told, [])


OF_GRAPH: Final = {
    **dict.fromkeys(
        ("timeout", "activeDeadlineSeconds"), (Did.OPEN, "it was that of all its steps: cancel their rows then")
    ),
    "retryStrategy": (Did.OPEN, "it began all its steps again: whoever inserts inserts them again"),
}
OF_KIND: Final = {
    **dict.fromkeys(("dag", "steps"), "a graph of steps: insert the row of each when those before it have ended"),
    "script": "", "resource": "",
    "containerSet": "several containers that run one after the other: make each a Job, and insert its row",
    "http": "a call of a URL: whoever inserts makes it, or a Job whose container does",
    "suspend": "a pause: insert the next rows when it is over, or somebody agrees",
    "plugin": "a plugin of Argo ran it: write a Job whose container does the same",
    "data": "a list of files: whoever inserts makes the list, and inserts a row for each",
}  # fmt: skip
"""What runs no container of its own, and the next step. Those of a script and a resource are longer."""


def word_of_script(script: Json) -> str:
    command = list_at(script, "command")
    if not isinstance(script.get("source"), str):
        return "it has no source: write what it runs"
    if not command:
        return "it names no program, so the image has it: name it in command"
    if (other := other_script(script)) and script_flag(program_of(command)):
        return f"{other!r:.80} stands in front of the source: write a command that runs both, and give it by args"
    return (
        f"the program {program_of(command)!r:.80} is not known here: name it in command, and give it the source by args"
    )


MANIFEST_KIND: Final = re.compile(r"""(?:^|[{,])\s*["']?kind["']?[ ]*:[ ]*["']?(\w{1,100})""", re.MULTILINE)
MAKES_PODS: Final = frozenset({"Job", "Pod", "CronJob", "ScaledJob", "Workflow", "WorkflowTemplate", "CronWorkflow"})


def word_of_resource(resource: Json) -> str:
    """`action` and `manifest`: what kubectl does, and with what."""
    found = MANIFEST_KIND.search(str(resource.get("manifest")))
    action, kind = str(resource.get("action") or "create"), found[1] if found else "manifest"
    if kind in MAKES_PODS:
        return f"its manifest is a {kind}: write it into a file, and adopt that"
    return f"kubectl {action} of a {kind}: whoever inserts does it, or a Job whose ServiceAccount may"


def called(step: Json) -> str:
    """The names of the steps that a graph calls."""
    groups = [list_at(step, "dag", "tasks"), *list_at(step, "steps")]
    tasks = [one for group in groups for one in objects(group)]
    return ", ".join(sorted({str(one.get("template") or one.get("name")) for one in tasks})) or "its steps"


EACH_HAS_OWN: Final = "each step has its own"
OF_CRON: Final = {
    **dict.fromkeys(
        ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"),
        (Did.LEFT_OUT, "the janitor keeps rows as long as the operator says"),
    ),
    "when": (Did.OPEN, "put this condition into the INSERT: INSERT … SELECT … WHERE"),
    "stopStrategy": (Did.OPEN, "whoever inserts stops when this holds: delete its CronJob then"),
    "workflowMetadata": (Did.LEFT_OUT, "it was the workflow's, and not its Pods'"),
}
OF_WORKFLOW: Final = {
    "entrypoint": (Did.LEFT_OUT, "each row names the template that it wants"),
    "arguments": (Did.OPEN, "each row gives them, by env"),
    "activeDeadlineSeconds": (Did.OPEN, "it was that of all steps together: here each try of a step may take so long"),
    "ttlStrategy": (Did.LEFT_OUT, "the dispatcher removes finished Jobs"),
    "podGC": (Did.LEFT_OUT, "the dispatcher removes finished Jobs"),
    "onExit": (Did.OPEN, "insert its row when the others have ended"),
    "templateDefaults": (Did.KEPT, "in each step that has none of its own"),
    "workflowTemplateRef": (Did.OPEN, "adopt the file of the workflow template that it names"),
    "suspend": (Did.OPEN, "it began paused: insert no row yet, or pause the queue: queues.paused_until"),
    "shutdown": (Did.OPEN, "it was stopped: insert no row"),
    "workflowMetadata": (Did.LEFT_OUT, "it was the workflow's, and not its Pods'"),
    "artifactRepositoryRef": (Did.OPEN, "let the containers read and write their files: they need the login"),
    "artifactGC": (Did.OPEN, "whoever keeps the files removes them"),
    "podDisruptionBudget": (Did.LEFT_OUT, "a disrupted Pod is launched again, and costs no failure"),
    "volumeClaimGC": (Did.LEFT_OUT, "no claim is made for a run"),
    "volumeClaimTemplates": (Did.OPEN, "no claim is made for a run: make one, and add it to volumes of the templates"),
}
