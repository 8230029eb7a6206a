"""What a release writes, what it refuses, and the settings of pip, as uv gets them."""

import datetime as dt
from pathlib import Path

import pytest

from deploy.install_packages import uv_settings
from deploy.release import ReleaseFault, check_version, released

DAY = dt.date(2026, 12, 1)
CHANGES = "# Changelog\n\n## [Unreleased]\n\n### What you must do\n\nStop it first.\n\n### Added\n\n- A thing.\n"
OLDER = "\n## [0.1.0] - 2026-11-01\n\n- The first.\n"


@pytest.mark.parametrize("older", ["", OLDER])
def test_changes_move_below_their_version(older: str) -> None:
    found = released(CHANGES + older, "0.2.0", DAY)
    now, _, before = found.partition("## [0.2.0] - 2026-12-01\n")
    assert now == "# Changelog\n\n## [Unreleased]\n\n### What you must do\n\nNothing.\n\n"
    assert before == CHANGES.partition("## [Unreleased]\n")[2] + older


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# Changelog\n", "no changes below"),
        (CHANGES.replace("- A thing.", ""), "no changes below"),
        (CHANGES.replace("- A thing.", "") + OLDER, "no changes below"),
        (CHANGES.replace("What you must do", "Notes"), "no part `### What you must do`"),
        (CHANGES.replace("What you must do", "Notes") + OLDER + "### What you must do\n", "no part"),
    ],
)
def test_changelog_without_changes_is_refused(text: str, told: str) -> None:
    with pytest.raises(ReleaseFault, match=told):
        released(text, "0.2.0", DAY)


@pytest.mark.parametrize("version", ["0.1.0", "0.0.9", "0.2", "v0.2.0", "0.2.0rc1"])
def test_version_that_does_not_follow_is_refused(version: str) -> None:
    with pytest.raises(ReleaseFault, match=version):
        check_version("0.1.0", version, is_first=False)


def test_version_follows_by_its_numbers() -> None:
    check_version("0.9.0", "0.10.0", is_first=False)
    check_version("0.1.0", "0.1.0", is_first=True)


def test_uv_gets_the_registry_certificate_and_limits_of_pip() -> None:
    told = (
        "global.index-url='https://mirror.test/simple'\nglobal.cert='/etc/ca.pem'\n"
        ":env:.default-timeout='180'\ninstall.no-index='true'\nuser.proxy='http://proxy.test:1'\n"
    )
    assert uv_settings(told) == {
        "UV_DEFAULT_INDEX": "https://mirror.test/simple", "SSL_CERT_FILE": "/etc/ca.pem", "UV_HTTP_TIMEOUT": "180",
        "UV_NO_INDEX": "true", "ALL_PROXY": "http://proxy.test:1",
    }  # fmt: skip


def test_uv_gets_several_values_with_its_own_separators(tmp_path: Path) -> None:
    told = f":env:.find-links='{tmp_path} https://b.test'\nglobal.extra-index-url='https://c.test\\nhttps://d.test'\n"
    assert uv_settings(told) == {
        "UV_FIND_LINKS": f"{tmp_path},https://b.test",
        "UV_INDEX": "https://c.test https://d.test",
    }


def test_folder_that_does_not_exist_is_left_out_because_uv_refuses_it(tmp_path: Path) -> None:
    assert uv_settings(f"global.find-links='{tmp_path}/none'\n") == {}


def test_later_section_of_pip_wins_and_other_settings_are_left_out() -> None:
    told = "global.index-url='https://a.test'\nsite.index-url='https://b.test'\n:env:.disable-pip-version-check='1'\n\n"
    assert uv_settings(told) == {"UV_DEFAULT_INDEX": "https://b.test"}
