"""The report page in headless Chromium: as wide as a phone and as a desk, light and dark, measured by script.

The page is of results that are made here, the same each time: two devices and a later commit, names that are long, many
points, kernels, counters, and a trace.
"""
import csv
import io
import json
import pathlib
import random
import urllib.parse

from browser import Browser
from command import CommandTest, main

WIDTHS = (390, 1280)
TOKENS = (1, 16, 128, 2048, 16384)
SCHEMES = ("bf16", "fp8_w8a8_block", "int4_w4a16")
SHAPES = ("qwen3-235b-a22b-thinking-2507-e128", "olmoe-1b-7b")
KERNELS = ("gating_top_k", "expert_sort", "route_tokens", "quantize_groups", "grouped_gemm", "gated_activation", "combine",
           "gather_rows", "fused_moe", "dense_products")
LONG_DEVICE = "pthread-sapphirerapids-Intel(R) Xeon(R) Processor @ 2.00GHz"

# What a reader sees is measured by one function: it opens the folds and returns sentences, one a fault.
MEASURE = (pathlib.Path(__file__).parent / "report_test.js").read_text()


def repetition(name, microseconds, number, **counters):
    return {"name": name, "run_name": name, "run_type": "iteration", "repetitions": 5, "repetition_index": number, "threads": 1,
            "iterations": 10, "real_time": microseconds, "cpu_time": microseconds, "time_unit": "us", "label": "nv_sm90a_128", **counters}


def results(device, commit, speed, seed):
    """A document as `moecl bench --json` writes it."""
    dice = random.Random(seed)
    context = {"date": "2026-11-25T17:42:47+00:00", "platform": "Portable Computing Language", "device": device, "driver": "3.1+debian",
               "compute_units": 132, "moecl_commit": commit, "slow_mode": seed == 2, "trace": "a folder/trace #1.json",
               "roof": {"f32_gflops": 1000.0, "bf16_gflops": 1010.0, "int8_gops": 4000.0, "read_gb_per_s": 100.0, "copy_gb_per_s": 90.0}}
    benchmarks = []
    for what in ("layer", "down"):
        for shape in SHAPES:
            for scheme in SCHEMES:
                for tokens in reversed(TOKENS):  # not in their natural order
                    for number in range(5):
                        us = 40 * tokens**0.6 / speed * dice.uniform(0.97, 1.06)
                        share = min(115.0, 1000 * dice.uniform(0.95, 1.05) / (tokens**0.5 + 8))
                        counters = {"GFLOP/s": 8e4 * tokens**0.4 / us, "GB/s": 3000.0 / us, "% of roof": share}
                        if what == "layer":
                            for kernel in KERNELS:
                                counters |= {"us:" + kernel: us * dice.uniform(0.01, 0.3), "calls:" + kernel: 2.0,
                                             "GB/s:" + kernel: 812.5, "GFLOP/s:" + kernel: 12345.0}
                        benchmarks.append(repetition(f"{what}/{shape}/{scheme}/T:{tokens}/moecl", us, number, **counters))
    for tokens in (16, 128, 1):
        name = f"npu_moe_distribute_dispatch_v2+combine_v2/bf16_and_a_word_that_has_no_end_at_all/T:{tokens}/E:256/K:8/H:7168/ranks:2"
        benchmarks += [repetition(name, 1e6 * tokens, number, **{"exchange us": 12.5}) for number in range(5)]
    return {"context": context, "benchmarks": benchmarks}


