"""The text of a template: what is read, where it breaks, and the line of each part."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.jobs import template_text as here
from dispatcher.jobs.fields import POD
from dispatcher.jobs.template_text import line_of, read_documents, read_manifest, write_document
from dispatcher.jobs.templates import parse_template
from dispatcher.model.errors import TemplateError, TemplateFault

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


def fault_of(text: str) -> TemplateFault:
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
        ("a: 1\n---\nb: 2\n", 3, "not one YAML document: line 3 begins another one"),
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
        ("a:\n  !!python/object:os.system x\n", 2, "the tag '!!python/object:os.system' cannot be read here, with 'x'"),
        ("a: !ours 3\n", 1, "the tag '!ours' cannot be read here"),
        ("b: 1\na: !!int x\n", 2, "the tag '!!int' cannot be read here, with 'x'"),
        ("a: !Join ['', [b]]\n", 1, "the tag '!Join' cannot be read here"),
        ("b: 1\na: !x {c: 1}\n", 2, "the tag '!x' cannot be read here"),
        ("a:\n  <<: !x {c: 1}\n", 2, "the tag '!x' cannot be read here"),
        ("a: !!omap [b: 1]\n", 1, "the tag '!!omap' cannot be read here"),
        ("a: !!binary '%'\n", 1, "!!binary is no text in base64"),
        ("a: !!binary /w==\n", 1, "!!binary is no text in base64"),
        ("a: -.inf\n", 1, "-.inf is no number that JSON can hold"),
        ("? [a]\n: 1\n", 1, "a key must be a text, a number, true or false"),
        ("a: 1\n~: 2\n", 2, "a key must be a text, a number, true or false"),
        ("a: 1\nb: 2\n'a': 3\n", 3, "the key 'a' stands twice in one object: lines 1 and 3"),
        ("on: 1\nyes: 2\n", 2, "the key 'true' stands twice in one object: lines 1 and 2"),
        ("<<: 3\n", 1, "<< merges objects alone"),
        ("<<: [{a: 1}, 3]\n", 1, "<< merges objects alone"),
    ],
)
def test_text_that_is_no_manifest_has_the_line_where_it_breaks(text: str, line: int, words: str) -> None:
    fault = fault_of(text)
    assert (fault.line, words in fault.words) == (line, True), fault


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-01 00:00:00", "2024-01-01 00:00:00"), ("2024-13-45", "2024-13-45"), ("22:22", "22:22"),
        ("!!timestamp 2024-01-01", "2024-01-01"),
        ("!!binary aGk=", "hi"), ("!!str 5", "5"), ("'5'", "5"), ("|-\n  5", "5"),
        ("y", True), ("N", False), ("On", True), ("off", False), ("'y'", "y"), ("yEs", "yEs"),
        ("", None), ("~", None), ("null", None), ("nULL", "nULL"), ("!!null x", None),
        ("0o644", 420), ("0644", 420), ("08", 8), ("0x1F", 31), ("-0b11", -3), ("1_000", 1000), ("+5", 5), ("0", 0),
        ("1e3", 1000), ("1.0", 1), (".5", 0.5), ("1.10", 1.1), ("-1.5e-3", -0.0015), ("1e400", "1e400"),
        ("1e21", 1e21),
        ("18446744073709551615", 2**64 - 1), ("18446744073709551616", 2**64), ("1.2.3", "1.2.3"), ("+", "+"),
        ("0x", "0x"),
        ("._5", "._5"), ("!!float 1", 1), ("!!int 0o7", 7), ("!!bool n", False),
        ("{1: a, 2.5: b, on: c, true: d}", None), ("!!set {a, b}", {"a": None, "b": None}), ("!!seq [1]", [1]),
    ],
)  # fmt: skip
def test_value_is_that_of_kubectl(text: str, value: object) -> None:
    """The test of the real kubectl is tests/contract/test_job_fields.py."""
    if text.startswith("!!null"):
        assert "the tag" in fault_of(f"a: {text}\n").words
    elif text.startswith("{1"):
        assert fault_of(f"a: {text}\n").words.startswith("the key 'true' stands twice")
    else:
        found = read_manifest(f"a: {text}\n")["a"]
        assert (found, type(found)) == (value, type(value))


TEXTS = st.one_of(
    st.text(),
    st.sampled_from(
        ["y", "1e3", "0o17", "22:22", "2024-01-01", "08", "<<", "~", "", ".inf", "-.INF", "=", "1_0", "+1"]
    ),
    st.from_regex(r"[-+.0-9eExob_:]{1,8}", fullmatch=True),
)


@given(
    st.dictionaries(
        TEXTS, st.one_of(TEXTS, st.lists(TEXTS), st.integers(-(2**53), 2**53), st.booleans(), st.none()), min_size=1
    )
)
def test_written_document_is_read_again(value: dict[str, Any]) -> None:
    assert read_manifest(write_document(value)) == value


def test_keys_are_texts() -> None:
    assert read_manifest("1: a\n2.5: b\nno: c\n'x': d\n") == {"1": "a", "2.5": "b", "false": "c", "x": "d"}


def test_later_key_wins_whether_it_is_merged_or_not_and_of_a_merged_list_the_first() -> None:
    """As for kubectl, which merges where `<<` stands."""
    text = "a: &a {x: 1, w: 1}\nb: &b {w: 2, z: 2}\nc: {<<: [*a, *b], z: 3}\nd: {z: 3, <<: *b}\n'e': {'<<': 4}\n"
    found = read_manifest(f"{text}f: {{<<: *a, <<: *b}}\n")
    assert (found["c"], found["d"], found["e"]) == ({"x": 1, "w": 1, "z": 3}, {"w": 2, "z": 2}, {"<<": 4})
    assert found["f"] == {"x": 1, "w": 2, "z": 2}


@pytest.mark.parametrize(
    "text", ["---\na: 1\n---\n", "a: 1\n---\n# nothing\n", "# words\n---\n---\na: 1\n...\n", "a: 1\n---\nnull\n"]
)
def test_empty_documents_do_not_count(text: str) -> None:
    assert read_manifest(text) == {"a": 1}


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
        parse_template("Bad", TEXT.replace("1: one", "").replace("kind: Other", "").replace("kind: Job", "kind: Pod"))
    paths = [fault.path for fault in raised.value.faults]
    assert paths == [(), ("apiVersion",), ("kind",), (*POD, "containers", 0, "image")]
    assert str(raised.value).startswith("template Bad: its name is 'Bad'")
    assert str(raised.value).count("; ") == 3


def test_message_names_five_faults_and_counts_the_others() -> None:
    with pytest.raises(TemplateError) as raised:
        parse_template("x", "metadata: {labels: {" + ", ".join(f"dispatcher.internal/{n}: a" for n in range(9)) + "}}")
    assert len(raised.value.faults) == 12
    assert str(raised.value).endswith("; and 7 more")


def test_documents_of_a_text_have_their_lines_and_those_of_a_list_stand_alone() -> None:
    text = "# a\n---\nkind: Job\n---\n---\nkind: List\nitems: [{kind: Pod}, {kind: Job}]\n"
    assert here.read_documents(text) == [(3, {"kind": "Job"}), (7, {"kind": "Pod"}), (7, {"kind": "Job"})]
    inner = "kind: List\nitems:\n- kind: JobList\n  items:\n  - {x: 1}\n  - {x: 2}\n- kind: Pod\n"
    assert here.read_documents(inner) == [
        (5, {"kind": "Job", "x": 1}),
        (6, {"kind": "Job", "x": 2}),
        (7, {"kind": "Pod"}),
    ]
    merged = "a: &a {items: [{x: 1}]}\n<<: *a\nkind: List\n"
    assert here.read_documents(merged) == [(1, {"x": 1})], "the line of the list"
    assert here.read_documents("kind: CronJobList\nitems: [{spec: 1}]\n") == [(2, {"kind": "CronJob", "spec": 1})]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [(b"a: 1\nb: \xe4\n", 2, "no UTF-8 text: byte 0xe4"), (b"x" * 5, 1, "the text has more than 0 KiB")],
)
def test_content_that_is_no_text_is_told_with_its_line(content: bytes, line: int, words: str) -> None:
    with pytest.raises(TemplateError, match=words) as told:
        here.text_of(content, 4 if line == 1 else 99)
    assert told.value.faults[0].line == line


MERGED = """\
a: &a
  image: 1
b: &b {image: 2, args: 3}
both:
  <<: [*a, *b]
last: {image: 4,
  <<: *a}
first:
  <<: *a
  image: 5
"""


@pytest.mark.parametrize(
    ("path", "line"), [("both.image", 2), ("both.args", 3), ("last.image", 2), ("first.image", 10)]
)
def test_part_that_is_merged_has_the_line_where_it_stands(path: str, line: int) -> None:
    place = tuple(path.split("."))
    assert (line_of(MERGED, place), here.places_of(MERGED, 1)[place]) == (line, line)


def test_places_of_a_document_have_their_lines() -> None:
    inner = "kind: List\nitems:\n- kind: JobList\n  items:\n  - spec:\n      a: 1\n"
    assert here.places_of(inner, 5)[("spec", "a")] == 6
    text = "- no object\n---\nkind: List\nitems:\n- kind: Pod\n- spec:\n    args:\n    - a\n    - b\n"
    expected = {("spec",): 6, ("spec", "args"): 7, ("spec", "args", 0): 8, ("spec", "args", 1): 9}
    assert here.places_of(text, 6) == expected
    assert here.places_of(text, 2) == {}


def test_lines_of_many_faults_take_no_time() -> None:
    """A text is read once, and not for each of its faults: that took a minute for a thousand."""
    text = "kind: List\nitems:\n" + "".join(f"- {{name: N{number}, value: {number}}}\n" for number in range(3000))
    assert [line_of(text, ("items", number, "value")) for number in range(3000)] == [*range(3, 3003)]
    assert [here.places_of(text, line)[("value",)] for line in range(3, 3003)] == [*range(3, 3003)]


@pytest.mark.parametrize(
    "text", ["{kind: List, items: }", "{kind: JobList, items: []}", "{kind: IPAllowList, spec: 1}"]
)
def test_list_without_items_is_an_object(text: str) -> None:
    assert here.read_documents(text) == [(1, read_manifest(text))]


def test_each_item_of_a_list_is_counted_by_itself() -> None:
    hundred = ", ".join(["x"] * 100)
    item = f"{{a: &a [{hundred}], b: &b [{hundred.replace('x', '*a')}]}}"
    text = f"{{kind: List, items: [{item}, {', '.join(['[*b, *b, *b, *b, *b]'] * 3)}]}}"
    with pytest.raises(TemplateError, match="items of the List are no list of objects"):
        here.read_documents(text)
    assert fault_of(text).words == "with its aliases written out, it has more than 100000 values"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"[[{'x,' * 100_000}]]", "^it has more than 100000 values"),
        ("[&a {b: *a}]", "contains it"),
        ("[], other: &a [*a]", "contains it"),
    ],
)
def test_item_of_a_list_that_stands_for_too_much_is_a_fault(text: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        here.read_documents(f"{{kind: List, items: {text}}}", 1 << 20)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Job\n---\n- a\n", "the document is not an object: a manifest is"),
        ("kind: List\nitems: 5\n", "items of the List are no list of objects"),
        ("kind: List\nitems: {a: 1}\n", "items of the List are no list of objects"),
        ("kind: JobList\nitems: [{}, 3]\n", "items of the JobList are no list of objects"),
        ('kind: !!binary "é"\n', "!!binary is no text in base64"),
    ],
)
def test_text_that_holds_no_documents_is_a_fault(text: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        here.read_documents(text)


def test_pair_of_surrogates_in_json_is_one_character() -> None:
    """Python's and Java's JSON write so what is beyond the first 65,536 characters."""
    value = {"a": "\U0001f600 \\ud83d\\ude00", "b": {"c": "\ue000é"}}
    assert read_manifest(json.dumps(value, indent=1)) == value
    assert read_manifest("{a: '\\ud83d\\ude00'}") == {"a": "\\ud83d\\ude00"}, "YAML reads no escape there"


def test_number_of_thousands_of_digits_is_a_text() -> None:
    assert here.read_documents(f"a: {'9' * 5000}\nb: -{'1' * 5000}.5\n") == [
        (1, {"a": "9" * 5000, "b": f"-{'1' * 5000}.5"})
    ]


def test_stream_of_json_is_one_document_for_each_value() -> None:
    """jq writes `.items[]` so, and kubectl reads it."""
    text = '{\n  "a": "\\ud83d\\ude00"\n}\n\n  {\n  "b": [1]\n}{"c": 2}\n'
    assert read_documents(text) == [(1, {"a": "\U0001f600"}), (5, {"b": [1]}), (8, {"c": 2})]
    with pytest.raises(TemplateError, match="not one YAML document, line 2"):
        read_documents('{"a": 1}\n{"b"}')


def test_objects_in_brackets_are_those_of_a_list() -> None:
    """jq writes `.items` so."""
    text = '[\n  {\n    "kind": "Job",\n    "a": "\\ud83d\\ude00"\n  },\n  {\n    "kind": "Pod"\n  }\n]\n'
    assert read_documents(text) == [(2, {"kind": "Job", "a": "\U0001f600"}), (6, {"kind": "Pod"})]
    assert here.places_of(text, 6)[("kind",)] == 7
    assert read_documents("[]") == [(1, {"kind": "List", "items": []})]


def test_mark_in_front_of_a_document_is_no_sign() -> None:
    """Windows programs begin files with it, and `cat` puts files together."""
    text = "\ufeffa: 1\n---\n\ufeffb: 2\nc: 3\n\ufeff---\nd: \ufeff4\n"
    assert read_documents(text) == [(1, {"a": 1}), (3, {"b": 2, "c": 3}), (6, {"d": "\ufeff4"})]
