"""JSON as a jsonb column keeps it. tests/integration/test_stored_json.py compares it with Postgres."""

import pytest

from dispatcher.model import stored_json as here
from dispatcher.model.stored_json import NotStoredJson, stored_json


def fault_of(text: str) -> NotStoredJson:
    with pytest.raises(NotStoredJson) as raised:
        stored_json(text)
    return raised.value


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        (" null ", "null"),
        ("[]", "[]"),
        ("{}", "{}"),
        ("[1,[true],{}]", "[1, [true], {}]"),
        ('{"b":1,"aa":[2],"a":{"c":3},"b":4}', '{"a": {"c": 3}, "b": 4, "aa": [2]}'),
        ('"\\u00e9\\u0007\\n"', '"é\\u0007\\n"'),
        ("1.50", "1.50"),
        ("1.5E+1", "15"),
        ("-1e-3", "-0.001"),
        ("-0.0", "0.0"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
    ],
)
def test_value_is_written_as_jsonb_writes_it(text: str, stored: str) -> None:
    assert stored_json(text) == stored


@pytest.mark.parametrize(
    ("text", "rule", "detail"),
    [
        ("", here.NO_SYNTAX, "line 1, column 1: the text ends too early"),
        ('{"a":\n [1', here.NO_SYNTAX, "line 2, column 4: the text ends too early"),
        ("[1,\n nope]", here.NO_SYNTAX, "line 2, column 2: 'nope]' is no JSON"),
        ("{'a': 1}", here.NO_SYNTAX, "line 1, column 2: \"'a': 1}\" is no JSON"),
        ("1 2", here.NO_SYNTAX, "line 1, column 3: '2' instead of the end of the text"),
        ("[1 2]", here.NO_SYNTAX, "line 1, column 4: '2' instead of `,`"),
        ("[1}", here.NO_SYNTAX, "line 1, column 3: '}' instead of `,`"),
        ("[1,]", here.NO_SYNTAX, "line 1, column 4: ']' instead of a value"),
        ('{"a" 1}', here.NO_SYNTAX, "line 1, column 6: '1' instead of `:`"),
        ("{1: 2}", here.NO_SYNTAX, "line 1, column 2: '1' instead of a key in double quotes"),
        ('{"a": 1,}', here.NO_SYNTAX, "line 1, column 9: '}' instead of a key in double quotes"),
        (":", here.NO_SYNTAX, "line 1, column 1: ':' instead of a value"),
        ('"\\x"', here.NO_SYNTAX, "line 1, column 1: a string with a wrong escape"),
        ('"\\ud800"', here.NO_SYNTAX, "line 1, column 1: half of a surrogate pair, or no UTF-8"),
        ('{"a": "\\u0000"}', here.NO_ESCAPE, "line 1, column 7: \\u0000 cannot be converted to text."),
        ('"a\0"', here.NO_NUL, "line 1, column 3"),
        ("1e999999", here.TOO_LONG, "line 1, column 1: a number with too many digits"),
        ("1e99999999999999999999", here.TOO_LONG, "line 1, column 1: a number with too many digits"),
        ("1e-16384", here.TOO_LONG, "line 1, column 1: a number with too many digits"),
        ("[" * 5001, here.TOO_DEEP, "line 1, column 5001: more than 5000 levels"),
    ],
)
def test_text_that_no_column_keeps_is_refused_with_its_place(text: str, rule: str, detail: str) -> None:
    fault = fault_of(text)
    assert (fault.rule, fault.detail) == (rule, detail)
    assert str(fault) == f"{rule}\nDETAIL:  {detail}"
