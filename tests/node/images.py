"""Both images of `deploy/image`, built by the Dockerfile with buildah, once for each state of their source.

Invariant: the folder of `images()` has an OCI layout for each image. Its name is a digest of the source, the base image
and this file. The base image is Debian with Python, and is made once: without a registry, FROM has no other source.

    python -m tests.node.images     builds both and prints the folder
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from deploy.image import make_image
from tests.node.cache import cached, digest_of

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ("deploy/image", "dispatcher", "sql", "pyproject.toml", "requirements-run.lock", "LICENSE", "README.md")
"""What .dockerignore lets into the build."""
BASE: Final = "localhost/dispatcher-base:1"
BASE_RECIPE: Final = ("--variant=minbase", "--include=ca-certificates,python3,python3-venv", "bookworm")
BUILDER: Final = ("--isolation", "chroot", "--network", "host", "--pull-never", "--quiet")
REVISION: Final = "0" * 40
"""The revision in the labels. With the real one each commit would build the images anew."""
AGAIN: Final = "dispatcher-again"
"""The image of our programs, built a second time from the same source: a test compares both."""
BUNDLES: Final = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
PIP_KEYS: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")


class BuildFailed(Exception):
    """A program of the build failed. The message has the end of its output."""


def images() -> Path:
    """The folder with the OCI layouts `dispatcher`, `dispatcher-exec` and AGAIN. Builds them if they are missing."""
    return cached("images", digest_of((base().name, Path(__file__).read_bytes(), *source())), make_images)


def source() -> Iterator[bytes | str]:
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *SOURCE)
    for name in sorted(set(listed.split("\0")) - {""}):
        path = ROOT / name
        if path.is_file():
            yield from (name, oct(path.stat().st_mode & 0o111), path.read_bytes())


def base() -> Path:
    """A folder of buildah with the base image alone."""
    return cached("base-image", digest_of((*BASE_RECIPE, platform.machine())), make_base)


def make_base(folder: Path) -> None:
    tree = folder / "base.tar"
    run("mmdebstrap", "--quiet", *BASE_RECIPE, tree, SOURCE_DATE_EPOCH="0")
    environ = storage(folder)
    container = run("buildah", "from", "scratch", **environ).strip()
    run("buildah", "add", "--quiet", container, tree, "/", **environ)
    run("buildah", "commit", "--quiet", "--rm", container, BASE, **environ)
    tree.unlink()


def make_images(folder: Path) -> None:
    for target, name in (*make_image.NAMES.items(), ("run", AGAIN)):
        build(target, folder)
        unpack(folder, name)


def unpack(folder: Path, name: str) -> None:
    """Unpacks the archive in the folder as an OCI layout of this name."""
    (archive,) = folder.glob("*.tar")
    with tarfile.open(archive) as opened:
        opened.extractall(folder / name, filter="data")
    archive.unlink()


def build(target: str, to: Path, source: Path = ROOT) -> None:
    """Builds one image of the checkout `source` as an archive in `to`, with what is beside it."""
    environ = storage(base()) | {"SOURCE_DATE_EPOCH": "0"}
    with tempfile.TemporaryDirectory(prefix="secrets-") as secrets:
        command = [sys.executable, "-m", "deploy.image.make_image", "--to", to, "--base", BASE, "--target", target]
        options = [*certificates(), "--revision", REVISION, "--pip-conf", pip_settings(Path(secrets)), "--", *BUILDER]
        run_in(source, *command, *options, **environ)
    run("buildah", "rmi", "--force", *built(environ), **environ)


def built(environ: Mapping[str, str]) -> list[str]:
    names = run("buildah", "images", "--format", "{{.Name}}:{{.Tag}}", **environ).split()
    return [name for name in names if name != BASE]


def storage(folder: Path) -> dict[str, str]:
    """The variables that make buildah keep everything in this folder."""
    driver = "vfs" if on_overlay(folder) else "overlay"
    text = f'[storage]\ndriver = "{driver}"\ngraphroot = "{folder / "storage"}"\nrunroot = "{folder / "run"}"\n'
    (folder / "storage.conf").write_text(text)
    return {"CONTAINERS_STORAGE_CONF": str(folder / "storage.conf")}


def on_overlay(folder: Path) -> bool:
    """Whether the folder is on an overlay, which cannot be a layer of another one."""
    return run("stat", "--file-system", "--format=%T", folder).strip() == "overlayfs"


def certificates() -> list[str]:
    """The certificates that this machine trusts: a registry inside a company may need them."""
    files = [os.environ.get(name, "") for name in BUNDLES] + ["/etc/ssl/certs/ca-certificates.crt"]
    found = next((file for file in files if Path(file).is_file()), None)
    return ["--ca", found] if found else []


def pip_settings(folder: Path) -> Path:
    """The settings of this machine's pip that say where packages come from."""
    told = run(sys.executable, "-m", "pip", "config", "list")
    pairs = re.findall(r"^\S*?\.([a-z-]+)='(.*)'$", told, re.MULTILINE)
    lines = [f"{key} = {given}" for key, given in pairs if key in PIP_KEYS]
    path = folder / "pip.conf"
    path.write_text("\n".join(["[global]", *lines, ""]))
    return path


def run(*words: object, **environ: str) -> str:
    return run_in(ROOT, *words, **environ)


def run_in(folder: Path, *words: object, **environ: str) -> str:
    """The output of a program. BuildFailed: it failed."""
    done = subprocess.run(
        list(map(str, words)), cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, **environ}
    )
    if done.returncode:
        raise BuildFailed(f"`{' '.join(map(str, words[:3]))} …` ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    if not shutil.which("buildah"):
        sys.exit("buildah is missing: python -m tests.node.packages")
    sys.stdout.write(f"{images()}\n")
