"""The shape of a manifest. A part of another shape is a fault, and never an exception of a later stage."""

import copy
from typing import Any

import pytest

from dispatcher.jobs.overrides import judge_kind
from dispatcher.jobs.template_checks import opening_of
from dispatcher.jobs.template_shape import SHAPES, at, dotted, list_at, object_at
from dispatcher.jobs.templates import judge_template
from dispatcher.model.errors import TemplateError
from tests.builders import a_kind, a_manifest

ODD: list[Any] = [3, "x", True, [], [3], {}, {"x": 3}, {1: 2}, [[]], [{}], [{"name": 3}], 0.5]
FULL: dict[str, Any] = {
    "initContainers": [{"name": "i", "env": [{"name": "A"}], "volumeMounts": [{"name": "v"}],
                        "resources": {"limits": {"cpu": 1}, "requests": {"cpu": "1"}}}],
    "volumes": [{"name": "v"}], "tolerations": [{"key": "k"}], "affinity": {"nodeAffinity": {}},
}  # fmt: skip


def a_full_manifest() -> dict[str, Any]:
    manifest = a_manifest(pod=copy.deepcopy(FULL), container={"env": [{"name": "A"}], "volumeMounts": [{"name": "v"}]})
    manifest["metadata"] |= {"labels": {"a": "b"}, "annotations": {"a": "b"}}
    manifest["spec"]["template"]["metadata"] = {"labels": {"a": "b"}, "annotations": {"a": "b"}}
    return manifest


def put(manifest: Any, path: tuple[Any, ...], value: object) -> None:
    *inner, last = path
    for step in inner:
        manifest = manifest[step]
    manifest[last] = value


def first(pattern: tuple[str | int, ...]) -> tuple[str | int, ...]:
    return tuple(0 if step == "*" else step for step in pattern)


@pytest.mark.parametrize("odd", ODD, ids=str)
@pytest.mark.parametrize("pattern", [shape.pattern for shape in SHAPES], ids=str)
def test_odd_part_is_a_fault_or_harmless(pattern: tuple[str, ...], odd: object) -> None:
    manifest = a_full_manifest()
    put(manifest, first(pattern), odd)
    try:
        template = judge_template("default", manifest)
    except TemplateError as fault:
        assert fault.faults  # noqa: PT017  # either end is right; the rest must not raise
        return
    judge_kind(a_kind(), {"default": template}, frozenset())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: dotted(shape.pattern))
def test_part_of_another_shape_is_named(shape: Any) -> None:
    manifest, path = a_full_manifest(), first(shape.pattern)
    put(manifest, path, 3)
    assert path in [fault.path for fault in opening_of(manifest, "default")[1]]


@pytest.mark.parametrize("shape", [one for one in SHAPES if one.is_needed], ids=lambda shape: dotted(shape.pattern))
def test_part_that_is_needed_and_missing_is_named(shape: Any) -> None:
    manifest, path = a_full_manifest(), first(shape.pattern)
    put(manifest, path, None)
    told = [fault.words for fault in opening_of(manifest, "default")[1] if fault.path == path]
    assert f"{dotted(path)} is missing" in told[0]


def test_full_manifest_has_no_fault() -> None:
    assert opening_of(a_full_manifest(), "default")[1] == ()


def test_key_that_is_no_text_is_a_fault() -> None:
    manifest = a_full_manifest()
    put(manifest, ("metadata", "labels"), {1: "x"})
    assert [fault.words for fault in opening_of(manifest, "t")[1]] == [
        "metadata.labels has a key that is no text: quote it"
    ]


def test_manifest_that_json_cannot_hold_is_a_fault() -> None:
    with pytest.raises(TemplateError, match="not a Job manifest"):
        judge_template("t", a_full_manifest() | {"status": {(1, 2): 3}})


def test_parts_are_found_only_in_parents_of_their_shape() -> None:
    assert (at({"a": [1]}, "a", 0), at({"a": [1]}, "a", 1), at({"a": 3}, "a", 0), at([], "a")) == (1, None, None, None)
    assert (object_at({"a": {"b": 1, 2: 3}}, "a"), object_at({"a": 3}, "a")) == ({"b": 1}, {})
    assert (list_at({"a": [1]}, "a"), list_at({"a": 3}, "a")) == ([1], [])


def test_path_is_told_as_people_write_it() -> None:
    assert dotted(("spec", "containers", 0, "a/b")) == "spec.containers[0][a/b]"
    assert dotted(()) == ""
