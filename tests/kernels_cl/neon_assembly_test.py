#!/usr/bin/env python3
"""The kernel for Arm's dot products, which no device of CI runs (tools/test --root bookworm-arm64 does, by QEMU): clang compiles
its text for AArch64 without them, as PoCL may.

usage: neon_assembly_test.py CLANG FOLDER [unittest option...]   FOLDER: where assembly goes
"""
import importlib.util
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLANG, FOLDER = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)).resolve()
TARGET = [CLANG, "-target", "aarch64-linux-gnu", "-w"]
PRODUCT = ("-DTILE_ROWS=96 -DBLOCK_BYTES_OF_PART=4096 -DNEON_DOT=1 -DOUT_DTYPE=f32 -DA_DTYPE=i8 -Xclang -cl-ext=+cl_khr_fp16"
           " -Xclang -finclude-default-header -Xclang -disable-llvm-passes -emit-llvm")
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


class Assembly(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        spec = importlib.util.spec_from_file_location("embed", ROOT / "kernels_cl/embed.py")
        cls.embed = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cls.embed)

    def compiled(self, options):
        text, code, assembly = (FOLDER / f"grouped_gemm_ymm.{ending}" for ending in ("cl", "ll", "s"))
        text.write_text(self.embed.resolve(ROOT / "kernels_cl/gemm/cpu/grouped_gemm_ymm.cl", ROOT, []))
        subprocess.run([*TARGET, "-x", "cl", "-cl-std=CL1.2", "-O3", *PRODUCT.split(), *options.split(), "-S", "-o", code, text], check=True)
        # A driver calls kernels as functions.
        code.write_text(re.sub(r"\bspir_(kernel|func) ", "", code.read_text()))
        subprocess.run([*TARGET, "-x", "ir", "-O3", "-S", "-o", assembly, code], check=True)
        subprocess.run([*TARGET, "-c", "-o", FOLDER / "grouped_gemm_ymm.o", assembly], check=True)
        return assembly.read_text()

    def test_products_stay_in_registers(self):
        """Of four k, 6 rows and 16 columns: 24 of sdot, loads of 6 elements and of weights, and what counts and fetches."""
        for weights in ("i8 -DW_K_WORDS=1", "i8", "i4"):
            for groups in ("", GROUPS):
                with self.subTest(weights=weights, groups=groups):
                    full = [loop for loop in loops(self.compiled(f"-DW_DTYPE={weights} {groups}"))
                            if sum(".inst" in line for line in loop) == 24]
                    self.assertGreaterEqual(len(full), 3)  # of weights that are streamed, made and kept, and were kept
                    shortest = min(([line for line in loop if INSTRUCTION.match(line)] for loop in full), key=len)
                    self.assertLessEqual(len(shortest), 54)
                    self.assertFalse([line for line in shortest if "Spill" in line or "Reload" in line])

    def test_instructions_are_sdot(self):
        template = re.search(r"__asm__\(\s*((?:\"[^\n]*\"\s*)+):", (ROOT / "kernels_cl/gemm/cpu/ymm_steps.clh").read_text())[1]
        encoded = "".join(re.findall(r'"(.*)"', template)).encode().decode("unicode_escape")

        def assembled(name, text):
            (FOLDER / f"{name}.s").write_text(text + "\n")
            subprocess.run([*TARGET, "-march=armv8.2-a+dotprod", "-c", "-o", FOLDER / f"{name}.o", FOLDER / f"{name}.s"], check=True)
            return (FOLDER / f"{name}.o").read_bytes()

        def instruction(name, text):
            return assembled(name, text)[64:68]  # the first section's, behind the header

        for sums, weights, elements in ((0, 1, 2), (31, 0, 17), (5, 30, 9)):
            by_name = f"sdot v{sums}.4s, v{weights}.16b, v{elements}.16b"
            by_encoding = encoded.replace("%0", f"v{sums}").replace("%1", f"v{weights}").replace("%2", f"v{elements}")
            found = instruction("encoding", by_encoding)
            self.assertEqual(found[3], 0x4e)
            self.assertEqual(found, instruction("name", by_name), by_name)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    unittest.main()
