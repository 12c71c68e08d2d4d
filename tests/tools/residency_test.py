#!/usr/bin/env python3
"""`moecl run` and `verify` with a memory budget: the golden outputs, what the summary counts, and what is refused.

usage: residency_test.py MOECL DATA_DIR [unittest option...]
"""
import json

import numpy

from command import CommandTest, golden, load, main


class Residency(CommandTest):
    def run_json(self, model, *options):
        return json.loads(self.succeed("run", golden(model), "--json", *options))

    def test_goldens_under_every_budget(self):
        for budget, missed in (("1%", "fetched"), ("34%", "fetched"), ("34%", "auto")):
            for options in ((), ("--ranks", 2, "--ep", "--strategy", "all2allv"), ("--ranks", 2, "--tp", 2, "--strategy", "allgather")):
                with self.subTest(budget=budget, options=options):
                    shown = self.succeed("verify", golden("qwen2-moe-e16k4"), golden("mixtral-awq-e4k2"), "--memory-budget", budget,
                                         "--missed-experts", missed, *options)
                    self.assertIn("2 passed, 0 failed", shown)

    def test_summary(self):
        """Eight experts of 64 in four passes of one token: eight misses, then hits. A quarter of the experts fits."""
        whole = self.run_json("qwen3-moe-e64k8", "--tokens", 1)
        self.assertNotIn("residency", whole)
        got = self.run_json("qwen3-moe-e64k8", "--tokens", 1, "--repeat", 2, "--memory-budget", "25%", "--residency", "lru")
        self.assertEqual(got["host_syncs"], 0)
        for missed in ("fetched", "in-place"):
            by = self.run_json("qwen3-moe-e64k8", "--tokens", 1, "--repeat", 2, "--memory-budget", "25%", "--residency", "lru",
                               "--missed-experts", missed)["residency"]
            self.assertEqual(by.pop("missed_experts"), missed)
            self.assertEqual(by, {key: value for key, value in got["residency"].items() if key != "missed_experts"})
        self.assertIn("in-place: a CPU's memory is the host's", got["residency"]["missed_experts"])
        told = got["residency"]
        self.assertEqual((told["policy"], told["resident"], told["hits"], told["misses"]), ("lru", 16, 24, 8))
        self.assertEqual(told["fetched_bytes"] * 2, told["budget_bytes"])
        self.assertEqual(whole["weight_bytes"] - got["weight_bytes"] > 2.9 * told["budget_bytes"], True)
        one = told["budget_bytes"] // 16
        self.assertEqual(self.run_json("qwen3-moe-e64k8", "--memory-budget", 3 * one + 1)["residency"]["resident"], 3)
        self.assertEqual(self.run_json("qwen3-moe-e64k8", "--memory-budget", "24.9%")["residency"]["resident"], 16)
        ranks = self.run_json("qwen3-moe-e64k8", "--memory-budget", "25%", "--ranks", 2, "--ep")
        self.assertEqual(ranks["residency"]["resident"], 16)
        self.assertEqual(ranks["residency"]["policy"], "least-stale")

    def test_prefetch(self):
        """The same experts are loaded before the first pass. The trace shows what loaded them."""
        trace, out = self.folder / "trace.json", self.folder / "out.safetensors"
        run = ("qwen3-moe-e64k8", "--tokens", 1, "--repeat", 2, "--memory-budget", "25%", "--residency", "lru")
        for missed in ("fetched", "in-place"):
            with self.subTest(missed):
                got = self.run_json(*run, "--missed-experts", missed, "--prefetch", "--trace", trace, "--output", out)
                told = got["residency"]
                self.assertEqual((told["hits"], told["misses"], told["prefetched"], told["prefetched_hits"]), (32, 0, 8, 8))
                self.assertEqual(told["fetched_bytes"] * 2, told["budget_bytes"])
                self.assertEqual(got["host_syncs"], 0)
                self.assertIn("prefetch experts", trace.read_text())
                without = self.folder / "without.safetensors"
                self.run_json(*run, "--output", without)
                numpy.testing.assert_array_equal(load(out)["output"][1], load(without)["output"][1])
        self.refused(2, "--prefetch: needs a --memory-budget", "run", golden("qwen3-moe-e64k8"), "--prefetch")

    def test_prefetch_over_ranks(self):
        """Each rank loads the experts at its places that the token of the first rank chooses."""
        trace, out, without = self.folder / "trace.json", self.folder / "out.safetensors", self.folder / "without.safetensors"
        run = ("qwen3-moe-e64k8", "--tokens", 1, "--repeat", 2, "--memory-budget", "50%", "--residency", "lru", "--ranks", 2, "--ep")
        for strategy in ("mc2", "allgather"):
            with self.subTest(strategy):
                got = self.run_json(*run, "--strategy", strategy, "--prefetch", "--trace", trace, "--output", out)
                told = got["residency"]
                self.assertEqual((told["hits"], told["misses"], told["prefetched"], told["prefetched_hits"]), (32, 0, 8, 8))
                self.assertEqual(got["host_syncs"], 0)
                self.assertIn("prefetch experts", trace.read_text())
                self.run_json(*run, "--strategy", strategy, "--output", without)
                numpy.testing.assert_array_equal(load(out)["output"][1], load(without)["output"][1])

    def test_policies_by_a_record(self):
        record, out = self.folder / "record.safetensors", self.folder / "out.safetensors"
        self.succeed("run", golden("qwen2-moe-e16k4"), "--record", record, "--output", out)
        expected = load(out)["output"][1]
        for policy in (f"static:{record}", f"auto:{record}", "auto", "least-stale"):
            with self.subTest(policy):
                self.succeed("run", golden("qwen2-moe-e16k4"), "--memory-budget", "40%", "--residency", policy, "--output", out)
                numpy.testing.assert_array_equal(load(out)["output"][1], expected)
        self.refused(3, "expected layer 0 with 64 experts", "run", golden("qwen3-moe-e64k8"), "--memory-budget", "40%",
                     "--residency", f"static:{record}")

    def test_refusals(self):
        run = ("run", golden("qwen2-moe-e16k4"))
        self.refused(2, "one expert needs", *run, "--memory-budget", 100)
        for budget in ("0", "0%", "101%", "-5", "x", "5x%", "%", "1e3"):
            with self.subTest(budget):
                self.refused(2, "--memory-budget", *run, "--memory-budget", budget)
        self.refused(2, "needs a --memory-budget", *run, "--residency", "lru")
        self.refused(2, "needs a --memory-budget", *run, "--missed-experts", "fetched")
        self.refused(2, "nobody", *run, "--memory-budget", "50%", "--residency", "nobody")
        self.refused(3, "no/such", *run, "--memory-budget", "50%", "--residency", "static:/no/such")


if __name__ == "__main__":
    main()
