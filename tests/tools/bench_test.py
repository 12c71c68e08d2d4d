"""Tries `moecl bench` as a stranger would: names, JSON, a baseline, replayed routing, and what it refuses."""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import xml.etree.ElementTree

import numpy

from command import MOECL, CommandTest, golden, main, save

MODEL = ("--platform", "Portable", "--shapes", "olmoe-1b-7b", "--min-time", 0.001)
NAME = "grouped_gemm/olmoe-1b-7b-e8/bf16/T:4/moecl"


class Bench(CommandTest):
    def bench(self, *arguments, experts=8):
        return json.loads(self.succeed("bench", "--json", *MODEL, "--experts", experts, *arguments))

    def names(self, *arguments):
        return self.succeed("bench", "--list", *arguments).splitlines()

    def test_names(self):
        found = self.names("--filter", "^(grouped_gemm|layer)/", "--shapes", "all", "--tokens", "1,16", "--schemes",
                           "f32,int8_w8a8", "--routing", "uniform,zipf")
        for shape in ("qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3-e16", "gpt-oss-20b", "olmoe-1b-7b"):
            for routed in (shape, shape + "+zipf"):
                for tokens in (1, 16):
                    for scheme in ("f32", "int8_w8a8"):
                        self.assertIn(f"layer/{routed}/{scheme}/T:{tokens}/moecl", found)
                        self.assertIn(f"grouped_gemm/{routed}/{scheme}/T:{tokens}/moecl", found)
        self.assertEqual(len(found), len(set(found)))
        both = self.names("--filter", "^layer/", "--schemes", "int4_w4a16", "--tokens", "16,17", "--several-launches")
        self.assertEqual([name.split("/int4_w4a16/")[1] for name in both],
                         ["T:16/moecl", "T:17/moecl", "T:16/moecl_several_launches"])
        for operator in ("combine", "expert_sort", "gating_top_k", "route_tokens", "quantize_rows", "gather_rows"):
            self.assertTrue(self.names("--filter", f"^{operator}/"), operator)
        self.assertLess(len(self.names("--quick")), 20)
        quick = json.loads(self.succeed("bench", "--list", "--quick", "--json"))
        self.assertEqual([benchmark["name"] for benchmark in quick["benchmarks"]], self.names("--quick"))

    def test_document(self):
        found = self.bench("--filter", "T:4/", "--tokens", 4, "--schemes", "bf16,mxfp4_w4a16", "--repetitions", 3)
        context = found["context"]
        for key in ("platform", "device", "driver", "moecl_commit", "date", "num_cpus"):
            self.assertTrue(context[key], key)
        self.assertIn(context["slow_mode"], (True, False))
        for rate in ("f32_gflops", "f32_one_unit_gflops", "bf16_gflops", "int8_gops", "read_gb_per_s", "copy_gb_per_s"):
            self.assertGreater(context["roof"][rate], 0.1, rate)
        runs = [run for run in found["benchmarks"] if run["run_type"] == "iteration"]
        self.assertEqual({run["name"] for run in runs},
                         {f"{what}/olmoe-1b-7b-e8/{scheme}/T:4/moecl" for what in ("grouped_gemm", "gate_up", "down", "layer")
                          for scheme in ("bf16", "mxfp4_w4a16")})
        for run in runs:
            seconds = run["real_time"] * {"us": 1e-6}[run["time_unit"]]
            self.assertRegex(run["label"], r"^\w+(,\w+)*$")  # the kernel variants
            self.assertGreater(run["% of roof"], 0)
            if run["name"] == NAME:  # 4 tokens x 8 experts x 2048 x 2048 multiply-adds
                self.assertAlmostEqual(run["GFLOP/s"] * seconds, 2e-9 * 4 * 8 * 2048 * 2048, delta=1e-3)
            if run["name"].startswith("down"):  # half as many columns
                self.assertAlmostEqual(run["GFLOP/s"] * seconds, 1e-9 * 4 * 8 * 2048 * 2048, delta=1e-3)
            if run["name"].startswith("layer"):
                self.assertGreater(run["us:grouped_gemm"], 0)
                self.assertGreater(run["us:combine"], 0)
                self.assertEqual(run["calls:combine"], 1)
                self.assertIn(run["calls:grouped_gemm"], (2, 3))  # the router's product may be CLBlast's
                self.assertGreater(run["GFLOP/s:grouped_gemm"], 0)
                self.assertGreater(run["GB/s:combine"], 0)
        self.assertEqual(len([run for run in runs if run["name"] == NAME]), 3)
        self.assertIn(NAME + "_median", {run["name"] for run in found["benchmarks"]})

    def test_table(self):
        text = self.succeed("bench", *MODEL, "--experts", 8, "--filter", NAME)
        for word in ("roof:", "GFLOP/s", "% roof", NAME, "Portable"):
            self.assertIn(word, text)

    def test_replayed_routing(self):
        """Every token goes to the first 8 of 64 experts: an eighth of the weights is read."""
        trace = self.folder / "trace.safetensors"
        common = ("--filter", "^grouped_gemm/", "--tokens", 64, "--schemes", "bf16")
        for name in ("topk_ids", "layer.3.topk_ids"):  # of run's --output, and of its --record
            save(trace, {name: ("I32", numpy.tile(numpy.arange(8), (3, 1)))})
            narrow, = self.bench(*common, "--routing", trace, experts=64)["benchmarks"]
        wide, = self.bench(*common, experts=64)["benchmarks"]
        self.assertEqual(narrow["name"], "grouped_gemm/olmoe-1b-7b+trace/bf16/T:64/moecl")
        flops, (few, all_of_them) = 2e-9 * 64 * 8 * 2048 * 2048, (run["GB/s"] / run["GFLOP/s"] for run in (narrow, wide))
        self.assertAlmostEqual((all_of_them - few) * flops, 56 * 2048 * 2048 * 2 / 1e9, delta=1e-3)

    def test_baseline(self):
        old = self.bench("--filter", NAME, "--tokens", 4, "--schemes", "bf16", "--repetitions", 2)
        old["context"]["slow_mode"] = False
        path = self.folder / "old.json"

        def compare(factor):
            for run in old["benchmarks"]:
                run["real_time"] *= factor
            path.write_text(json.dumps(old))
            return self.start("bench", *MODEL, "--experts", 8, "--filter", NAME, "--tokens", 4, "--schemes", "bf16", "--repetitions", 2,
                              "--baseline", path)

        def expect(done, code, text):
            """A machine in a slow mode, as one that runs other tests may be, compares with nothing, and that is said."""
            slow = "slow mode" in done.stderr
            self.assertEqual(done.returncode, 3 if slow else code, done.stderr)
            self.assertIn("compare with nothing" if slow else text, done.stderr + done.stdout)

        expect(compare(1000), 0, "0 of 1 benchmarks")  # far slower then
        expect(compare(1e-6), 1, "SLOWER")

    def test_report(self):
        """The page is well-formed, needs nothing from elsewhere, and its plots have a mark a result."""
        path, trace = self.folder / "report.html", self.folder / "traces" / "trace.json"
        trace.parent.mkdir()
        document = self.bench("--filter", "^(grouped_gemm|layer)/", "--tokens", "1,4", "--schemes", "bf16,int8_w8a8",
                              "--report", path, "--trace", trace)
        text = path.read_text()
        self.assertNotRegex(text, r"src=|@import|url\(|<script")
        page = xml.etree.ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
        sections = {section.get("id"): section for section in page.iter("section")}
        self.assertEqual(list(sections), ["summary", "roof", "kernels", "roofline", "scaling", "numbers"])
        marks = lambda section, tag: sum(1 for mark in sections[section].iter(tag) if mark.find("title") is not None)
        self.assertEqual(len(document["benchmarks"]), 8)
        self.assertEqual(marks("roofline", "circle"), 8)
        self.assertIn(marks("roofline", "polyline"), (1, 2, 3))  # peaks that coincide are one
        self.assertEqual(marks("roof", "rect"), 8)
        kernels = sum(key.startswith("us:") for benchmark in document["benchmarks"] for key in benchmark)
        self.assertGreaterEqual(kernels, 4 * 3)
        self.assertEqual(marks("kernels", "rect"), kernels)
        self.assertEqual(marks("scaling", "circle"), 4)
        self.assertIn(document["context"]["device"], text)
        self.assertIn('href="traces/trace.json"', text)
        events = json.loads(trace.read_text())["traceEvents"]
        self.assertEqual([event["name"] for event in events if event.get("cat") == "span" and event["name"].startswith("layer/")],
                         [f"layer/olmoe-1b-7b-e8/{scheme}/T:{tokens}" for scheme in ("bf16", "int8_w8a8") for tokens in (1, 4)])
        traced = sum(benchmark.get("calls:grouped_gemm", 0) for benchmark in document["benchmarks"])
        self.assertEqual(sum(event["name"] == "grouped_gemm" and event.get("cat") == "kernel" for event in events), traced)

    def test_compare(self):
        """Devices named by a part of their names, or their platform's, are measured in turn and stand beside each other."""
        page = self.folder / "compared.html"
        device, = (found["name"] for found in json.loads(self.succeed("devices", "--json"))
                   if found["platform"].startswith("Portable"))
        few = ("--compare", "Portable", device, "--shapes", "olmoe-1b-7b", "--min-time", 0.001, "--experts", 8, "--filter", NAME,
               "--tokens", 4, "--schemes", "bf16")
        runs = json.loads(self.succeed("bench", *few, "--json", "--report", page))["runs"]
        self.assertEqual([run["context"]["device"] for run in runs], [device, device])
        for run in runs:
            self.assertEqual([benchmark["name"] for benchmark in run["benchmarks"]], [NAME])
        self.assertIn(device, page.read_text())
        text = self.succeed("bench", *few)
        self.assertEqual(text.split().count("us"), 2, text)
        self.assertIn(NAME[:10], text)
        self.refused(4, "frobnicate", "bench", "--compare", "Portable", "frobnicate")
        self.refused(2, "--device", "bench", "--compare", "Portable", "--device", "cpu")
        self.refused(2, "--filter frobnicate", "bench", "--compare", "Portable", "--filter", "frobnicate")

    def test_ranks(self):
        """Bytes as STRATEGIES.md says: 16 tokens of 2048 numbers of bf16, each with experts on both ranks, 4 of 8 there."""
        w, t = 2048 * 2, 8
        there, sums = t * (w + 8 * 8), t * 2048 * 4
        expected = {"mc2": there + sums, "allgather": there + sums, "multicast": there + 2 * sums, "all2allv": 4 * 8 + 4 * t * (w + 2048 * 4)}
        name = "layer/olmoe-1b-7b-e8/bf16/T:16/ranks:2/moecl"
        few = "bench", *MODEL, "--experts", 8, "--schemes", "bf16", "--tokens", 16, "--json"
        for strategy, options, by in [(strategy, ("--ranks", 2), ()) for strategy in expected] + [
                ("mc2", ("--ranks", 2, "--launch", "processes"), ()), ("allgather", ("--ranks", "mpi"), ("mpirun.openmpi", "--oversubscribe", "-n", "2"))]:
            with self.subTest(strategy=strategy, options=options):
                done = subprocess.run([*by, MOECL, *map(str, few), *map(str, options), "--strategy", strategy], capture_output=True, text=True,
                                      timeout=120, env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
                self.assertEqual(done.returncode, 0, done.stderr)
                found = json.loads(done.stdout)
                run, = found["benchmarks"]
                self.assertEqual((run["name"], run["bytes exchanged"], run["bytes between nodes"]), (name, 2 * expected[strategy], 0))
                launch = "mpi" if by else "processes" if "processes" in options else "threads"
                transport = "shared_context" if launch == "threads" else "shared_memory"  # ranks of mpirun are on one node
                context = found["context"]
                self.assertEqual([context[key] for key in ("ranks", "launch", "strategy", "transport")], [2, launch, strategy, transport])
                self.assertEqual(run["label"], f"{strategy} by {transport}")
                self.assertLess(0, run["host us"])
                self.assertLessEqual(run["host us"], run["real_time"])
        self.assertEqual(self.names("--ranks", 2, *MODEL[2:4], "--experts", 8, "--schemes", "bf16", "--tokens", "16"), [name])
        text = self.succeed(*few[:-1], "--ranks", 2, "--routing", "zipf", "--topology", "1,1", "--strategy", "mc2")
        self.assertIn("2 ranks as threads, by shared_context", text)
        self.assertIn("layer/olmoe-1b-7b-e8+zipf/bf16/T:16/ranks:2/moecl", text)
        self.refused(2, "--tp 3: does not divide 2 ranks", "bench", "--ranks", 2, "--tp", 3, "--list")
        self.refused(2, "--ranks", "bench", "--ranks", 2, "--compare", "Portable")
        self.refused(2, "--strategy mc2 without --ep", "bench", "--ranks", 2, "--no-ep", "--strategy", "mc2", "--list")

    def test_interrupted(self):
        """The report has what was measured before the command was stopped."""
        report = self.folder / "interrupted.html"
        command = subprocess.Popen([MOECL, "bench", *MODEL[:4], "--min-time", "0.2", "--experts", "8", "--schemes", "bf16",
                                    "--filter", "^grouped_gemm/", "--tokens", "1,2,3,4,5,6,7,8", "--report", report],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with command:
            first = next(line for line in command.stdout if line.startswith("grouped_gemm/")).split()[0]
            command.send_signal(signal.SIGINT)
            command.stdout.read()  # a closed pipe would end it too
            said = command.stderr.read()
        self.assertEqual(command.returncode, 1, said)
        self.assertRegex(said, r"interrupted after [1-7] benchmarks")
        self.assertIn(first, report.read_text())
        self.assertNotIn(first.replace("T:1", "T:8"), report.read_text())

    def catches(self, process, number):
        caught = re.search(r"SigCgt:\s*([0-9a-f]+)", pathlib.Path(f"/proc/{process}/status").read_text()).group(1)
        return int(caught, 16) >> number - 1 & 1

    def test_interrupted_twice(self):
        """The second signal ends the command at once, whichever signal it is."""
        for numbers in ((signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGTERM)):
            with self.subTest(numbers):
                command = subprocess.Popen([MOECL, "bench", *MODEL[:4], "--min-time", "60", "--experts", "8", "--schemes", "bf16",
                                            "--filter", "^grouped_gemm/", "--tokens", "1,2"], stdout=subprocess.PIPE, text=True)
                with command:
                    command.stdout.readline()  # the heading: signals are noted from here on
                    command.send_signal(numbers[0])
                    while self.catches(command.pid, numbers[1]):  # until the first is noted: two at once may be one
                        time.sleep(0.01)
                    command.send_signal(numbers[1])
                    self.assertEqual(command.wait(20), -numbers[1])

    def test_tune_dense(self):
        """A table measured here precedes the shipped one and says so. A damaged table is ignored with a warning."""
        home = {"XDG_DATA_HOME": str(self.folder)}
        table = self.folder / "moecl/tuning/dense_backend.json"
        tune = "tune", "--platform", "Portable", "--filter", "dense", "--time-limit"
        self.assertIn("shipped with moecl", self.succeed("tune", "--list", "--platform", "Portable", **home))
        done = self.start(*tune, 0, **home)
        self.assertEqual(done.returncode, 1, done)
        self.assertFalse(table.exists())
        text = self.succeed(*tune, 60, **home)
        self.assertIn(f"wrote {table}", text)
        entry, = json.loads(table.read_text())["entries"]
        for product in entry["dense"] + entry["batched"]:
            self.assertGreater(product["grouped_gemm_gflops"], 0)
            self.assertGreater(product["clblast_gflops"], 0)
        other = {"match": {"device": "somewhere else"}, "measured_on": "it", "dense": [], "batched": []}
        for product in entry["dense"]:
            product["clblast_gflops"] = 1e6
        table.write_text(json.dumps({"entries": [other, entry]}))
        text = self.succeed("tune", "--list", "--platform", "Portable", **home)
        self.assertRegex(text, rf"dense products +clblast +.*\({table}\)")
        layer = "run", golden("mixtral-t0"), "--platform", "Portable", "--tokens", 2, "--json"
        self.assertEqual(json.loads(self.succeed(*layer, **home))["dense_backend"]["name"], "clblast")
        self.succeed(*tune, 60, **home)
        self.assertEqual([kept["match"] for kept in json.loads(table.read_text())["entries"]], [entry["match"], other["match"]])
        table.write_text("{")
        done = self.start(*layer, **home)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stderr, rf"warning: {table}: ignored: ")
        self.assertEqual(json.loads(done.stdout)["dense_backend"]["name"], "grouped_gemm")
        self.assertIn("ignored", self.succeed("tune", "--list", "--platform", "Portable", **home))
        done = self.start(*tune, 0.05, **home)
        self.assertEqual((done.returncode, table.read_text()), (3, "{"), done)
        self.assertIn("remove it to tune anew", done.stderr)
        self.refused(2, "--time-limit", "tune", "--time-limit", "soon")
        self.refused(2, "frobnicate", "tune", "--filter", "frobnicate", "--platform", "Portable")

    def test_tune_keeps_its_time(self):
        """Also if a driver still compiles when the time is over, as with an empty cache, and does not end."""
        dying = {"OPENCL_LAYERS": str(MOECL.parent / "tests/libdying_compiler.so"), "DYING_COMPILER": "hang:void combine("}
        for limit, compiler in ((0.5, {}), (4, {}), (4, dying)):
            cache = tempfile.mkdtemp(dir=self.folder)
            begun = time.monotonic()
            done = self.start("tune", "--platform", "Portable", "--time-limit", limit, XDG_DATA_HOME=str(self.folder),
                              XDG_CACHE_HOME=cache, **compiler)
            self.assertLess(time.monotonic() - begun, 1.1 * limit + 20)  # the machine runs other tests too; all takes minutes
            self.assertRegex(done.stdout, r"the time was over after [0-9]+ of [0-9]+ choices\n")
            self.assertEqual(done.returncode, 0 if "\nwrote " in done.stdout else 1, done)

    def test_interrupted_tune(self):
        """The table has what was measured before the command was stopped."""
        command = subprocess.Popen([MOECL, "tune", "--platform", "Portable", "--filter", "dense", "--time-limit", "1000"],
                                   env={**os.environ, "XDG_DATA_HOME": str(self.folder)}, stdout=subprocess.PIPE, text=True)
        with command:
            self.assertRegex(command.stdout.readline(), r"^dense products: \{")
            command.send_signal(signal.SIGINT)
            command.stdout.read()  # a closed pipe would end it too
        self.assertEqual(command.returncode, -signal.SIGINT)
        entry, = json.loads((self.folder / "moecl/tuning/dense_backend.json").read_text())["entries"]
        self.assertGreaterEqual(len(entry["dense"] + entry["batched"]), 1)

    def test_tune_operators(self):
        """The next run uses a measured table. Nonsense is ignored with a warning. The trace shows the choices."""
        home = {"XDG_DATA_HOME": str(self.folder)}
        table = self.folder / "moecl/tuning/operators.json"
        tune = "tune", "--platform", "Portable", "--time-limit", 10000, "--filter"
        self.assertRegex(self.succeed("tune", "--list", "--platform", "Portable", **home), r"combine/lanes +1 +default")
        done = self.start(*tune, "combine", **home, XDG_CACHE_HOME=str(self.folder / "cache"), MOECL_LOG="info")
        self.assertIn(f"wrote {table}", done.stdout)
        for lanes in (1, 4, 16):  # the benchmark's rows are of f32 and bf16, the check's of f32 alone
            self.assertRegex(done.stderr, f"built combine, .* -DLANES={lanes} -DROWS_DTYPE=f32 -DOUT_DTYPE=bf16")
        entry, = json.loads(table.read_text())["entries"]
        self.assertLessEqual(set(entry["choices"]), {"combine/lanes"})
        entry["choices"]["combine/lanes"] = 16
        table.write_text(json.dumps({"entries": [entry]}))
        self.assertIn(f"wrote {table}", self.succeed(*tune, "grouped_gemm/f32", **home))
        entry, = json.loads(table.read_text())["entries"]
        self.assertEqual(entry["choices"]["combine/lanes"], 16)  # a choice that was not measured again is kept
        products = {name: rows for name, rows in entry["choices"].items() if name.startswith("grouped_gemm/f32/f32/")}
        self.assertLessEqual({"grouped_gemm/f32/f32/t0_tile", "grouped_gemm/f32/f32/t0_tile16"}, set(products))
        self.assertEqual(sorted(map(str, products.values())), ["0"] * (len(products) - 1) + ["any"])
        entry["choices"].update({name: "any" if name.endswith("/t0_tile16") else 0 for name in products})
        table.write_text(json.dumps({"entries": [entry]}))
        text = self.succeed("tune", "--list", "--platform", "Portable", **home)
        self.assertRegex(text, rf"combine/lanes +16 +device, measured on .*\({table}\)")
        self.assertRegex(text, rf"grouped_gemm/f32/f32/t0_tile +never +device, .*\({table}\)")
        layer = "run", golden("mixtral-e8k2"), "--platform", "Portable", "--tokens", 2, "--dtype", "f32", "--json"
        done = self.start(*layer, **home, MOECL_LOG="info")
        self.assertIn("combine/lanes 16, device", done.stderr)
        variants = {(kernel["name"], kernel["variant"]) for kernel in json.loads(done.stdout)["kernels"]}
        self.assertLessEqual({("combine", "row_per_group"), ("grouped_gemm", "t0_tile16")}, variants)
        self.assertIn("0 failed", self.succeed("verify", golden("mixtral-e8k2"), "--platform", "Portable", "--dtype", "f32", **home))
        table.write_text(json.dumps({"entries": [{"match": {}, "measured_on": "it", "choices": {"combine/lanes": 12}}]}))
        done = self.start(*layer, **home)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stderr, rf"warning: {table}: ignored: combine/lanes: expected a power of two, at most [0-9]+, got 12")
        variants = {(kernel["name"], kernel["variant"]) for kernel in json.loads(done.stdout)["kernels"]}
        self.assertIn(("combine", "row_per_item"), variants)

    def test_refusals(self):
        self.refused(2, "no/such", "bench", "--filter", "no/such")
        self.refused(2, "frobnicate", "bench", "--shapes", "frobnicate", "--list")
        self.refused(2, "int3_w3a3", "bench", "--schemes", "int3_w3a3", "--list")
        self.refused(2, "999 experts", "bench", "--shapes", "olmoe-1b-7b", "--experts", 999, "--list")
        self.refused(2, "top_k", "bench", "--shapes", "olmoe-1b-7b", "--experts", 4, "--list")
        self.refused(2, "--tokens", "bench", "--tokens", "0", "--list")
        for listed in ((), ("--list",), ("--list", "--json")):
            self.refused(2, "--filter: expected a regular expression, got [: ", "bench", "--filter", "[", *listed)
            self.refused(2, "--filter frobnicate: no benchmark", "bench", "--filter", "frobnicate", *listed)
        self.refused(3, "no/such", "bench", "--routing", "/no/such")
        self.refused(3, "topk_ids", "bench", "--routing", golden("mixtral-t0") / "model.safetensors")
        self.refused(3, "no/such", "bench", "--baseline", "/no/such")
        path = self.folder / "old.json"
        for text in ("", "[]", "{}", '{"benchmarks": [{}]}'):
            path.write_text(text)
            self.refused(3, "old.json", "bench", "--baseline", path)
        path.write_text('{"context": {"platform": "other"}, "benchmarks": []}')
        self.refused(3, "measured on", "bench", "--platform", "Portable", "--baseline", path)
        for option in ("--baseline", "--routing"):
            self.refused(2, f"--report {path}: expected another file than {option} {path}", "bench", "--report", path, option, path)
        self.refused(4, "frobnicate", "bench", "--platform", "frobnicate", "--filter", NAME)


if __name__ == "__main__":
    main()
