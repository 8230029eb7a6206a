"""Label and field selectors of a query, as tests of objects."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from dispatcher.local.cluster.faults import bad_request
from dispatcher.local.cluster.kinds import Kind

Json = dict[str, Any]
Test = Callable[[Mapping[str, str]], bool]
KEY: Final = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
EXISTS: Final = re.compile(rf"(!?)\s*({KEY})")
COMPARED: Final = re.compile(rf"({KEY})(?:\s*(==|=|!=)\s*([A-Za-z0-9_.-]*)|\s+(in|notin)\s+\(([^()]*)\))")
REQUIREMENT: Final = re.compile(r"[^,(]*\([^)]*\)[^,]*|[^,]+")


def read_labels(selector: str) -> Test:
    """A test of labels. ApiFault 400: the text is not a selector."""
    tests = [read_requirement(part.strip()) for part in REQUIREMENT.findall(selector)]
    if selector.strip() and (not tests or selector.strip().endswith(",")):
        raise bad_request(f"unable to parse requirement: {selector!r}")
    return lambda labels: all(test(labels) for test in tests)


def read_requirement(text: str) -> Test:
    if found := EXISTS.fullmatch(text):
        no, key = found.groups()
        return lambda labels: (key in labels) is not bool(no)
    if found := COMPARED.fullmatch(text):
        key, sign, value, operator, listed = found.groups()
        values = {value} if sign else {one.strip() for one in listed.split(",")}
        return lambda labels: (labels.get(key) in values) is not ((sign or operator) in {"!=", "notin"})
    raise bad_request(f"unable to parse requirement: {text!r}")


def read_fields(selector: str, kind: Kind) -> Callable[[Json], bool]:
    """A test of objects. ApiFault 400: the text is not a selector, or names a field without support."""
    wanted = [read_field(part, kind) for part in selector.split(",") if part]

    def matches(whole: Json) -> bool:
        return all((field_of(whole, path) == value) is is_equal for path, value, is_equal in wanted)

    return matches


def read_field(part: str, kind: Kind) -> tuple[str, str, bool]:
    path, operator, value = re.split(r"(==|!=|=)", part, maxsplit=1) if "=" in part else ("", "", part)
    if not operator:
        raise bad_request(f"invalid selector: {part!r}; can't understand {part!r}")
    if path not in kind.fields:
        raise bad_request(f"field label not supported: {path}")
    return path, value, operator != "!="


def field_of(whole: Json, path: str) -> str:
    found: Any = whole
    for word in path.split("."):
        found = found.get(word, "") if isinstance(found, dict) else ""
    return str(found).lower() if isinstance(found, bool) else str(found)
