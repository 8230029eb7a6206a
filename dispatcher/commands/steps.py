"""Makes the template of one step of an Argo workflow. Pure.

    step ─▶ Variables: its parameters as variables of the row ─▶ the Pod of the step ─▶ Adopter

Argo writes the values of `{{…}}` into a step before it makes the Pod. Here nobody does. A parameter in command, args or
a variable becomes `$(NAME)`, which kubelet expands. A variable that consists of one parameter is given by the row.
Every other text with `{{` is left to a person.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, Final

from msgspec.structs import replace

from dispatcher.commands.adoption import AdoptedField, Adoption, Did, Statement, WorkSource, objects, with_objects
from dispatcher.commands.job_adoption import Adopter
from dispatcher.commands.manifests import in_source
from dispatcher.commands.placeholders import next_step, program_of, script_flag, signs, split_command, texts_at
from dispatcher.jobs.env import ENV_NAME, escape, is_closed, is_trusted
from dispatcher.jobs.fields import dotted, list_at, object_at
from dispatcher.jobs.template_text import Path
from dispatcher.jobs.templates import MOST_FAILURES, TASK
from dispatcher.model import launches as ids
from dispatcher.model.jobs import Json

PARAMETER: Final = re.compile(r"\{\{\s*((?:inputs|workflow)\.parameters\.([A-Za-z0-9_-]+))\s*\}\}")
PLACEHOLDER: Final = re.compile(r"\{\{")
LONGEST_NAME: Final = 200
"""Characters of a variable, at most, without the part that distinguishes it from others."""


class Variables:
    """The variables of a row by which a step gets its parameters.

    names: the variable of each parameter, such as `inputs.parameters.day`.
    env: the variables of the container that stay in the template.
    expanded: names that stand as `$(NAME)` in a text. Without a value kubelet leaves the text as it is.
    """

    def __init__(self, container: Json) -> None:
        self.names: dict[str, list[str]] = {}
        self.env: list[Json] = []
        self.expanded = set[str]()
        env = objects(container.get("env"))
        self._taken = {str(one.get("name")) for one in env}
        self._knows_all = not container.get("envFrom")
        for one in env:
            match, name = PARAMETER.fullmatch(str(one.get("value"))), str(one.get("name"))
            if match and ENV_NAME.fullmatch(name) and not is_closed(name):
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
        self.expanded.add(self.names[match[1]][0])
        return self.names[match[1]][0]

    def without(self, names: Sequence[str]) -> str:
        """What happens if a row does not give them."""
        read = [f"$({name})" for name in names if name in self.expanded]
        what = f"reads the text {' and '.join(read)}" if read else f"has no {' and no '.join(names)}"
        return f"without it the container {what}"

    def _is_free(self, name: str) -> bool:
        is_safe = ENV_NAME.fullmatch(name) and not (is_closed(name) or is_trusted(name))
        return bool(is_safe) and name not in self._taken


def as_text(value: object) -> str:
    """The value of a parameter as Argo writes it: a text unchanged, and every other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def is_filled_in(value: object) -> bool:
    """Whether Argo makes the value. Nobody does here, so it is none."""
    return PLACEHOLDER.search(as_text(value)) is not None


def variables_of(step: Json) -> Variables:
    variables = Variables(container_of(step))
    as_container(step, variables)
    return variables


def given_by(step: Json, whole: Json) -> dict[str, str | None]:
    """The variables of a row that runs the step. None: whoever inserts the row gives it.

    The first step has the arguments of the workflow, the others what a graph gives them. Each has defaults of its own.
    """
    is_first = str(step.get("name")) == str(whole.get("entrypoint"))
    values = dict[str, str | None]()
    for parts, scopes in (
        (object_at(step, "inputs"), ["inputs"]),
        (object_at(whole, "arguments"), ["workflow", "inputs"] if is_first else ["workflow"]),
    ):
        for one in objects(parts.get("parameters")):
            if (value := one.get("value", one.get("default"))) is not None:
                given = None if is_filled_in(value) else as_text(value)
                values |= {f"{scope}.parameters.{one.get('name')}": given for scope in scopes}
    return {name: values.get(one) for one, names in variables_of(step).names.items() for name in names}


