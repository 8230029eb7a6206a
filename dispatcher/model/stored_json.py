"""JSON as Postgres stores it in a jsonb column: the texts that it refuses, and the text that it gives back. Pure.

`dispatcher try` has no database, and must answer as one. The text matters, because bounds of size count it: jsonb adds
spaces, writes numbers without exponent, and keeps the last of equal keys. `tests/integration` compares both.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final, NamedTuple

from msgspec import Struct

Json = dict[str, Any]
"""An object of the API server or of a manifest, as it was read."""

TOKEN: Final = re.compile(
    r"""(?P<mark>[][{}:,])"""
    r"""|(?P<string>"(?:[^"\\\x00-\x1f]+|\\[^\x00-\x1f])*")"""
    r"""|(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"""
    r"""|(?P<word>true|false|null)"""
)
SPACE: Final = re.compile(r"[ \t\n\r]*")
SURROGATE: Final = re.compile("[\ud800-\udfff]")
DEEPEST: Final = 5000
"""Levels of nesting, at most. Postgres bounds the depth by its stack, at about this number with its default
settings.
"""
DIGITS_BEFORE_POINT, DIGITS_AFTER_POINT = 131072, 16383
EXPONENT_DIGITS: Final = 7

NO_SYNTAX: Final = "invalid input syntax for type json"
NO_ESCAPE: Final = "unsupported Unicode escape sequence"
NO_NUL: Final = 'invalid byte sequence for encoding "UTF8": 0x00'
TOO_DEEP: Final = "stack depth limit exceeded"
TOO_LONG: Final = "value overflows numeric format"


class NotStoredJson(Exception):
    """Postgres would refuse the text.

    rule: the first line of Postgres' message.
    detail: the place, and what is wrong there.
    """

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}\nDETAIL:  {detail}")
        self.rule = rule
        self.detail = detail


class JsonToken(NamedTuple):
    kind: str
    text: str
    at: int


class Open(Struct):
    """An array or object that is not closed yet.

    values: texts of its values. An array has numbers as keys.
    expects: what may come next: a `value`, `key`, `:`, `,` (or the end), or `first` (or the end).
    """

    is_object: bool
    values: dict[str | int, str]
    expects: str
    key: str | int = 0


class Reader:
    """Reads one text. It uses no recursion, because a hostile text may be deep."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[Open] = []
        self._whole: str | None = None

    def read(self) -> str:
        if (at := self._text.find("\0")) >= 0:
            raise NotStoredJson(NO_NUL, place(self._text, at))
        for token in self.tokens():
            if self._whole is not None:
                raise self.wrong(token, "the end of the text")
            self.take(token)
        if self._whole is None:
            raise NotStoredJson(NO_SYNTAX, f"{place(self._text, len(self._text))}: the text ends too early")
        return self._whole

    def tokens(self) -> Iterator[JsonToken]:
        at = end_of_space(self._text, 0)
        while at < len(self._text):
            found = TOKEN.match(self._text, at)
            if found is None:
                raise NotStoredJson(NO_SYNTAX, f"{place(self._text, at)}: {self._text[at : at + 20]!r} is no JSON")
            yield JsonToken(str(found.lastgroup), found[0], at)
            at = end_of_space(self._text, found.end())

    def take(self, token: JsonToken) -> None:
        inner = self._open[-1] if self._open else None
        expects = inner.expects if inner else "value"
        if inner and token.text == ("}" if inner.is_object else "]") and expects in {",", "first"}:
            self._open.pop()
            self.put(closed(inner))
        elif inner and expects in {",", ":"}:
            if token.text != expects:
                raise self.wrong(token, f"`{expects}`")
            inner.expects = "key" if inner.is_object and expects == "," else "value"
        elif inner and inner.is_object and expects != "value":
            if token.kind != "string":
                raise self.wrong(token, "a key in double quotes")
            inner.key, inner.expects = self.string(token), ":"
        elif token.text in {"{", "["}:
            self.begin(token)
        elif token.kind == "mark":
            raise self.wrong(token, "a value")
        else:
            self.put(self.scalar(token))

    def begin(self, token: JsonToken) -> None:
        if len(self._open) == DEEPEST:
            raise NotStoredJson(TOO_DEEP, f"{place(self._text, token.at)}: more than {DEEPEST} levels")
        self._open.append(Open(token.text == "{", {}, "first"))

    def put(self, value: str) -> None:
        """Adds a whole value to the innermost array or object."""
        if not self._open:
            self._whole = value
            return
        inner = self._open[-1]
        inner.values[inner.key if inner.is_object else len(inner.values)] = value
        inner.expects = ","

    def scalar(self, token: JsonToken) -> str:
        if token.kind == "string":
            return written(self.string(token))
        return self.number(token) if token.kind == "number" else token.text

    def string(self, token: JsonToken) -> str:
        try:
            found = str(json.loads(token.text))
        except ValueError as fault:
            raise NotStoredJson(NO_SYNTAX, f"{place(self._text, token.at)}: a string with a wrong escape") from fault
        if "\0" in found:
            raise NotStoredJson(NO_ESCAPE, f"{place(self._text, token.at)}: \\u0000 cannot be converted to text.")
        if SURROGATE.search(found):
            raise NotStoredJson(NO_SYNTAX, f"{place(self._text, token.at)}: half of a surrogate pair, or no UTF-8")
        return found

    def number(self, token: JsonToken) -> str:
        exponent = token.text.lower().partition("e")[2].lstrip("+-")
        number = Decimal(token.text) if len(exponent) < EXPONENT_DIGITS else None
        after = -int(number.as_tuple().exponent) if number is not None else 0
        if number is None or number.adjusted() >= DIGITS_BEFORE_POINT or after > DIGITS_AFTER_POINT:
            raise NotStoredJson(TOO_LONG, f"{place(self._text, token.at)}: a number with too many digits")
        return format(abs(number) if number.is_zero() else number, "f")

    def wrong(self, token: JsonToken, expected: str) -> NotStoredJson:
        return NotStoredJson(NO_SYNTAX, f"{place(self._text, token.at)}: {token.text[:20]!r} instead of {expected}")


def stored_json(text: str) -> str:
    """The text of the value that a jsonb column keeps. Raises NotStoredJson if Postgres would refuse it."""
    return Reader(text).read()


def closed(container: Open) -> str:
    """The text of an array or object. jsonb orders keys by length, then by bytes."""
    if not container.is_object:
        return f"[{', '.join(container.values.values())}]"
    keys = sorted(map(str, container.values), key=lambda key: (len(key.encode()), key.encode()))
    return f"{{{', '.join(f'{written(key)}: {container.values[key]}' for key in keys)}}}"


def written(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def end_of_space(text: str, start: int) -> int:
    found = SPACE.match(text, start)
    assert found is not None  # it also matches nothing
    return found.end()


def place(text: str, at: int) -> str:
    line = text.count("\n", 0, at)
    return f"line {line + 1}, column {at - text.rfind(chr(10), 0, at)}"
