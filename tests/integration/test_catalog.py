"""Templates that cannot be read for a moment: what was read before stays, and whose turn it is follows the fault."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.templates import Template
from dispatcher.model.launches import Offer
from dispatcher.model.reasons import Turn, advice_of
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.settings.definition import JobSettings
from tests.rig.builders import NOT_PLACED, a_kind

GOOD = """
apiVersion: batch/v1
kind: Job
spec: {template: {spec: {containers: [{name: task, image: "x:1"}]}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "default.yaml").write_text(GOOD)
    (tmp_path / "other.yaml").write_text(GOOD)
    return tmp_path


@pytest.fixture
def not_root() -> Iterator[None]:
    """Root reads every file, so it is somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def catalog_of(folder: Path) -> Catalog:
    catalog = Catalog(JobSettings(templates_dir=str(folder)), frozenset(), NOT_PLACED)
    catalog.refresh()
    return catalog


def test_folder_that_is_away_leaves_the_templates_and_is_told(folder: Path) -> None:
    catalog = catalog_of(folder)
    folder.rename(folder.with_name("away"))
    assert catalog.refresh() is False
    assert (sorted(catalog.templates), "TEMPLATES_DIR" in catalog.fault) == (["default", "other"], True)
    assert isinstance(catalog.offer(a_kind(digest=b"1", template="default")), Offer)
    held = catalog.offer(a_kind(digest=b"2", template="newer"))
    assert isinstance(held, Hold)
    assert (held.reason, advice_of(held).whose_turn) == (HoldReason.UNKNOWN_TEMPLATE, Turn.OPERATOR)
    folder.with_name("away").rename(folder)
    catalog.refresh()
    held = catalog.offer(a_kind(digest=b"2", template="newer"))
    assert isinstance(held, Hold)
    assert (catalog.fault, advice_of(held).whose_turn) == ("", Turn.SUBMITTER)


def test_file_whose_name_is_no_text_is_a_faulty_template_that_can_be_told(folder: Path) -> None:
    """A name in Latin-1 from another disk. It ended a cycle, and each round that writes the table of templates."""
    (folder / os.fsdecode(b"t\xe2che.yaml")).write_text(GOOD)
    catalog = catalog_of(folder)
    assert [isinstance(one, Template) for _, one in sorted(catalog.templates.items())] == [True, True, False]
    held = catalog.offer(a_kind(template="none"))
    assert isinstance(held, Hold)
    msgspec.json.encode((held.detail, catalog.offered()))


def test_folder_that_was_never_there_is_the_operators(tmp_path: Path) -> None:
    held = catalog_of(tmp_path / "none").offer(a_kind())
    assert isinstance(held, Hold)
    assert "No such file" in held.detail
    assert advice_of(held).whose_turn is Turn.OPERATOR


def test_file_that_cannot_be_read_is_read_again_without_a_touch(folder: Path, not_root: None) -> None:
    os.seteuid(os.getuid())
    for path in (folder, *folder.parents[:3]):
        path.chmod(0o755)
    (folder / "default.yaml").chmod(0)
    (folder / "other.yaml").chmod(0o644)
    stamp = (folder / "default.yaml").stat().st_mtime_ns
    os.seteuid(65534 if os.getuid() == 0 else os.getuid())
    catalog = catalog_of(folder)
    held = catalog.offer(a_kind(template="default"))
    assert isinstance(held, Hold)
    assert (held.reason, advice_of(held).whose_turn) == (HoldReason.INVALID_TEMPLATE, Turn.OPERATOR)
    assert isinstance(catalog.templates["other"], Template)
    os.seteuid(os.getuid())
    (folder / "default.yaml").chmod(0o644)
    assert (folder / "default.yaml").stat().st_mtime_ns == stamp
    assert catalog.refresh()
    assert isinstance(catalog.templates["default"], Template)
    (folder / "default.yaml").chmod(0)
    os.seteuid(65534 if os.getuid() == 0 else os.getuid())
    (folder / "other.yaml").parent.stat()
    assert isinstance(catalog.templates["default"], Template)
    assert catalog.refresh() is False


def test_file_of_another_encoding_is_told_in_plain_words(folder: Path) -> None:
    """PowerShell writes UTF-16. The reason of the rows had the words of Python's codec, and not the template's name."""
    (folder / "wide.yaml").write_bytes(GOOD.encode("utf-16"))
    assert catalog_of(folder).templates["wide"] == "template wide: no UTF-8 text: byte 0xff"


def test_file_that_is_nearly_named_as_a_template_is_a_faulty_one(folder: Path) -> None:
    """Its rows ran `default` of the image, or were told that nobody knows the template."""
    for name in ("nightly.yml", "load.YAML", "other.yml", "notes.md", "old.yaml.bak"):
        (folder / name).write_text(GOOD)
    templates = catalog_of(folder).templates
    assert isinstance(templates["other"], Template)
    assert {name: one for name, one in templates.items() if isinstance(one, str)} == {
        name: f"template {name}: the file's name is '{name}.{suffix}': the dispatcher reads NAME.yaml alone"
        for name, suffix in (("nightly", "yml"), ("load", "YAML"))
    }