def example_row(template: str, env: Mapping[str, str | None]) -> Statement:
    """A row with all its variables. An unknown value is no JSON, so that Postgres refuses the row."""
    given = (
        f"{json.dumps(name)}: {f'<{name}>' if value is None else json.dumps(value)}" for name, value in env.items()
    )
    return Statement("again_with_env", {"template": template, "env": f"{{{', '.join(given)}}}"})


NO_LIKE: Final = "it has no like here"
OF_STEP: Final = frozenset({
    "container", "script", "sidecars", "initContainers", "volumes", "name", "inputs", "metadata",
    "activeDeadlineSeconds", "timeout", "retryStrategy",
})  # fmt: skip
OF_POD: Final = frozenset({
    "nodeSelector", "tolerations", "affinity", "serviceAccountName", "securityContext", "hostAliases",
    "priorityClassName", "schedulerName", "automountServiceAccountToken", "imagePullSecrets", "dnsPolicy", "dnsConfig",
    "hostNetwork", "resourceClaims", "podResources",
})  # fmt: skip
OTHER_NAMES: Final = {"podResources": "resources"}
"""How a Pod calls fields that have another name in a workflow."""
ON_PLACES: Final = frozenset({"nodeSelector", "tolerations", "affinity"})
OF_BOTH: Final = {
    "parallelism": (Did.OPEN, "give the rows a queue of their own, with max_jobs"),
    "synchronization": (
        Did.OPEN, "give the rows a queue of their own: max_jobs 1 for a mutex, else the limit of its semaphore",
    ),
    "priority": (Did.OPEN, "give it to the rows: priority"),
    "podSpecPatch": (Did.OPEN, "write it into the template"),
    "outputs": (
        Did.OPEN, "let the container report them as its result, or write them to a storage: the next rows need them"
    ),
    "hooks": (Did.OPEN, "insert their rows when the row has the status that they wait for"),
    "when": (Did.OPEN, "insert its row only if this holds"),
    "archiveLogs": (Did.OPEN, "`dispatcher logs` shows those of Pods that are there: a collector of logs keeps more"),
    "daemon": (Did.OPEN, "a row waits for its end: make it a sidecar of the others, or a Deployment with a Service"),
    "executor": (Did.LEFT_OUT, "only Argo's own container had this account"),
    "memoize": (Did.OPEN, "look for a row that succeeded before you insert one"),
    "metrics": (Did.OPEN, "the dispatcher counts rows by template: draw and alert on its metrics"),
    "archiveLocation": (Did.OPEN, "let the container write its files to a storage: it needs the login"),
    "plugin": (Did.OPEN, "a plugin of Argo read it: let the container do the same"),
    "failFast": (Did.OPEN, "cancel the other rows of the batch when one has failed: batch_cancel"),
    "podPriority": (Did.OPEN, "make a PriorityClass of this value, and name it in priorityClassName of the template"),
    "annotations": (Did.LEFT_OUT, "Argo showed them beside the step"),
    "pendingTimeout": (Did.OPEN, "a row waits for room as long as it must: cancel it by dispatch.task_cancel(id)"),
}  # fmt: skip
"""Fields that a workflow and a step may have."""
OF_RETRIES: Final = {
    ("backoff", ""): (Did.OPEN, "pauses are 10 s, doubled up to 10 min, for every row"),
    ("expression", ""): (Did.OPEN, f"a failure is tried again, but for some exit codes: {ids.FINAL_CODES}"),
    ("affinity", ""): (Did.OPEN, "it kept a try off the node of the last one: each try may have any node here"),
    ("retryPolicy", "OnFailure"): (Did.LEFT_OUT, "it is so anyway"),
    ("retryPolicy", "Always"): (Did.LEFT_OUT, "a disruption is repeated anyway, and costs no failure"),
    ("retryPolicy", "OnTransientError"): (Did.OPEN, f"every status but 0 is tried again: {ids.FINAL_CODES}"),
    ("retryPolicy", "OnError"): (Did.OPEN, f"only what others caused was tried again: {ids.MAX_FAILURES} 1"),
}


