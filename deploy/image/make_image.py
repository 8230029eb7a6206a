"""Builds both images with docker or buildah, as OCI archives. Puts what they are made of beside them. See `make image`.

build/image/dispatcher-VERSION.tar          the image of our programs
build/image/dispatcher-VERSION/             its sbom.spdx.json and the licences of all that it contains
build/image/dispatcher-exec-VERSION.tar     the image that copies `dispatcher exec`; likewise
"""

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
NAMES: Final = {"run": "dispatcher", "exec": "dispatcher-exec"}
BESIDE: Final = ("dispatcher/sbom.spdx.json", "dispatcher/licences/")


class Commit(NamedTuple):
    """What is built.

    revision: the commit, with `-changed` behind it if files differ from it.
    seconds: time of the commit, since 1970. All files of the image have this time.
    """

    version: str
    revision: str
    seconds: str


def main(words: list[str]) -> None:
    asked = parser().parse_args(words)
    of = commit(asked.revision)
    for target in asked.target or NAMES:
        archive = asked.to / f"{NAMES[target]}-{of.version}.tar"
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.unlink(missing_ok=True)
        build(asked, target, of, archive)
        put_beside(archive)
        print(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB")


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--to", type=Path, default=ROOT / "build" / "image", help="folder for the archives")
    found.add_argument("--base", help="image with Python and Debian's tools, instead of that of the Dockerfile")
    found.add_argument("--target", choices=NAMES, action="append", help="one image alone")
    found.add_argument("--platform", help="such as linux/arm64")
    found.add_argument("--pip-conf", type=Path, help="settings of pip for the build")
    found.add_argument("--ca", type=Path, help="certificates that the build trusts")
    found.add_argument("--revision", help="the commit, where git cannot tell it; needs SOURCE_DATE_EPOCH, too")
    found.add_argument("builder", nargs=argparse.REMAINDER, help="-- and options for the builder")
    return found


def commit(revision: str | None) -> Commit:
    (version,) = re.findall(r'^__version__ = "(.+)"$', (ROOT / "dispatcher" / "__init__.py").read_text(), re.MULTILINE)
    if revision and "SOURCE_DATE_EPOCH" in os.environ:
        return Commit(version, revision, os.environ["SOURCE_DATE_EPOCH"])
    if (told := git("log", "-1", "--format=%H %ct")) is None:
        sys.exit("git cannot tell the commit here: name it by --revision, and its time by SOURCE_DATE_EPOCH")
    named, seconds = told.split()
    changed = "-changed" if git("status", "--porcelain") else ""
    return Commit(version, f"{named}{changed}", seconds)


def git(*words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout


def build(asked: argparse.Namespace, target: str, of: Commit, archive: Path) -> None:
    arguments = {"VERSION": of.version, "REVISION": of.revision} | ({"BASE": asked.base} if asked.base else {})
    secrets = {"pip": asked.pip_conf, "ca": asked.ca}
    options = [
        *("--file", str(ROOT / "deploy" / "image" / "Dockerfile"), "--target", target),
        *pairs("--build-arg", arguments),
        *(f"--secret=id={name},src={path}" for name, path in secrets.items() if path),
        *([f"--platform={asked.platform}"] if asked.platform else []),
        *[word for word in asked.builder if word != "--"],
    ]
    name = f"{NAMES[target]}:{of.version}"
    for command in commands(options, name, of, archive):
        done = subprocess.run(command, cwd=ROOT, check=False)
        if done.returncode:
            sys.exit(f"`{command[0]} {command[1]}` ended with {done.returncode}")


def pairs(option: str, values: Mapping[str, str]) -> Iterator[str]:
    for name, value in values.items():
        yield from (option, f"{name}={value}")


def commands(options: list[str], name: str, of: Commit, archive: Path) -> list[list[str]]:
    """The commands of the builder that is there. Docker is asked for its engine, because it may be a client alone."""
    if (
        shutil.which("docker")
        and not subprocess.run(["docker", "version"], capture_output=True, check=False).returncode
    ):
        output = f"type=oci,dest={archive},name={name},rewrite-timestamp=true"
        time = f"SOURCE_DATE_EPOCH={of.seconds}"
        plain = ("--provenance=false", "--sbom=false")  # both would name the time and the machine of the build
        return [["docker", "buildx", "build", *options, *plain, "--build-arg", time, "--output", output, "."]]
    if shutil.which("buildah"):
        made = ["buildah", "build", *options, f"--timestamp={of.seconds}", f"--tag={name}", "."]
        return [made, ["buildah", "push", "--quiet", f"localhost/{name}", f"oci-archive:{archive}:{name}"]]
    sys.exit("neither a Docker engine nor buildah is here: install one of them (Debian: apt-get install buildah)")


def put_beside(archive: Path) -> None:
    """Writes the list of packages and the licences of the image into a folder with the archive's name."""
    folder = archive.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    for layer in layers(archive):
        for member in layer:
            if member.isfile() and member.name.startswith(BESIDE):
                path = folder / Path(member.name).relative_to("dispatcher")
                path.parent.mkdir(parents=True, exist_ok=True)
                content = layer.extractfile(member)
                assert content is not None
                path.write_bytes(content.read())


def layers(archive: Path) -> Iterator[tarfile.TarFile]:
    with tarfile.open(archive) as image:

        def blob(digest: str) -> bytes:
            content = image.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert content is not None
            return content.read()

        index = image.extractfile("index.json")
        assert index is not None
        manifest = json.loads(index.read())
        while "manifests" in manifest:  # some builders put one index into another
            manifest = json.loads(blob(manifest["manifests"][0]["digest"]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(blob(layer["digest"]))) as opened:
                yield opened


if __name__ == "__main__":
    main(sys.argv[1:])
