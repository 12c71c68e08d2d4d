#!/usr/bin/env python3
"""Compares the C interface of a built library with the recorded one: functions, their types, structs, enumerations.

usage: abi_test.py LIBRARY SCRATCH_DIR             new functions, new enumerators and new last fields of structs may be
       abi_test.py LIBRARY SCRATCH_DIR --record    of a release: writes c_abi.xml

What the headers declare is written into a small library of variables, which abidw and abidiff read; so the compiler of
moecl does not matter, nor whether it has debug information.
"""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = HERE.parents[1] / "host/include"
RECORD = HERE / "c_abi.xml"
# size_bytes tells the library which fields its caller knows.
MAY_GROW = "[suppress_type]\n  type_kind = struct\n  has_data_member_inserted_at = end\n"


def declared():
    """(headers, functions, enumerations) of the C interface."""
    headers = sorted(HEADERS.glob("moecl/*.h"))
    text = "\n".join(re.sub("//.*", "", header.read_text()) for header in headers)
    functions = re.findall(r"^(?:MOECL_API )?(?:moecl_status|const char\*) (moecl_\w+)\(", text, re.MULTILINE)
    return headers, functions, re.findall(r"^typedef enum (\w+)", text, re.MULTILINE)


def write_interface(library, folder):
    headers, functions, enumerations = declared()
    exported = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    if differ := set(functions) ^ set(re.findall(r" T (moecl_\w+)$", exported, re.MULTILINE)):
        sys.exit(f"declared, but not exported, or the reverse: {', '.join(sorted(differ))}")
    lines = [f"#include <moecl/{header.name}>" for header in headers]
    lines += [f"__typeof__(&{name}) of_{name};" for name in functions]
    lines += [f"{name} of_{name};" for name in enumerations]
    (folder / "interface.c").write_text("\n".join(lines) + "\n")
    command = ["cc", "-g", "-shared", "-fPIC", f"-I{HEADERS}", "interface.c", "-o", "interface.so"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "interface.so"


def compare(interface, folder):
    """Whether nothing that a built program relies on has changed."""
    (folder / "may_grow.ini").write_text(MAY_GROW)
    suppressed = ["--suppressions", folder / "may_grow.ini", "--no-added-syms"]
    return subprocess.run(["abidiff", *suppressed, RECORD, interface], check=False).returncode == 0


def main():
    library, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    interface = write_interface(library, folder)
    if sys.argv[3:] == ["--record"]:
        options = ["--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--no-elf-needed", "--no-parameter-names"]
        RECORD.write_text(subprocess.run(["abidw", *options, interface], check=True, capture_output=True, text=True).stdout)
        return 0
    if compare(interface, folder):
        print(f"{len(declared()[1])} functions: what was recorded still holds")
        return 0
    print("programs that were built before would break: the minor version must change, and the record (--record)")
    return 1


if __name__ == "__main__":
    sys.exit(main())
