"""The commands for a cluster on the pages name folders and objects that `deploy/` has.

These commands do not run here. kustomize renders what they apply, so no cluster is needed.
"""

import re
import shlex
from functools import cache

import pytest

from tests.controlplane.api import Json
from tests.deployed import rendered
from tests.house.tree import ROOT
from tests.pages import all_blocks

LINES = [line for block in all_blocks() if block.needs_cluster for line in block.text.splitlines()]
COMMANDS = sorted({line for line in LINES if line.startswith("kubectl ")})
NAMED = re.compile(r"(deployment|job|service|configmap)/([a-z-]+)")


@cache
def objects_of(folder: str) -> tuple[Json, ...]:
    return rendered(ROOT / "deploy" / folder)


def installed() -> set[tuple[str, str, str]]:
    """Kind, name and namespace of every object. An object of the whole cluster has no namespace."""
    everything = [one for folder in ("base", "scheduler", "crd", "claims") for one in objects_of(folder)]
    return {(one["kind"].lower(), one["metadata"]["name"], one["metadata"].get("namespace", "")) for one in everything}


def namespace_of(words: list[str]) -> str:
    return words[words.index("-n") + 1] if "-n" in words else ""


@pytest.mark.parametrize("command", COMMANDS)
def test_command_names_what_is_installed(command: str) -> None:
    words = shlex.split(command, comments=True)
    named = {(*found.groups(), namespace_of(words)) for word in words if (found := NAMED.fullmatch(word))}
    roles = {("clusterrole", name, "") for name in re.findall(r"--clusterrole=(\S+)", command)}
    assert named | roles <= installed()


@pytest.mark.parametrize("command", [command for command in COMMANDS if " -k " in command])
def test_command_applies_a_folder_that_renders(command: str) -> None:
    words = shlex.split(command, comments=True)
    assert objects_of(words[words.index("-k") + 1].removeprefix("deploy/"))


def test_command_deletes_only_objects_of_old_versions() -> None:
    (command,) = [command for command in COMMANDS if " delete " in command]
    words = shlex.split(command, comments=True)
    kinds, name = words[-2:]
    assert {(kind, name, namespace_of(words)) for kind in kinds.split(",")}.isdisjoint(installed())
