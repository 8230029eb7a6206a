"""Runs all benchmarks in turn, each in a process of its own: `python -m benchmarks [--record] [NAME …]`."""

import argparse
import subprocess
import sys

from benchmarks.machine import wait_until_quiet

PROMISES = (
    "trying_out",  # first: for minutes after many files were removed, ext4 makes new ones slowly
    "idle_insert",
    "burst",
    "idle_cycle",
    "room_cycle",
    "watched_cluster",
    "answers",
    "other_inserts",
    "batches",
    "known_templates",
    "row_size",
    "submitter_calls",
    "hostile_team",
    "requests_per_task",
    "extender_answers",
    "extender_holds",
    "hold_ends",
    "warm_share",
    "warm_copies",
    "growing",
    "full_cluster",
    "unseen_places",
    "fair_shares",
    "scheduling_rate",
    "holds_rate",
    "dashboard",
    "cache_keeper",
)


def main() -> int:
    """Runs every benchmark, even after a failure. Returns 1 if a gate failed or a benchmark did not complete."""
    asked = argparse.ArgumentParser(prog="benchmarks", description="Measures what is promised.")
    asked.add_argument("--record", action="store_true", help="append the runs to records.jsonl")
    asked.add_argument("names", nargs="*", metavar="NAME", choices=[*PROMISES, []])
    given = asked.parse_args()
    record = ["--record"] if given.record else []
    ends: dict[str, int] = {}
    for name in given.names or PROMISES:
        wait_until_quiet()
        ends[name] = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *record], check=False).returncode
    failed = [name for name, end in ends.items() if end]
    print(f"\n{len(ends) - len(failed)} of {len(ends)} pass their gates; not: {', '.join(failed) or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
