#!/usr/bin/env python3
"""Fails when the shared library exports anything but moecl_* (the C ABI) and names of the namespace moecl.

usage: check_exports.py NM LIBRARY
"""
import re
import subprocess
import sys

# A function or object of moecl::, its const members, what is local to them (_ZZ), and its classes' vtables and type
# information.
OURS = re.compile(r"moecl_\w+|_ZZ?N[KVR]*5moecl\w+|_Z(TV|TI|TS)N5moecl\w+")


def main():
    nm, library = sys.argv[1:]
    listing = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in listing.splitlines()]
    foreign = [name for name in names if not OURS.fullmatch(name)]
    print("\n".join(f"exported, but not moecl's: {name}" for name in foreign) or f"{len(names)} exported names, all moecl's")
    return 1 if foreign or not names else 0


if __name__ == "__main__":
    sys.exit(main())
