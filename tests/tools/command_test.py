"""Tries the `moecl` command as a stranger would: every verb, and the tensors of `run` against golden ones."""
import json
import re
import shutil
import signal
import subprocess
import time

import numpy

from command import DATA, MOECL, CommandTest, golden, load, main, save

# name: (family, layer, hidden size, intermediate size, experts, top k)
CASES = {
    "qwen3-moe-e64k8": ("qwen3_moe", 0, 96, 12, 64, 8),
    "qwen2-moe-e16k4": ("qwen2_moe", 0, 64, 36, 16, 4),
    "deepseek-v3-e32k8-g8": ("deepseek_v3", 0, 96, 20, 32, 8),
    "qwen3-moe-layer1-e32k8": ("qwen3_moe", 1, 72, 20, 32, 8),
}
OPERATORS = {"combine", "fused_moe", "quantize_rows", "expert_sort", "gated_activation", "gather_rows", "gating_top_k", "grouped_gemm",
             "physical_experts", "expert_slots", "route_tokens", "window_slots"}


class Run(CommandTest):
    def assert_routing(self, tensors, ids, weights):
        """Compares the chosen experts as sets, and the weights expert by expert."""
        found, expected = (numpy.argsort(chosen, axis=1) for chosen in (tensors["topk_ids"][1], ids))
        sort = numpy.take_along_axis
        numpy.testing.assert_array_equal(sort(tensors["topk_ids"][1], found, 1), sort(ids, expected, 1))
        self.assert_close(sort(tensors["topk_weights"][1], found, 1), sort(weights, expected, 1), 5e-6)

    def assert_form(self, tensors, tokens, shape):
        _, _, hidden, _, experts, top_k = shape
        self.assertEqual({name: (dtype, values.shape) for name, (dtype, values) in tensors.items()},
                         {"output": ("F32", (tokens, hidden)), "routed_output": ("F32", (tokens, hidden)),
                          "router_logits": ("F32", (tokens, experts)), "topk_ids": ("I32", (tokens, top_k)),
                          "topk_weights": ("F32", (tokens, top_k)), "expert_counts": ("I32", (experts,))})
        numpy.testing.assert_array_equal(tensors["expert_counts"][1],
                                         numpy.bincount(tensors["topk_ids"][1].ravel(), minlength=experts))

    def test_golden_cases(self):
        for case, shape in CASES.items():
            with self.subTest(case):
                reference = {name: values for name, (_, values) in load(golden(case) / "golden.safetensors").items()}
                _, found = self.run_layer(golden(case), "--input", golden(case) / "golden.safetensors")
                self.assert_form(found, len(reference["hidden_states"]), shape)
                self.assert_close(found["output"][1], reference["output"], 1e-5)
                self.assert_close(found["routed_output"][1], reference["routed_output"], 1e-5)
                numpy.testing.assert_allclose(found["router_logits"][1], reference["router_logits"], rtol=0, atol=1e-5)
                self.assert_routing(found, reference["topk_ids"], reference["topk_weights"])
                numpy.testing.assert_array_equal(found["expert_counts"][1], reference["expert_counts"])

    def test_cold_run_is_silent(self):
        """No cache has the kernels, so the driver compiles each. Its counts of warnings must appear nowhere."""
        for where in ("helper", "in_process"):  # a helper keeps what the driver says
            with self.subTest(where):
                text = self.succeed("verify", golden("mixtral-e8k2"), "--platform", "Portable", MOECL_COMPILE=where,
                                    XDG_CACHE_HOME=str(self.folder / where))
                self.assertEqual(text.splitlines()[-1], "1 passed, 0 failed")

    def test_bf16(self):
        case = golden("qwen3-moe-e128k8-bf16")
        reference = {name: values for name, (_, values) in load(case / "golden.safetensors").items()}
        source = "--input", case / "golden.safetensors", "--tensor", "bf16.hidden_states"
        summary, found = self.run_layer(case, *source)
        self.assertEqual(summary["dtype"], "bf16")  # the checkpoint's own
        # Activated rows are rounded if the device has its own variant for bf16. `verify` allows for that.
        device, = (d for d in json.loads(self.succeed("devices", "--json")) if "Portable" in d["platform"])
        plain = device["grouped_gemm"]["bf16"].startswith("t0_")
        self.assert_close(found["output"][1], reference["bf16.output_ref"], 2e-5 if plain else 2**-8)
        self.assert_routing(found, reference["bf16.topk_ids_ref"], reference["bf16.topk_weights_ref"])
        summary, widened = self.run_layer(case, *source, "--dtype", "f32")
        self.assertEqual(summary["dtype"], "f32")
        self.assert_close(widened["output"][1], reference["bf16.output_ref"], 2e-5)

    def test_f16(self):
        """No reference was made: input and weights rounded to 11 bits move the output by some 2^-11."""
        case = golden("qwen2-moe-e16k4")
        reference = load(case / "golden.safetensors")
        clear = reference["route_margin"][1] >= 1e-2
        _, found = self.run_layer(case, "--input", case / "golden.safetensors", "--dtype", "f16")
        self.assertGreater(clear.sum(), 20)
        self.assert_close(found["output"][1][clear], reference["output"][1][clear], 5e-3)

    def test_input_types(self):
        """Values that all three types hold give the same output, whatever they are stored as."""
        case, values = golden("mixtral-k-equals-e"), numpy.linspace(-2, 2, 5 * 72).reshape(5, 72)
        values = numpy.round(values * 32) / 32
        top_half = (values.astype("<f4").view("<u4") >> 16).astype("<u2")
        outputs = []
        for dtype, stored in (("F32", values), ("F16", values), ("BF16", top_half)):
            save(self.folder / "in.safetensors", {"other": ("I32", numpy.arange(3)), "mine": (dtype, stored)})
            _, found = self.run_layer(case, "--input", self.folder / "in.safetensors", "--tensor", "mine")
            outputs.append(found["output"][1])
        numpy.testing.assert_array_equal(outputs[1], outputs[0])
        numpy.testing.assert_array_equal(outputs[2], outputs[0])

    def test_quantized_activations(self):
        """As the checkpoint says, unless asked otherwise, on one rank and on several."""
        names = {"qwen3-moe-ct-int8-e8k2": "i8 per row", "mixtral-ct-fp8-e4k2": "f8_e4m3 per row",
                 "deepseek-v3-fp8block-e8k4": "f8_e4m3 in groups of 128"}
        for case, name in names.items():
            with self.subTest(case):
                file = golden(case) / "golden.safetensors"
                reference = {key: load(file)[key][1] for key in ("output", "actquant.output_ref")}
                source = "--input", file, "--dtype", "f32", "--platform", "Portable"
                summary, found = self.run_layer(golden(case), *source)
                self.assertEqual(summary["activations"], {"quantized": name, "reason": "what the checkpoint says"})
                self.assert_close(found["output"][1], reference["actquant.output_ref"], 1e-5)
                _, ranks = self.run_layer(golden(case), *source, "--ranks", 2, "--ep", "--strategy", "mc2")
                numpy.testing.assert_array_equal(ranks["output"][1], found["output"][1])
                summary, found = self.run_layer(golden(case), *source, "--act-quant", "none")
                self.assertEqual(summary["activations"], {"quantized": "plain", "reason": "asked for by --act-quant"})
                self.assert_close(found["output"][1], reference["output"], 1e-5)
        case = golden("mixtral-ct-fp8-e4k2")
        summary, found = self.run_layer(case, "--act-quant", "mxfp8", "--input", case / "golden.safetensors")
        self.assertEqual(summary["activations"]["quantized"], "f8_e4m3 in groups of 32 with e8m0 scales")
        self.assert_close(found["output"][1], load(case / "golden.safetensors")["output"][1], 0.2)
        summary, _ = self.run_layer(golden("mixtral-e8k2"), "--quantize", "int8_w8a8")
        self.assertEqual(summary["activations"], {"quantized": "i8 per row", "reason": "part of --quantize int8_w8a8"})

    def test_token_counts(self):
        shape = CASES["qwen2-moe-e16k4"]
        for tokens in (0, 1):
            summary, found = self.run_layer(golden("qwen2-moe-e16k4"), "--tokens", tokens)
            self.assertEqual(summary["tokens"], tokens)
            self.assert_form(found, tokens, shape)
            self.assertTrue(numpy.isfinite(found["output"][1]).all())
        _, found = self.run_layer(golden("mixtral-t0"), "--input", golden("mixtral-t0") / "golden.safetensors")
        self.assertEqual(found["output"][1].shape, (0, 64))

    def test_long_inputs(self):
        """Golden tokens over and over: 3000, and one more than go through the layer at once."""
        case = golden("mixtral-skew")
        reference = load(case / "golden.safetensors")
        tokens, chunk = 3000, None
        while tokens:
            rows = numpy.arange(tokens) % 128
            save(self.folder / "long.safetensors", {"hidden_states": ("F32", reference["hidden_states"][1][rows])})
            summary, found = self.run_layer(case, "--input", self.folder / "long.safetensors")
            self.assertEqual(summary["host_syncs"], 0)
            self.assert_close(found["output"][1], reference["output"][1][rows], 1e-5)
            tokens, chunk = (summary["chunk_tokens"] + 1, tokens) if chunk is None else (0, chunk)

    def test_seeds(self):
        case = golden("mixtral-k-equals-e")
        first, again, other = (self.run_layer(case, "--seed", seed)[1]["output"][1] for seed in (7, 7, 8))
        self.assertEqual(len(first), 64)  # the default
        numpy.testing.assert_array_equal(first, again)
        self.assertTrue((first != other).any())

    def test_summary(self):
        for case, shape in CASES.items():
            with self.subTest(case):
                summary, _ = self.run_layer(golden(case), "--repeat", 3)
                self.assertEqual(tuple(summary["model"].values()), shape)
                self.assertEqual(list(summary["model"]),
                                 ["family", "layer", "hidden_size", "intermediate_size", "experts", "top_k"])
                self.assertEqual([sorted(device) for device in summary["devices"]], [["driver", "name", "platform"]])
                self.assertIn("Portable", summary["devices"][0]["platform"])
                self.assertEqual(summary["parallel"], {"ranks": 1, "tp": 1, "dp": 1, "ep": False, "launch": "threads"})
                self.assertEqual(summary["weights"], {"layout": "n_major", "reason": "every kernel reads it"})  # in f32
                self.assertTrue(summary["strategy"]["name"] and summary["strategy"]["reason"])
                self.assertTrue(summary["kernels"])
                for kernel in summary["kernels"]:
                    self.assertTrue(kernel["name"] and kernel["variant"])
                    self.assertGreater(kernel["count"], 0)
                    self.assertGreater(kernel["total_us"], 0)
                times = summary["forward_us"]
                self.assertTrue(0 < times["min"] <= times["median"] <= times["max"], times)
                self.assertEqual((summary["host_syncs"], summary["bytes_exchanged"]), (0, 0))
                self.assertGreater(summary["workspace_bytes"], 0)

    def test_ranks(self):
        """The tensors are those of one rank, for any distribution of the tokens. Also: the bytes of the exchange."""
        case, tokens = golden("qwen2-moe-e16k4"), 9
        _, alone = self.run_layer(case, "--tokens", tokens)
        hidden, top_k, ranks = 64, 4, 4
        for strategy, syncs in {"mc2": 0, "allgather": 0, "all2allv": 1, "multicast": 0}.items():
            with self.subTest(strategy):
                summary, found = self.run_layer(case, "--tokens", tokens, "--ranks", ranks, "--ep", "--strategy", strategy,
                                                "--tokens-per-rank", "5,0,3,1", "--repeat", 2)
                self.assert_form(found, tokens, CASES["qwen2-moe-e16k4"])
                for name, (_, values) in alone.items():
                    self.assert_close(found[name][1], values, 1e-6)
                self.assertEqual(summary["parallel"], {"ranks": ranks, "tp": 1, "dp": ranks, "ep": True, "launch": "threads"})
                self.assertEqual(summary["strategy"], {"name": strategy, "reason": "asked for"})
                self.assertIn("4 ranks share 1 device", summary["rank_places"])
                self.assertEqual(len(summary["devices"]), ranks)
                self.assertEqual(len(summary["transports"]), ranks * (ranks - 1))
                for transport in summary["transports"]:
                    self.assertRegex(transport, r"^\d -> \d: shared_context: same device, ")
                self.assertEqual(summary["host_syncs"], syncs)
                names = {kernel["name"] for kernel in summary["kernels"]}
                chooses = "route_tokens" if strategy == "all2allv" else "gating_top_k"  # which also sorts
                self.assertLessEqual({chooses, "expert_sort", "grouped_gemm", "combine"}, names)
                exchanged = summary["bytes_exchanged"]
                if strategy == "mc2":  # all tokens and ids; back: room for a row of each expert
                    self.assertEqual(exchanged, (ranks - 1) * tokens * 4 * (hidden + top_k + top_k * hidden))
                if strategy == "allgather":  # all tokens; back: a partial sum of every rank
                    self.assertEqual(exchanged, (ranks - 1) * tokens * 4 * (hidden + 2 * top_k + hidden))
                self.assertEqual(summary["combine_form"], "rows" if strategy in ("mc2", "all2allv") else "partial_sums")
        summary, found = self.run_layer(case, "--tokens", tokens, "--ranks", ranks, "--ep", "--strategy", "mc2",
                                        "--dtype", "bf16")
        self.assertEqual(summary["combine_form"], "partial_sums")  # weights are sent along, as with allgather
        self.assertEqual(summary["bytes_exchanged"], (ranks - 1) * tokens * (2 * hidden + 4 * 2 * top_k + 4 * hidden))
        _, one = self.run_layer(case, "--tokens", tokens, "--dtype", "bf16")
        self.assert_close(found["output"][1], one["output"][1], 1e-6)
        for strategy in "mc2", "allgather", "all2allv", "multicast":  # a rank alone exchanges nothing
            with self.subTest("group of one", strategy=strategy):
                summary, found = self.run_layer(case, "--tokens", tokens, "--ranks", 1, "--strategy", strategy)
                self.assertEqual(summary["strategy"], {"name": strategy, "reason": "asked for"})
                self.assertEqual((summary["host_syncs"], summary["bytes_exchanged"]), (0, 0))
                for name, (_, values) in alone.items():
                    self.assert_close(found[name][1], values, 1e-6)
        summary, found = self.run_layer(case, "--tokens", tokens, "--ranks", 2, "--ep", "--transport", "staged")
        self.assertEqual(summary["transports"], ["1 -> 0: staged: asked for", "0 -> 1: staged: asked for"])
        self.assert_close(found["output"][1], alone["output"][1], 1e-6)
        summary, _ = self.run_layer(case, "--tokens", 600, "--ranks", 2, "--ep")
        self.assertEqual(summary["strategy"]["name"], "mc2")
        self.assertIn("300 tokens", summary["strategy"]["reason"])

    def test_own_placement(self):
        """The table of a file, or of `balance`. Layers count among those with experts (here all but the first)."""
        case, experts = golden("deepseek-v3-e32k8-g8"), 32
        _, alone = self.run_layer(case, "--tokens", 9)
        loads = {"layers": 2, "experts": experts, "slots": 40, "ranks": 4, "loads": [[1] * experts, list(range(experts))]}
        (self.folder / "loads.json").write_text(json.dumps(loads))
        tables = self.succeed("balance", self.folder / "loads.json", "--policy", "moecl", "--json")
        path = self.folder / "places.json"
        options = ("--tokens", 9, "--ranks", 4, "--ep", "--placement", path)
        for text, strategy in ((tables, "mc2"), (json.dumps({"physical_to_logical": list(range(experts))[::-1]}), "all2allv")):
            path.write_text(text)
            summary, found = self.run_layer(case, *options, "--strategy", strategy)
            places = 40 if text == tables else experts
            self.assertEqual(summary["placement"], {"name": "linear", "reason": f"as {path} says", "experts": places,
                                                    "redundant_experts": places - experts})
            numpy.testing.assert_array_equal(found["topk_ids"][1], alone["topk_ids"][1])
            self.assert_close(found["output"][1], alone["output"][1], 1e-6)
        for expected, table in (("expert 31 has no place", list(range(31)) + [0]), ("place 1 holds expert 32 of 32", [0, 32]),
                                ("expected numbers, got string", ["0"]), ("expected a list of experts", []), ("expected a list of experts", 7)):
            path.write_text(json.dumps({"physical_to_logical": table}))
            with self.subTest(expected):
                self.refused(3, expected, "run", case, *options)
        self.refused(2, "needs --ranks above 1 and --ep", "run", case, "--placement", path)

    def test_shares_of_unlike_devices(self):
        """Experts in proportion to numbers, or to what PoCL's and Mesa's device each do."""
        case = golden("qwen2-moe-e16k4")
        _, alone = self.run_layer(case)
        for strategy in ("mc2", "allgather", "all2allv", "multicast"):
            summary, found = self.run_layer(case, "--ranks", 2, "--ep", "--strategy", strategy, "--rank-shares", "3,1")
            self.assertEqual(summary["parallel"]["rank_shares"], [12, 4])
            self.assertEqual(summary["placement"], {"name": "linear", "reason": "shares of 12, 4 experts", "experts": 16,
                                                    "redundant_experts": 0})
            self.assert_close(found["output"][1], alone["output"][1], 1e-6)
        options = ("--ranks", 2, "--ep", "--rank-shares", "measured", "--platform", "Portable,rusticl")
        summary, found = self.run_layer(case, *options, MOECL_LOG="error")  # not that rusticl has no durations
        self.assertEqual(len({device["platform"] for device in summary["devices"]}), 2)
        rates, shares = summary["parallel"]["rank_rates"], summary["parallel"]["rank_shares"]
        self.assertEqual((len(rates), sum(shares)), (2, 16))
        self.assertGreater(min(rates), 0)
        for share, rate in zip(shares, rates):
            self.assertLess(abs(share - 16 * rate / sum(rates)), 1)
        self.assert_close(found["output"][1], alone["output"][1], 1e-6)
        self.assertIn("1 passed", self.succeed("verify", case, *options, MOECL_LOG="error"))
        for expected, *wrong in (("needs --ranks above 1 and --ep", "--rank-shares", "1"), ("3 numbers for 2 ranks", *options[:3], "--rank-shares", "1,2,3"),
                                 ("expected measured, or a number", *options[:3], "--rank-shares", "1,x"),
                                 ("expected measured, or a number", *options[:3], "--rank-shares", "1,-1"),
                                 ("no rank has a rate", *options[:3], "--rank-shares", "0,0"),
                                 ("goes with neither", *options[:3], "--rank-shares", "1,1", "--redundant-experts", 2)):
            with self.subTest(expected):
                self.refused(2, expected, "run", case, *wrong)

    def test_placement_wire_and_nodes(self):
        """The summary shows the choices, and fewer bytes cross between nodes."""
        case, tokens, ranks = golden("deepseek-v3-e32k8-g8"), 12, 4
        hidden, experts, top_k = 96, 32, 8
        _, alone = self.run_layer(case, "--tokens", tokens)
        options = ("--tokens", tokens, "--ranks", ranks, "--ep", "--strategy", "mc2")
        flat, _ = self.run_layer(case, *options)
        self.assertEqual(flat["topology"], {"nodes": 1, "ranks_per_node": ranks})
        self.assertEqual((flat["wire"], flat["placement"]["name"], flat["bytes_between_nodes"]), ("none", "linear", 0))
        summary, found = self.run_layer(case, *options, "--placement", "round_robin", "--topology", "2,2")
        for name, (_, values) in alone.items():
            self.assert_close(found[name][1], values, 1e-6)
        self.assertEqual(summary["placement"]["name"], "round_robin")
        self.assertEqual(summary["topology"], {"nodes": 2, "ranks_per_node": 2})
        self.assertIn("over 2 nodes of 2 ranks in two levels", summary["strategy"]["reason"])
        self.assertIn("physical_experts", {kernel["name"] for kernel in summary["kernels"]})
        # Every token goes once to the other node, with ids and weights. Its sum comes back.
        self.assertEqual(summary["bytes_between_nodes"], tokens * (hidden * 4 + 8 * top_k + hidden * 4))
        summary, found = self.run_layer(case, *options, "--redundant-experts", 4, "--placement", "round_robin", "--wire", "int8")
        self.assertEqual(summary["placement"]["experts"], experts + 4)
        self.assertIn("instead of round_robin: redundant experts", summary["placement"]["reason"])
        numpy.testing.assert_array_equal(found["topk_ids"][1], alone["topk_ids"][1])  # logical ones
        self.assert_close(found["output"][1], alone["output"][1], 4e-2)
        # Every token goes to every rank, with ids. A row of each expert comes back: codes and scales.
        self.assertEqual(summary["bytes_exchanged"], (ranks - 1) * tokens *
                         (hidden + 4 + 4 * top_k + top_k * (hidden + hidden // 8 * 4)))
        for wire, scales in (("fp8", 4), ("mxfp8", hidden // 32)):
            summary, found = self.run_layer(case, *options, "--wire", wire)
            self.assertEqual(summary["wire"], wire)
            self.assert_close(found["output"][1], alone["output"][1], 8e-2)
            self.assertEqual(summary["bytes_exchanged"], (ranks - 1) * tokens *
                             (hidden + scales + 4 * top_k + top_k * hidden * 4))
            # The codes are those that the experts' products would make of the rows anyway.
            _, expected = self.run_layer(case, "--tokens", tokens, "--quantize", wire + "_w8a8")
            _, found = self.run_layer(case, *options, "--wire", wire, "--quantize", wire + "_w8a8")
            self.assert_close(found["output"][1], expected["output"][1], 1e-6)

    def test_ranks_on_both_platforms(self):
        case = golden("mixtral-skew")
        trace = self.folder / "trace.json"
        summary, found = self.run_layer(case, "--input", case / "golden.safetensors", "--ranks", 2, "--ep", "--platform",
                                        "Portable,rusticl", "--strategy", "all2allv", "--trace", trace,
                                        MOECL_LOG="error")  # not that rusticl has no durations
        self.assert_close(found["output"][1], load(case / "golden.safetensors")["output"][1], 1e-5)
        self.assertEqual(len({device["platform"] for device in summary["devices"]}), 2)
        for transport in summary["transports"]:
            self.assertRegex(transport, r"^\d -> \d: staged: different contexts, ")
        for path in (trace, self.folder / "trace.1.json"):  # a context each
            names = [event["name"] for event in json.loads(path.read_text())["traceEvents"]]
            self.assertIn("grouped_gemm", names)
            self.assertEqual(names.count("forward"), 1)

    def test_table(self):
        text = self.succeed("run", golden("mixtral-k-equals-e"), "--platform", "Portable")
        for word in ("mixtral", "Portable", "gating_top_k", "forward", "0 host syncs"):
            self.assertIn(word, text)

    def test_trace(self):
        summary, _ = self.run_layer(golden("qwen2-moe-e16k4"), "--trace", self.folder / "trace.json")
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        complete = [event for event in events if event["ph"] == "X"]
        for event in complete:
            self.assertLessEqual({"name", "pid", "tid", "ts", "dur"}, set(event))
            self.assertGreaterEqual(event["dur"], 0)
        forward, = (event for event in complete if event["name"] == "forward")
        inside = [event for event in complete if event["tid"] == forward["tid"] and event["pid"] == forward["pid"]]
        for event in inside:
            self.assertTrue(forward["ts"] <= event["ts"] and
                            event["ts"] + event["dur"] <= forward["ts"] + forward["dur"] + 0.01, event)
        kernels = [event["name"] for event in complete if event.get("cat") == "kernel"]
        for kernel in summary["kernels"]:
            self.assertEqual(kernels.count(kernel["name"]), sum(other["count"] for other in summary["kernels"]
                                                                if other["name"] == kernel["name"]))

    def test_trace_says_why_a_layer_takes_several_launches(self):
        trace = self.folder / "trace.json"
        for tokens, options, reason in ((16, [], "the device is no NVIDIA GPU of compute capability 8.0"),
                                        (17, [], "17 tokens are more than 16"),
                                        (2, ["--quantize", "int4_w4a16"], "2 tokens are more than 1"),
                                        (4, ["--shared-queue", "own"], "the shared experts run beside it"),
                                        (16, ["--several-launches"], "the layer's options forbid one")):
            self.run_layer(golden("qwen2-moe-e16k4"), "--tokens", tokens, "--repeat", 1, "--trace", trace, *options)
            spans = [event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event.get("cat") == "span"]
            self.assertIn("layer in several launches: " + reason, spans)

    def test_trace_says_why_routing_takes_several_launches(self):
        trace = self.folder / "trace.json"
        for tokens, reasons in (16, []), (17, ["route_tokens in several launches: 17 tokens are not 1 to 16"]):
            self.run_layer(golden("qwen2-moe-e16k4"), "--tokens", tokens, "--repeat", 1, "--trace", trace)
            spans = [event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event.get("cat") == "span"]
            self.assertEqual([name for name in spans if name.startswith("route_tokens")], reasons)
            self.assertIn("router in a launch of its own: the device is no NVIDIA GPU of compute capability 7.0", spans)

    def test_shards(self):
        case = golden("qwen3-moe-odd129-nonorm")
        shutil.copy(case / "config.json", self.folder)
        tensors, places = load(case / "model.safetensors"), {}
        for shard in range(2):
            part = dict(list(tensors.items())[shard::2])
            name = f"model-{shard + 1:05}-of-00002.safetensors"
            save(self.folder / name, part)
            places.update(dict.fromkeys(part, name))
        index = {"metadata": {}, "weight_map": places}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        _, whole = self.run_layer(case)
        _, sharded = self.run_layer(self.folder)
        numpy.testing.assert_array_equal(sharded["output"][1], whole["output"][1])


class ProgramCache(CommandTest):
    def timed(self, **environment):
        start = time.monotonic()
        summary, _ = self.run_layer(golden("mixtral-k-equals-e"), **environment)
        return summary["programs"]["built"], time.monotonic() - start

    def test_second_start_builds_nothing(self):
        fresh = {"XDG_CACHE_HOME": str(self.folder / "cache"), "MOECL_CACHE_DIR": ""}
        built, cold = self.timed(**fresh)
        self.assertGreater(built, 0)
        again, warm = self.timed(**fresh)
        self.assertEqual(again, 0)
        print(f"moecl run: {cold:.2f} s with {built} programs to build, {warm:.2f} s with none")

    def test_verbs(self):
        cache = {"MOECL_CACHE_DIR": str(self.folder / "programs")}
        self.assertIn("0 programs, 0 bytes", self.succeed("cache", "show", **cache))
        built, _ = self.timed(**cache)
        files = list((self.folder / "programs").glob("*.clprogram"))
        self.assertEqual(len(files), built)
        shown = self.succeed("cache", "show", **cache)
        self.assertEqual(shown, self.succeed("cache", **cache))
        self.assertIn(f"{built} programs, {sum(file.stat().st_size for file in files)} bytes", shown)
        for file in files:
            self.assertIn(file.stem, shown)
        self.assertEqual(self.succeed("cache", "prune", "--max-mib", "1000", **cache), "removed 0 programs\n")
        self.assertEqual(self.succeed("cache", "prune", "--max-mib", "0", **cache), f"removed {built} programs\n")
        self.assertEqual(self.timed(**cache)[0], built)
        self.assertEqual(self.succeed("cache", "clear", **cache), f"removed {built} programs\n")
        self.assertIn("0 programs, 0 bytes", self.succeed("cache", "show", **cache))

    def test_works_without(self):
        self.assertGreater(self.timed(MOECL_CACHE="off", MOECL_CACHE_DIR=str(self.folder / "unused"))[0], 0)
        self.assertFalse((self.folder / "unused").exists())
        blocked = self.folder / "a file"
        blocked.write_text("in the folder's place")
        done = self.start("run", golden("mixtral-k-equals-e"), "--platform", "Portable", "--json",
                          MOECL_CACHE_DIR=str(blocked))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"\A[^\n]*warning[^\n]*a file[^\n]*\n\Z")  # once, not for every program
        self.assertGreater(json.loads(done.stdout)["programs"]["built"], 0)
        self.assertEqual(blocked.read_text(), "in the folder's place")


class OtherVerbs(CommandTest):
    def test_layout(self):
        case = golden("qwen3-moe-ct-int8-e8k2")
        file = case / "golden.safetensors"
        expected = load(file)["actquant.output_ref"][1]
        for layout in ("n_major", "k_words"):
            summary, found = self.run_layer(case, "--layout", layout, "--input", file, "--dtype", "f32")
            self.assertEqual(summary["weights"], {"layout": layout, "reason": "asked for by the caller"})
            self.assert_close(found["output"][1], expected, 1e-5)
        text = self.succeed("verify", golden("mixtral-awq-e4k2"), "--ranks", 2, "--layout", "k_words", "--platform",
                            "Portable")
        self.assertEqual(text.splitlines()[-1], "1 passed, 0 failed")
        self.refused(3, "multiplies f32 rows by f32 in k_words", "run", golden("mixtral-t0"), "--layout", "k_words",
                     "--platform", "Portable")
        self.refused(2, "--layout", "run", case, "--layout", "rows")

    def test_verify(self):
        sound = [golden(case) for case in ("mixtral-t0", "mixtral-k-equals-e")]
        altered = self.folder / "altered"
        shutil.copytree(sound[1], altered)
        tensors = load(altered / "golden.safetensors")
        save(altered / "golden.safetensors",
             {name: (dtype, values * 1.001 if name == "output" else values) for name, (dtype, values) in tensors.items()
              if dtype != "BF16"})
        text = self.succeed("verify", *sound, "--platform", "Portable")
        self.assertEqual(text.splitlines()[-1], "2 passed, 0 failed")
        done = self.start("verify", *sound, altered, "--platform", "Portable")
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        *_, line, total = done.stdout.splitlines()
        self.assertEqual(total, "2 passed, 1 failed")
        self.assertRegex(line, r"^altered +1\.0e-03 +\S+ +FAIL$")
        for name in ("hidden_states", "output", "route_margin"):
            with self.subTest(name):
                shorter = {other: (dtype, values.ravel()[:-1] if name == other else values)
                           for other, (dtype, values) in tensors.items() if dtype != "BF16"}
                save(altered / "short.safetensors", shorter)
                short = self.folder / f"short_{name}"
                shutil.copytree(sound[1], short)
                (altered / "short.safetensors").replace(short / "golden.safetensors")
                self.refused(3, "margins are not those of tokens", "verify", short, "--platform", "Portable")
        unusable = self.folder / "unusable"
        shutil.copytree(sound[1], unusable)
        (unusable / "config.json").write_text("{")
        done = self.start("verify", sound[0], unusable, altered, "/no/such/", sound[1], "--platform", "Portable")
        self.assertEqual(done.returncode, 3, done)
        self.assertEqual([line.split()[::3] for line in done.stdout.splitlines()],
                         [["case", "result"], [sound[0].name, "ok"], ["altered", "FAIL"], [sound[1].name, "ok"], ["2", "failed"]])
        self.assertRegex(done.stderr, rf"\Amoecl: unusable: [^\n]*{unusable}/config.json[^\n]*\nmoecl: such: [^\n]*/no/such/[^\n]*\n\Z")

    def test_doctor(self):
        report = json.loads(self.succeed("doctor", "--platform", "Portable", "--json"))
        self.assertLessEqual(OPERATORS, {test["operator"] for test in report["self_tests"]})
        self.assertTrue(all(test["ok"] for test in report["self_tests"]))
        self.assertTrue(report["program_cache"]["ok"])
        self.assertEqual((report["passed"], report["failed"]), (len(report["self_tests"]) + 1, 0))
        blocked = self.folder / "a file"
        blocked.write_text("in the folder's place")
        done = self.start("doctor", "--platform", "Portable", MOECL_CACHE_DIR=str(blocked))
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{report['passed'] - 1} passed, 1 failed", done.stdout)
        for word in (*OPERATORS, str(blocked)):
            self.assertIn(word, done.stdout)

    def test_devices(self):
        devices = json.loads(self.succeed("devices", "--json"))
        portable, = (device for device in devices if "Portable" in device["platform"])
        self.assertTrue(portable["usable"])
        self.assertTrue(portable["tier"] and portable["driver"] and portable["grouped_gemm"]["many_rows"])
        self.assertTrue(all(device["usable"] or device["refused"] for device in devices))
        for device in devices:
            if device["usable"]:
                products = [product for choice in device["variants"] for product in choice["products"]]
                self.assertLessEqual({"f32 x f32", "bf16 x bf16", "i8 x i8", "bf16 x i4"}, set(products))
                self.assertEqual(len([choice for choice in device["variants"] if choice["most_rows"] is None]),
                                 len({tuple(choice["products"]) for choice in device["variants"]}))  # any number has one
                self.assertTrue(all(choice["variant"] and choice["because"] for choice in device["variants"]))
                for choice in device["variants"]:
                    self.assertEqual(choice["layout"], choice["layouts"][0])
                    self.assertIn("n_major", choice["layouts"])
        text = self.succeed("devices")
        self.assertRegex(text, r"bf16 x bf16.*\n +(any|up to \d+) +\w+ +\w+")
        self.assertIn(portable["name"], text)
        for device in devices:
            self.assertIn(device.get("refused", ""), text)

    def test_env(self):
        text = self.succeed("env", MOECL_LOG="error", MOECL_CACHE_DIR="/of/my/own")
        self.assertRegex(text, r"(?m)^MOECL_LOG +error$")
        self.assertRegex(text, r"(?m)^MOECL_CACHE_DIR +/of/my/own$")
        self.assertRegex(text, r"(?m)^XDG_CACHE_HOME ")
        page = (DATA.parent.parent / "runtime/ENVIRONMENT.md").read_text()
        page = {name: f"{meaning}; unset: {default}" for name, default, meaning in re.findall(r"(?m)^\| `(\w+)` \| (.*?) \| (.*?) \|$", page)}
        told = re.findall(r"(?m)^(\w+) +\S+\n((?:    .*\n)+)", self.succeed("env"))
        self.assertLessEqual({"MOECL_CACHE", "HOME", "NO_COLOR", "TERM"}, {name for name, _ in told})
        for name, text in told:
            self.assertEqual(re.sub(r"\s", "", text), re.sub(r"\s", "", page[name]))

    def test_generate(self):
        config = golden("qwen2-moe-e16k4") / "config.json"
        def generate(name, seed):
            self.succeed("generate", self.folder / name, "--config", config, "--experts", 5, "--dtype", "f32", "--seed", seed)
            return {file.name: file.read_bytes() for file in (self.folder / name).iterdir()}
        first = generate("first", 3)
        self.assertEqual(first, generate("again", 3))
        self.assertNotEqual(first, generate("other", 4))
        summary, found = self.run_layer(self.folder / "first", "--tokens", 9)
        self.assertEqual((summary["model"]["experts"], summary["model"]["top_k"], summary["dtype"]), (5, 4, "f32"))
        self.assertTrue(numpy.isfinite(found["output"][1]).all() and found["output"][1].any())
        done = self.start("generate", self.folder / "first", "--config", config)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done)
        self.assertEqual(first, {file.name: file.read_bytes() for file in (self.folder / "first").iterdir()})

    def test_interrupted_generate(self):
        """Nothing is left of an interrupted checkpoint."""
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                command = subprocess.Popen([MOECL, "generate", self.folder / "new", "--shape", "mixtral-8x7b"])
                while not list(self.folder.glob("new.*.tmp/*")) and command.poll() is None:
                    time.sleep(0.01)
                command.send_signal(number)
                self.assertEqual(command.wait(), -number)
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_families(self):
        page = DATA.parent.parent / "host/FAMILIES.md"
        self.assertEqual(page.read_text(), self.succeed("families", "--page"), f"write it anew: moecl families --page > {page.name}")
        self.assertIn("granitemoeshared", self.succeed("families").split())
        self.assertIn(self.succeed("families", "--schemes"), page.read_text())

    def test_router_spec(self):
        config = json.loads((golden("gpt-oss-bf16form-e8k4") / "config.json").read_text())
        config["model_type"] = "unheard_of"
        spec = {"intermediate": 64, "experts": 8, "router": {"top_k": 4, "order": "after_top_k"}, "activation": {"function": "swigluoai"},
                "tensors": {"router": "model.layers.{layer}.mlp.router.weight", "router_bias": "model.layers.{layer}.mlp.router.bias",
                            "experts": {"gate_up": "model.layers.{layer}.mlp.experts.gate_up_proj", "down": "model.layers.{layer}.mlp.experts.down_proj",
                                        "gate_up_bias": "model.layers.{layer}.mlp.experts.gate_up_proj_bias",
                                        "down_bias": "model.layers.{layer}.mlp.experts.down_proj_bias", "transposed": True, "alternating": True}}}
        model, file = self.folder / "model", self.folder / "spec.json"
        shutil.copytree(golden("gpt-oss-bf16form-e8k4"), model)
        (model / "config.json").write_text(json.dumps(config))
        file.write_text(json.dumps(spec))
        done = self.start("verify", model)
        self.assertEqual(done.returncode, 3, done)
        self.assertIn("ROUTER_SPEC.md", done.stderr)
        self.assertIn("1 passed, 0 failed", self.succeed("verify", model, "--router-spec", file))
        self.succeed("generate", self.folder / "random", "--config", model / "config.json", "--router-spec", file)
        summary, found = self.run_layer(self.folder / "random", "--router-spec", file, "--tokens", 3)
        self.assertTrue(numpy.isfinite(found["output"][1]).all() and found["output"][1].any())

    def test_help(self):
        verbs = "run", "verify", "generate", "families", "devices", "doctor", "bench", "tune", "cache", "env"
        text = self.succeed("--help")
        for verb in verbs:
            self.assertIn(f"\n  {verb} ", text)
            self.assertIn("--help", self.succeed(verb, "--help"))


if __name__ == "__main__":
    main()
