"""The shape of a template's manifest: which parts are objects, lists and texts.

The other checks and the builder of Jobs rely on it, so a manifest of another shape launches nothing. The API server
would refuse its Jobs, too.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from dispatcher.jobs.template_text import Path
from dispatcher.model.errors import Fault

EACH: Final = "*"
"""In a pattern: every item of a list."""
POD: Final[Path] = ("spec", "template", "spec")
KINDS: Final[Mapping[type, str]] = {dict: "an object", list: "a list", str: "a text"}
OBJECTS: Final[tuple[Path, ...]] = (
    ("metadata",), ("metadata", "labels"), ("metadata", "annotations"),
    ("spec",), ("spec", "template"), ("spec", "template", "metadata"),
    ("spec", "template", "metadata", "labels"), ("spec", "template", "metadata", "annotations"),
    POD, (*POD, "affinity"), (*POD, "affinity", "nodeAffinity"),
    (*POD, "volumes", EACH), (*POD, "tolerations", EACH),
)  # fmt: skip
LISTS: Final[tuple[Path, ...]] = tuple(
    (*POD, one) for one in ("containers", "initContainers", "volumes", "tolerations")
)
NEEDED: Final = frozenset({("spec",), ("spec", "template"), POD, (*POD, "containers")})


class Shape(NamedTuple):
    pattern: Path
    kind: type
    is_needed: bool


def shapes() -> Iterator[Shape]:
    for patterns, kind in ((OBJECTS, dict), (LISTS, list)):
        yield from (Shape(pattern, kind, pattern in NEEDED) for pattern in patterns)
    for containers in ("containers", "initContainers"):
        one: Path = (*POD, containers, EACH)
        yield Shape(one, dict, is_needed=True)
        yield Shape((*one, "resources"), dict, is_needed=False)
        yield from (Shape((*one, "resources", side), dict, is_needed=False) for side in ("limits", "requests"))
        for field in ("env", "volumeMounts"):
            yield Shape((*one, field), list, is_needed=False)
            yield Shape((*one, field, EACH), dict, is_needed=True)
        yield Shape((*one, "env", EACH, "name"), str, is_needed=True)


SHAPES: Final = tuple(shapes())


def shape_faults(manifest: Mapping[str, Any]) -> Iterator[Fault]:
    for pattern, kind, is_needed in SHAPES:
        for path, value in places(manifest, pattern):
            if value is None and is_needed:
                yield Fault(path, f"{dotted(path)} is missing: it must be {KINDS[kind]}")
            elif value is not None and not isinstance(value, kind):
                yield Fault(path, f"{dotted(path)} is {str(value)[:80]!r}: must be {KINDS[kind]}")
            elif isinstance(value, dict) and not all(isinstance(key, str) for key in value):
                yield Fault(path, f"{dotted(path)} has a key that is no text: quote it")


def places(value: object, pattern: Path, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """The paths that a pattern leads to, and what is there. Parts of another shape lead nowhere."""
    if not pattern:
        yield path, value
    elif pattern[0] == EACH:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from places(item, pattern[1:], (*path, index))
    elif isinstance(value, dict):
        yield from places(value.get(pattern[0]), pattern[1:], (*path, pattern[0]))


def at(manifest: object, *path: str | int) -> Any:
    """The part that the path leads to. None: there is none, or its parent has another shape."""
    for step in path:
        if isinstance(step, str):
            manifest = manifest.get(step) if isinstance(manifest, dict) else None
        else:
            manifest = manifest[step] if isinstance(manifest, list) and step < len(manifest) else None
    return manifest


def object_at(manifest: object, *path: str | int) -> Mapping[str, Any]:
    found = at(manifest, *path)
    return {key: value for key, value in found.items() if isinstance(key, str)} if isinstance(found, dict) else {}


def list_at(manifest: object, *path: str | int) -> list[Any]:
    found = at(manifest, *path)
    return found if isinstance(found, list) else []


def dotted(path: Path) -> str:
    """`spec.template.spec.containers[0].image`. A key that is no plain name is in brackets, too."""
    text = ""
    for step in path:
        is_plain = isinstance(step, str) and step.isidentifier()
        text += f".{step}" if is_plain else f"[{step}]"
    return text.removeprefix(".")
