"""Traces of a machine in a file: its paths, and the package registries that it is set up to use.

The hosts are read from the configuration of pip, uv and Go on this machine, so no file has to name them. The default
addresses of these tools say nothing about a machine.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

HOMES = re.compile(r"(?<![\w.~$}])/(?:home/\w+|Users/\w+|root)/[\w.]")
ADDRESS = re.compile(r"https?://[^\s,|'\"]+")
FEWEST_PARTS = 3
"""A path of at least three parts (`/` counts) tells one machine from another. `/app` does not."""


def traces(text: str, hosts: Iterable[str], paths: Iterable[str]) -> list[str]:
    """Parts of the text that name a machine: home folders, the given paths, the given hosts."""
    named = [found[0] for found in HOMES.finditer(text)]
    named += [path for path in paths if re.search(rf"{re.escape(path)}(?![\w-])", text)]
    return named + [host for host in hosts if host in text]


def configured_hosts() -> set[str]:
    commands = [[sys.executable, "-m", "pip", "config", "list"]]
    if shutil.which("go"):
        commands.append(["go", "env", "GOPROXY", "GONOSUMDB", "GOSUMDB"])
    settings = "\n".join(subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in commands)
    settings += "\n".join(
        setting for name, setting in os.environ.items() if name.startswith(("PIP_", "UV_", "GOPROXY", "GOSUMDB"))
    )
    return hosts_of(settings)


def hosts_of(configuration: str) -> set[str]:
    hosts = {urlsplit(address).hostname for address in ADDRESS.findall(configuration)}
    return {host for host in hosts if host} - {"localhost", "127.0.0.1"}


def own_paths(root: Path) -> set[str]:
    """The paths of the checkout, the home folder and this Python."""
    places = {root, Path.home(), Path(sys.base_prefix)}
    return {str(place) for place in places if len(place.parts) >= FEWEST_PARTS and not str(place).startswith("/usr")}
