#!/usr/bin/env python3
"""Compiles kernels for CPUs that CI need not have with clang. One is for AMX. The other is for Arm's products of bytes
and of bf16; it is compiled for AArch64 without them, as PoCL may (tools/test --root bookworm-arm64 runs it in QEMU).

usage: cpu_assembly_test.py CLANG FOLDER [unittest option...]   FOLDER: where assembly goes
"""
import importlib.util
import itertools
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLANG, FOLDER = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)).resolve()
TARGET = [CLANG, "-target", "aarch64-linux-gnu", "-w"]
AS_OPENCL = "-x cl -cl-std=CL1.2 -Xclang -cl-ext=+cl_khr_fp16 -Xclang -finclude-default-header -DOUT_DTYPE=f32".split()
PRODUCT = "-DTILE_ROWS=96 -DBLOCK_BYTES_OF_PART=4096 -Xclang -disable-llvm-passes -emit-llvm"
BYTES = "-DA_DTYPE=i8 -DNEON_DOT=1"
GROUPS = "-DW_GROUP=128 -DW_SCALE_DTYPE=f16 -DW_ZERO=1"
INSTRUCTION = re.compile(r"\s+(\.inst\b|[a-z])")


def loops(assembly):
    """Lines of each innermost loop."""
    lines = assembly.splitlines()
    labels, found = {}, []
    for at, line in enumerate(lines):
        if label := re.match(r"(\.LBB\w+):", line):
            labels[label[1]] = at
        elif (jump := re.search(r"\s(?:b|b\.\w+|cbn?z|tbn?z)\s.*?(\.LBB\w+)", line)) and jump[1] in labels:
            found.append((labels[jump[1]], at))
    return [lines[begin:end + 1] for begin, end in found
            if not any(begin <= other and last <= end for other, last in found if (other, last) != (begin, end))]


def embed(kernel):
    """Writes the kernel's text with its includes resolved. Returns the file."""
    spec = importlib.util.spec_from_file_location("embed", ROOT / "kernels_cl/embed.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = FOLDER / f"{kernel}.cl"
    text.write_text(module.resolve(ROOT / f"kernels_cl/gemm/cpu/{kernel}.cl", ROOT, []))
    return text


class Amx(unittest.TestCase):
    def test_tiles_are_multiplied(self):
        text, assembly = embed("grouped_gemm_amx"), FOLDER / "grouped_gemm_amx.s"
        tiles = "-DTILE_ROWS=192 -DPANEL_RUN=4 -DBLOCK_STEPS=32 -DA_STEPS=512".split()
        for instruction, rows, weights in (("tdpbssd", "i8 -DSIGNED_STEPS=1", ("i8", "i4", "i4 -DW_GROUP=128 -DW_SCALE_DTYPE=f16 -DW_ZERO=1")),
                                           ("tdpbf16ps", "bf16", ("bf16", "i8", "f8_e4m3 -DW_GROUP=128 -DW_SCALE_DTYPE=f32 -DW_ZERO=0",
                                                                  "f4_e2m1 -DW_GROUP=32 -DW_SCALE_DTYPE=e8m0 -DW_ZERO=0"))):
            for of in weights:
                with self.subTest(rows=rows, weights=of):
                    subprocess.run([CLANG, "-target", "x86_64-linux-gnu", "-march=sapphirerapids", "-w", "-O1", *AS_OPENCL, *tiles,
                                    *f"-DA_DTYPE={rows} -DW_DTYPE={of}".split(), "-S", "-o", assembly, text], check=True)
                    self.assertIn(instruction, assembly.read_text())


class Neon(unittest.TestCase):
    def compiled(self, options):
        code, assembly = (FOLDER / f"grouped_gemm_ymm.{ending}" for ending in ("ll", "s"))
        text = embed("grouped_gemm_ymm")
        subprocess.run([*TARGET, "-O3", *AS_OPENCL, *PRODUCT.split(), *options.split(), "-S", "-o", code, text], check=True)
        # A driver calls kernels as functions.
        code.write_text(re.sub(r"\bspir_(kernel|func) ", "", code.read_text()))
        subprocess.run([*TARGET, "-x", "ir", "-O3", "-S", "-o", assembly, code], check=True)
        subprocess.run([*TARGET, "-c", "-o", FOLDER / "grouped_gemm_ymm.o", assembly], check=True)
        return assembly.read_text()

    def test_products_stay_in_registers(self):
        """The loop for 6 rows and 16 columns has 24 sdot or bfmmla for four k, or 24 smmla for eight, loads of elements
        and weights, and instructions that count and prefetch."""
        bytes_of_rows = itertools.product(("i8 -DW_K_WORDS=1", "i8", "i4"), (BYTES, f"{BYTES} -DNEON_I8MM=1"), ("", GROUPS))
        numbers = itertools.product(("bf16 -DW_K_WORDS=1", "bf16", "i8", "i4", "f8_e4m3"), ("-DA_DTYPE=bf16 -DNEON_BF16=1",), ("", GROUPS))
        for weights, rows, groups in itertools.chain(bytes_of_rows, numbers):
            with self.subTest(weights=weights, rows=rows, groups=groups):
                full = [loop for loop in loops(self.compiled(f"-DW_DTYPE={weights} {rows} {groups}"))
                        if sum(".inst" in line for line in loop) == 24]
                self.assertGreaterEqual(len(full), 3)  # steps of weights are streamed, made and kept, or loaded
                shortest = min(([line for line in loop if INSTRUCTION.match(line)] for loop in full), key=len)
                self.assertLessEqual(len(shortest), 54)
                self.assertFalse([line for line in shortest if "Spill" in line or "Reload" in line])

    def test_instructions_are_what_they_are_called(self):
        text = (ROOT / "kernels_cl/gemm/cpu/neon_steps.clh").read_text()
        template = re.search(r"__asm__\(\s*\\\n(.*?)\s*:", text, re.DOTALL)[1]

        def assembled(name, text):
            (FOLDER / f"{name}.s").write_text(text + "\n")
            subprocess.run([*TARGET, "-march=armv8.2-a+dotprod+i8mm+bf16", "-c", "-o", FOLDER / f"{name}.o", FOLDER / f"{name}.s"], check=True)
            return (FOLDER / f"{name}.o").read_bytes()

        def instruction(name, text):
            return assembled(name, text)[64:68]  # the first instruction, behind the header

        found = re.findall(r'OF_REGISTERS\(\w+, \w+, ("0x\w+")\)\s+// (\w+)', text)
        self.assertEqual([name for _, name in found], ["sdot", "smmla", "bfmmla"])
        for (encoding, name), (sums, weights, elements) in itertools.product(found, ((0, 1, 2), (31, 0, 17), (5, 30, 9))):
            lanes = "8h" if name == "bfmmla" else "16b"
            by_name = f"{name} v{sums}.4s, v{weights}.{lanes}, v{elements}.{lanes}"
            encoded = "".join(re.findall(r'"([^"]*)"', template.replace(" encoding ", encoding))).encode().decode("unicode_escape")
            by_encoding = encoded.replace("%0", f"v{sums}").replace("%1", f"v{weights}").replace("%2", f"v{elements}")
            by_encoding = instruction("encoding", by_encoding)
            self.assertIn(by_encoding[3], (0x4e, 0x6e))
            self.assertEqual(by_encoding, instruction("name", by_name), by_name)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    unittest.main()