class Report(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    def page(self, runs):
        """The report of runs, each a document."""
        path, files = self.folder / "report.html", []
        for number, run in enumerate(runs):
            files.append(self.folder / f"results {number}.json")
            files[-1].write_text(json.dumps(run))
        self.succeed("bench", "--report", path, "--results", ",".join(map(str, files)))
        return path

    def several(self):
        return self.page([results("NVIDIA H100 80GB HBM3", "21b69f8eeced", 1, 1), results("NVIDIA H100 80GB HBM3", "02cc2ce93cb8", 1.2, 2),
                          results(LONG_DEVICE, "02cc2ce93cb8+", 0.04, 3)])

    def looked_at(self, path):
        """Faults of the page at each width, light and dark."""
        faults = []
        for width in WIDTHS:
            for dark in (False, True):
                asked = self.browser.open(path, width, dark)
                if asked != [path.as_uri()]:
                    faults.append(f"asks for {asked}")
                faults += [f"{width} px, {'dark' if dark else 'light'}: {fault}" for fault in self.browser.run(f"({MEASURE})()")]
        return faults

    def test_several_runs(self):
        path = self.several()
        self.assertEqual(self.looked_at(path), [])
        self.assertEqual(self.browser.run("[...document.querySelectorAll('section')].map(section => section.id)"),
                         ["summary", "comparison", "roof", "kernels", "roofline", "scaling", "repetitions", "numbers"])
        self.orders()
        self.roofs()
        self.links(path)

    def test_one_run(self):
        self.assertEqual(self.looked_at(self.page([results("a device", "0123456789ab", 1, 1)])), [])
        self.assertNotIn("comparison", self.browser.run("[...document.querySelectorAll('section')].map(section => section.id)"))

    def orders(self):
        """Rows stand by their tokens, groups and operators by their names."""
        for tables in self.browser.run("""["comparison", "roof", "kernels", "repetitions", "numbers"].map(id =>
                [...document.querySelectorAll("#" + id + " details > .groups table")].map(table => [...table.querySelectorAll("th")]
                    .filter(head => /^T:\\d+/.test(head.textContent)).map(head => head.firstChild.data.trim())))"""):
            self.assertIn([f"T:{tokens}" for tokens in TOKENS], tables)
            for rows in tables:
                self.assertEqual(rows, sorted(rows, key=lambda row: int(row[2:].split()[0])))
        self.assertEqual(self.browser.run("[...document.querySelectorAll('#numbers h3')].map(head => head.textContent)"),
                         ["down", "layer", "npu_moe_distribute_dispatch_v2+combine_v2"])

    def roofs(self):
        """f32 and bf16 are within a line's width of each other: one line has both names."""
        lines = self.browser.run("""[...document.querySelectorAll("#roofline figure")].map(figure =>
            [...figure.querySelectorAll("polyline")].map(line => line.textContent))""")
        self.assertEqual(lines, 3 * [["f32, bf16: 1.0 TFLOP/s", "int8: 4.0 TOP/s"]])
        self.assertIn("slow mode", self.browser.run("document.querySelectorAll('.run')[1].textContent"))
        self.assertNotIn("slow mode", self.browser.run("document.querySelectorAll('.run')[0].textContent"))
        for nearest in self.browser.run("[...document.querySelectorAll('.run ol:first-of-type li')].map(item => parseFloat(item.lastChild.textContent))"):
            self.assertLessEqual(nearest, 110)

    def links(self, path):
        """The numbers as CSV, and the trace where it was written, from the page's own folder."""
        links = self.browser.run("[...document.links].map(link => link.getAttribute('href'))")
        sections = [link[1:] for link in links if link.startswith("#")]
        self.assertEqual(sections, self.browser.run("[...document.querySelectorAll('section')].map(section => section.id)"))
        table, *traces = (link for link in links if not link.startswith("#"))
        self.assertEqual(len(traces), 3)
        self.assertEqual((pathlib.Path(path.parent) / urllib.parse.unquote(traces[0])).resolve(), pathlib.Path("a folder/trace #1.json").resolve())
        kind, text = table.split(",", 1)
        self.assertEqual(kind, "data:text/csv;charset=utf-8")
        rows = list(csv.DictReader(io.StringIO(urllib.parse.unquote(text))))
        self.assertEqual(len(rows), 3 * (2 * len(SHAPES) * len(SCHEMES) * len(TOKENS) + 3))
        for row in rows:
            times = sorted(map(float, row["all_us"].split()))
            self.assertEqual((len(times), times[2], times[0], times[-1]),
                             (int(row["repetitions"]), float(row["median_us"]), float(row["least_us"]), float(row["most_us"])))
        self.assertEqual(rows[0]["calls:combine"], "2")
        self.assertEqual({row["device"] for row in rows}, {"NVIDIA H100 80GB HBM3", LONG_DEVICE})

    def test_faults_are_seen(self):
        """Each measure finds its fault in a page that has it."""
        runs = [results("a device", "0123456789ab", 1, 1), results("a device", "0123456789ac", 2, 4)]
        for run in runs:
            del run["benchmarks"][5 * len(TOKENS):]
        path = self.page(runs)
        text = path.read_text()
        for style, said in (("body { width: 1500px }", "the page is"), ("td { font-size: 10px }", "text of 10 px"),
                            ("svg text { font-size: 9px }", "text of 9 px"), (":root { --soft: #999 }", "contrast below 4.5"),
                            (":root { --c0: #eee }", "a mark with contrast below 3"), ("td { position: relative; left: 300px }", "text from"),
                            ("h4 { margin-bottom: -1rem }", "overlaps"), ("svg.track { width: 300%; max-width: none }", "overlaps"),
                            ("td { max-width: 2rem; overflow: hidden }", "is clipped"), ("rect { transform: scaleX(0.5) }", "says"),
                            ("rect { transform: translateX(200px) }", "outside of its plot"), ("dd span, li span { margin-left: -9rem }", "sticks out"),
                            (":root { --page: #000; --text: #fff; --soft: #fff }", "not as dark")):
            path.write_text(text.replace("</style>", style + "</style>"))
            self.browser.open(path, 390, False)
            self.assertIn(said, "\n".join(self.browser.run(f"({MEASURE})()")), style)
        for there, instead, said in (("scope=", "x=", "without headers"), ('role="img"', "", "without a name"), ('lang="en"', "", "no language"),
                                     ("<span>50</span>", "<span>60</span>", "another scale")):
            path.write_text(text.replace(there, instead))
            self.browser.open(path, 390, False)
            self.assertIn(said, "\n".join(self.browser.run(f"({MEASURE})()")), there)
        path.write_text(text.replace("</main>", f'<img src="{path.with_name("other.png").as_uri()}"/></main>'))
        self.assertEqual(len(self.browser.open(path, 390, False)), 2)

    def test_old_results(self):
        """Results of other programs and of older builds: facts as text, no repetitions, no roof."""
        run = results("a device", "0123456789ab", 1, 1)
        del run["benchmarks"][5:]
        for benchmark in run["benchmarks"]:
            del benchmark["% of roof"], benchmark["label"]
        run["context"] = {"roof": json.dumps({"f32_gflops": 5}), "slow_mode": "false"}
        self.assertEqual(self.looked_at(self.page([run])), [])
        self.assertNotIn("slow mode", self.browser.run("document.body.textContent"))
        for run["context"] in ({"roof": "no JSON", "slow_mode": 3}, 5):
            self.assertIn("unknown device", self.page([run]).read_text())

    def test_refusals(self):
        results_file = self.folder / "results.json"
        for text in ("", "[]", '{"benchmarks": [{}]}'):
            results_file.write_text(text)
            self.refused(3, "results.json", "bench", "--results", results_file, "--report", self.folder / "new.html")
        self.refused(2, "--report", "bench", "--results", results_file)
        self.refused(2, "--report", "bench", "--results", results_file, "--report", results_file)
        for option in (["--json"], ["--list"], ["--baseline", "old.json"], ["--trace", "trace.json"]):
            self.refused(2, option[0], "bench", "--results", results_file, "--report", self.folder / "new.html", *option)
        self.refused(2, "--trace", "bench", "--report", self.folder / "new", "--trace", self.folder / "new")
        self.refused(3, "no/such", "bench", "--results", "/no/such", "--report", self.folder / "new.html")


if __name__ == "__main__":
    main()
