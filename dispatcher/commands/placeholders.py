"""Texts of a manifest that nobody fills in here, and where their values are to come from. Pure.

Helm, Jinja, ERB, envsubst, sed and Argo write values into a manifest before its Pod is made. A script has such signs of
its own, and so have the Go templates of kubectl and docker: those are no placeholders.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dispatcher.commands.adoption import objects
from dispatcher.jobs.env import ENV_NAME, is_closed
from dispatcher.jobs.fields import at, list_at
from dispatcher.jobs.template_text import Path
from dispatcher.jobs.templates import is_image
from dispatcher.model import launches as ids
from dispatcher.model.jobs import Json

FILLED_IN: Final = re.compile(
    r"\{\{.{0,200}?\}\}|\{\{|\{%.{0,200}?%\}|<%.{0,200}?%>|\$\{\w[\w.]{0,200}(?:[:?+=-][^}]{0,200})?\}|#\{[\w.:-]{1,200}\}#"
    r"|\$\((?:tt\.)?params\.[\w.-]{1,200}\)|<path:[^<>]{1,200}>",
    re.DOTALL,
)
"""Parts that Helm, Jinja, ERB, envsubst, Maven, Katib, pipelines of Azure, Tekton, and Argo CD of Vault fill in.
Bounded, so that an endless text takes no time.
"""
OF_A_SHELL: Final = re.compile(r"(?<!\$)\$[A-Z_][A-Z0-9_]{0,200}")
"""What envsubst fills in, too. It counts where no program reads it."""
READ_BY_PROGRAMS: Final = frozenset({"annotations", "parameters", "raw", "manifest"})
"""Fields whose texts a program may read, besides those of containers."""
WHOLE_VALUE: Final = re.compile(
    r"<[A-Za-z][^<>]{0,200}>|__[A-Z][A-Z0-9_]{0,200}?__|%%[A-Z][A-Z0-9_]{0,200}%%|\[[A-Z][A-Z0-9]{0,100}_[A-Z0-9_]{1,100}\]"
)
"""A value that is nothing but such a sign: sed fills it in, or a person who reads a page."""
ANY_SIGN: Final = re.compile(f"{FILLED_IN.pattern}|{OF_A_SHELL.pattern}|^(?:{WHOLE_VALUE.pattern})$", re.DOTALL)
OBJECT_NAME: Final = re.compile(r"[a-z0-9.-]*")
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation that has the whole manifest once more."""
SCRIPT_FLAGS: Final = {
    **dict.fromkeys(("sh", "bash", "ash", "dash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh"), "-c"),
    **dict.fromkeys(("node", "nodejs", "ruby", "perl", "Rscript", "lua", "julia", "bun", "groovy", "elixir"), "-e"),
    **dict.fromkeys(("pwsh", "powershell"), "-Command"),
    "php": "-r",
}
"""Programs that take a script as an argument, and how. Python has a version in its name."""
PYTHON: Final = re.compile(r"(?:python|pypy)[0-9.]*")
OF_ENV: Final = re.compile(r"-.*|\w+=.*")
"""Arguments of `env` in front of the program."""


def program_of(command: Sequence[object]) -> str:
    """The program that a command runs, without its folder and `.exe`. `env` and `busybox` run another one."""
    return next(iter(split_command(command)[0]), "")


def split_command(command: Sequence[object]) -> tuple[list[str], list[str]]:
    """The program that a command runs, as `program_of` names it, and the words behind it."""
    words = [re.split(r"[/\\]", str(one))[-1].removesuffix(".exe") for one in command]
    while words[:1] in (["env"], ["busybox"]):
        words = words[1:]
        while words and OF_ENV.fullmatch(words[0]):
            words = words[1:]
    return words[:1], [str(one) for one in command[len(command) - len(words) + 1 :]] if words else []


def script_flag(program: str) -> str | None:
    """The option behind which the program takes a script. None: it is not known here."""
    return "-c" if PYTHON.fullmatch(program) else SCRIPT_FLAGS.get(program)


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


def next_step(document: object, path: Path, task: int) -> str:
    """Where the value of a text is to come from. `task`: the place of the task's container among `containers`.

    A row reaches the image, the command, the arguments and the values of variables of that container, and no more.
    """
    match part_of_task(path, task):
        case ("image",):
            return f"write it, or let rows choose: {ids.ROW_MAY_SET}: image, and {ids.IMAGES}: those that they may take"
        case ("command" | "args" as field, *_):
            return f"write it, or let rows give the whole {field}: {ids.ROW_MAY_SET}: {field}"
        case ("env", _, "value"):
            name = str(at(document, *path[:-1], "name"))
            if ENV_NAME.fullmatch(name) and not is_closed(name):
                return f"write it, or let rows give the whole value: {ids.ROW_MAY_SET}: env.{name}"
    return "write it in the template"


def part_of_task(path: Path, task: int) -> Path:
    """The place inside the task's container; empty: it is elsewhere. A step of Argo has one container."""
    for number, key in enumerate(path):
        if key in {"container", "script"} and "templates" in path[:number]:
            return path[number + 1 :]
        if key == "containers" and path[number + 1 : number + 2] == (task,):
            return path[number + 2 :]
    return ()


