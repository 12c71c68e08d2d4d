#!/usr/bin/env python3
"""Writes the version script of the shared library: it exports what public headers declare, and nothing else.

usage: exports.py OUTPUT HEADER...

Of each C++ header come its functions and its classes' functions, by their full names, and its classes' types, which
exceptions and virtual functions need. A name of C is one by its prefix. Templates are instantiated by their users.
"""
import pathlib
import re
import sys

TOKEN = re.compile(r"[A-Za-z_]\w*|::|.", re.DOTALL)
NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*#(?:[^\n]*\\\n)*[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\[\[.*?\]\]", re.DOTALL | re.MULTILINE)
NO_NAMES = {"alignas", "decltype", "noexcept", "sizeof", "static_assert"}
CLOSES = {"(": ")", "{": "}", "<": ">"}


def tokens_of(text):
    return [token for token in TOKEN.findall(NOISE.sub(" ", text)) if not token.isspace()]


def end_of(tokens, at):
    """Behind the bracket that closes the one at `at`."""
    opens, closes, depth = tokens[at], CLOSES[tokens[at]], 0
    while True:
        depth += (tokens[at] == opens) - (tokens[at] == closes)
        at += 1
        if depth == 0:
            return at


def scope_of(statement):
    """The namespace or class whose body follows the statement, and whether it is a class; else None."""
    for kind in ("namespace", "class", "struct"):
        if kind in statement and not {"enum", "(", "="} & set(statement):
            named = statement[statement.index(kind) + 1 :]
            named = named[: named.index(":")] if ":" in named else named
            return "".join(token for token in named if token != "final"), kind != "namespace"
    return None


def names_of(text):
    """Full names of the functions and of the classes that a header declares."""
    tokens, at = tokens_of(text), 0
    functions, classes, scopes, statement = set(), set(), [], []
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token == "template" and tokens[at] == "<":
            at = end_of(tokens, at)
        elif token == "operator":
            at = at + 2 if tokens[at] == "(" else at
            functions.add("::".join(scopes + ["operator"]))
        elif token == "(":
            if statement and re.fullmatch(r"\w+", statement[-1]) and statement[-1] not in NO_NAMES:
                functions.add("::".join(scopes + ["~" * ("~" in statement[-2:]) + statement[-1]]))
            statement.append(token)
            at = end_of(tokens, at - 1)
        elif token == "{":
            scope = scope_of(statement)
            if scope is None:
                at = end_of(tokens, at - 1)
                statement = [] if "(" in statement else statement + ["="]
            else:
                scopes.append(scope[0])
                classes |= {"::".join(scopes)} if scope[1] else set()
                statement = []
        elif token == "}":
            scopes.pop()
            statement = []
        elif token == ";" or (token == ":" and statement[-1:] in (["public"], ["private"], ["protected"])):
            statement = []
        else:
            statement.append(token)
    return functions, classes


def patterns_of(functions, classes):
    """A name ends at its parameters, or at the mark of the ABI of std::string: before no letter, digit (0) or bracket of
    a template, which stands before ? in ASCII. `~` can stand in no pattern."""
    for name in sorted(functions):
        yield name.replace("~", "?") + ("*" if name.endswith("::operator") else "[!a-zA-Z0-?_]*")
    for name in sorted(classes):
        yield from (f'"{kind} for {name}"' for kind in ("typeinfo", "typeinfo name", "vtable"))


def main():
    output, headers = sys.argv[1], [pathlib.Path(name) for name in sys.argv[2:]]
    functions, classes = set(), set()
    for header in headers:
        if header.suffix == ".hpp":
            names = names_of(header.read_text(encoding="utf-8"))
            functions |= names[0]
            classes |= names[1]
    patterns = "".join(f"      {pattern};\n" for pattern in patterns_of(functions, classes))
    pathlib.Path(output).write_text(
        '{\n  global:\n    moecl_*;\n    extern "C++" {\n' + patterns + "    };\n  local: *;\n};\n", encoding="utf-8")


if __name__ == "__main__":
    main()
