#!/usr/bin/env python3
"""Fails when what the shared library exports is not what its public headers declare, as clang reads them.

usage: check_exports.py CLANG NM LIBRARY HEADER...

Every exported name is declared in a public header, and every function declared there without a body is exported. What
templates of std become with moecl's types is not: every user makes it.
"""
import json
import pathlib
import re
import subprocess
import sys

CLASS_OF = re.compile(r"_ZN(.*)[CD]\dE")  # of a constructor or destructor
VARIANTS_OF = re.compile(r"([CD])\dE")  # of the whole object, of a base: of one declaration
WRITTEN_BY_COMPILER = ("C*ERKS0_", "C*EOS0_", "D*Ev")  # of a class that leaves them unsaid: copies, moves, ends
UNDEFINED_HERE = {"pure", "explicitlyDeleted", "isImplicit", "explicitlyDefaulted", "inline", "constexpr"}


def declarations(clang, headers):
    """The declarations of moecl's functions in the C++ headers."""
    includes = "".join(f"#include <moecl/{header.name}>\n" for header in headers)
    folders = [argument for folder in sorted({header.parent.parent for header in headers}) for argument in ("-I", folder)]
    tree = subprocess.run([clang, "-x", "c++", "-std=c++17", "-fsyntax-only", *folders, "-Xclang", "-ast-dump=json",
                           "-Xclang", "-ast-dump-filter=moecl::", "-"],
                          input=includes, check=True, capture_output=True, text=True).stdout
    decoder, at, found = json.JSONDecoder(), 0, []
    while at < len(tree):
        node, at = decoder.raw_decode(tree, at)
        at += len(tree[at:at + 8]) - len(tree[at:at + 8].lstrip())
        stack = [node]
        while stack:
            node = stack.pop()
            if node.get("kind", "").endswith("TemplateDecl"):
                continue  # its users make it
            if "mangledName" in node and node["kind"] != "VarDecl":
                found.append(node)
            stack += [inner for inner in node.get("inner", []) if inner.get("kind", "").endswith("Decl")]
    return found


def canonical(name):
    return VARIANTS_OF.sub(r"\1*E", name)


def check(clang, nm, library, headers):
    listing = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1] for line in listing.splitlines()}
    of_c = [header for header in headers if header.suffix == ".h"]
    functions = declarations(clang, [header for header in headers if header.suffix == ".hpp"])
    declared = {canonical(node["mangledName"]) for node in functions}
    for found in filter(None, (CLASS_OF.match(node["mangledName"]) for node in functions)):
        declared |= {f"_ZT{kind}N{found.group(1)}E" for kind in "VIS"}
        declared |= {f"_ZN{found.group(1)}{member}" for member in WRITTEN_BY_COMPILER}
    promised = set()
    for header in of_c:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
        promised |= set(re.findall(r"\b(moecl_\w+)\(", text))
    has_body = {node["mangledName"] for node in functions
                if UNDEFINED_HERE & set(node) or any(inner["kind"] == "CompoundStmt" for inner in node.get("inner", []))}
    declared |= promised
    promised |= {canonical(node["mangledName"]) for node in functions} - {canonical(name) for name in has_body}
    problems = [f"exported, but in no public header: {name}" for name in sorted(exported) if canonical(name) not in declared]
    problems += [f"in a public header, but not exported: {name}" for name in sorted(promised - {canonical(name) for name in exported})]
    return len(exported), problems


def main():
    clang, nm, library, *headers = sys.argv[1:]
    count, problems = check(clang, nm, library, [pathlib.Path(header) for header in headers])
    print("\n".join(problems) or f"{count} exported names, all of public headers")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
