"""The CMD of a sample task: counts the primes up to the number in the row's payload."""

import json
import os
from pathlib import Path


def main() -> None:
    payload = json.loads(Path(os.environ["TASK_PAYLOAD_FILE"]).read_text())
    limit = int((payload or {}).get("up_to", 10_000))
    sieve = bytearray([1]) * (limit + 1)
    sieve[:2] = b"\0\0"
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, limit + 1, number)))
    print(f"{sum(sieve):,} primes up to {limit:,}")  # noqa: T201  # shown by `dispatcher logs`
    Path(os.environ["TASK_RESULT_FILE"]).write_text(json.dumps({"primes": sum(sieve), "up_to": limit}))


if __name__ == "__main__":
    main()
