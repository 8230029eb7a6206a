"""A kubelet whose clock is five minutes ahead: the kubelet of the tests, linked with another `runtime` of Go.

A kubelet is one static program, so neither a library nor a namespace can change its clock. Of Go's runtime only the
function that asks for the time is changed. Each other package is the one that the normal kubelet was linked from, out
of Go's build cache: an overlay for all packages would compile them all. containerd and the containers keep the clock of
the machine.

    python -m tests.node.ahead     builds it and prints its path (half a minute after the build of the kubelet)
"""

import json
import platform
import re
import sys
from pathlib import Path
from typing import Final

from tests.controlplane.binaries import KUBELET, BuildFault, compiler_flags, linker_flags, run_go, toolchain
from tests.node.cache import cached, digest_of

AHEAD_SECONDS: Final = 300
NAME: Final = "kubelet-ahead"
PACKAGE: Final = KUBELET.packages["kubelet"]
MACHINE: Final = "x86_64"
SOURCE: Final = "src/runtime/time_linux_amd64.s"
CLOCK_IS_READ: Final = re.compile(r"^\tMOVQ\t16\(SP\), AX\b.*\n", re.MULTILINE)
"""The instruction of `time.now` that loads the seconds of the wall clock."""
ARCHIVES: Final = "{{if .Export}}{{.ImportPath}}={{.Export}}{{end}}"


def why_not_here() -> str | None:
    """Why this machine has no such kubelet. None: it has."""
    if platform.machine() == MACHINE:
        return None
    return f"the clock of Go's runtime is changed in {SOURCE}, and this machine is {platform.machine()}, not {MACHINE}"


def kubelet_ahead() -> Path:
    """The program. Builds it if it is missing."""
    _, version = toolchain()
    parts = [(KUBELET.folder / name).read_bytes() for name in ("go.mod", "go.sum")]
    return cached(NAME, digest_of((version, *parts, Path(__file__).read_bytes())), link) / NAME


def link(folder: Path) -> None:
    """Links the program into the folder."""
    packages = dict(line.split("=", 1) for line in exported("-deps", f"-f={ARCHIVES}", PACKAGE).split())
    packages["runtime"] = exported("-overlay", str(write_overlay(folder)), "-f={{.Export}}", "runtime").strip()
    listed = folder / "packages"
    listed.write_text("".join(f"packagefile {name}={archive}\n" for name, archive in packages.items()))
    words = ["-importcfg", str(listed), *linker_flags(KUBELET), "-o", str(folder / NAME)]
    go("tool", "link", *words, packages[PACKAGE])


def write_overlay(folder: Path) -> Path:
    """A file that tells Go to read another source of its clock."""
    original = Path(go("env", "GOROOT").strip()) / SOURCE
    text, changed = CLOCK_IS_READ.subn(rf"\g<0>\tADDQ\t${AHEAD_SECONDS}, AX\n", original.read_text())
    if changed != 1:
        raise BuildFault(f"{original} reads the clock in {changed} places that this file knows, not in one")
    (folder / "time.s").write_text(text)
    overlay = folder / "overlay.json"
    overlay.write_text(json.dumps({"Replace": {str(original): str(folder / "time.s")}}))
    return overlay


def exported(*words: str) -> str:
    """What `go list` tells of compiled packages. With the flags of the normal build it finds them in the cache."""
    return go("list", "-export", *compiler_flags(KUBELET), *words)


def go(*words: str) -> str:
    """The output of Go in the module of the kubelet."""
    done = run_go(toolchain()[0], words, KUBELET.folder)
    if done.returncode:
        raise BuildFault(f"`go {words[0]}` for {NAME} failed:\n{done.stderr[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    if reason := why_not_here():
        sys.exit(reason)
    try:
        sys.stdout.write(f"{kubelet_ahead()}\n")
    except BuildFault as fault:
        sys.exit(str(fault))
