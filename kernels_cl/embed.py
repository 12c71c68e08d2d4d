#!/usr/bin/env python3
"""Writes a C++ file that holds a file's text: of an OpenCL C source, with its #include "..." lines resolved (each file
once, also without the #pragma once of headers that C++ reads too), as moecl::source::<stem>; of tuning data, as
moecl::tuning::<stem>.

usage: embed.py SOURCE.cl|DATA.json ROOT OUT.cpp DEPFILE
"""
import pathlib
import re
import sys


def resolve(path, root, seen):
    if path in seen:
        return ""
    seen.append(path)
    lines = []
    for line in path.read_text().splitlines():
        if line == "#pragma once":
            continue
        include = re.match(r'\s*#include "([^"]+)"', line)
        lines.append(resolve(root / include.group(1), root, seen) if include else line)
    return "\n".join(lines)


def main():
    source, root, out, depfile = (pathlib.Path(a) for a in sys.argv[1:5])
    seen = []
    text = resolve(source, root, seen)
    literal, name = f'R"EMBEDDED({text}\n)EMBEDDED"', source.stem
    if source.suffix == ".cl":
        body = (f'#include "runtime/kernel.hpp"\n\nnamespace moecl::source {{\nextern const ProgramSource {name};\n'
                f'const ProgramSource {name}{{"{name}", {literal}}};\n}}  // namespace moecl::source\n')
    else:
        body = (f'namespace moecl::tuning {{\nextern const char* const {name};\nconst char* const {name} = {literal};\n'
                f'}}  // namespace moecl::tuning\n')
    out.write_text(f"// Generated from {source.name}.\n{body}")
    depfile.write_text(f"{out}: " + " ".join(str(p) for p in seen) + "\n")


if __name__ == "__main__":
    main()
