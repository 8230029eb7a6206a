"""The text of a template: one YAML document of bounded size, read as kubectl reads it. Faults have their lines.

kubectl follows YAML 1.1 with changes: times stay texts, `n` and `y` are booleans, `1e3` and `0o644` are numbers,
`22:22` is a text, and keys are texts. Source: `resolve.go` of sigs.k8s.io/yaml. A template that kubectl takes must mean
the same here.

Aliases may repeat parts, but a short text must not stand for a huge manifest: the digest of a template and every Job
write the manifest out in full.
"""

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import yaml

from dispatcher.model.errors import TemplateError, TemplateFault
from dispatcher.model.jobs import Manifest
from dispatcher.model.tasks import MARKS

MOST_BYTES: Final = 256 << 10
"""Bytes of a text, at most."""
MOST_NODES: Final = 100_000
"""Values of a text with all aliases written out, at most."""
DEEPEST: Final = 100
"""Levels of nesting, at most."""
Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C loader is faster. PyYAML has it if libyaml was there when PyYAML was built."""
TAG: Final = "tag:yaml.org,2002:"
WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"], None),
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True),
    **dict.fromkeys(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False),
}
INTEGER: Final = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
BASES: Final = (16, 2, 8, 10)
INTEGERS: Final = range(-(2**63), 2**64)
MOST_DIGITS: Final = 100
"""A whole number with more digits is too large, whatever its base. Python refuses to read thousands."""
FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
NO_NUMBERS: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
MERGE: Final = "<<"
BREAKS: Final = re.compile("[\x85\u2028\u2029\ufeff]")
"""Line ends, and the byte order mark, that only double quotes can hold."""
LARGEST_WRITTEN_WHOLE: Final = 1e21
"""kubectl writes smaller whole numbers without a point or an exponent."""
Path = tuple[str | int, ...]


def text_of(content: bytes, most: int = MOST_BYTES) -> str:
    """The text of a file of at most `most` bytes. Raises TemplateError if it has more, or is no text."""
    if len(content) > most:
        raise TemplateError(TemplateFault((), f"the text has more than {most >> 10} KiB", 1))
    try:
        return content.decode()
    except UnicodeDecodeError as wrong:
        line = content.count(b"\n", 0, wrong.start) + 1
        raise TemplateError(TemplateFault((), f"no UTF-8 text: byte 0x{content[wrong.start]:02x}", line)) from wrong


def read_manifest(text: str) -> Manifest:
    """The manifest of a template's text. Raises TemplateError if it is not one YAML document with an object."""
    root = compose(text)
    if not isinstance(root, yaml.MappingNode):
        raise at_line(line_of_mark(root.start_mark) if root else 1, "the document is not an object: a Job manifest is")
    manifest: Manifest = value_of(root, {})
    return manifest


def value_of(node: yaml.Node, known: dict[int, Any]) -> Any:
    """The value of a node. `known`: the values of nodes that an alias may name again."""
    if id(node) not in known:
        if isinstance(node, yaml.MappingNode):
            known[id(node)] = object_of(node, known)
        elif isinstance(node, yaml.SequenceNode):
            check_tag(node)
            known[id(node)] = [value_of(one, known) for one in node.value]
        else:
            known[id(node)] = scalar_of(node)
    return known[id(node)]


def object_of(node: yaml.MappingNode, known: dict[int, Any]) -> dict[str, Any]:
    """An object. kubectl merges where `<<` stands: a later key wins, merged or not. Of a merged list the first wins."""
    lines, found = dict[str, int](), dict[str, Any]()
    check_tag(node)
    for key, value in node.value:
        line = line_of_mark(key.start_mark)
        if is_merge(key):
            for source in sources_of(value):
                if not isinstance(source, yaml.MappingNode):
                    raise at_line(line, "<< merges objects alone")
                found |= object_of(source, known)
            continue
        name = key_of(key)
        if name in lines:
            raise at_line(line, f"the key {name!r:.80} stands twice in one object: lines {lines[name]} and {line}")
        lines[name], found[name] = line, value_of(value, known)
    return found


def check_tag(node: yaml.CollectionNode) -> None:
    """Refuses a tag of a list or an object, such as `!reference`: kubectl drops it, and its author meant more."""
    if node.tag not in OF_COLLECTIONS:
        raise at_line(line_of_mark(node.start_mark), f"the tag {node.tag.replace(TAG, '!!')!r:.80} cannot be read here")


