"""Writes `docs/settings.md` from `dispatcher/settings/definition.py`: there is no second list. See `make docs`."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dispatcher.settings.loading import COMPONENTS, PREFIX, READ_FROM_FILE, show

PAGE: Final = Path(__file__).with_name("settings.md")
TITLES: Final = {
    "database": "Postgres",
    "kube": "Kubernetes",
    "jobs": "Jobs",
    "placement": "Placement",
    "admission": "Admission",
    "sweep": "Sweep",
    "janitor": "Janitor",
    "keeper": "Cache keeper",
    "extender": "Extender",
    "service": "Service",
}
HEAD: Final = f"""\
<!-- Made from dispatcher/settings/definition.py by `make docs`. Change it there. -->
# Settings

Settings are environment variables. An empty variable counts as unset. `dispatcher config` shows the effective settings
and the source of each. Programs print all faults at once, with exit status 2. An unknown name with the prefix
`{PREFIX}` causes a warning with the nearest known name, and a fault in `dispatcher config`. Variables that Kubernetes
injects for a Service are ignored. Durations are in seconds. Sizes and cpu are Kubernetes quantities. Lists are comma
separated.
"""
NOT_EVEN_A_WORD: Final = "\0"


def settings_page() -> str:
    return "\n".join([HEAD, *(line for part in COMPONENTS for line in component(part))])


def component(part: str) -> Iterator[str]:
    yield f"## {TITLES[part]}\n"
    yield "| name | default | meaning | a value |"
    yield "|---|---|---|---|"
    for field in dataclasses.fields(COMPONENTS[part]):  # type: ignore[arg-type]  # a settings class, by annotation
        yield row(field)
    yield ""


def row(field: Any) -> str:
    meta = field.metadata
    name, default, meaning = PREFIX + meta["name"], show(field.default), meta["meaning"]
    if meta["secret"]:
        meaning += f". Secret: never shown; `{name}{READ_FROM_FILE}` names a file that holds it"
    return f"| `{name}` | {default if default == '—' else f'`{default}`'} | {meaning} | {rule(meta['read'])} |"


def rule(read: Any) -> str:
    """The rule of a setting, from the message of its reader for a wrong value."""
    try:
        read(NOT_EVEN_A_WORD)
    except ValueError as fault:
        text = str(fault)
        return text.removeprefix("must be ") if text.startswith("must be ") else "a Kubernetes quantity"
    return "any text" if isinstance(read("x"), str) else "a list"


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
