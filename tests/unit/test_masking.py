"""A Job is shown without values of env. Names stay."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.views.row_page import HIDDEN, masked
from tests.rig.builders import a_manifest

SECRET = "planted-secret-91cd"
KEY = {"secretKeyRef": {"name": "db", "key": "password"}}


@pytest.mark.parametrize("place", ["containers", "initContainers", "ephemeralContainers"])
def test_values_of_env_are_hidden_in_every_container(place: str) -> None:
    env = [{"name": "PASSWORD", "value": SECRET}, {"name": "FROM", "valueFrom": KEY}, {"name": "EMPTY"}]
    job = a_manifest(pod={place: [{"name": "a"}, {"name": "b", "env": env}]})
    before = copy.deepcopy(job)
    found = masked(job)["spec"]["template"]["spec"][place][1]["env"]
    assert found == [{"name": "PASSWORD", "value": HIDDEN}, {"name": "FROM", "valueFrom": KEY}, {"name": "EMPTY"}]
    assert job == before, "the template is shared by all rows"


def test_headers_of_probes_and_copies_of_the_manifest_are_hidden() -> None:
    probe = {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": SECRET}]}}
    job = a_manifest(container={"livenessProbe": probe})
    job["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": f'"{SECRET}"', "kept": "x"}
    job["spec"]["template"]["metadata"] = {"annotations": {"dispatcher.internal/cache-key": SECRET}}
    found = masked(job)
    assert SECRET not in str(found)
    assert found["metadata"]["annotations"]["kept"] == "x"


def test_label_that_is_called_env_stays() -> None:
    job = a_manifest()
    job["metadata"]["labels"] = {"env": "production"}
    assert masked(job)["metadata"]["labels"] == {"env": "production"}


def test_env_of_another_form_is_hidden_whole() -> None:
    assert masked({"env": [SECRET, ["a", SECRET]]}) == {"env": [HIDDEN, HIDDEN]}


LEAVES = st.none() | st.booleans() | st.text(max_size=5)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner))


@given(JSON, st.text(max_size=4))
def test_no_value_of_env_is_left_wherever_it_stands(noise: Any, name: str) -> None:
    job = {"a": [noise, {"env": [{"name": name, "value": SECRET, "more": noise}]}], "b": noise}
    found = masked(job)
    assert SECRET.encode() not in msgspec.json.encode(found)
    assert found["a"][1]["env"][0]["name"] == name
