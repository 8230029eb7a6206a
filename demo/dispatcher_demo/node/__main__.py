"""`python -m dispatcher_demo.node`: makes this machine a node of the cluster that a kubeconfig names."""

import asyncio
import os
from pathlib import Path

import click

from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.runtime.logs import configure_logs
from dispatcher.runtime.rounds import stop_on_signals
from dispatcher.settings.definition import KubeSettings
from dispatcher_demo.node.kubelet import Kubelet
from dispatcher_demo.node.node import LocalNode

FOLDER = click.Path(path_type=Path, resolve_path=True)
OWN_FILES = 0o077
"""The umask of the kubelet and of its containers."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--name", required=True, help="Name of the node. No other program may keep a node of this name.")
@click.option("--folder", required=True, type=FOLDER, help="Folder for the node's disk and state.")
@click.option("--kubeconfig", help="Cluster of the node. Default: kubectl's choice.")
@click.option("--cpu", default="8", show_default=True)
@click.option("--memory", default="32Gi", show_default=True)
@click.option("--pods", default=110, show_default=True)
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE")
def main(name: str, folder: Path, kubeconfig: str | None, labels: tuple[str, ...], **size: object) -> None:
    """Run the Pods bound to a node as processes of this machine: no images, no namespaces, no limits, no isolation."""
    configure_logs("info")
    os.umask(OWN_FILES)
    close_folder(folder)
    capacity = {resource: str(amount) for resource, amount in size.items()}
    asyncio.run(
        keep(KubeSettings(kubeconfig=kubeconfig), name, folder, (capacity, dict(pair.split("=", 1) for pair in labels)))
    )


def close_folder(folder: Path) -> None:
    """Makes the folder for this account alone. BadParameter: it exists, and another account owns it or may enter it."""
    folder.mkdir(parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_mode & OWN_FILES or about.st_uid != os.geteuid():
        fault = f"{folder} is of account {about.st_uid} with mode {about.st_mode & 0o7777:04o}"
        rule = "it holds what Pods get, Secrets too, so it must be yours with mode 0700, or not exist yet"
        raise click.BadParameter(f"{fault}. {rule}", param_hint="--folder")


async def keep(kube: KubeSettings, name: str, folder: Path, node: tuple[dict[str, str], dict[str, str]]) -> None:
    """Runs the node until SIGTERM. Its containers go on."""
    stop = stop_on_signals()
    client = KubeClient(await log_in(kube))
    running = asyncio.create_task(Kubelet(client, LocalNode(client, name, *node), name, folder).run())
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        await asyncio.gather(running, return_exceptions=not running.done())
    finally:
        await client.close()


if __name__ == "__main__":
    main()
