"""What a release writes: the version and the changelog; and what it refuses."""

import datetime as dt

import pytest

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
