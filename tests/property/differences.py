"""In what a Job may differ from its template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatcher.jobs.templates import Template


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Paths at which two manifests differ. Lists of named objects are compared by name, other lists as a whole."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = sorted(one.keys() | other.keys())
        return [found for key in keys for found in differences(one.get(key), other.get(key), f"{path}/{key}")]
    if is_named(one) and is_named(other):
        return differences({each["name"]: each for each in one}, {each["name"]: each for each in other}, path)
    return [] if one == other else [path]


def is_named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) and "name" in each for each in value)


def allowed(template: Template) -> tuple[str, ...]:
    """Paths at which a row may change its Job, because the template opens them."""
    at = "/spec/template/spec/containers/task/"
    open_names = [name.removeprefix("env.") for name in template.opened if name.startswith("env.")]
    paths = [f"{at}env/{name}" for name in open_names] + [f"{at}{field}" for field in ("image", "command", "args")
                                                         if field in template.opened]  # fmt: skip
    paths += [f"{at}resources/{side}/{what}" for side in ("requests", "limits") for what in ("cpu", "memory")
              if what in template.opened]  # fmt: skip
    return tuple(paths)
