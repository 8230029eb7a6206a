"""A Pod of the image on a real kubelet, with as few rights as a Pod can have."""

import json
import secrets
from typing import Any

import pytest

from dispatcher.cli import commands
from tests.controlplane.api import Json
from tests.node.book import Book
from tests.node.node import LABEL
from tests.node.registry import DISPATCHER
from tests.node.site import Site

PROGRAMS = sorted(commands.commands)
MOST_SECONDS = 0.3  # of a processor, so that other programs of the machine do not count
MOST_SECONDS_OF_EXEC = 0.15  # it starts once for each task
SCRIPT = """
import json, os, resource, subprocess, sys, time
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
told = {"status": {name: status[name] for name in ("Uid", "CapEff", "CapBnd", "Seccomp", "NoNewPrivs")}}

def help_of(*words):
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(["/dispatcher/bin/dispatcher", *words, "--help"], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [done.returncode, took, (done.stdout + done.stderr)[:200], time.monotonic() - began]

told["programs"] = {name: help_of(name) for name in sys.argv[1:]}
helps = [help_of() for _ in range(5)]
told["quickest"], told["wall"] = min(one[1] for one in helps), min(one[3] for one in helps)
told["quickest_exec"] = min(help_of("exec")[1] for _ in range(5))
written = []
for top in ("/", "/dispatcher", "/etc", "/dispatcher/lib"):
    try:
        open(os.path.join(top, "x"), "w")
        written.append(top)
    except OSError:
        pass
told["written"] = written
print(json.dumps(told))
"""
STRICT = {
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module")
async def told(site: Site) -> dict[str, Any]:
    """Findings of a script in a container of the image."""
    found: dict[str, Any] = json.loads(await output(site, pod(SCRIPT, *PROGRAMS)))
    return found


def pod(script: str, *words: str) -> Json:
    container = {
        "name": "told",
        "image": DISPATCHER,
        "command": ["/dispatcher/bin/python3", "-I", "-c", script, *words],
        "securityContext": STRICT,
    }
    spec = {"containers": [container], "restartPolicy": "Never", "nodeSelector": {LABEL: "true"}}
    return {
        "metadata": {"name": f"told-{secrets.token_hex(3)}"},
        "spec": spec | {"automountServiceAccountToken": False},
    }


async def output(site: Site, body: Json) -> str:
    """Runs the Pod to its end. Returns what it printed."""
    path = "/api/v1/namespaces/default/pods"
    name = (await site.plane.admin("POST", path, body))["metadata"]["name"]

    async def is_over() -> Json | None:
        site.check()
        found = await site.plane.admin("GET", f"{path}/{name}")
        return found if found["status"].get("phase") in {"Succeeded", "Failed"} else None

    over = await site.plane.wait_for(is_over, f"the end of Pod {name}", 60)
    log = await site.plane.admin("GET", f"{path}/{name}/log")
    assert over is not None
    assert over["status"]["phase"] == "Succeeded", (over["status"], log)
    await site.plane.remove(f"{path}/{name}")
    return json.dumps(log) if "message" not in log else str(log["message"])


async def test_container_has_no_capability_and_is_confined(told: dict[str, Any]) -> None:
    assert told["status"] == {
        "Uid": "\t".join(["65532"] * 4),
        "CapEff": "0" * 16,
        "CapBnd": "0" * 16,
        "Seccomp": "2",  # a filter
        "NoNewPrivs": "1",
    }


async def test_every_program_starts_on_a_read_only_root(told: dict[str, Any]) -> None:
    assert told["written"] == []
    wrong = {name: one for name, one in told["programs"].items() if one[0] != 0 or "sage: dispatcher" not in one[2]}
    assert wrong == {}


async def test_help_takes_at_most_three_tenths_of_a_second(told: dict[str, Any], book: Book) -> None:
    book.note("dispatcher --help", f"{told['quickest']:.2f} s of a processor, {told['wall']:.2f} s in all")
    book.note("dispatcher exec --help", f"{told['quickest_exec']:.2f} s of a processor")
    assert told["quickest"] <= MOST_SECONDS
    assert told["quickest_exec"] <= MOST_SECONDS_OF_EXEC