OF_COLLECTIONS: Final = frozenset({f"{TAG}seq", f"{TAG}map", f"{TAG}set"})


def is_merge(key: yaml.Node) -> bool:
    return key.value == MERGE and key.tag in {f"{TAG}plain", f"{TAG}merge"}


def sources_of(value: yaml.Node) -> list[yaml.Node]:
    """What `<<` merges, in the order in which later ones win."""
    return value.value[::-1] if isinstance(value, yaml.SequenceNode) else [value]


def pairs_of(node: yaml.Node) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """The keys of an object and their values, also the merged ones, in the order in which later ones win."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if is_merge(key):
            yield from (pair for source in sources_of(value) for pair in pairs_of(source))
        else:
            yield key, value


def key_of(node: yaml.Node) -> str:
    """A key as JSON has it: numbers and booleans become texts."""
    found = scalar_of(node) if isinstance(node, yaml.ScalarNode) else None
    if isinstance(found, str):
        return found
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, int | float):
        return str(found)
    raise at_line(line_of_mark(node.start_mark), "a key must be a text, a number, true or false")


def scalar_of(node: yaml.Node) -> Any:
    tag, text = node.tag.removeprefix(TAG), node.value
    line = line_of_mark(node.start_mark)
    if tag == "plain":
        if NO_NUMBERS.fullmatch(text):
            raise at_line(line, f"{text} is no number that JSON can hold")
        return plain_value(text)
    if tag in {"str", "timestamp"}:
        return text
    if tag == "binary":
        try:
            return base64.b64decode("".join(text.split()), validate=True).decode()
        except ValueError as fault:  # also of base64, and of UTF-8
            raise at_line(line, f"!!binary is no text in base64: {fault}") from fault
    found = plain_value(text)
    if (tag, type(found)) in {("int", int), ("float", float), ("float", int), ("bool", bool), ("null", type(None))}:
        return found
    raise at_line(line, f"the tag {node.tag.replace(TAG, '!!')!r:.80} cannot be read here, with {text!r:.80}")


def plain_value(text: str) -> bool | float | str | None:
    """The value of a text without quotes."""
    if text in WORDS:
        return WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    digits = text.replace("_", "") if text[0] != "." else text
    if len(digits) <= MOST_DIGITS and (match := INTEGER.fullmatch(digits)):
        sign, *written = match.groups()
        number = next(int(one, base) for one, base in zip(written, BASES, strict=True) if one is not None)
        if (number := -number if sign == "-" else number) in INTEGERS:
            return number
    if len(digits) <= MOST_DIGITS and FLOAT.fullmatch(digits) and math.isfinite(found := float(digits)):
        return int(found) if found.is_integer() and abs(found) < LARGEST_WRITTEN_WHOLE else found
    return text


class Dumper(yaml.SafeDumper):
    """Quotes each text that would be read as something else, such as `y` or `1e3`."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML calls it so
        return True

    def represent_text(self, data: str) -> yaml.ScalarNode:
        is_other = not isinstance(plain_value(data), str) or NO_NUMBERS.fullmatch(data)
        style = '"' if BREAKS.search(data) or MARKS.search(data) else "'" if is_other else None
        return self.represent_scalar(f"{TAG}str", data, style=style)


Dumper.add_representer(str, Dumper.represent_text)


def write_document(value: object) -> str:
    """YAML that is read as this value, here and by kubectl. It has no signs that turn the direction of a line."""
    written: str = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    return MARKS.sub(lambda mark: f"\\U{ord(mark[0]):08x}", written)


def line_of(text: str, path: Path) -> int:
    """The line that the path leads to, or that of its innermost existing part."""
    node, line = last_composed(text), 1
    for step in path:
        if (found := follow(node, step)) is None:
            break
        node, line = found
    return line


def follow(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, int] | None:
    """The part of a node, and its line."""
    if isinstance(node, yaml.MappingNode):
        pairs = [(key, value) for key, value in pairs_of(node) if str(key.value) == str(step)]
        return (pairs[-1][1], line_of_mark(pairs[-1][0].start_mark)) if pairs else None
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], line_of_mark(node.value[step].start_mark)
    return None


