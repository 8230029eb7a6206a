"""Shows a Job without the values in it that may be secret. Pure.

Names stay, also the names of Secrets, ConfigMaps and their keys: they tell where a value comes from.
"""

from typing import Any, Final

from dispatcher.model.identity import CACHE_KEY
from dispatcher.model.jobs import Manifest

HIDDEN: Final = "(hidden)"
WITH_VALUES: Final = frozenset({"env", "httpHeaders"})
"""Lists whose items have a name and a value."""
UNSHOWN: Final = frozenset({CACHE_KEY, "kubectl.kubernetes.io/last-applied-configuration"})
"""Annotations. That of kubectl has the whole manifest in it."""


def masked(job: Manifest) -> Manifest:
    """The Job with every value of its env, of every container, replaced. The given Job is not changed."""
    found: Manifest = walked(job)
    return found


def walked(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: HIDDEN if key in UNSHOWN else field(key, value) for key, value in part.items()}
    return [walked(one) for one in part] if isinstance(part, list | tuple) else part


def field(key: str, value: Any) -> Any:
    """One field. A label or an annotation may be called `env`, too: its value is a text, and stays."""
    is_list = key in WITH_VALUES and isinstance(value, list | tuple)
    return [without_value(one) for one in value] if is_list else walked(value)


def without_value(variable: Any) -> Any:
    if not isinstance(variable, dict):
        return HIDDEN
    return {key: HIDDEN if key == "value" else walked(value) for key, value in variable.items()}
