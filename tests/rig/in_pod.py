"""`python -m tests.rig.in_pod run`: `dispatcher run` with the login of a Pod.

Kubernetes mounts the account's files at a fixed path. Tests must not write there, so `ACCOUNT_FOLDER` names another
folder. `python -m tests.rig.in_pod quick` has the pauses of `tests.rig.quick_dispatcher`.
`python -m tests.rig.in_pod janitor` is the janitor with the pauses of `tests.rig.quick_janitor`. Everything else is the
program.
"""

import os
import sys
from pathlib import Path

from dispatcher.app import App
from dispatcher.commands.options import load_settings, turn
from dispatcher.janitor import janitor
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import in_cluster
from dispatcher.runtime.rounds import stop_on_signals
from dispatcher.settings.definition import Settings
from tests.controlplane.cluster import ControlPlane
from tests.rig import quick_janitor
from tests.rig.quick_dispatcher import shorten


def write_account(folder: Path, plane: ControlPlane, *, token: str, namespace: str) -> dict[str, str]:
    """Writes the files of a ServiceAccount of that namespace, and returns the variables of its Pod."""
    assert plane.ca_file is not None
    files = {"token": token, "namespace": namespace, "ca.crt": plane.ca_file.read_text()}
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    host, _, port = plane.url.removeprefix("https://").partition(":")
    return {"ACCOUNT_FOLDER": str(folder), "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


def client_of(account: Path) -> KubeClient:
    login = in_cluster(account)
    assert login is not None, "the variables of a Pod are missing"
    return KubeClient(login)


async def run(settings: Settings, account: Path) -> None:
    client = client_of(account)
    app = App(settings, client)
    try:
        await app.run(stop_on_signals())
    finally:
        await app.close()
        await client.close()


async def run_janitor(settings: Settings, account: Path) -> None:
    client = client_of(account)
    quick_janitor.shorten()
    made = janitor.Janitor(settings, client)
    try:
        await janitor.serve(made, client, settings, stop_on_signals())
    finally:
        await made.close()
        await client.close()


if __name__ == "__main__":
    if "quick" in sys.argv:
        shorten()
    program = run_janitor if "janitor" in sys.argv else run
    turn(program(load_settings().settings, Path(os.environ["ACCOUNT_FOLDER"])))
