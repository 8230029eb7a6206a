"""The CMD of a sample task: builds a result from a set of files that has to be fetched once on each node.

TASK_CACHE_DIR is the folder of the row's cache key on this node, with the files that the last run left in it. The
result goes to TASK_RESULT_FILE.
"""

import json
import os
import time
from pathlib import Path

PARTS = 6
SECONDS_A_PART = 0.25


def main(cache: Path) -> None:
    began = time.monotonic()
    found = "warm" if (cache / "whole").exists() else "cold"
    if found == "cold":
        for number in range(PARTS):
            time.sleep(SECONDS_A_PART)  # stands for a download
            (cache / f"part-{number}").write_text(f"{number}\n" * 1000)
        (cache / "whole").touch()
    lines = sum(len(part.read_text().splitlines()) for part in cache.glob("part-*"))
    result = {"cache": found, "lines": lines, "seconds": round(time.monotonic() - began, 2)}
    print(f"built from {lines:,} lines; the cache was {found}")  # noqa: T201  # shown by `dispatcher logs`
    Path(os.environ["TASK_RESULT_FILE"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(os.environ["TASK_CACHE_DIR"]))
