"""A container registry for the nodes, with the images of the project and two of busybox."""

import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dispatcher import __version__
from tests.controlplane.binaries import CONTROL_PLANE, CRANE, programs
from tests.controlplane.processes import Server
from tests.node.images import images
from tests.node.oci import Image
from tests.node.place import REGISTRY
from tests.node.versions import LAST, MIGRATIONS, baseline, layer_of, reference

BUSYBOX: Final = "/bin/busybox"
TOOLS: Final = ("sh", "sleep", "cat", "true", "false", "echo", "kill", "test", "touch", "ls", "id")
DISPATCHER: Final = f"{REGISTRY}/dispatcher:{__version__}"
EXEC: Final = f"{REGISTRY}/dispatcher-exec:1"
TASK: Final = f"{REGISTRY}/task:1"
SCHEDULER: Final = f"{REGISTRY}/kube-scheduler:1"
PYTHON_TASK: Final = f"{REGISTRY}/python-task:1"
PROGRAM: Final = Path(__file__).parent / "task_program.py"


def add_scheduler(archive: tarfile.TarFile) -> None:
    """The kube-scheduler that the tests built: a program without libraries."""
    archive.add(programs(CONTROL_PLANE)["kube-scheduler"], "usr/local/bin/kube-scheduler")


class Registry:
    """`crane registry serve`, with its files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "registry"
        self._folder.mkdir()
        self._crane = str(programs(CRANE)["crane"])
        command = [self._crane, "registry", "serve", "--address", REGISTRY, "--disk", str(self._folder)]
        self.server = Server("registry", command, self._folder / "log")

    def start(self) -> None:
        self.server.start()

    def answers(self) -> bool:
        asked = [self._crane, "catalog", "--insecure", REGISTRY]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    def fill(self) -> None:
        """Pushes all images."""
        made = images()
        self._run("push", made / "dispatcher", DISPATCHER)
        self._run("push", made / "dispatcher-exec", EXEC)
        self._push_busybox("pause", "1", ["/bin/sleep", "1000000000"])
        self._push_busybox("task", "1", ["/bin/sh"], PROGRAM)
        self._append("kube-scheduler", SCHEDULER, add_scheduler)
        self._append(
            "python-task", PYTHON_TASK, lambda archive: archive.add(PROGRAM, PROGRAM.name), "--base", DISPATCHER
        )

    def push_versions(self) -> None:
        """Pushes the last release and the versions to come."""
        self._run("push", baseline() / "image", reference(LAST))
        for version, migrations in MIGRATIONS.items():
            layer = self._folder / f"{version}.tar"
            layer.write_bytes(layer_of(migrations))
            self._run("append", "--base", DISPATCHER, "--new_layer", layer, "--new_tag", reference(version))

    def _push_busybox(self, name: str, tag: str, entry: list[str], *files: Path) -> None:
        """An image of busybox and these files, which stand in its root folder."""
        reference = f"{REGISTRY}/{name}:{tag}"

        def write(archive: tarfile.TarFile) -> None:
            archive.add(BUSYBOX, "bin/busybox")
            for tool in TOOLS:
                link = tarfile.TarInfo(f"bin/{tool}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
            for file in files:
                archive.add(file, file.name)

        self._append(name, reference, write)
        self._run(
            "mutate",
            reference,
            "--tag",
            reference,
            "--set-platform",
            Image(images() / "dispatcher").platform,
            f"--entrypoint={','.join(entry)}",
        )

    def _append(self, name: str, reference: str, write: Callable[[tarfile.TarFile], None], *options: str) -> None:
        """Pushes an image with one more layer."""
        layer = self._folder / f"{name}.tar"
        with tarfile.open(layer, "w") as archive:
            write(archive)
        self._run("append", *options, "--new_layer", layer, "--new_tag", reference)

    def _run(self, *words: object) -> str:
        command = [self._crane, *map(str, words), "--insecure"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout
