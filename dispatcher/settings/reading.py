"""Readers make a setting's value from its text. They raise ValueError with the rule; callers add name and value."""

import re
from collections.abc import Callable
from typing import Any

from dispatcher.model.quantity import parse_quantity

Reader = Callable[[str], Any]
NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
LABEL_KEY = rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{NAME}"


def integer(least: int, most: int) -> Reader:
    def read(text: str) -> int:
        value = int(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else None
        if value is None or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return read


def size(text: str) -> int:
    """Bytes."""
    value = parse_quantity(text)
    if value < 1:
        raise ValueError("must be an amount of bytes, such as 20Gi")
    return int(value)


def seconds(least: float, most: float) -> Reader:
    def read(text: str) -> float:
        value = float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text) else None
        if value is None or not least <= value <= most:
            raise ValueError(f"must be seconds, a number from {least:g} to {most:g}")
        return value

    return read


def boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("must be true or false")
    return text == "true"


def words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def choice(*options: str) -> Reader:
    def read(text: str) -> str:
        if text not in options:
            raise ValueError(f"must be one of {', '.join(options)}")
        return text

    return read


def matching(pattern: str, rule: str) -> Reader:
    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"must be {rule}")
        return text

    return read


def address(text: str) -> str:
    parts = re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^:\s]*):([0-9]{1,5})", text)
    if parts is None or int(parts[2]) > 65_535:
        raise ValueError("must be HOST:PORT")
    return text


def amount(text: str) -> str:
    if parse_quantity(text) <= 0:
        raise ValueError("must be above 0")
    return text


label = matching(r"[a-z0-9]([-a-z0-9]{0,14}[a-z0-9])?", "a DNS label of at most 16 characters")
dns_label = matching(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "a DNS label of at most 63 characters")
dns_name = matching(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", "a DNS name in lower case")
label_key = matching(LABEL_KEY, "a label's key, such as pool or example.org/pool")
folder = matching(r"(?!.*/\.\.?(/|$))(/[A-Za-z0-9._-]+)+", "an absolute path of plain names, without . and ..")
http_url = matching(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?", "an http or https URL without user or query")
label_pair = matching(f"{LABEL_KEY}={NAME}", "LABEL=VALUE")
text = str
