"""The settings that a login may change and that make the server talk, plan or execute in another way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.integration.wall_seats import Seat, Statement

FAMILIES: Final = (
    r"^(debug_|trace_|log_|enable_|plpgsql\.|jit|plan_cache_mode$|force_parallel_mode$|(?!vacuum).*_cost$)"
)
SETTINGS: Final = """
SELECT name, vartype, setting, min_val, max_val, array_to_string(enumvals, ',')
FROM pg_settings WHERE context = 'user' AND {which} ORDER BY name
"""
TALKS: Final = ("debug_", "trace_", "log_")
"""Families whose words come as messages of the level LOG or below."""
KEEPS_OUT: Final = (
    "client_encoding", "client_min_messages", "transaction_read_only", "transaction_isolation", "role", "seed",
    "transaction_deferrable", "session_authorization", "statement_timeout", "transaction_timeout", "lock_timeout",
    "TimeZone", "DateStyle", "idle_in_transaction_session_timeout", "idle_session_timeout", "exit_on_error",
)  # fmt: skip
"""Settings that would end the session, or change the texts of times that these tests compare."""
LOUD: Final = (
    "debug_print_parse = on", "debug_print_rewritten = on", "debug_print_plan = on", "debug_pretty_print = on",
    "client_min_messages = debug5",
)  # fmt: skip


def alternatives(seat: Seat, *, every: bool) -> list[str]:
    """`name = value` for each other value that a setting can have; of a number, 0 and the largest.

    every: all settings that the login may set, not only those of the families.
    """
    seat.value("DO $$BEGIN END$$")  # loads the settings of PL/pgSQL
    found = seat.rows(SETTINGS.format(which="true" if every else f"name ~ '{FAMILIES}'"))
    return [
        f"{name} = '{value}'"
        for name, kind, now, least, most, enumerated in found
        if name not in KEEPS_OUT
        for value in others(name, kind, now, (least, most), enumerated)
    ]


def others(name: str, kind: str, now: str, bounds: tuple[str, str], enumerated: str) -> list[str]:
    if kind == "bool":
        return ["off" if now == "on" else "on"]
    if kind == "enum":
        return [one for one in enumerated.split(",") if one != now]
    if kind == "string":
        return ["all"] if name.startswith("plpgsql.") else []
    least, most = (float(bound) for bound in bounds)
    return [
        f"{value:.10g}"
        for value in dict.fromkeys((max(least, min(0.0, most)), least, min(1e9, most)))
        if value != float(now)
    ]


def needed(setting: str) -> dict[str, str]:
    """What else is set to see the effect. Compiling statements takes long, and odd costs would bring it about."""
    return {
        "client_min_messages": "debug5" if setting.startswith(TALKS) else "notice",
        "jit": "on" if setting.startswith("jit_") else "off",
    }


def is_slow(setting: str) -> bool:
    """True: each statement takes long by it."""
    return setting.startswith(("debug_print", "jit_above_cost = '0'"))


def chosen(statements: Sequence[Statement]) -> list[Statement]:
    """A statement of each kind that is not refused for every login: of each view, of each call, of INSERT and COPY."""
    kinds: dict[str, list[Statement]] = {}
    for one in statements:
        kinds.setdefault(one.kind.rpartition(".")[0] or one.kind, []).append(one)
    several = [its for kind, its in kinds.items() if len(its) > 1 or not kind.startswith("call ")]
    return [its[0 if its[0].kind.startswith("call ") else number % len(its)] for number, its in enumerate(several)]
