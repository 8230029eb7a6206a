"""A name that somebody else wrote leads to no other object of the API server."""

from pathlib import Path

import pytest

from dispatcher.kube.client import LEGAL_PATH, KubeClient
from dispatcher.kube.credentials import Login, TokenFile
from dispatcher.kube.job_api import jobs_path
from dispatcher.kube.objects import read_status


@pytest.mark.parametrize(
    "name",
    [
        "x/../../configmaps/victim?a=",
        "..",
        ".",
        "",
        "a?b",
        "a#b",
        "a b",
        "a\nb",
        "a%2Fb/..",
        "a%2Fb",
        "x%2F..%2Fy",
        "%2E%2E",
        "%2e",
        "ä",
        "a\\b",
        "a;b",
    ],
)
async def test_path_with_an_impossible_name_is_not_sent(name: str) -> None:
    client = KubeClient(Login("http://127.0.0.1:1", None, TokenFile(Path("/none")).read, "x"))
    try:
        reply = await client.request("PATCH", f"/api/v1/namespaces/x/pods/{name}/status", b"{}")
    finally:
        await client.close()
    assert (reply.status, read_status(reply.body).reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    "path",
    ["/api/v1/nodes", "/apis", "/readyz", "/api/v1/namespaces/a-b.c/pods/x.y-z/status", f"{jobs_path('jobs')}/a-1r2",
     "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", "/api/v1/namespaces/x/secrets/a%20b"],
)  # fmt: skip
def test_path_of_an_object_is_sent(path: str) -> None:
    assert LEGAL_PATH.fullmatch(path)
