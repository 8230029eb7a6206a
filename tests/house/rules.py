"""The rules for code of this repository. Each rule is a function from a file's text to its faults, and reads no file.

`# house: REASON` on a line excuses it from the rules about names and parameters.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Faults: TypeAlias = Iterator[str]

MOST_BODY_LINES = 40
MOST_PARAMETERS = 5
MOST_METHODS = 15
MOST_FILE_LINES = 500
MOST_README_LINES = 120
MOST_EMBEDDED_LINES = 1500
MOST_LIBRARY_LINES = 345

BANNED = re.compile(r"(manager|helper|util|common|base|handler|data|info|worker|scheduler)(e?s)?")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
SQL = re.compile(
    r"\s*(?:--.*\n\s*)*(SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|CREATE|ALTER|DROP|TRUNCATE|GRANT|REVOKE|SET|LOCK|LISTEN"
    r"|NOTIFY|CALL|COPY|EXPLAIN|BEGIN|COMMIT|ROLLBACK)\s+\S"
)
EXCEPTION = re.compile(r"#\s*(noqa(?::\s*[A-Z]+\d+(?:[ ,]+[A-Z]+\d+)*)?|type: ignore(?:\[[^]]*\])?|pragma: \w+( \w+)?)")
REASON = re.compile(r"\s*#\s*\w+")
BROAD = {"Exception", "BaseException"}
OF_TESTS = re.compile(r"tests(\.\w+)*\.test_\w+")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+")
EXCUSED = re.compile(r"#.*\bhouse: \w+")
NAME = re.compile(r"\s*--\s*name\s*:", re.IGNORECASE)


def functions(source: str) -> list[Function]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, Function)]


def body_lines(function: Function) -> int:
    """The number of lines of the body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body and body[-1].end_lineno else 0


def long_functions(source: str) -> Faults:
    for function in functions(source):
        if body_lines(function) > MOST_BODY_LINES:
            yield f"{function.lineno}: {function.name} has {body_lines(function)} lines, {MOST_BODY_LINES} at most"


