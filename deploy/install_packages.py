"""Installs packages into the environment of this Python, by uv, from the registries that pip is configured for.

    .venv/bin/python deploy/install_packages.py --require-hashes -r requirements.lock

The arguments are those of `pip install`, as far as uv knows them, too.

uv is several times as fast as pip, but reads no configuration of pip. Here it gets the same settings by variables: an
argument could show a password to other accounts. Variables of uv that are set already stay. Where there is no uv for
this machine, or uv fails, pip itself installs. This file needs nothing but the standard library.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PIP = [sys.executable, "-m", "pip"]
UV = Path(sys.executable).with_name("uv")
ONE_VALUE = {
    "index-url": "UV_DEFAULT_INDEX", "no-index": "UV_NO_INDEX", "cert": "SSL_CERT_FILE", "proxy": "ALL_PROXY",
    "default-timeout": "UV_HTTP_TIMEOUT", "timeout": "UV_HTTP_TIMEOUT",
}  # fmt: skip
"""Settings of pip, and the variable of uv that means the same."""
SEVERAL = {
    "extra-index-url": ("UV_INDEX", " "), "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}  # fmt: skip
"""The same for settings with several values, with the separator of uv."""
BEST_OF_ALL = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
"""pip takes a package from any index. The hashes of the lock say which files are the right ones."""


def main(arguments: Sequence[str]) -> int:
    """The exit status of the installation."""
    if UV.exists():
        if install_by_uv(arguments) == 0:
            return 0
        sys.stderr.write("uv could not install the packages: pip tries now\n")
    return subprocess.run([*PIP, "install", "--quiet", *arguments], check=False).returncode


def install_by_uv(arguments: Sequence[str]) -> int:
    told = subprocess.run([*PIP, "config", "list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    command = [str(UV), "pip", "install", "--quiet", "--python", sys.executable, *arguments]
    env = {**BEST_OF_ALL, **uv_settings(told), **os.environ}
    return subprocess.run(command, env=env, check=False).returncode


def uv_settings(told: str) -> dict[str, str]:
    """Variables for uv. `told`: the output of `pip config list`, where later lines win."""
    known = dict(map(setting, filter(None, told.splitlines())))
    settings = {ONE_VALUE[name]: value for name, value in known.items() if name in ONE_VALUE}
    for name, (variable, separator) in SEVERAL.items():
        if values := [one for one in known.get(name, "").split() if is_there(one)]:
            settings[variable] = separator.join(values)
    return settings


def setting(line: str) -> tuple[str, str]:
    """A line like `global.index-url='https://…'` or `:env:.find-links='/wheels'`, without its section."""
    name, _, value = line.partition("=")
    return name.rpartition(".")[2], str(ast.literal_eval(value))


def is_there(place: str) -> bool:
    """Whether uv takes it. It refuses a folder that does not exist; pip passes over it."""
    return not place.startswith("/") or Path(place).is_dir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
