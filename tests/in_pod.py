"""`python -m tests.in_pod run`: `dispatcher run`, logged in as in a Pod.

Kubernetes writes the account's files to one fixed path, which on the machine of the tests is nobody's to write to: here
`ACCOUNT_FOLDER` names them. Everything else is the program as it is.
"""

import os
from pathlib import Path

from dispatcher.app import App
from dispatcher.cli import load_settings, turn
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import in_cluster
from dispatcher.runtime.signals import stop_on_signals
from dispatcher.settings.definition import Settings
from tests.controlplane.cluster import ControlPlane


def write_account(folder: Path, plane: ControlPlane, *, token: str, namespace: str) -> dict[str, str]:
    """The files of a ServiceAccount of that namespace, and the variables that its Pod has beside them."""
    assert plane.ca_file is not None
    files = {"token": token, "namespace": namespace, "ca.crt": plane.ca_file.read_text()}
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    host, _, port = plane.url.removeprefix("https://").partition(":")
    return {"ACCOUNT_FOLDER": str(folder), "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


async def run(settings: Settings, account: Path) -> None:
    login = in_cluster(account)
    assert login is not None, "the variables of a Pod are missing"
    client = KubeClient(login)
    app = App(settings, client)
    try:
        await app.run(stop_on_signals())
    finally:
        await app.close()
        await client.close()


if __name__ == "__main__":
    turn(run(load_settings().settings, Path(os.environ["ACCOUNT_FOLDER"])))
