"""The text of a template: what is read, where it breaks, and the line of each part."""

import pytest
import yaml

from dispatcher.jobs import template_text as here
from dispatcher.jobs.template_text import line_of, read_manifest
from dispatcher.jobs.templates import parse_template
from dispatcher.model.errors import Fault, TemplateError

TEXT = """\
kind: Job
metadata:
  annotations:
    dispatcher.internal/report: sql
spec:
  template:
    spec:
      containers:
        - name: a
          env:
            - {name: A}
            - name: B
              value: x
kind: Other
1: one
"""
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdef", "bcdefg", strict=True)
)


def fault_of(text: str) -> Fault:
    with pytest.raises(TemplateError) as raised:
        read_manifest(text)
    (fault,) = raised.value.faults
    return fault


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1),
        (("metadata",), 2),
        (("metadata", "annotations", "dispatcher.internal/report"), 4),
        (("metadata", "labels", "x"), 2),
        (("spec", "template", "spec", "containers", 0), 9),
        (("spec", "template", "spec", "containers", 0, "env", 0, "name"), 11),
        (("spec", "template", "spec", "containers", 0, "env", 1, "value"), 13),
        (("spec", "template", "spec", "containers", 0, "image"), 9),
        (("spec", "template", "spec", "containers", 7), 8),
        (("spec", "template", "spec", "containers", "x"), 8),
        (("metadata", "annotations", "dispatcher.internal/report", "x"), 4),
        (("kind",), 14),
        ((1,), 15),
    ],
)
def test_line_is_that_of_the_part_or_of_the_innermost_one_that_is_there(path: here.Path, line: int) -> None:
    assert line_of(TEXT, path) == line


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "the document is not an object"),
        ("# nothing\n", 1, "the document is not an object"),
        ("\n\n- a\n", 3, "the document is not an object"),
        ("a: 1\n---\nb: 2\n", 2, "not one YAML document, line 2, column 1"),
        ("a:\n\tb: 1\n", 2, "(a tab: YAML indents by spaces)"),
        ("a: 1\nb: [\n", 3, "not one YAML document, line 3, column 1"),
        ("a: 'x\n", 2, "not one YAML document"),
        ("a: b: c\n", 1, "not one YAML document, line 1, column 5"),
        ("a: *x\n", 1, "not one YAML document, line 1"),
        ("a: \0", 1, "a character that YAML does not allow"),
        ("a: 1\nb: \x1b[0m\n", 1, "not"),
        ("b: 1\na: &a [*a]\n", 2, "an alias leads to a part that contains it"),
        (BOMB, 5, "with its aliases written out, it has more than 100000 values"),
        ("a: " + "[" * 101, 1, "more than 100 levels"),
        ("a: " + "{a: " * 50_000, 1, "more than 100 levels"),
        ("a: " + "x" * (256 << 10), 1, "the text has more than 256 KiB"),
        ("a: 2020-99-99\n", 1, "the values cannot be read"),
        ("a: !!python/object:os.system x\n", 1, "the values cannot be read"),
        ("? [a]\n: 1\n", 1, "the values cannot be read"),
    ],
)
def test_text_that_is_no_manifest_has_the_line_where_it_breaks(text: str, line: int, words: str) -> None:
    fault = fault_of(text)
    assert (fault.line, words in fault.words) == (line, True), fault


def test_aliases_of_bounded_size_are_written_out() -> None:
    assert read_manifest("a: &a {b: 1}\nc: *a\nd: [*a, *a]\n") == {"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}] * 2}


def test_fault_without_a_mark_is_told_at_the_first_line() -> None:
    assert here.explained(yaml.MarkedYAMLError(problem="odd"), "").faults[0].line == 1


def test_fault_of_yaml_without_a_place_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise yaml.YAMLError("odd")

    monkeypatch.setattr(yaml, "parse", fails)
    assert fault_of("a: 1").words == "not YAML: odd"


def test_all_faults_are_found_at_once() -> None:
    with pytest.raises(TemplateError) as raised:
        parse_template("Bad", TEXT.replace("1: one", "").replace("kind: Job", "kind: Pod"))
    paths = [fault.path for fault in raised.value.faults]
    assert paths == [(), ("apiVersion",), ("kind",)]
    assert str(raised.value).startswith("template Bad: its name is 'Bad'")
    assert str(raised.value).count("; ") == 2


def test_message_names_five_faults_and_counts_the_others() -> None:
    with pytest.raises(TemplateError) as raised:
        parse_template("x", "metadata: {labels: {" + ", ".join(f"dispatcher.internal/{n}: a" for n in range(9)) + "}}")
    assert len(raised.value.faults) == 12
    assert str(raised.value).endswith("; and 7 more")
