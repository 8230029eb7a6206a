"""The commands for a cluster on the pages name folders and objects that the chart has.

Most of them do not run here. helm renders what they install, so no cluster is needed. `test_runbook_commands` runs
those of the runbooks.
"""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.house.tree import ROOT
from tests.rig.deployed import helm, rendered
from tests.rig.pages import INSTALL, TUTORIAL, blocks_of, lines_for_a_cluster, read_page

LINES = list(lines_for_a_cluster())
COMMANDS = sorted({line for line in LINES if "kubectl " in line})
RELEASES = sorted({line for line in LINES if re.match("helm (install|upgrade) ", line)})
NAMED = re.compile(r"(deployment|job|service|configmap)/([a-z-]+)")


def installed() -> set[tuple[str, str, str]]:
    """Kind, name and namespace of every object. An object of the whole cluster has no namespace."""
    objects = (*rendered(), *rendered("everything"))
    return {(one["kind"].lower(), one["metadata"]["name"], one["metadata"].get("namespace", "")) for one in objects}


def namespace_of(words: list[str]) -> str:
    return words[words.index("-n") + 1] if "-n" in words else ""


@pytest.mark.parametrize("command", COMMANDS)
def test_command_names_what_is_installed(command: str) -> None:
    words = shlex.split(command, comments=True)
    named = {(*found.groups(), namespace_of(words)) for word in words if (found := NAMED.fullmatch(word))}
    roles = {("clusterrole", name, "") for name in re.findall(r"--clusterrole=(\S+)", command)}
    assert named | roles <= installed()
    files = [word for word in words if re.fullmatch(r"deploy/\S+\.\w+", word)]
    assert [word for word in files if not (ROOT / word).exists()] == []


@pytest.mark.parametrize("command", RELEASES)
def test_release_of_the_page_renders(command: str, tmp_path: Path) -> None:
    """With the values of the page of installation, which are also those that a release has before."""
    words = shlex.split(command, comments=True)
    assert words[2:6] == ["dispatcher", "deploy/chart", "-n", "dispatcher"]
    (page,) = [block.text for block in blocks_of(INSTALL, read_page(INSTALL)) if "values.yaml" in block.text[:20]]
    options = ["-" if word == "values.yaml" else word for word in words[6:]]
    if "--reuse-values" in options:
        options[options.index("--reuse-values")] = "--values=-"
    done = helm(
        "template", "dispatcher", ROOT / "deploy" / "chart", "-n", "dispatcher", *saved(options, tmp_path), stdin=page
    )
    assert done.returncode == 0, done.stderr
    made = [one for one in yaml.safe_load_all(done.stdout) if one and one["metadata"]["name"] == "dispatcher-templates"]
    assert ["report.yaml" in one.get("data", ()) for one in made] == ["--set-file" in options]


def saved(options: list[str], folder: Path) -> list[str]:
    """The options, with the tutorial's template as the file that they name."""
    (template,) = [block.text for block in blocks_of(TUTORIAL, read_page(TUTORIAL)) if block.language == "yaml"]
    file = folder / "report.yaml"
    file.write_text(template, encoding="utf-8")
    return [re.sub(r"(?<==)report\.yaml$", str(file), option) for option in options]


def test_namespaces_of_the_page_are_those_of_the_release() -> None:
    made = {words[3] for line in LINES if (words := line.split())[:3] == ["kubectl", "create", "namespace"]}
    assert made == {one["metadata"].get("namespace", "dispatcher") for one in rendered()}
