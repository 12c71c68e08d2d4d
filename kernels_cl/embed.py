#!/usr/bin/env python3
"""Writes a C++ file that holds an OpenCL C source as a string, with its #include "..." lines resolved (each file once).

usage: embed.py SOURCE.cl ROOT OUT.cpp DEPFILE
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
        include = re.match(r'\s*#include "([^"]+)"', line)
        lines.append(resolve(root / include.group(1), root, seen) if include else line)
    return "\n".join(lines)


def main():
    source, root, out, depfile = (pathlib.Path(a) for a in sys.argv[1:5])
    seen = []
    text = resolve(source, root, seen)
    name = source.stem
    out.write_text(
        f'// Generated from {source.name}.\n#include "runtime/kernel.hpp"\n\nnamespace moecl::source {{\n'
        f'extern const ProgramSource {name};\n'
        f'const ProgramSource {name}{{"{name}", R"OpenCLC({text}\n)OpenCLC"}};\n}}  // namespace moecl::source\n')
    depfile.write_text(f"{out}: " + " ".join(str(p) for p in seen) + "\n")


if __name__ == "__main__":
    main()
