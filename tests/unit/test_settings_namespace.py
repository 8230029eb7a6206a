"""The namespace of a Pod's account is the default of the namespace."""

from collections.abc import Mapping

import pytest

from dispatcher.settings.loading import load

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


@pytest.mark.parametrize(
    ("environ", "files", "value", "origin"),
    [
        ({}, {ACCOUNT: "ours\n"}, "ours", "service account"),
        ({"DISPATCHER_NAMESPACE": "jobs"}, {ACCOUNT: "ours"}, "jobs", "environment"),
        ({"DISPATCHER_KUBECONFIG": "/config"}, {ACCOUNT: "ours"}, None, "default"),
        ({}, {}, None, "default"),
    ],
)
def test_namespace_in_a_pod_is_that_of_its_service_account(
    environ: Mapping[str, str], files: Mapping[str, str], value: str | None, origin: str
) -> None:
    def read_file(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    loaded = load({"KUBERNETES_SERVICE_HOST": "10.0.0.1", **environ}, read_file)
    (source,) = [source for source in loaded.sources if source.name == "NAMESPACE"]
    assert (loaded.settings.kube.namespace, source.origin) == (value, origin)


def test_namespace_outside_a_pod_is_not_read_from_a_file() -> None:
    assert load({}, {ACCOUNT: "ours"}.__getitem__).settings.kube.namespace is None
