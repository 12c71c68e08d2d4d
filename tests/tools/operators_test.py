#!/usr/bin/env python3
"""Every recorded operator case through `moecl op` on PoCL, and what the verb promises beside it; one in three on other drivers.

usage: operators_test.py MOECL DATA PLATFORM [unittest options]
"""
import json
import os
import re
import shutil
import sys
import unittest

import numpy

PLATFORM = sys.argv.pop(3)

import command  # noqa: E402: reads the arguments that are left
from command import DATA, load, save  # noqa: E402

CASES = DATA / "operators"
# A process of rusticl takes six times as long as one of PoCL.
EVERY = PLATFORM == "Portable" or os.environ.get("MOECL_TEST_ALL") == "1"
asks_no_driver = unittest.skipUnless(PLATFORM == "Portable", "no driver has a part in it")
# What each operator is composed of, over all its cases: one sort, one gather, one quantizer, one product, one sum.
COMPOSITIONS = {
    "npu_moe_init_routing": "expert_sort gather_rows index_vectors",
    "npu_moe_init_routing_v2": "expert_sort gather_rows group_list mx_quantize quantize_rows",
    "npu_moe_compute_expert_tokens": "index_vectors",
    "npu_moe_token_permute": "expert_sort gather_rows index_vectors",
    "npu_moe_token_unpermute": "combine",
    "npu_moe_re_routing": "expert_sort gather_rows group_list index_vectors",
    "npu_moe_finalize_routing": "combine index_vectors",
    "npu_moe_gating_top_k": "gating_top_k",
    "npu_moe_gating_top_k_softmax": "gating_top_k index_vectors",
    "npu_moe_gating_top_k_softmax_v2": "gating_top_k",
    "npu_dynamic_quant": "group_list quantize_rows",
    "npu_dynamic_quant_asymmetric": "group_list quantize_rows",
    "npu_swiglu": "gated_activation",
    "npu_dequant_swiglu_quant": "gated_activation group_list",
    "_C_ascend.npu_dequant_swiglu_quant": "gated_activation",
    "npu_quant_matmul": "grouped_gemm pack_weights",
    "npu_grouped_matmul": "gated_activation group_list grouped_gemm pack_codes pack_scales pack_weights",
    "npu_grouped_matmul_swiglu_quant": "gated_activation group_list grouped_gemm pack_weights",
    "npu_grouped_matmul_swiglu_quant_v2": "gated_activation group_list grouped_gemm pack_weights",
    "_C_ascend.grouped_matmul_swiglu_quant": "gated_activation group_list grouped_gemm pack_weights",
    "npu_moe_distribute_dispatch_v2": "expert_routes expert_sort gather_rows quantize_rows window_slots",
    "npu_moe_distribute_combine_v2":
        "combine const_experts expert_routes expert_sort gather_rows index_vectors quantize_rows window_slots",
    "npu_grouped_matmul_finalize_routing": "combine expert_sort group_list grouped_gemm index_vectors pack_weights",
}