def container_of(step: Json) -> Json:
    """The container that a step runs, or its script as a container; empty: it runs neither."""
    if isinstance(step.get("container"), dict):
        return object_at(step, "container")
    script = object_at(step, "script")
    command = list_at(script, "command")
    flag = script_flag(program_of(command))
    if flag is None or not isinstance(script.get("source"), str) or other_script(script):
        return {}
    rest = {key: value for key, value in script.items() if key != "source"}
    options = list_at(script, "args")  # Argo gives the program its script behind them
    source = f"{OPENINGS_OF_SCRIPTS.get(program_of(command), '')}{script['source']}"
    return {**rest, "command": [*command, *options, flag], "args": [escape(source)]}


OPENINGS_OF_SCRIPTS: Final = {"php": "?>"}
"""What a program needs to read an argument as it reads a file: PHP begins in front of `<?php` there."""
WITH_VALUE: Final = re.compile(
    r"[-+][A-Za-z]*[oO]|-[WXIr]|--(?:require|import|loader|rcfile|init-file)|-ExecutionPolicy"
)
"""Options whose value is the next word, such as `-eo pipefail`."""
OF_OTHERS: Final = re.compile(r"--|-m|-File")
"""Options behind which a program runs another script."""


def other_script(script: Json) -> str:
    """The word by which the program runs something else than the script, such as a wrapper or `-m`. Empty: none."""
    before = ""
    for word in (*split_command(list_at(script, "command"))[1], *map(str, list_at(script, "args"))):
        is_option = word[:1] in {"-", "+"} and not OF_OTHERS.fullmatch(word)
        if not is_option and not WITH_VALUE.fullmatch(before):
            return word
        before = word
    return ""


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


def step_of_workflow(step: Json, whole: Json, path: Path, name: str, space: object = None) -> Adoption:
    """The template of one step. `whole`: the workflow, whose fields replace missing fields of the step.

    space: namespace of the workflow; None: it is not said.
    """
    variables, limits = Variables(container_of(step)), limits_of(step, whole, path)
    container = as_container(step, variables)
    strategy = inherited("retryStrategy", step, whole)
    limit = str(strategy.get("limit")) if isinstance(strategy, Mapping) else ""
    meta = merged(object_at(whole, "podMetadata"), object_at(step, "metadata"))
    spec = {
        "backoffLimit": int(limit) if LIMIT.fullmatch(limit) else 0,
        "template": {"metadata": meta, "spec": pod_of_step(step, whole, container, limits)},
    }
    found = Adopter(WorkSource(name, spec, {}, path, has_sidecars=True, space=space))
    found.given = sorted({name for names in variables.names.values() for name in names})
    made, places = found.adopt(), [*places_of(step, path, limits), *places_above(step, whole, path)]
    above = {dotted((*place_of_whole(path), field)) for field in OF_POD if is_above(field, step)}
    told = (as_of_step(one, places, path) for one in found.fields)
    retried = set[str]() if LIMIT.fullmatch(limit) else {dotted((*path, "retryStrategy", "limit"))}
    found.fields[:] = [one for one in told if one.field not in above | retried]
    if variables.names:
        found.statements.append(example_row(name, given_by(step, whole)))
    found.tell(Did.MOVED, (*path, "name"), f"the name of the template: {name}")
    words = (words_of_step(step, path), words_of_retries(strategy, path), words_of_limits(limits))
    for did, at, said in chain(*words, words_of_parameters(step, path, variables)):
        found.tell(did, at, said)
    for own, said in words_of_lost(made.manifest["spec"]):
        found.fields.append(AdoptedField(Did.OPEN, in_source(dotted((*path, *own)), places), said))
    return replace(made, places=[*made.places, *places])


def as_of_step(told: AdoptedField, places: Iterable[tuple[str, str]], path: Path) -> AdoptedField:
    """The word with the place where the step has the field, or the workflow."""
    field = in_source(told.field, places)
    is_deadline = told.field.endswith(".activeDeadlineSeconds") and not field.startswith(dotted(path))
    words = f"{told.words}, for each try, where it was for all together" if is_deadline else told.words
    return replace(told, field=field, words=words)


