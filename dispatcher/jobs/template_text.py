"""The text of a template: one YAML document of bounded size. Faults have the line where the text breaks.

Aliases may repeat parts, but a short text must not stand for a huge manifest: the digest of a template and every Job
write the manifest out in full.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
import yaml

from dispatcher.model.errors import Fault, TemplateError
from dispatcher.model.jobs import Manifest

MOST_BYTES: Final = 256 << 10
MOST_NODES: Final = 100_000
DEEPEST: Final = 100
Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one of C is faster. PyYAML has it where libyaml was there when it was built."""
Path = tuple[str | int, ...]


def read_manifest(text: str) -> Manifest:
    """The manifest of a template's text. TemplateError: it is not one YAML document with an object."""
    root = compose(text)
    if not isinstance(root, yaml.MappingNode):
        raise at_line(line_of_mark(root.start_mark) if root else 1, "the document is not an object: a Job manifest is")
    try:
        return msgspec.yaml.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, ValueError) as fault:  # the last: a date that is none
        raise at_line(line_of_mark(root.start_mark), f"the values cannot be read: {fault}") from fault


def line_of(text: str, path: Path) -> int:
    """The line of the place that the path leads to, or of the innermost part of it that is there."""
    node, line = compose(text), 1
    for step in path:
        if (found := follow(node, step)) is None:
            break
        node, line = found
    return line


def follow(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, int] | None:
    """The part of a node, and its line. For a key that stands twice the last counts, as for the reader of YAML."""
    if isinstance(node, yaml.MappingNode):
        pairs = [(key, value) for key, value in node.value if str(key.value) == str(step)]
        return (pairs[-1][1], line_of_mark(pairs[-1][0].start_mark)) if pairs else None
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], line_of_mark(node.value[step].start_mark)
    return None


def compose(text: str) -> yaml.Node | None:
    """The text as nodes, which know their lines. TemplateError: it is no YAML, too large, or too deep."""
    if len(text.encode(errors="surrogatepass")) > MOST_BYTES:
        raise at_line(1, f"the text has more than {MOST_BYTES >> 10} KiB")
    try:
        check_depth(yaml.parse(text, Loader=Loader))
        root: yaml.Node | None = yaml.compose(text, Loader=Loader)
    except yaml.MarkedYAMLError as fault:
        raise explained(fault, text) from fault
    except yaml.reader.ReaderError as fault:
        raise at_line(1, f"a character that YAML does not allow: {fault.reason} at {fault.position}") from fault
    except yaml.YAMLError as fault:
        raise at_line(1, f"not YAML: {fault}") from fault
    if root is not None:
        count(root, {})
    return root


def check_depth(events: Iterable[yaml.Event]) -> None:
    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise at_line(line_of_mark(event.start_mark), f"more than {DEEPEST} levels")


def count(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes this one stands for, with all aliases written out. A node under way counts as 0."""
    if id(node) in known:
        if not known[id(node)]:
            raise at_line(line_of_mark(node.start_mark), "an alias leads to a part that contains it")
        return known[id(node)]
    known[id(node)] = 0
    parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    total = 1 + sum(count(part, known) for part in parts if isinstance(part, yaml.Node))
    if total > MOST_NODES:
        raise at_line(
            line_of_mark(node.start_mark), f"with its aliases written out, it has more than {MOST_NODES} values"
        )
    known[id(node)] = total
    return total


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
    return TemplateError(Fault((), words, line))