class OperatorsTest(command.CommandTest):
    def op(self, case, *options):
        return self.start("op", case, "--platform", PLATFORM, *options)

    def copy(self, case):
        """The case in this test's own folder, to be changed."""
        for suffix in (".json", ".safetensors"):
            shutil.copy(CASES / f"{case}{suffix}", self.folder)
        return self.folder / f"{case.split('/')[1]}.json"

    def change(self, path, name, **fields):
        """Another parameter (by keyword) in the copied case, or, with `values`, another tensor."""
        if "values" in fields:
            file = path.with_suffix(".safetensors")
            tensors = load(file, raw=True)
            tensors[name] = (tensors[name][0], numpy.asarray(fields["values"], tensors[name][1].dtype))
            save(file, tensors)
        else:
            rules = json.loads(path.read_text())
            rules[name].update(fields)
            path.write_text(json.dumps(rules))
        return path

    def test_recorded_cases(self):
        cases = sorted(CASES.glob("*/*.json"))
        self.assertGreater(len(cases), 190)
        if not EVERY:
            cases = [case for operator in sorted(CASES.iterdir()) for case in sorted(operator.glob("*.json"))[::3]]
        kernels = {}
        for case in cases:
            with self.subTest(case=f"{case.parent.name}/{case.stem}"):
                done = self.op(case, "--check", "--json")
                self.assertEqual(done.returncode, 0, done.stderr or done.stdout)
                kernels.setdefault(case.parent.name, set()).update(row["name"] for row in json.loads(done.stdout)["kernels"])
        for operator, composition in COMPOSITIONS.items():
            with self.subTest(operator=operator):
                found, expected = kernels.get(operator, set()), set(composition.split())
                self.assertEqual(found, expected if EVERY else found & expected)
                self.assertTrue(found)

    @asks_no_driver
    def test_every_recorded_operator_is_listed_with_its_parameters(self):
        listed = {about["operator"]: {field["name"] for field in about["fields"]}
                  for about in json.loads(self.succeed("op", "--list", "--json"))}
        # The result of the first version is recorded beside the outputs of the second one.
        remarks = {"active_pairs", "x_is_list", "weight_is_list", "expand_idx_v1"}
        for case in sorted(CASES.glob("*/*.json")):
            rules = json.loads(case.read_text())
            names = (re.sub(r"^rank\d+\.", "", name) for name in load(case.with_suffix(".safetensors"), raw=True))
            tensors = {name.split(".")[1] for name in names if name[:3] in ("in.", "out")}
            self.assertLessEqual((set(rules["parameters"]) | tensors) - remarks, listed[rules["operator"]], case)
        text = self.succeed("op", "--list")
        for name in listed:
            self.assertIn(f"\n{name}: ", "\n" + text)

    def test_check_notices_a_wrong_value_under_every_rule(self):
        rules = {}
        for case in sorted(CASES.glob("*/*.json")):
            for output, rule in json.loads(case.read_text())["compare"].items():
                tensors = load(case.with_suffix(".safetensors"), raw=True)
                if output.startswith("out.") and tensors[output][1].size and "variants" not in json.loads(case.read_text()):
                    rules.setdefault(rule["kind"], (f"{case.parent.name}/{case.stem}", output))
        self.assertGreaterEqual(set(rules), {"exact", "abs", "abs_masked_exact", "rel", "rel_abs", "ulp"})
        for kind, (case, output) in rules.items():
            with self.subTest(rule=kind, case=case):
                path = self.copy(case)
                dtype, values = load(path.with_suffix(".safetensors"), raw=True)[output]
                wrong = values.copy()
                # Flips bits in the upper half of the first element, and of each of two values packed into it.
                wrong.view(numpy.uint8).reshape(-1)[wrong.itemsize - 1] ^= 0x66
                self.change(path, output, values=wrong)
                done = self.op(path, "--check")
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(f"check {output}: FAIL", done.stdout)

    def test_output_has_full_length_and_poison_where_the_operator_writes_nothing(self):
        case = CASES / "npu_grouped_matmul/rows_past_sum_untouched"
        for tail, expected in (("poison", 0x7FFF), ("zero", 0)):
            path = self.folder / f"{tail}.safetensors"
            self.assertEqual(self.op(f"{case}.json", "--output", path, "--tail", tail).returncode, 0)
            dtype, y = load(path, raw=True)["out.y"]
            self.assertEqual((dtype, y.shape), ("BF16", (12, 8)))
            self.assertTrue((y[9:] == expected).all())
            self.assertTrue((y[:9] == load(f"{case}.safetensors", raw=True)["out.y"][1][:9]).all())

    def test_json_names_device_and_kernels(self):
        done = self.op(CASES / "npu_swiglu/last_bf16.json", "--check", "--json")
        summary = json.loads(done.stdout)
        self.assertIn(PLATFORM, summary["device"]["platform"])
        self.assertEqual([kernel["name"] for kernel in summary["kernels"]], ["gated_activation"])

    def refused(self, case, text, *options):
        path = self.folder / "output.safetensors"
        done = self.op(case, "--output", path, *options)
        self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
        # Before it there may be warnings about the device.
        self.assertIn(text, done.stderr.splitlines()[-1])
        self.assertFalse(path.exists())

    @asks_no_driver
    def test_refuses_unusable_cases(self):
        self.refused(self.folder / "none.json", "none.json: cannot be read")
        self.refused(self.change(self.copy("npu_swiglu/last_bf16"), "parameters", dim=5), "npu_swiglu: dim: 5 is not in [-2, 2)")
        self.refused(self.change(self.copy("npu_swiglu/last_bf16"), "parameters", colour=5), "no parameter 'colour'")
        for ranks in (0, 257, "2", 2.0, None, True, [2], {}, 2**64 - 1):
            path = self.change(self.copy("npu_moe_distribute_dispatch_v2/ep2_e2_k1"), "parameters", ep_world_size=ranks)
            self.refused(path, f"ep_world_size: expected a whole number from 1 to 256, got {json.dumps(ranks)}")
        for case, parameter, value, expected in (
                ("npu_moe_distribute_dispatch_v2/ep2_e2_k1", "moe_expert_num", "2", "a whole number"),
                ("npu_moe_distribute_dispatch_v2/ep2_e2_k1", "quant_mode", [0], "a whole number"),
                ("npu_moe_distribute_dispatch_v2/ep2_e2_k1", "quant_mode", {}, "true, false, a number, text or a list of whole numbers"),
                ("npu_moe_distribute_dispatch_v2/ep2_e2_k1", "comm_alg", "none", 'one of ["", "fullmesh", "fullmesh_v1", "fullmesh_v2", "hierarchy"]'),
                ("npu_swiglu/last_bf16", "dim", 0.5, "a whole number"),
                ("npu_swiglu/last_bf16", "dim", [2**64 - 1], "true, false, a number, text or a list of whole numbers"),
                ("npu_moe_gating_top_k/k_equals_e", "eps", "small", "a number")):
            with self.subTest(parameter, value=value):
                self.refused(self.change(self.copy(case), "parameters", **{parameter: value}),
                             f"{parameter}: expected {expected}, got {json.dumps(value)}")
        self.refused(self.change(self.copy("npu_swiglu/last_bf16"), "parameters", dim=2**64 - 1), "dim: expected a whole number")
        path = self.copy("npu_swiglu/last_bf16")
        path.write_text("{}")
        self.refused(path, "expected a JSON object with 'operator' and 'parameters'")
        path.write_text('{"operator": "npu_fly", "parameters": {}}')
        self.refused(path, "operator 'npu_fly'")

    def test_strict_mode_reports_data_that_the_device_leaves_undefined(self):
        path = self.change(self.copy("npu_grouped_matmul/bf16_cumsum_exact"), "in.group_list", values=[4, 3, 8, 10])
        self.refused(path, "group list: entry 1 makes the negative count -1")
        self.assertEqual(self.op(path, "--compatible").returncode, 0)

    @asks_no_driver
    def test_page_is_up_to_date(self):
        page = DATA.parent.parent / "host/npu/OPERATORS.md"
        self.assertEqual(page.read_text(), self.succeed("op", "--page"), f"write it anew: moecl op --page > {page.name}")

    @asks_no_driver
    def test_c_headers_are_up_to_date(self):
        headers = sorted((DATA.parent.parent / "host/include/moecl").glob("npu_*.h"))
        self.assertEqual(len(headers), 6)
        for header in headers:
            family = header.stem.removeprefix("npu_")
            self.assertEqual(header.read_text(), self.succeed("op", "--header", family),
                             f"write it anew: moecl op --header {family} > {header.name}")

    @asks_no_driver
    def test_python_functions_are_up_to_date(self):
        functions = DATA.parent.parent / "host/python/src/moecl/operators.py"
        self.assertEqual(functions.read_text(), self.succeed("op", "--python"), f"write it anew: moecl op --python > {functions.name}")


if __name__ == "__main__":
    command.main()