class Plain(Loader):  # type: ignore[misc, valid-type]  # a class that is chosen above
    """Gives every scalar without quotes and tag the tag `plain`: `plain_value` says what it stands for."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode and implicit[0]:
            return f"{TAG}plain"
        return str(super().resolve(kind, value, (False, True) if kind is yaml.ScalarNode else implicit))


def read_documents(text: str, most: int = MOST_BYTES) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a text of at most `most` bytes, with their lines. Objects of a List or a JobList stand alone.

    A list without items is an object. An export may have hundreds of items, so each is counted by itself. Raises
    TemplateError as `read_manifest`.
    """
    found = list[tuple[int, dict[str, Any]]]()
    for root in map(as_list, compose_all(text, most)):
        line = line_of_mark(root.start_mark)
        if not isinstance(root, yaml.MappingNode):
            raise at_line(line, "the document is not an object: a manifest is")
        known = {id(root): 0}
        for key, value in root.value:
            for part in value.value if key.value == "items" and isinstance(value, yaml.SequenceNode) else [value]:
                count(part, known)
        found += unlisted(root, value_of(root, {}), line)
    return found


def as_list(root: yaml.Node) -> yaml.Node:
    """The document. Bare objects in brackets, as `jq .items` writes them, become the List that kubectl writes."""
    if not isinstance(root, yaml.SequenceNode) or not all(isinstance(one, yaml.MappingNode) for one in root.value):
        return root
    mark, tag = root.start_mark, f"{TAG}str"
    kind, items, name = (yaml.ScalarNode(tag, word, mark, mark) for word in ("kind", "items", "List"))
    return yaml.MappingNode(f"{TAG}map", [(kind, name), (items, root)], mark, root.end_mark)