def many_parameters(source: str) -> Faults:
    lines = source.splitlines()
    for function in functions(source):
        given = function.args
        names = [given_one.arg for given_one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        count = len([name for name in names if name not in {"self", "cls"}])
        if count > MOST_PARAMETERS and not EXCUSED.search(lines[function.lineno - 1]):
            yield f"{function.lineno}: {function.name} has {count} parameters, {MOST_PARAMETERS} at most"


def large_classes(source: str) -> Faults:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            count = len([one for one in node.body if isinstance(one, Function)])
            if count > MOST_METHODS:
                yield f"{node.lineno}: {node.name} has {count} methods, {MOST_METHODS} at most"


def is_words(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def code_lines(source: str) -> int:
    """The number of lines without docstrings, comments, imports and blank lines."""
    text = {number for number, line in enumerate(source.splitlines(), 1) if line.split("#")[0].strip()}
    for node in ast.walk(ast.parse(source)):
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        if isinstance(node, ast.stmt) and (is_import or is_words(node)):
            text -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(text)


def long_file(source: str) -> Faults:
    if (count := len(source.splitlines())) > MOST_FILE_LINES:
        yield f"1: {count} lines, {MOST_FILE_LINES} at most"


def banned_names(source: str, module: str) -> Faults:
    """Names with a word that says nothing or has another meaning. Only HTTP code may have a `handler`."""
    lines = source.splitlines()
    tree = ast.parse(source)
    speaks_http = any(isinstance(node, ast.ImportFrom) and node.module == "aiohttp" for node in ast.walk(tree))
    named = [(node.name, node.lineno) for node in ast.walk(tree) if isinstance(node, Function | ast.ClassDef)]
    for name, line in [(module, 1), *named]:
        words = {word.lower() for word in WORD.findall(name)}
        banned = sorted(word for word in words if BANNED.fullmatch(word))
        if banned == ["handler"] and speaks_http:
            continue
        if banned and not EXCUSED.search(lines[line - 1] if lines else ""):
            yield f"{line}: {name} contains {', '.join(banned)}: a name tells what a thing is or does"


def sql_text(source: str) -> Faults:
    """SQL statements outside of sql/. Statements of sql/ have names, and CI prepares and explains them."""
    tree, lines = ast.parse(source), source.splitlines()
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in prose:
            continue
        if SQL.match(node.value) and not EXCUSED.search(lines[node.lineno - 1]):
            yield f"{node.lineno}: SQL text: {node.value[:40]!r} belongs in a file of sql/"


def borrowed_tests(source: str) -> Faults:
    """Imports from a module of tests. What several modules need stands in a module without tests."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        names = (module, *(f"{module}.{one.name}".strip(".") for one in node.names))
        if found := next((name for name in names if OF_TESTS.fullmatch(name)), None):
            yield f"{node.lineno}: {found} is a module of tests: move what is needed to one that has none"


def assigned_constants(source: str) -> Faults:
    """Constants of modules that a test assigns. Bounds and pauses are arguments, or fields of a class."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
            written = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
            name = str(written[0]).rpartition(".")[2] if written else ""
            if CONSTANT.fullmatch(name):
                yield f"{node.lineno}: {name} is a constant of a module"
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            places = node.targets if isinstance(node, ast.Assign) else [node.target]
            if found := next(filter(is_of_a_module, places), None):
                yield f"{node.lineno}: {ast.unparse(found)} is assigned in a module"


def is_of_a_module(place: ast.expr) -> bool:
    """Whether an assignment goes to `vars(x)[…]`, `x.__dict__[…]` or `x.CONSTANT`."""
    if isinstance(place, ast.Subscript):
        of = place.value
        return (isinstance(of, ast.Call) and getattr(of.func, "id", "") == "vars") or getattr(
            of, "attr", ""
        ) == "__dict__"
    return isinstance(place, ast.Attribute) and bool(CONSTANT.fullmatch(place.attr))


def bare_exceptions(source: str) -> Faults:
    """Exceptions from a linter or the type checker without a reason on their line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if EXCEPTION.search(token.string) and not REASON.match(EXCEPTION.sub("", token.string)):
            yield f"{token.start[0]}: {token.string} gives no reason on its line"


def broad_excepts(source: str) -> Faults:
    """An `except` of every exception without a reason on its line."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and is_broad(node.type):
            _, _, comment = lines[node.lineno - 1].partition("#")
            if not comment.strip():
                yield f"{node.lineno}: {lines[node.lineno - 1].strip()} gives no reason on its line"


def is_broad(caught: ast.expr | None) -> bool:
    each = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(one is None or (isinstance(one, ast.Name) and one.id in BROAD) for one in each)


def no_docstring(source: str) -> Faults:
    if not ast.get_docstring(ast.parse(source)):
        yield "1: the module has no docstring: purpose, invariant, what is not guaranteed"


def unclear_query(statement: str) -> Faults:
    """A query has one line of purpose that lists the parameters, then one statement."""
    yield from unclear_purpose(statement)
    body = statement.partition("\n")[2].strip()
    if not body or ";" in body.removesuffix(";"):
        yield "2: exactly one statement"


def unclear_purpose(statement: str) -> Faults:
    first, *rest = statement.splitlines() or [""]
    body = "\n".join(rest)
    if not re.match(r"-- \S", first):
        yield "1: the first line says the purpose: -- Rows that it returns. $1 type name."
    if re.search(r"^\s*--", body, re.MULTILINE):
        yield "2: only the first line is a comment"
    for parameter in sorted(set(re.findall(r"\$\d+", body)) - set(re.findall(r"\$\d+", first))):
        yield f"1: parameter {parameter} is not listed"


def unclear_blocks(text: str) -> Faults:
    """A file of sql/queries begins with its reader. The names of its blocks differ."""
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not NAME.match(line):
            continue
        name = line.removeprefix("-- name: ")
        if not re.fullmatch(r"-- name: \w+", line):
            yield f"{number}: begin a block by -- name: its_name"
        elif name in found:
            yield f"{number}: there is a block {name} above"
        found.add(name)
    if not re.match(r"-- \w", text) or NAME.match(text):
        yield "1: the first line says who reads these: -- What the dispatcher asks in its cycles."


def queries_used(source: str) -> set[tuple[str, str]]:
    """File and block of each `query("block", "file")` and `demo_query("block")`."""
    calls = [[ast.literal_eval(one) for one in call.args] for call in query_calls(source) if is_plain(call)]
    return {(file, block) for block, file in (call if len(call) == 2 else (*call, "demo") for call in calls)}


def hidden_queries(source: str) -> Faults:
    """A call of `query` without both names: nobody can tell whether sql/queries has the block, and who uses it."""
    lines = source.splitlines()
    for call in query_calls(source):
        if not is_plain(call) and not EXCUSED.search(lines[call.lineno - 1]):
            yield f"{call.lineno}: write both names: query('block', 'file')"


NAMES_OF_QUERY = {"query": ("dispatcher.pg.queries", 2), "demo_query": ("dispatcher_demo.statements", 1)}
"""The functions that read a statement: their modules, and how many names each call has."""


def query_calls(source: str) -> list[ast.Call]:
    """Calls of NAMES_OF_QUERY. Other modules may have a `query` of their own."""
    tree = ast.parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = {
        name.name for one in imports for name in one.names if NAMES_OF_QUERY.get(name.name, ("", 0))[0] == one.module
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in ours]


def is_plain(call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Name)
    are_texts = all(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in call.args)
    return are_texts and len(call.args) == NAMES_OF_QUERY[call.func.id][1]
