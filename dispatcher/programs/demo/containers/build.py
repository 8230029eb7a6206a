"""A sample task's CMD: builds something from a set of files that has to be fetched once a node.

`build.py KEY CACHE`: CACHE/KEY is what is left of the last run here. What it made goes to TASK_RESULT_FILE.
"""

import json
import os
import sys
import time
from pathlib import Path

PARTS = 6
SECONDS_A_PART = 0.25


def main(key: str, cache: Path) -> None:
    began = time.monotonic()
    found = "warm" if (cache / key / "whole").exists() else "cold"
    (cache / key).mkdir(parents=True, exist_ok=True)
    if found == "cold":
        for number in range(PARTS):
            time.sleep(SECONDS_A_PART)  # stands for a download
            (cache / key / f"part-{number}").write_text(f"{key} {number}\n" * 1000)
        (cache / key / "whole").touch()
    lines = sum(len(part.read_text().splitlines()) for part in (cache / key).glob("part-*"))
    result = {"cache": found, "lines": lines, "seconds": round(time.monotonic() - began, 2)}
    Path(os.environ["TASK_RESULT_FILE"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
