"""Plants one fault at a time in a small sound tree: check_kernels must find each, and nothing in the sound tree."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).parents[2] / "tools" / "check_kernels.py"
KERNEL, LAUNCHER = "kernels_cl/rows/copy.cl", "kernels_cl/rows/copy.cpp"
STRUCTS, TABLE, PAIR = "kernels_cl/rows/copy_args.h", "kernels_cl/gemm/product.cpp", "kernels_cl/rows/pair.cpp"
SOUND = {
    STRUCTS: """
typedef struct {
  int first, end;  // of rows; ends
} range_args;
KERNEL_ARGS(range_args, 8);
typedef struct {
  range_args range;
  long x_first, out_first;
  int rows;
  float scale;
} copy_args;
KERNEL_ARGS(copy_args, 32);
typedef struct {
  long out_first;
} copy_fill_args;
KERNEL_ARGS(copy_fill_args, 8);
""",
    KERNEL: """
#define OPERANDS const __global float *x, \\
                 __global float *out
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void copy_rows(
    OPERANDS, __local int* words, const copy_args given) {
  const copy_args args = given;
}
// __kernel void forgotten(int scalar) {}
__kernel void copy_fill(__global float* out, const copy_fill_args given) {
  // Of rusticl.
  const copy_fill_args args = given;
}
""" + "// A line.\n" * 30,
    "kernels_cl/common/view.hpp": """
void launch_all(Stream stream, const char* kernel, const auto&... operands) {
  launch(stream, {&source::copy, "", kernel}, {}, {}, {"copy", "all", 0, 0}, operands...);
}
""",
    LAUNCHER: """
#include "kernels_cl/common/view.hpp"
copy_args kernel_args(const Copy& args) { return {}; }
copy_fill_args kernel_args(const Fill& args) { return {}; }
void enqueue(Stream stream, const Copy& args) {
  require(true, "copy: {}, {}", args.x, args.out);
  launch(stream, {&source::copy, options("a, b", 1), "copy_rows"}, {{1, 1}, {2, 1}}, submit, {"copy", "t0", args.x, 0, 0},
         args.x, bytes_of(args.out), LocalMemory{64 * lanes}, kernel_args(args));
}
void enqueue(Stream stream, const Fill& args) { launch_all(stream, "copy_fill", args.out, kernel_args(args)); }
""",
    "kernels_cl/gemm/product_tile.cl": """
__kernel void product_tile(const __global float* a, const range_args given) {
  const range_args args = given;
}
""",
    "kernels_cl/rows/pair_args.h": """
typedef struct {
  long a_first, b_first;
} pair_args;
KERNEL_ARGS(pair_args, 16);
""",
    "kernels_cl/rows/pair.cl": """
__kernel void pair(const __global float* a,
#if BOTH
                   const __global float* b,
#endif
                   __local int* words, const pair_args given) {
  const pair_args args = given;
}
""",
    PAIR: """
pair_args kernel_args(const Args& args, const View& other = {}) { return {}; }
void enqueue(Stream stream, const Args& args) {
  const auto run = [&](const auto&... operands) {
    launch(stream, {&source::pair, options, "pair"}, {}, submit, {"pair"}, args.a, operands..., words_memory(1, 2),
           kernel_args(args));
  };
  if (args.b.present()) return run(args.b);
  run();
}
""",
    TABLE: """