def words_of_lost(spec: Json) -> Iterator[tuple[Path, str]]:
    """Texts of a template that nobody fills in, without images: `adopt` tells these for all kinds."""
    for own, text in texts_at(spec, (), PLACEHOLDER):
        sign = next((one for one in signs(spec, own, text) if one.startswith("{{")), "")
        if sign and own[-1] != "image":
            yield own, f"nobody fills in {sign!r:.80} here: {next_step(spec, own, 0)}"


LIMIT: Final = re.compile(r"[0-9]{1,9}")


def merged(theirs: Json, own: Json) -> Json:
    """Labels and annotations of both. For a repeated key, the step's own value counts."""
    both = {field: {**object_at(theirs, field), **object_at(own, field)} for field in ("labels", "annotations")}
    return {**theirs, **own, **{field: values for field, values in both.items() if values}}


def pod_of_step(step: Json, whole: Json, container: Json, limits: Mapping[Path, object]) -> Json:
    """The Pod's spec, with the volumes of the workflow that a container of the step mounts."""
    sidecars, first = ([with_mounts(one, container) for one in objects(step.get(field))] for field in BESIDE_IT)
    mounted = {str(one.get("name")) for each in (container, *sidecars, *first) for one in objects(each.get(MOUNTS))}
    own = objects(step.get("volumes"))
    named = {str(one.get("name")) for one in own}
    theirs = [one for one in objects(whole.get("volumes")) if str(one.get("name")) in mounted - named]
    volumes = [*own, *theirs]
    return {
        **{OTHER_NAMES.get(one, one): found for one in OF_POD if (found := inherited(one, step, whole)) is not None},
        **({"initContainers": with_objects(step["initContainers"], first)} if step.get("initContainers") else {}),
        **({"activeDeadlineSeconds": limits[shortest(limits)]} if limits else {}),
        **({"volumes": volumes} if volumes else {}),
        "containers": [container, *sidecars],
    }


BESIDE_IT: Final = ("sidecars", "initContainers")
MIRRORS: Final = "mirrorVolumeMounts"
MOUNTS: Final = "volumeMounts"


def with_mounts(other: Json, container: Json) -> Json:
    """A container beside the step's own. If it mirrors the mounts, it has those, too."""
    if MIRRORS not in other:
        return other
    own = objects(other.get(MOUNTS))
    paths = [one.get("mountPath") for one in own]
    theirs = [one for one in objects(container.get(MOUNTS)) if other[MIRRORS] and one.get("mountPath") not in paths]
    return {**{key: one for key, one in other.items() if key != MIRRORS}, MOUNTS: [*own, *theirs]}


def inherited(field: str, step: Json, whole: Json) -> object:
    """The field of the step; if it is blank, that of the workflow. Names of hosts of both count."""
    own, theirs = step.get(field), whole.get(field)
    if field == "hostAliases" and isinstance(own, list) and isinstance(theirs, list):
        return [*theirs, *own]
    return theirs if is_above(field, step) and theirs is not None else own


def is_above(field: str, step: Json) -> bool:
    """Whether the step has no value of its own. Of objects, Argo asks that only of a nodeSelector."""
    own = step.get(field)
    return own is None or own in ("", []) or (own == {} and field == "nodeSelector")


def limits_of(step: Json, whole: Json, path: Path) -> dict[Path, object]:
    """The deadlines of a step and of its workflow, in seconds where they can be read, by their places."""
    top = place_of_whole(path)
    places = {
        (*path, "timeout"): step.get("timeout"),
        (*path, "activeDeadlineSeconds"): step.get("activeDeadlineSeconds"),
        (*top, "activeDeadlineSeconds"): whole.get("activeDeadlineSeconds"),
    }
    return {place: seconds(value) for place, value in places.items() if value}


DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(h|ms|m|s|us|µs|ns)")
UNITS: Final = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def seconds(value: object) -> object:
    """Whole seconds of a number, of a text of one, and of a duration of Go such as 1h30m. Anything else stays."""
    if isinstance(value, str) and LIMIT.fullmatch(value):
        return int(value)
    if isinstance(value, str) and value and not DURATION.sub("", value):
        return math.ceil(sum(float(number) * UNITS[unit] for number, unit in DURATION.findall(value)))
    return value


