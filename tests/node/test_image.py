"""Both images as the builder left them: small, the same each time, and with nothing that no program needs."""

import json
import stat

import pytest

from deploy.image.make_image import NAMES
from dispatcher import __version__
from tests.node.book import Book
from tests.node.images import AGAIN, REVISION, images
from tests.node.oci import Image

MOST_BYTES = 40 * 2**20
FOREIGN = ("sh", "bash", "dash", "busybox", "pip", "pip3", "apt", "apt-get", "dpkg", "gcc", "cc", "ld", "perl")
OUTSIDE = {"etc", "etc/passwd", "etc/ssl", "etc/ssl/certs", "etc/ssl/certs/ca-certificates.crt"}
LABELS = {
    "org.opencontainers.image.licenses": "Apache-2.0",
    "org.opencontainers.image.revision": REVISION,
    "org.opencontainers.image.title": "dispatcher",
    "org.opencontainers.image.version": __version__,
}


@pytest.fixture(scope="module", params=NAMES.values())
def image(request: pytest.FixtureRequest) -> Image:
    return Image(images() / request.param)


@pytest.fixture(scope="module")
def run_image() -> Image:
    return Image(images() / "dispatcher")


def test_image_is_at_most_40_mib_compressed(image: Image, book: Book) -> None:
    name = image.config["config"].get("Labels", {}).get("org.opencontainers.image.title", "dispatcher-exec")
    book.note(f"image {name}, compressed", f"{image.size / 2**20:.1f} MiB")
    assert image.size <= MOST_BYTES


def test_same_source_on_the_same_base_has_the_same_digest() -> None:
    assert Image(images() / AGAIN).digest == Image(images() / "dispatcher").digest


def test_image_runs_as_a_number_without_rights(image: Image) -> None:
    assert image.config["config"]["User"] == "65532:65532"


def test_image_of_our_programs_names_its_source_and_its_program(run_image: Image) -> None:
    config = run_image.config["config"]
    assert config["Entrypoint"] == ["/dispatcher/bin/dispatcher"]
    assert LABELS.items() <= config["Labels"].items()


def test_image_has_no_shell_no_package_manager_and_no_setuid_file(image: Image) -> None:
    members = list(image.members())
    assert members
    assert [one.name for one in members if one.name.rpartition("/")[2] in FOREIGN] == []
    assert [one.name for one in members if one.mode & (stat.S_ISUID | stat.S_ISGID)] == []
    assert [one.name for one in members if not one.issym() and one.mode & stat.S_IWOTH] == []
    assert [one.name for one in members if one.uid or one.gid] == []


def test_image_has_our_folder_and_certificates_alone(image: Image) -> None:
    names = {one.name.strip("/") for one in image.members()}
    assert {name for name in names if name.partition("/")[0] != "dispatcher"} <= OUTSIDE


def test_every_file_has_the_time_of_the_commit(image: Image) -> None:
    assert {one.mtime for one in image.members()} == {0}


def test_list_of_packages_is_in_the_image_and_beside_it(image: Image) -> None:
    assert "dispatcher/sbom.spdx.json" in {one.name for one in image.members()}
    name = "dispatcher" if image.config["config"].get("Labels") else "dispatcher-exec"
    beside = images() / f"{name}-{__version__}"
    packages = json.loads((beside / "sbom.spdx.json").read_text())["packages"]
    assert {"python", "asyncpg", "libc6"} <= {one["name"] for one in packages}
    assert (beside / "licences" / "asyncpg" / "LICENSE").is_file()
