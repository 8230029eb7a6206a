"""The rows of the table `templates`, and how the dispatcher's differ from the janitor's."""

from fnmatch import fnmatchcase
from fractions import Fraction

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dispatcher.jobs.offered import MOST_TOLD, differences, offered_templates, without_brackets
from dispatcher.jobs.templates import Template, judge_template
from dispatcher.model.tasks import OfferedTemplate
from tests.rig.builders import a_manifest, a_template

TRAIN = a_template(
    "train",
    opens="image,cpu,memory,env.MODE",
    bounds={"images": "a/*, b/*", "max-cpu": "2500m", "max-memory": "4Gi", "max-seconds": "600", "machines": "m-*"},
    container={"env": [{"name": "OWN", "value": "x"}]},
)


def offered(template: Template | str, *passed: str) -> OfferedTemplate:
    return offered_templates({"train": template}, passed)[0]


def test_row_has_what_rows_may_set_and_the_bounds_as_people_write_them() -> None:
    assert offered(TRAIN, "S3_HOST") == OfferedTemplate(
        "train", ("cpu", "env.MODE", "image", "memory"), {"seconds": 600, "cpu": "2500m", "memory": "4Gi"},
        ("a/*", "b/*"), ("m-*",), ("OWN", "S3_HOST"), "",
    )  # fmt: skip


def test_bound_finer_than_a_thousandth_is_left_out() -> None:
    fine = msgspec.structs.replace(TRAIN, max_cpu=Fraction(1, 3), max_memory=None)
    assert offered(fine).bounds == {"seconds": 600}


def test_template_with_a_fault_tells_it_and_opens_nothing() -> None:
    assert offered("template train: kind is\n'Pod'") == OfferedTemplate(
        "train", None, {}, (), (), (), "template train: kind is 'Pod'"
    )


def test_note_is_the_description_of_the_manifest_on_one_line() -> None:
    manifest = a_manifest()
    manifest["metadata"]["annotations"]["kubernetes.io/description"] = "Trains\n a model.\0" + "x" * 2000
    note = offered(judge_template("train", manifest)).note
    assert note.startswith("Trains a model. xxx")
    assert len(note) == 1000


def test_rows_stand_in_the_order_of_their_names() -> None:
    assert [one.name for one in offered_templates({"b": "x", "a": "y"}, ())] == ["a", "b"]


def test_equal_templates_have_no_difference() -> None:
    ours = offered_templates({"train": TRAIN, "b": "fault"}, ())
    assert differences(ours, list(ours)) == []


def test_empty_table_is_no_difference() -> None:
    """No janitor has written it yet, and INSERT refuses nothing by it."""
    assert differences(offered_templates({"train": TRAIN}, ()), []) == []


def test_difference_names_the_template_and_who_has_it() -> None:
    ours = offered_templates({"train": TRAIN, "ours": "x"}, ())
    theirs = offered_templates({"train": TRAIN, "theirs": "x"}, ["S3_HOST"])
    assert differences(ours, theirs) == [
        'template "ours": the dispatcher has it, the janitor has not: INSERT refuses its rows',
        'template "theirs": the janitor has it, the dispatcher has not: its rows wait',
        'template "train": the dispatcher and the janitor differ in sets',
    ]


def test_many_differences_are_counted() -> None:
    told = differences(offered_templates({f"t{n}": "x" for n in range(MOST_TOLD + 3)}, ()), [offered(TRAIN)])
    assert len(told) == MOST_TOLD + 1
    assert told[-1] == "and 4 more"


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("a/*", ["a/*"]),
        ("a/[bc]/*:[12]", ["a/b/*:1", "a/b/*:2", "a/c/*:1", "a/c/*:2"]),
        ("a/[c-e0]", ["a/c", "a/d", "a/e", "a/0"]),
        ("a/[-x]", ["a/-", "a/x"]),
        ("a/[!b]", ["a/[!b]"]),
        ("a/[*]", ["a/[*]"]),
        ("a/[b", ["a/[b"]),
        ("[a-z][a-z]", ["[a-z][a-z]"]),
    ],
)
def test_brackets_of_globs_are_written_out(glob: str, found: list[str]) -> None:
    assert list(without_brackets([glob])) == found


@given(st.lists(st.text("a[]c-e!b*?.", max_size=8), max_size=2), st.text("abcde-.![]", max_size=5))
@example(["[c-e]"], "d")
@example(["[c-a]"], "b")
@example(["[a-c-e]"], "d")
@example(["[a-c-e]"], "-")
def test_globs_without_brackets_match_the_same(globs: list[str], name: str) -> None:
    written = without_brackets(globs)
    assert any(fnmatchcase(name, glob) for glob in written) == any(fnmatchcase(name, glob) for glob in globs)