def shortest(limits: Mapping[Path, object]) -> Path:
    """The place of the shortest deadline that can be read, else the first place."""
    read = {place: value for place, value in limits.items() if type(value) is int}
    return min(read, key=lambda place: read[place]) if read else next(iter(limits))


def words_of_limits(limits: Mapping[Path, object]) -> Iterator[tuple[Did, Path, str]]:
    """What becomes of all deadlines but the shortest one."""
    for place in limits.keys() - {shortest(limits)} if limits else ():
        if type(limits[place]) is int:
            yield Did.LEFT_OUT, place, "the other deadline is shorter"
        else:
            yield Did.OPEN, place, f"{limits[place]!r:.80} is no duration. Is it the shortest? {ids.TIMEOUT_SECONDS}"


def places_of(step: Json, path: Path, limits: Mapping[Path, object]) -> list[tuple[str, str]]:
    """Where the step has what a Job has elsewhere: patterns of places, and what stands there instead."""
    here, pod = dotted(path), rf"^{re.escape(dotted(path))}\.template\.spec\."
    what = "container" if "container" in step else "script"
    sidecars = range(len(objects(step.get("sidecars"))))
    return [
        *([(rf"{pod}containers\[0\]\.args\[0\]$", f"{here}.script.source")] if what == "script" else []),
        (rf"{pod}containers(\[0\]|$)", f"{here}.{what}"),
        *((rf"{pod}containers\[{number + 1}\]", f"{here}.sidecars[{number}]") for number in sidecars),
        (rf"{pod}activeDeadlineSeconds$", dotted(shortest(limits) if limits else (*path, "activeDeadlineSeconds"))),
        *((rf"{pod}{name}\b", f"{here}.{theirs}") for theirs, name in OTHER_NAMES.items()),
        (rf"^{re.escape(here)}\.template(\.spec)?(?=\.|$)", here),
        (rf"^{re.escape(here)}\.backoffLimit$", f"{here}.retryStrategy.limit"),
    ]


def place_of_whole(path: Path) -> Path:
    """The place of the workflow that has the step."""
    return path[: path.index("templates")]


def places_above(step: Json, whole: Json, path: Path) -> Iterator[tuple[str, str]]:
    """As `places_of`, where the workflow has what the step has not."""
    for field in sorted(OF_POD):
        if is_above(field, step):
            yield rf"^{re.escape(dotted((*path, field)))}\b", dotted((*place_of_whole(path), field))
    for kind in ("labels", "annotations"):
        own, given = object_at(step, "metadata", kind), object_at(whole, "podMetadata", kind)
        for key in sorted(given.keys() - own.keys()):
            there = dotted((*place_of_whole(path), "podMetadata", kind, key))
            yield rf"^{re.escape(dotted((*path, 'metadata', kind, key)))}$", there


def words_of_step(step: Json, path: Path) -> Iterator[tuple[Did, Path, str]]:
    """What becomes of the fields of a step that no Job has."""
    for field in sorted(step.keys() & {"sidecars", "metadata"}):
        yield Did.KEPT, (*path, field), ""
    if "container" not in step:
        yield Did.TRANSLATED, (*path, "script", "source"), "it is an argument of its program"
    for field in BESIDE_IT:
        for number, one in enumerate(objects(step.get(field))):
            if MIRRORS in one:
                words = "it has the mounts of the container" if one[MIRRORS] else "it is so anyway"
                yield Did.TRANSLATED if one[MIRRORS] else Did.LEFT_OUT, (*path, field, number, MIRRORS), words
    yield from words_of_files(object_at(step, "inputs"), (*path, "inputs"))
    for field in sorted(step.keys() - OF_STEP - OF_POD):
        did, words = OF_BOTH.get(field, (Did.OPEN, NO_LIKE))
        yield did, (*path, field), words


