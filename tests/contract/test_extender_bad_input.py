"""Requests that no kube-scheduler sends, over real HTTP.

Each body gets the answer with which a scheduler can go on, and the next request is answered as if nothing had happened.
A node whose name can be read passes and gets points, whatever else is unreadable. Only a request without any name gets
400.
"""

import gzip
import json
from collections.abc import AsyncIterator

import pytest
from prometheus_client import REGISTRY

from dispatcher.model.launches import HISTORY_NODES as HISTORY
from dispatcher.model.launches import REAL_RESOURCES as REAL
from tests.contract.asked import Asked
from tests.contract.bodies import (
    DEEP,
    POD,
    POINTS,
    READABLE,
    SECRET,
    UNREADABLE,
    Json,
    asking,
    node,
    noted,
    padded,
    whole,
)

pytest_plugins = ["tests.contract.asked_fixtures"]
LARGEST = 16 * 2**20


@pytest.mark.parametrize(("body", "names"), READABLE.values(), ids=READABLE)
async def test_nodes_with_a_readable_name_pass_and_get_points(attacked: Asked, body: bytes, names: list[str]) -> None:
    assert await attacked.passed(body) == names
    scores = await attacked.points(body)
    assert list(scores) == names
    assert all(type(score) is int and 0 <= score <= 10 for score in scores.values())


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
async def test_request_without_a_readable_name_is_refused(attacked: Asked, verb: str, body: bytes) -> None:
    status, answer = await attacked.post(verb, body)
    assert (status, list(answer)) == (400, ["Error"])
    assert answer["Error"]
    assert SECRET not in answer["Error"], "kube-scheduler's log gets the error"


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "explain"])
@pytest.mark.parametrize("size", [LARGEST + 1, 20 * 2**20])
async def test_body_that_is_too_large_gets_413(attacked: Asked, verb: str, size: int) -> None:
    body = asking(Extra=" " * size)[: size - 1] + b"}"
    assert await attacked.post(verb, body) == (413, {"Error": f"more than {LARGEST} bytes"})


async def in_parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 2**20):
        yield body[start : start + 2**20]


async def test_body_without_a_length_is_measured(attacked: Asked) -> None:
    assert (await attacked.post("filter", in_parts(b" " * 20 * 2**20)))[0] == 413
    status, answer = await attacked.post("filter", in_parts(asking(Extra=" " * 2**21)))
    assert (status, answer["NodeNames"]) == (200, ["a", "b"])


async def test_compressed_body_is_measured_uncompressed(attacked: Asked) -> None:
    status, _ = await attacked.post("filter", gzip.compress(b" " * 20 * 2**20), **{"Content-Encoding": "gzip"})
    assert status == 413
    status, answer = await attacked.post("filter", gzip.compress(asking()), **{"Content-Encoding": "gzip"})
    assert (status, answer["NodeNames"]) == (200, ["a", "b"])


async def test_body_that_is_wrongly_called_gzip_is_refused(attacked: Asked) -> None:
    status, answer = await attacked.post("filter", asking(), **{"Content-Encoding": "gzip"})
    assert (status, list(answer)) == (400, ["Error"])


async def test_largest_allowed_body_is_answered(attacked: Asked) -> None:
    body = padded(whole(node("a"), node("b")), LARGEST)
    assert await attacked.passed(body) == ["a", "b"]
    assert await attacked.points(body) == {"a": POINTS["a"], "b": POINTS["b"]}


@pytest.mark.parametrize(
    ("pod", "parts"),
    [
        (noted(annotations={HISTORY: "{}"}), ["history-nodes"]),
        (noted(annotations={REAL: "{}", HISTORY: '["a"]'}), ["real-resources"]),
        (noted(annotations={REAL: "5", HISTORY: "[5]"}), ["history-nodes", "real-resources"]),
        (5, ["pod"]),
        (POD | {"spec": {"containers": None}}, ["pod"]),
        (POD, []),
    ],
)
async def test_unreadable_parts_of_a_pod_are_counted(attacked: Asked, pod: object, parts: list[str]) -> None:
    def counted() -> dict[str, float]:
        name, all_parts = "dispatcher_extender_ignored_total", ("history-nodes", "real-resources", "pod")
        return {part: REGISTRY.get_sample_value(name, {"part": part}) or 0 for part in all_parts}

    before = counted()
    await attacked.points(asking(pod))
    assert counted() == {part: count + (part in parts) for part, count in before.items()}


# The other verbs


@pytest.mark.parametrize("verb", ["preempt", "explain"])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'{"Pod": {', DEEP.encode(), b"\xff"])
async def test_body_that_is_no_request_is_refused(attacked: Asked, verb: str, body: bytes) -> None:
    status, answer = await attacked.post(verb, body)
    assert (status, list(answer)) == (400, ["Error"])


@pytest.mark.parametrize(
    "victims",
    [5, [], {"a": None}, {"a": 5}, {"a": {"Pods": 5}}, {"a": {"Pods": [{}]}}, {"a": {"Pods": [5]}},
     {"a": {"NumPDBViolations": 0.5}}],
)  # fmt: skip
async def test_unreadable_victims_are_refused(attacked: Asked, victims: object) -> None:
    body = json.dumps({"Pod": POD, "NodeNameToMetaVictims": victims}).encode()
    status, answer = await attacked.post("preempt", body)
    assert (status, list(answer)) == (400, ["Error"])


@pytest.mark.parametrize("pod", [None, 5, [], {"spec": {"containers": None}}, {"metadata": {"annotations": {"x": 5}}}])
async def test_explain_refuses_a_pod_that_is_none(attacked: Asked, pod: object) -> None:
    assert await attacked.post("explain", asking(pod)) == (400, {"Error": "Pod: not one"})


@pytest.mark.parametrize("keys", [{}, {"Nodes": None}, {"Nodes": None, "NodeNames": None}])
async def test_explain_without_names_tells_of_all_nodes(attacked: Asked, keys: Json) -> None:
    status, answer = await attacked.post("explain", json.dumps({"Pod": POD, **keys}).encode())
    assert (status, list(answer["nodes"])) == (200, ["a", "b", "c"])


async def test_explain_names_ignored_notes(attacked: Asked) -> None:
    status, answer = await attacked.post("explain", asking(noted(annotations={HISTORY: DEEP, REAL: DEEP})))
    assert (status, answer["ignored"]) == (200, ["history-nodes", "real-resources"])


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_other_methods_are_not_allowed(attacked: Asked, method: str) -> None:
    async with attacked.session.request(method, f"{attacked.url}/filter") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["", "/", "/filters", "/filter/", "/v1/filter", "/bind", "/..%2ffilter", "/FILTER"])
async def test_other_paths_are_not_found(attacked: Asked, path: str) -> None:
    async with attacked.session.post(f"{attacked.url}{path}", data=asking()) as answer:
        assert answer.status == 404
