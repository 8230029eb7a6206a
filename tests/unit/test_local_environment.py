"""The environment of a container, against the rules of kubelet; and the played tasks of the control plane. Pure."""

from collections.abc import Mapping

import pytest

from dispatcher_demo.node.containers import CreateContainerConfigFault, expand, field, references, resolve
from tests.controlplane.api import Json
from tests.controlplane.player import played_container
from tests.controlplane.programs import TaskCalls, play_task

POD: Json = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"batch.kubernetes.io/controller-uid": "j"},
        "annotations": {"a": "b"},
    },
    "spec": {"nodeName": "m", "containers": [{"name": "sidecar"}, {"name": "task"}]},
    "status": {"podIP": "10.0.0.9"},
}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$A ${A}", "$A ${A}"),
        ("$(A", "$(A"),
        ("$(A$(A)", "$(A$(A)"),
        ("$()", "$()"),
        ("cost: 5$", "cost: 5$"),
        ("$(NESTED)", "$(A)"),
        ("line\n$(A)", "line\n1"),
    ],
)
def test_expansion_of_values_follows_kubelet(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "NESTED": "$(A)"}) == expanded


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "n"),
        ("metadata.uid", "u"),
        ("metadata.labels['batch.kubernetes.io/controller-uid']", "j"),
        ("metadata.labels['absent']", ""),
        ("metadata.annotations['a']", "b"),
        ("spec.nodeName", "m"),
        ("status.podIP", "10.0.0.9"),
        ("status.hostIP", ""),
    ],
)
def test_field_references_give_the_values_of_the_pod(path: str, value: str) -> None:
    assert field(POD, path) == value


def env(
    *entries: Json, sources: Mapping[tuple[str, str], Mapping[str, str]] | None = None, **container: object
) -> Json:
    return dict(resolve({"env": list(entries), **container}, POD, sources or {}))


def key(kind: str, name: str, field_key: str, **more: object) -> Json:
    return {"valueFrom": {f"{kind}KeyRef": {"name": name, "key": field_key, **more}}}


def test_variables_refer_to_earlier_ones_and_the_last_entry_wins() -> None:
    made = env(
        {"name": "FIRST", "value": "$(SECOND)"},
        {"name": "SECOND", "value": "2"},
        {"name": "THIRD", "value": "$(SECOND)"},
        {"name": "SECOND", "value": "$(SECOND)2"},
        {"name": "EMPTY"},
    )
    assert made == {"FIRST": "$(SECOND)", "SECOND": "22", "THIRD": "2", "EMPTY": ""}


def test_values_of_references_are_not_expanded() -> None:
    sources = {("Secret", "s"): {"k": "$(A)"}, ("ConfigMap", "c"): {"k": "$$"}}
    made = env(
        {"name": "A", "value": "1"},
        {"name": "B", **key("secret", "s", "k")},
        {"name": "C", **key("configMap", "c", "k")},
        {"name": "D", "value": "$(B)"},
        sources=sources,
    )
    assert made == {"A": "1", "B": "$(A)", "C": "$$", "D": "$(A)"}


def test_sources_come_first_with_their_prefix() -> None:
    container = {"envFrom": [{"prefix": "P_", "secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}]}
    sources = {("Secret", "s"): {"K": "secret"}, ("ConfigMap", "c"): {"P_K": "map", "X": "old"}}
    made = env({"name": "X", "value": "$(P_K)"}, sources=sources, **container)
    assert made == {"P_K": "map", "X": "map"}
    assert references(container) == {("Secret", "s"), ("ConfigMap", "c")}


def test_an_optional_reference_to_nothing_is_no_variable() -> None:
    assert env({"name": "A", **key("secret", "s", "k", optional=True)}) == {}
    assert env(envFrom=[{"secretRef": {"name": "s", "optional": True}}]) == {}


@pytest.mark.parametrize(
    ("container", "fault"),
    [
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, 'secret "s" not found'),
        ({"env": [{"name": "A", **key("configMap", "c", "k")}]}, "couldn't find key k in ConfigMap c"),
        (
            {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]},
            "cannot be given here",
        ),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}, "cannot be given here"),
    ],
)
def test_unresolvable_references_raise_a_config_fault(container: Json, fault: str) -> None:
    with pytest.raises(CreateContainerConfigFault, match=fault):
        resolve(container, POD, {})


def test_the_task_is_the_container_of_that_name() -> None:
    assert played_container(POD)["name"] == "task"
    assert played_container({"spec": {"containers": [{"name": "x"}, {"name": "y"}]}})["name"] == "x"


@pytest.mark.parametrize(("play", "code"), [("exit-0-without-start", 0), ("exit-1-without-start", 1)])
async def test_a_task_may_end_without_any_call(play: str, code: int) -> None:
    calls = TaskCalls(None)
    assert await play_task({"PLAY": play}, calls) == code
    assert not calls.asked


async def test_unknown_play_is_named() -> None:
    with pytest.raises(ValueError, match="'explode', not one of succeed"):
        await play_task({"PLAY": "explode"}, TaskCalls(None))