def unlisted(node: yaml.Node, document: dict[str, Any], line: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The document, or the objects of its list. A list may have lists."""
    kind = str(document.get("kind"))
    items = document.get("items") if kind.endswith("List") else None
    if not items:
        yield line, document
        return
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise at_line(line, f"items of the {kind[:80]} are no list of objects")
    kinds = {"kind": kind.removesuffix("List")} if kind != "List" else {}
    nodes = items_of(node)
    for number, one in enumerate(items):
        own = nodes[number] if nodes else node
        yield from unlisted(own, {**kinds, **one}, line_of_mark(own.start_mark) if nodes else line)


def items_of(node: yaml.Node) -> list[yaml.Node]:
    """The items of a list of objects; empty: it has none, or merges them."""
    found = (value for key, value in node.value if key.value == "items") if isinstance(node, yaml.MappingNode) else ()
    return next((list(one.value) for one in found if isinstance(one, yaml.SequenceNode)), [])


def listed(node: yaml.Node) -> Iterator[yaml.Node]:
    """The node, the items of its list, and theirs."""
    yield node
    for one in items_of(node):
        yield from listed(one)


def places_of(text: str, line: int, most: int = MOST_BYTES) -> dict[Path, int]:
    """The lines of all places of the document that begins at this line, or of the item of a list."""
    found = starts_of(text, most).get(line)
    return dict(places_in(found, ())) if found else {}


@lru_cache(maxsize=1)
def starts_of(text: str, most: int) -> dict[int, yaml.Node]:
    """The documents of a text and the items of lists, by their lines. A file may have hundreds that are faulty."""
    parts = [one for root in map(as_list, compose_all(text, most)) for one in listed(root)]
    return {line_of_mark(one.start_mark): one for one in reversed(parts)}


def places_in(node: yaml.Node, path: Path) -> Iterator[tuple[Path, int]]:
    parts = node.value if isinstance(node, yaml.SequenceNode) else pairs_of(node)
    for number, part in enumerate(parts):
        first, value = part if isinstance(part, tuple) else (part, part)
        place = (*path, str(first.value) if isinstance(part, tuple) else number)
        yield place, line_of_mark(first.start_mark)
        yield from places_in(value, place)


@lru_cache(maxsize=1)
def last_composed(text: str) -> yaml.Node | None:
    """As `compose`, for one fault after the other."""
    return compose(text)


def compose(text: str) -> yaml.Node | None:
    """The text as nodes, which know their lines.

    Raises TemplateError if it is not one document, stands for too many values, or as `compose_all`.
    """
    roots = compose_all(text)
    for root in roots:
        count(root, {})
    for _, second in pairwise(roots):
        line = line_of_mark(second.start_mark)
        rule = "A template is one Job, and `dispatcher adopt` reads files of several"
        raise at_line(line, f"not one YAML document: line {line} begins another one. {rule}")
    return roots[0] if roots else None


def compose_all(text: str, most: int = MOST_BYTES) -> list[yaml.Node]:
    """The documents that are not blank. Raises TemplateError if the text is no YAML, too large, or too deep."""
    if len(text.encode(errors="surrogatepass")) > most:
        raise at_line(1, f"the text has more than {most >> 10} KiB")
    text = as_yaml(MARK_OF_A_FILE.sub("", text))
    try:
        check_depth(yaml.parse(text, Loader=Plain))
        return [root for root in yaml.compose_all(text, Loader=Plain) if not is_blank(root)]
    except yaml.MarkedYAMLError as fault:
        raise explained(fault, text) from fault
    except yaml.reader.ReaderError as fault:
        raise at_line(1, f"a character that YAML does not allow: {fault.reason} at {fault.position}") from fault
    except yaml.YAMLError as fault:
        raise at_line(1, f"not YAML: {fault}") from fault


MARK_OF_A_FILE: Final = re.compile("^\ufeff", re.MULTILINE)
"""The byte order mark in front of a file, also where files were put together."""
LINE_END: Final = "\n"
SPACE: Final = re.compile(r"\s*")
ESCAPE: Final = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL)
"""An escape of JSON. A pair of surrogates has two groups."""


def as_yaml(text: str) -> str:
    """JSON as YAML: a pair of surrogates is one character, and each value of a stream is a document, as for kubectl.

    jq writes such streams. Each value stays in its lines.
    """
    values = values_of_json(text) if text.lstrip().startswith(("{", "[")) else []
    if not values:
        return text
    documents = (f"{space[: space.rfind(LINE_END) + 1] or LINE_END}--- {value}" for space, value in values[1:])
    found = "".join(("".join(values[0]), *documents))
    return ESCAPE.sub(lambda one: bytes.fromhex(one[1] + one[2]).decode("utf-16-be") if one[1] else one[0], found)


def values_of_json(text: str) -> list[tuple[str, str]]:
    """The values of a stream of JSON, each with the space before it; empty: it is none."""
    found, at = list[tuple[str, str]](), 0
    try:
        while (start := next(SPACE.finditer(text, at)).end()) < len(text):
            end = json.JSONDecoder().raw_decode(text, start)[1]
            found.append((text[at:start], text[start:end]))
            at = end
    except (ValueError, RecursionError):
        return []
    return found


def is_blank(root: yaml.Node) -> bool:
    """Whether a document is empty, or has only comments."""
    return isinstance(root, yaml.ScalarNode) and root.tag == f"{TAG}plain" and root.value in WORDS


def check_depth(events: Iterable[yaml.Event]) -> None:
    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise at_line(line_of_mark(event.start_mark), f"more than {DEEPEST} levels")


def count(node: yaml.Node, known: dict[int, int]) -> int:
    """Number of nodes that this one stands for, with all aliases written out. A node in its own part counts as 0."""
    if id(node) in known:
        if not known[id(node)]:
            raise at_line(line_of_mark(node.start_mark), "an alias leads to a part that contains it")
        return known[id(node)]
    known[id(node)] = 0
    total = 1 + sum(count(part, known) for part in parts_of(node))
    if total > MOST_NODES:
        why = "with its aliases written out, " if total > len(known) else ""
        raise at_line(line_of_mark(node.start_mark), f"{why}it has more than {MOST_NODES} values")
    known[id(node)] = total
    return total


def parts_of(node: yaml.Node) -> Iterator[yaml.Node]:
    for part in node.value if isinstance(node, yaml.CollectionNode) else ():
        yield from part if isinstance(part, tuple) else (part,)


def explained(fault: yaml.MarkedYAMLError, text: str) -> TemplateError:
    mark = fault.problem_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.splitlines() or [""]
    is_tab = line < len(lines) and lines[line][column : column + 1] == "\t"
    problem = f"{fault.problem or fault.context}{' (a tab: YAML indents by spaces)' if is_tab else ''}"
    return at_line(line + 1, f"not one YAML document, line {line + 1}, column {column + 1}: {problem}")


def line_of_mark(mark: Any) -> int:
    """Lines of a file count from 1."""
    return int(mark.line) + 1


def at_line(line: int, words: str) -> TemplateError:
    return TemplateError(TemplateFault((), words, line))
