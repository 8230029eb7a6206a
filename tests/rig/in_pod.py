"""`python -m tests.rig.in_pod run`: `dispatcher run` with the login of a Pod.

Kubernetes mounts the account's files at a fixed path. Tests must not write there, so `ACCOUNT_FOLDER` names another
folder. `quick run` and `janitor` in place of `run` have the pauses of `tests.rig.quick`. Everything else is as it is.
"""

import os
import sys
from pathlib import Path

from dispatcher.app import OWN_PACE, App, RunPace
from dispatcher.commands.options import load_settings, turn
from dispatcher.janitor import janitor
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import in_cluster
from dispatcher.runtime.rounds import stop_on_signals
from dispatcher.settings.definition import Settings
from tests.controlplane.cluster import ControlPlane
from tests.rig.quick import QUICK, QUICK_JANITOR, starts_early


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


async def run(settings: Settings, account: Path, pace: RunPace) -> None:
    client = client_of(account)
    app = App(settings, client, pace=pace)
    try:
        await app.run(stop_on_signals())
    finally:
        await app.close()
        await client.close()


async def run_janitor(settings: Settings, account: Path) -> None:
    client = client_of(account)
    made = janitor.Janitor(settings, client, pace=QUICK_JANITOR)
    try:
        await janitor.serve(made, client, settings, stop_on_signals())
    finally:
        await made.close()
        await client.close()


def main() -> None:
    settings, account = load_settings().settings, Path(os.environ["ACCOUNT_FOLDER"])
    if "janitor" in sys.argv:
        turn(run_janitor(settings, account))
    elif "quick" in sys.argv:
        turn(run(starts_early(settings), account, QUICK))
    else:
        turn(run(settings, account, OWN_PACE))


if __name__ == "__main__":
    main()
