"""bench/peers/medians.py on small runs whose medians and ratios are seen at a glance.

usage: medians_test.py MEDIANS.py
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

MEDIANS = pathlib.Path(sys.argv.pop(1)).resolve()
ROOF = {"f32_gflops": 200, "bf16_gflops": 400, "int8_gops": 800, "read_gb_per_s": 50}


def measured(name, microseconds, gflops=0.0, gigabytes=0.0):
    return {"name": name, "real_time": microseconds, "GFLOP/s": gflops, "GB/s": gigabytes}


class Medians(unittest.TestCase):
    def table(self, *runs, slow_mode=False):
        """(lines on stdout, stderr) for runs that are lists of `measured`."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, benchmarks in enumerate(runs):
                paths.append(pathlib.Path(folder, f"{number}.json"))
                paths[-1].write_text(json.dumps({"context": {"roof": ROOF, "slow_mode": slow_mode}, "benchmarks": benchmarks}))
            done = subprocess.run([sys.executable, MEDIANS, *paths], capture_output=True, text=True, check=True)
        return done.stdout.splitlines(), done.stderr

    def test_ratios_are_of_one_process_and_medians_of_all(self):
        # A slow process slows both sides. The median of the ratios 2, 1 and 1.5 is not the ratio of the medians, 200 / 100.
        runs = [[measured("layer/a/f32/moecl", ours, ours / 2, ours / 4), measured("layer/a/f32/onednn", peer)]
                for ours, peer in ((100, 200), (1000, 1000), (60, 90))]
        lines, errors = self.table(*runs)
        self.assertEqual(lines, ["| case | us | better peer / moecl | % of peak | % of read |", "| --- | --- | --- | --- | --- |",
                                 "| layer/a/f32 | 100 | 1.50 | 25 | 50 |", "",
                                 "3 processes; geometric mean of 1 ratios 1.50, least 1.50"])
        self.assertEqual(errors, "")

    def test_the_faster_peer_counts(self):
        lines, _ = self.table([measured("layer/a/f32/onednn", 300), measured("layer/a/f32/openblas", 80),
                               measured("layer/a/f32/moecl", 100), measured("layer/b/f32/openblas", 320),
                               measured("layer/b/f32/moecl", 100)])
        self.assertIn("| layer/a/f32 | 100 | 0.80 | 0 | 0 |", lines)
        self.assertEqual(lines[-1], "1 processes; geometric mean of 2 ratios 1.60, least 0.80")  # sqrt(0.8 * 3.2)

    def test_each_type_has_its_peak_and_a_case_may_have_no_peer(self):
        lines, _ = self.table([measured(f"layer/a/{dtype}/moecl", 10, 100, 5)
                               for dtype in ("f32", "bf16", "int8_w8a8", "int4_w4a16")])
        self.assertEqual(lines[2:], ["| layer/a/f32 | 10 |  | 50 | 10 |", "| layer/a/bf16 | 10 |  | 25 | 10 |",
                                     "| layer/a/int8_w8a8 | 10 |  | 12 | 10 |", "| layer/a/int4_w4a16 | 10 |  | 25 | 10 |"])

    def test_says_which_run_was_in_slow_mode(self):
        _, errors = self.table([measured("layer/a/f32/moecl", 1)], slow_mode=True)
        self.assertRegex(errors, r"\A.*0\.json: slow mode\n\Z")

    def test_without_runs_it_says_how_to_use_it(self):
        done = subprocess.run([sys.executable, MEDIANS], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("usage: medians.py", done.stderr)


if __name__ == "__main__":
    unittest.main()
