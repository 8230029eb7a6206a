"""Which tests a change can break: those of the folders that differ from main.

python -m tests.rig.touched [COMMIT]     prints their paths, for pytest
python -m tests.rig.touched --table      prints the table of CONTRIBUTING.md
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]
ALWAYS: Final = ("house",)
HEAD: Final = "| changed | tests to run |\n|---|---|\n"
TESTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "dispatcher/admission": ("unit", "property", "journey"),
    "dispatcher/commands": (
        "unit",
        "integration/test_cli.py",
        "integration/test_wait.py",
        "integration/test_adopt.py",
        "integration/test_render_file.py",
        "journey",
    ),
    "dispatcher/container": (
        "integration/test_exec*",
        "integration/test_task*",
        "integration/test_try*",
        "integration/test_faults_that_pass.py",
        "journey/test_real_*",
    ),
    "dispatcher/doctor": (
        "unit/test_doctor*",
        "integration/test_doctor*",
        "contract/test_doctor*",
        "journey/test_doctor*",
    ),
    "dispatcher/extender": (
        "unit",
        "contract/test_extender*",
        "property/test_extender*",
        "property/test_reservations*",
    ),
    "dispatcher/janitor": (
        "unit/test_janitor*",
        "integration/test_sql_janitor*",
        "journey/test_janitor*",
        "journey/test_two*",
    ),
    "dispatcher/jobs": ("unit", "property", "contract", "journey"),
    "dispatcher/keeper": (
        "unit/test_keeper*",
        "integration/test_keeper*",
        "contract/test_*keeper*",
        "journey/test_cache_keeper.py",
    ),
    "dispatcher/kube": ("unit", "contract", "faults"),
    "dispatcher/model": ("unit", "property", "integration", "contract", "journey"),
    "dispatcher/pg": ("unit/test_doctor*", "integration", "faults", "journey/test_outages.py"),
    "dispatcher/placement": (
        "unit",
        "property",
        "journey/test_warm.py",
        "journey/test_real_use.py",
        "journey/test_cache_keeper.py",
    ),
    "dispatcher/prometheus.py": ("contract/test_prometheus*", "journey/test_real_use.py"),
    "dispatcher/runtime": ("unit", "contract/test_listening.py", "journey"),
    "dispatcher/settings": ("unit/test_settings*", "integration/test_cli.py", "contract/test_chart*"),
    "dispatcher/sweep": ("unit", "property", "journey/test_outcomes.py", "faults/test_many_finished_jobs.py"),
    "dispatcher/task": ("integration/test_task*", "journey/test_real_*"),
    "dispatcher/views": (
        "unit",
        "integration/test_pg_lists.py",
        "integration/test_page*",
        "contract/test_dashboard_http.py",
        "journey",
        "browser",
    ),
    "dispatcher": ("unit", "integration", "contract", "journey"),
    "demo": ("contract", "journey/test_demo*", "journey/test_embedded_cluster.py"),
    "sql": ("unit/test_doctor*", "integration", "model", "journey/test_reasons_in_sql.py"),
    "deploy": ("contract", "integration/test_logins.py", "integration/test_alert_rules.py"),
    "docs": (
        "integration/test_page*",
        "integration/test_orms.py",
        "integration/test_tutorial.py",
        "integration/test_submitter_page.py",
        "integration/test_author_examples.py",
        "contract/test_page*",
    ),
    "tests/rig": ("unit", "integration", "contract", "journey", "faults"),
}
"""Paths below `tests/`, by the folder that changed. The longest folder wins."""


def paths_for(changed: Iterable[str]) -> tuple[str, ...]:
    """Paths below `tests/` for the changed files."""
    found = dict.fromkeys(ALWAYS)
    for file in changed:
        found |= dict.fromkeys(suite_of(file))
    return tuple(found)


def suite_of(file: str) -> tuple[str, ...]:
    folder = next((one for one in sorted(TESTS_OF, key=len, reverse=True) if f"{file}/".startswith(f"{one}/")), None)
    if folder:
        return TESTS_OF[folder]
    parts = Path(file).parts
    return (file.removeprefix("tests/") if parts[-1].startswith("test_") else parts[1],) if parts[0] == "tests" else ()


def changed_since(commit: str) -> Iterator[str]:
    """Files that differ from where this branch left the commit, and files that git does not know yet."""
    base = git("merge-base", commit, "HEAD").strip()
    yield from git("diff", "--name-only", base).splitlines()
    yield from git("ls-files", "--others", "--exclude-standard").splitlines()


def main_branch(root: Path = ROOT) -> str:
    """`main`, or `origin/main`: a plain clone may have no branch of its own. Exits with 1 without either."""
    for name in ("main", "origin/main"):
        known = ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
        if subprocess.run(known, cwd=root, capture_output=True, check=False).returncode == 0:
            return name
    sys.exit("there is no branch main or origin/main: git branch main COMMIT")


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def existing(paths: Iterable[str]) -> list[str]:
    """Files and folders of the patterns, without what a folder of the list has already."""
    found = sorted({path for one in paths for path in (ROOT / "tests").glob(one)})
    kept = [path for path in found if not any(other in path.parents for other in found)]
    return [str(path.relative_to(ROOT)) for path in kept]


def table() -> str:
    rows = (f"| `{folder}` | {', '.join(f'`{one}`' for one in tests)} |\n" for folder, tests in TESTS_OF.items())
    return HEAD + "".join(rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        sys.stdout.write(table())
    else:
        print(*existing(paths_for(changed_since(*sys.argv[1:] or [main_branch()]))))  # noqa: T201  # the output is the purpose
