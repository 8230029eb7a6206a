"""Names of the fields that a Job may have, for `fieldValidation=Strict`: a misspelled field must not be dropped."""

from collections.abc import Iterator

from dispatcher.jobs.fields import KINDS, ROOT
from dispatcher.model.stored_json import Json


def unknown_fields(given: Json, kind: str = ROOT, at: str = "") -> Iterator[str]:
    """Yields the paths of unknown fields, as the server writes them. Removes these fields from `given`."""
    fields = KINDS[kind].needed | KINDS[kind].others
    for name, held in list(given.items()) if fields else ():
        if name not in fields:
            del given[name]
            yield f"{at}{name}"
        elif fields[name] in KINDS and isinstance(held, dict):
            yield from unknown_fields(held, fields[name], f"{at}{name}.")
        elif (of := fields[name].removeprefix("[]")) in KINDS and isinstance(held, list):
            for number, one in enumerate(held):
                if isinstance(one, dict):
                    yield from unknown_fields(one, of, f"{at}{name}[{number}].")