def unfilled(pod: Json, path: Path, task: str) -> Iterator[tuple[Path, str]]:
    """Images that no node can pull, and mounts of no volume. Helm, envsubst, sed or Argo would have filled them in.

    `task`: the container whose image rows may choose.
    """
    names = [str(one.get("name")) for one in objects(pod.get("containers"))]
    place = names.index(task) if task in names else 0
    volumes = {str(one.get("name")) for one in objects(pod.get("volumes"))}
    for field in ("initContainers", "containers"):
        for number, one in enumerate(objects(pod.get(field))):
            if (image := one.get("image")) and not is_image(image):
                words = f"nobody fills in {image!r:.80} here: {next_step(pod, (field, number, 'image'), place)}"
                yield (*path, field, number, "image"), words
            for at_mount, mount in enumerate(objects(one.get("volumeMounts"))):
                if str(mount.get("name")) not in volumes:
                    words = f"no volume is called {mount.get('name')!s:.80}: add one to volumes of the template"
                    yield (*path, field, number, "volumeMounts", at_mount), words


def words_of_unfilled(document: Json, task: int) -> Iterator[tuple[Path, str]]:
    """The texts that nobody fills in here. The reader of Argo's workflows reports those that Argo fills in."""
    is_argo = str(document.get("apiVersion")).startswith("argoproj.io/")
    read = {field: document[field] for field in ("metadata", "spec") if field in document}
    for path, text in texts_at(read, (), ANY_SIGN):
        is_step = is_argo and "templates" in path and (path[-3:-2], path[-1]) != (("templates",), "name")
        is_step = is_step or (is_argo and path[-4:-2] == ("arguments", "parameters"))
        found = [one for one in signs(document, path, text) if not (is_step and one.startswith("{{"))]
        if not found or path[-1] == LAST_APPLIED or path[-2:] == ("metadata", "namespace"):
            continue  # no template has these
        is_kept = is_of_template(document, path)
        step = next_step(document, path, task) if is_kept else "write it in the manifest, and adopt that again"
        yield path, f"nobody fills in {found[0]!r:.80} here: {step}"
    name = at(document, "metadata", "name")
    if isinstance(name, str) and not OBJECT_NAME.fullmatch(name) and not ANY_SIGN.search(name):
        words = (
            f"no object can be called {name!r:.80}. Did nobody fill it in? Its template has a name without such signs"
        )
        yield ("metadata", "name"), words


def is_of_template(document: Json, path: Path) -> bool:
    """Whether the template has what stands here. It has no name, no schedule, no trigger and no count."""
    kind = document.get("kind")
    if path[0] == "metadata":
        return kind in {"Job", "ScaledJob", "Pod"} and path[1:2] in {("labels",), ("annotations",)}
    is_whole = kind == "Pod" or str(document.get("apiVersion")).startswith("argoproj.io/")
    return is_whole or "template" in path or path[:3] == ("spec", "jobTemplate", "metadata")


def signs(document: Json, path: Path, text: str) -> list[str]:
    """The placeholders of a text, without those that its program reads itself."""
    before = words_before(document, path)
    found = [one[0] for one in FILLED_IN.finditer(text) if before is None or not is_own(before, text, one)]
    found += OF_A_SHELL.findall(text) if before is None and not READ_BY_PROGRAMS & {*path} else []
    return [*found, *([text] if WHOLE_VALUE.fullmatch(text) else [])]


def words_before(document: Json, path: Path) -> str | None:
    """What a program reads before this text: its command, and the arguments in front. None: no program reads it."""
    owner: Any = document
    for number, step in enumerate(path):
        if step in {"command", "args"} and isinstance(owner, Mapping):
            command, arguments = list_at(owner, "command"), list_at(owner, "args")
            read = command if step == "args" else []
            place = next((one for one in path[number + 1 :] if isinstance(one, int)), 0)
            return " ".join(map(str, (*read, *(arguments if step == "args" else command)[:place], "")))
        if path[number - 1 : number + 1] == ("script", "source"):
            return "sh "  # the program of the step reads it, whatever it is called
        owner = at(owner, step)
    return None


GO_SIGN: Final = re.compile(
    r"\{\{-?\s*(?!\.(?:Values|Release|Chart|Files|Capabilities|Template)\b)(?:[.$\"\\]|/\*|(?:range|end|if|else|with|index"
    r"|len|printf?|println|json|join|and|or|not|eq|ne|lt|gt|block|template|define|upper|lower|slice|split|title)\b)"
)
"""How a Go template begins, and no value of a chart."""
GO_OPTION: Final = re.compile(
    r"\b(?:kubectl|oc|docker|podman|nerdctl|gh)\b[^|;&]*(?:go-template(?:-file)?=|--template\b|--format\b|\s-f\b)[^|;&]*$"
)
"""A program and its option that takes a Go template, up to the end of the text."""


def is_own(before: str, text: str, sign: re.Match[str]) -> bool:
    """Whether the program reads the sign itself: `${NAME}` of a script, and a Go template."""
    if sign[0].startswith("${"):
        return any(script_flag(program_of([word])) for word in before.split())
    so_far = f"{before}{text[: sign.start()]}"[-1000:]
    return bool(GO_SIGN.match(sign[0]) and GO_OPTION.search(SIGN.sub("", so_far)))


SIGN: Final = re.compile(r"\{\{.{0,500}?\}\}", re.DOTALL)
"""Signs may have a `|` of their own."""
