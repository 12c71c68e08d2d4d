#!/usr/bin/env python3
"""Makes a torch wheel of PyPI load on a machine without CUDA: what it needs of CUDA becomes empty libraries.

usage: torch_cpu.py ENVIRONMENT

PyPI's x86-64 wheels of torch are linked to gigabytes of NVIDIA's libraries. The CPU's part never calls them, but the
loader wants their names and symbols. Needs gcc and binutils.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

CUDA = {"libtorch_cuda.so", "libtorch_cuda_linalg.so", "libc10_cuda.so", "libtorch_nvshmem.so", "libcaffe2_nvrtc.so"}
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp))(-.*)?\.so.*")
# Returns a reference, which is written to while the library is loaded.
REFERENCE = "_ZN4c10d15get_gil_checkerEv"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(library, which):
    return {line.split()[-1].split("@")[0] for line in output("nm", "-D", which, library).splitlines()}


def assembly(names):
    """Functions that return 0, constructors of objects whose functions do, and types by which pybind11 keeps its classes
    apart."""
    text = f".text\n.globl {REFERENCE}\n{REFERENCE}: lea zeros(%rip), %rax\nret\n"
    for name in sorted(names - {REFERENCE}):
        text += f".globl {name}\n"
        if name.startswith("_ZTI"):
            text += (f".data\n.balign 8\n.type {name}, @object\n.size {name}, 16\n"
                     f"{name}: .quad _ZTVN10__cxxabiv117__class_type_infoE + 16, 1f\n1: .asciz \"{name[4:]}\"\n")
        elif name.startswith("_ZTV"):
            text += f".data\n.balign 8\n.type {name}, @object\n.size {name}, 256\n{name}: .zero 256\n"
        elif re.search(r"C[12]E", name):
            text += f".text\n.type {name}, @function\n{name}: lea table(%rip), %rax\nmov %rax, (%rdi)\nret\n"
        else:
            text += f".text\n.type {name}, @function\n{name}: xor %eax, %eax\nret\n"
    text += ".text\nnothing: xor %eax, %eax\nret\n.data\n.balign 16\nzeros: .zero 256\n"
    text += ".quad 0, type\ntable: " + ".quad nothing\n" * 64
    text += 'type: .quad _ZTVN10__cxxabiv117__class_type_infoE + 16, 1f\n1: .asciz "7Nothing"\n'
    return text + '.section .note.GNU-stack,"",@progbits\n'


def main(folder):
    kept = [path for path in folder.glob("lib*.so*") if path.name not in CUDA]
    needed = {name for path in kept for name in re.findall(r"NEEDED.*\[([^]]+)]", output("readelf", "-d", path))}
    gone = sorted(name for name in needed - {path.name for path in kept} if not SYSTEM.fullmatch(name))
    for name in CUDA:
        (folder / name).unlink(missing_ok=True)
    undefined = set().union(*(symbols(path, "--undefined-only") for path in kept))
    defined = set().union(*(symbols(path, "--defined-only") for path in kept))
    for name in ("c.so.6", "m.so.6", "stdc++.so.6", "gcc_s.so.1", "dl.so.2", "pthread.so.0", "rt.so.1"):
        defined |= symbols(output("gcc", f"-print-file-name=lib{name}").strip(), "--defined-only")
    wanted = {name for name in undefined - defined if not name.startswith(("_ITM_", "__gmon_start__"))
              and not re.match(r"_?Py[A-Z_]", name)}
    with tempfile.NamedTemporaryFile("w", suffix=".s") as source, tempfile.NamedTemporaryFile(suffix=".s") as empty:
        source.write(assembly(wanted))
        source.flush()
        for name in gone:
            symbols_of = source.name if name == "libtorch_cuda.so" else empty.name
            output("gcc", "-shared", "-nostdlib", symbols_of, "-o", folder / name, f"-Wl,-soname,{name}")
    print(f"torch: {len(wanted)} symbols of {', '.join(gone)} stand in", file=sys.stderr)


main(next(pathlib.Path(sys.argv[1]).glob("lib/python3*/site-packages/torch/lib")))
