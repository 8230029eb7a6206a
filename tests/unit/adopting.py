"""What became of a manifest, in tests."""

from typing import Any

from dispatcher.commands.adopt import adopt
from dispatcher.commands.adoption import Adoption, Did


def adopted(document: dict[str, Any]) -> Adoption:
    found = adopt(document)
    assert isinstance(found, list)
    return found[0]


def told(document: dict[str, Any], field: str) -> list[tuple[Did, str]]:
    found = adopt(document)
    assert isinstance(found, list)
    return [(one.did, one.words) for each in found for one in each.fields if one.field == field]
