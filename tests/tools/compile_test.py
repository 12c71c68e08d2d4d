"""What becomes of a command whose driver's compiler aborts, hangs or makes programs that crash: an error, or another
variant, and never the end of the process. A layer of the OpenCL loader, tests/runtime/dying_compiler.cpp, stands in for
such a driver."""
import json
import os
import pathlib
import re
import subprocess
import time

from command import CommandTest, DATA, MOECL, golden, main

LAYER = next(MOECL.parent.glob("tests/libdying_compiler.so"))
WORDS = "the compiler of a test dies"
# Few tokens are routed by one kernel, or by two where its program does not build; the router's choice has one kernel.
REPLACED, NEEDED = "void route_tokens(", "void gating_top_k("


class Compile(CommandTest):
    def run_with(self, how, *options, tokens=4, **environment):
        """`moecl run` on a cold cache of this test's own."""
        return self.start("run", golden("mixtral-e8k2"), "--tokens", tokens, "--json", "--platform", "Portable", *options, OPENCL_LAYERS=str(LAYER),
                          DYING_COMPILER=how, XDG_CACHE_HOME=str(self.folder / "cache"), **environment)

    def kernels(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return {kernel["name"] for kernel in json.loads(done.stdout)["kernels"]}

    def dead_program(self):
        """The one, route_tokens, that `moecl devices` says does not build."""
        devices = json.loads(self.succeed("devices", "--json", XDG_CACHE_HOME=str(self.folder / "cache")))
        dead, = (one for device in devices for one in device.get("does_not_build", []))
        self.assertEqual(dead["program"], "route_tokens")
        return dead

    def test_without_a_death(self):
        done = self.run_with("")
        self.assertIn("route_tokens", self.kernels(done))
        self.assertEqual(done.stderr, "")

    def test_the_next_variant_is_taken(self):
        for how, ending in ("abort:", r"was ended by signal 6 \(Aborted\), its last words: "), ("crash:", r"was ended by signal 11 \(.*\), its last words: "):
            with self.subTest(how):
                self.folder = self.folder / how[:-1]
                cold = self.run_with(how + REPLACED)
                found = self.kernels(cold)
                self.assertNotIn("route_tokens", found)
                self.assertIn("gating_top_k", found)
                self.assertRegex(cold.stderr, rf"moecl: warning: [^\n]*route_tokens[^\n]*{ending}{WORDS}")
                self.assertIn(WORDS, self.dead_program()["why"])
                warm = self.run_with(how + REPLACED)
                self.assertNotIn("route_tokens", self.kernels(warm))
                self.assertIn("as was seen before", warm.stderr)  # and not tried again

    def test_the_next_product_is_taken(self):
        """A product of bf16, which has its own variant where the processor multiplies bf16."""
        device, = (d for d in json.loads(self.succeed("devices", "--json")) if "Portable" in d["platform"])
        if not device["avx512_bf16"]:
            self.skipTest("one variant multiplies all types on this processor")
        trace = self.folder / "trace.json"
        done = self.run_with("abort:void grouped_gemm_dot(", "--dtype", "bf16", "--trace", trace)
        self.assertIn("grouped_gemm", self.kernels(done))
        spans = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
        self.assertIn("grouped_gemm without avx512_bf16: its program does not build on this device", spans)

    def test_without_another_variant(self):
        done = self.run_with("abort:" + NEEDED, tokens=40)
        self.assertEqual((done.returncode, done.stdout), (4, ""), done)
        self.assertRegex(done.stderr.splitlines()[-1], rf"^moecl: program gating_top_k .*signal 6.*{WORDS}")

    def test_a_compiler_that_hangs(self):
        self.kernels(self.run_with("", tokens=40))  # all but route_tokens is there: on a busy machine it takes its time
        begin = time.monotonic()
        done = self.run_with("hang:" + REPLACED, MOECL_COMPILE_DEADLINE="20")
        self.assertNotIn("route_tokens", self.kernels(done))
        self.assertIn("took longer than 20000 ms", done.stderr)
        self.assertLess(time.monotonic() - begin, 120)
        self.assertIn("took longer than 20000 ms", self.dead_program()["why"])
        warm = self.run_with("hang:" + REPLACED)  # whose deadline is 300 s
        self.assertNotIn("route_tokens", self.kernels(warm))
        self.assertIn("as was seen before", warm.stderr)

    def test_without_a_cache(self):
        done = self.run_with("", MOECL_CACHE="off")
        self.assertIn("route_tokens", self.kernels(done))
        self.assertEqual(done.stderr, "")
        self.assertFalse((self.folder / "cache/moecl").exists())

    def test_processes_that_start_together_compile_each_program_once(self):
        command = [MOECL, "run", golden("mixtral-e8k2"), "--tokens", "4", "--json", "--platform", "Portable"]
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "MOECL_LOG": "info", "RUSTICL_ENABLE": ""}
        together = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
        built = []
        for process in together:
            out, log = process.communicate()
            self.assertEqual(process.returncode, 0, log)
            self.assertIn("route_tokens", out)
            built += re.findall(r"built (.*?) in [0-9.]+ ms in a helper(.*)", log)
        self.assertGreater(len(built), 3)
        self.assertEqual(len(built), len(set(built)), built)

    def test_in_process(self):
        done = self.run_with("abort:" + REPLACED, MOECL_COMPILE="in_process")
        self.assertEqual(done.returncode, -6)  # the case that the helper prevents

    def test_options(self):
        self.refused(2, "MOECL_COMPILE: expected helper or in_process, got 'elsewhere'", "run", golden("mixtral-e8k2"), MOECL_COMPILE="elsewhere")
        self.refused(2, "MOECL_COMPILE_DEADLINE: expected seconds, at least 1, got '0'", "run", golden("mixtral-e8k2"), MOECL_COMPILE_DEADLINE="0")


if __name__ == "__main__":
    main()