void enqueue(Stream stream, const Args& args) {
  const range_args given{.first = 0, .end = 1};
  launch(stream, {kernel.source, options, kernel.name}, {}, submit, {"product"}, args.a, given);
}
""",
}


class CheckKernels(unittest.TestCase):
    def check(self, name="", old="", new=""):
        """Exit status and output for the sound tree, with a text of one file replaced."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in SOUND.items():
                if path == name:
                    self.assertEqual(text.count(old), 1, old)
                    text = text.replace(old, new)
                target = pathlib.Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
            done = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

    def assert_found(self, name, old, new, expected):
        status, output = self.check(name, old, new)
        self.assertEqual(status, 1, output)
        self.assertIn(expected, output)
        self.assertEqual(output.count("\n"), 1, output)

    def test_sound_tree_passes(self):
        status, output = self.check()
        self.assertEqual(status, 0, output)
        self.assertIn("4 kernels agree with their launchers", output)

    def test_parameters(self):
        self.assert_found(KERNEL, "copy_fill(__global float* out,", "copy_fill(__global float* out, int rows,",
                          "copy_fill: `int rows` is no buffer")
        self.assert_found(KERNEL, "OPERANDS, __local int* words", "__local int* words, OPERANDS",
                          "copy_rows: parameters are buffers, then local memory")
        self.assert_found(KERNEL, "  const copy_args args = given;", "  int i = 0;\n  const copy_args args = given;",
                          "copy_rows: the first statement is not `const copy_args args = given;`")
        self.assert_found(STRUCTS, "KERNEL_ARGS(copy_fill_args, 8);\n", "", "copy_fill_args is no struct of KERNEL_ARGS")

    def test_structs(self):
        self.assert_found(STRUCTS, "  float scale;\n", "", "copy_args: members of long, int and float")
        self.assert_found(STRUCTS, "long x_first, out_first;\n  int rows;", "int rows;\n  long x_first, out_first;",
                          "copy_args: members of long, int and float")
        self.assert_found(STRUCTS, "(range_args, 8)", "(range_args, 16)", "its members have 8 bytes, KERNEL_ARGS says 16")
        names = ", ".join(f"m{i}" for i in range(128))
        self.assert_found(STRUCTS, "long out_first;\n} copy_fill_args;\nKERNEL_ARGS(copy_fill_args, 8)",
                          f"long {names};\n}} copy_fill_args;\nKERNEL_ARGS(copy_fill_args, 1024)",
                          "copy_fill: 1032 bytes of arguments, at most 1024")

    def test_operands(self):
        self.assert_found(LAUNCHER, "args.x, bytes_of(args.out), LocalMemory", "bytes_of(args.out), args.x, LocalMemory",
                          "copy_rows: the launcher passes out for x of (x, out, words)")
        self.assert_found(LAUNCHER, "LocalMemory{64 * lanes}, ", "", "copy_rows: the launcher passes 2 for 3 of")
        self.assert_found(LAUNCHER, '"copy_fill", args.out', '"copy_fill", args.x', "copy_fill: the launcher passes x for out")
        self.assert_found(LAUNCHER, '"copy_fill"', '"copy_full"', "copy_fill: is not launched")
        self.assert_found(TABLE, "args.a,", "args.b,", "product_tile: the launcher passes b for a of (a)")

    def test_parameters_of_some_programs(self):
        self.assert_found(PAIR, "return run(args.b)", "return run(args.c)", "pair: the launcher passes c for b of (a, b, words)")
        self.assert_found(PAIR, "operands..., words_memory(1, 2)", "words_memory(1, 2), operands...",
                          "pair: the launcher passes words_memory for b of (a, b, words)")

    def test_types_of_structs(self):
        self.assert_found(LAUNCHER, "const Fill& args) { launch_all", "const Copy& args) { launch_all",
                          "copy_fill: the launcher passes `kernel_args(args)`, copy_args, expected copy_fill_args")
        self.assert_found(TABLE, "const range_args given{", "const copy_args given{",
                          "product_tile: the launcher passes `given`, copy_args, expected range_args")
        self.assert_found(TABLE, "const range_args given{.first = 0, .end = 1}", "const auto given = f()",
                          "`given`, no struct that is known")

    def test_macros(self):
        self.assert_found(KERNEL, "// A line.\n" * 30, "#define A 1\n" * 30, "31 macros in")


if __name__ == "__main__":
    unittest.main()