def words_of_files(inputs: Json, path: Path) -> Iterator[tuple[Did, Path, str]]:
    """What becomes of the files that Argo brings. The data of a raw one stands in the manifest."""
    raw = [(number, one) for number, one in enumerate(objects(inputs.get("artifacts"))) if "raw" in one]
    for number, one in raw:
        words = f"write its data into a ConfigMap, and mount that at {one.get('path')!s:.80}"
        yield Did.OPEN, (*path, "artifacts", number), words
    is_all = raw and len(raw) == len(objects(inputs.get("artifacts")))
    for field in sorted(inputs.keys() - {"parameters", "artifacts" if is_all else ""}):
        yield Did.OPEN, (*path, field), "let the container fetch them"


def words_of_retries(strategy: object, path: Path) -> Iterator[tuple[Did, Path, str]]:
    at = (*path, "retryStrategy")
    if not isinstance(strategy, Mapping):
        yield Did.TRANSLATED, at, f"{ids.MAX_FAILURES}: 1, Argo does not retry where none stands"
        return
    limit = strategy.get("limit")
    if not LIMIT.fullmatch(str(limit)):
        what = "it retried for ever" if limit is None else f"nobody fills in {limit!r:.80} here"
        yield Did.OPEN, (*at, "limit"), f"{what}: how often? {ids.MAX_FAILURES} is 1 now, and at most {MOST_FAILURES}"
    for field in sorted(strategy.keys() - {"limit"}):
        key = (field, "" if field != "retryPolicy" else str(strategy[field]))
        did, words = OF_RETRIES.get(key, (Did.OPEN, NO_LIKE))
        yield did, (*at, field), words


OF_PARAMETER: Final = frozenset({"name", "value", "default", "description", "globalName"})


def words_of_parameters(step: Json, path: Path, variables: Variables) -> Iterator[tuple[Did, Path, str]]:
    """What becomes of the parameters."""
    listed = enumerate(objects(object_at(step, "inputs").get("parameters")))
    parameters = {f"inputs.parameters.{one.get('name')}": (number, one) for number, one in listed}
    for parameter, (number, one) in parameters.items():
        at, names = (*path, "inputs", "parameters", number), variables.names.get(parameter, [])
        if names:
            yield Did.TRANSLATED, at, f"{', '.join(names)} in env of the row"
            yield Did.OPEN, at, word_of_value(one.get("value", one.get("default")), names, variables)
        elif is_read(step, str(one.get("name"))):
            yield Did.OPEN, at, "it stands where no variable is read"
        else:
            yield Did.LEFT_OUT, at, "its container does not use it"
        for field in sorted(one.keys() - OF_PARAMETER) if names else ():
            has_like = field == "valueFrom"
            yield Did.OPEN, (*at, field), "put it into env of the template, as valueFrom" if has_like else NO_LIKE
    for parameter in sorted(variables.names.keys() - parameters.keys()):
        words = word_of_value(None, variables.names[parameter], variables)
        place = (*path, "container" if "container" in step else "script")
        yield Did.OPEN, place, f"parameter {parameter.rpartition('.')[2]}: {words}"


def word_of_value(value: object, names: Sequence[str], variables: Variables) -> str:
    """What to do with the variables of a parameter. `value`: the one that it has in the step."""
    opened, otherwise = " and ".join(f"env.{name}" for name in names), variables.without(names)
    if value is None:
        return f"each row must give {opened}: {otherwise}"
    if is_filled_in(value):
        return f"nobody fills in {as_text(value)!r:.80} here: each row must give {opened}: {otherwise}"
    return f"put {as_text(value)!r} into env of the template, in front, or of each row that gives none: {otherwise}"


def is_read(step: Json, parameter: str) -> bool:
    """Whether a part of the step has this parameter, by its whole name. Expressions write it in brackets, too."""
    name = re.escape(parameter)
    pattern = re.compile(rf"inputs\.parameters(?:\.{name}(?![A-Za-z0-9_-])|\[\s*['\"]{name}['\"]\s*\])")
    parts = {**step, "inputs": {key: one for key, one in object_at(step, "inputs").items() if key != "parameters"}}
    return next(texts_at(parts, (), pattern), None) is not None
