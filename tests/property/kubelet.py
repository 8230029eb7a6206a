"""The environment and arguments of a container as kubelet makes them of its Job: kubelet's expansion of `$`, written
independently.
"""

from collections.abc import Mapping
from typing import Any

SECRET = "pa$$word $(HOME)"


def expand(text: str, known: Mapping[str, str]) -> str:
    """The expanded text: `$$` gives `$`, `$(NAME)` gives the value of a known NAME. Every other `$` stays."""
    out, rest = "", text
    while rest:
        if rest.startswith("$$"):
            out, rest = out + "$", rest[2:]
            continue
        name, closing, behind = rest[2:].partition(")")
        if rest.startswith("$(") and closing:
            out, rest = out + known.get(name, f"$({name})"), behind
            continue
        out, rest = out + rest[0], rest[1:]
    return out


def seen_env(container: Mapping[str, Any]) -> dict[str, str]:
    """The variables that the container sees. Each may refer to earlier ones. Values of `valueFrom` are not expanded."""
    seen: dict[str, str] = {}
    for variable in container["env"]:
        source = variable.get("valueFrom")
        seen[variable["name"]] = expand(variable["value"], seen) if source is None else SECRET
    return seen


def seen_words(container: Mapping[str, Any], field: str) -> list[str]:
    known = seen_env(container)
    return [expand(word, known) for word in container.get(field) or ()]
