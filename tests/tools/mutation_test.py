#!/usr/bin/env python3
"""Breaks kernels on purpose and expects the property tests to notice.

usage: mutation_test.py TESTS SIMULATED_GPU

The kernels' OpenCL C stands in the tests' program as text: a mutant is a copy of it in which a piece of that text is
replaced by another of the same length. The drivers compile the mutant as they compile the original.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TESTS, SIMULATED_GPU = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
# What breaks, the test that must notice, and pieces of text with what replaces them. PoCL runs kernels with one lane.
MUTANTS = {
    "tie rule: of equal scores the higher expert id wins":
        ("NpuGatingTest.MoeGatingTopKAgrees*", ("~JOIN(as_uint, STEP)(", "JOIN(as_uint, STEP)("),
         ("~(uint)max_ulong_over_lanes(", "(uint)max_ulong_over_lanes(")),
    "tie rule: of equal groups the later one wins":
        ("NpuGatingTest.MoeGatingTopKAgrees*", ("group_keys[g] && other < g)", "group_keys[g] && other > g)")),
    "tie rule: quantization rounds ties away from zero":
        ("NpuQuantTest.DynamicQuantAgrees*", ("round(quotient) : whole_numbers(quotient)", "round(quotient) : round(quotient)")),
    "tie rule: fp8 and fp4 codes round ties away from zero":
        ("NpuMxQuantTest.AgreesWithTheOracle*", ("half_step - 1 + ((significand >> dropped) & 1)", "half_step"),
         ("as_float16(bits) + as_float16(counter)", "as_float16(bits|1)+as_float16(counter)")),
    "tail: the last element of a block is not stored":
        ("NpuMxQuantTest.AgreesWithTheOracle*", ("if (j < count) y[begin", "if (j+1<count) y[begin")),
    "order: the sort takes slots from the last":
        ("NpuRoutingTest.TokenPermuteAgrees*", ("slot_at(t, begin + run.first + at)", "slot_at(t, begin+run.count-1-at)")),
    "order: sums start at the last expert of a token":
        ("NpuRoutingTest.TokenUnpermuteAgrees*", ("for (int some = begin; some < end; some += AHEAD)", "for (int some = end; some-- > begin;)")),
    "tail: the last element of a row is not stored":
        ("NpuActivationTest.SwigluAgrees*", ("j < n; ++j) store_", "j<n-1; ++j) store_")),
    "tail: the last k of a product is not added":
        ("NpuMatmulTest.QuantMatmulAgrees*", ("i < end; ++i)", "i<end-1;++i)"), ("i < run->end; ++i)", "i<run->end-1;++i)")),
    "weights: zero points are added":
        ("QuantizedGemmTest.TakesZeroPointsAndThePackings*", ("w -= zero;", "w += zero;")),
    "weights: every group has the scale of the first":
        ("QuantizedGemmTest.TakesGroupsOfEveryScale*", ("(of->scale, (ulong)group *", "(of->scale, (ulong)0 *")),
    "weights: fp6 takes its high bits from another column":
        ("QuantizedGemmTest.MultipliesEveryFormatOfCodes*", ("(bytes16(row + 32) >> (column / 16 * 2))", "(bytes16(row + 32) >> (column / 32 * 2))")),
    "ranks: a token goes to another rank's shared expert":
        ("NpuDistributeTest.AgreesWithTheDefinition*", ("rank % each + shared", "rank / each + shared")),
    "ranks: rows are counted from the wrong source":
        ("NpuDistributeTest.AgreesWithTheDefinition*", ("if (r <= source) mine", "if (r >= source) mine")),
    "rounding: the int8 wire does not go through f16":
        ("NpuDistributeTest.AgreesWithTheDefinition*", ("RECIPROCAL_F16 || q.rounding == ROUNDING_DIVIDE_SCALED_F16)", "RECIPROCAL_F16)")),
    "slots: of experts with one priority the one in the upper slot goes":
        ("ExpertSlotsTest.FollowsThePolicies*", ("keys[other] == keys[s] && other < s", "keys[other] == keys[s] && other > s")),
    "slots: who stays may be fetched over":
        ("ExpertSlotsTest.FollowsThePolicies*", ("s >= args.slot_count || in_use ? NEVER", "s >= args.slot_count ? NEVER")),
}

# Mutants of kernels that only some processors run.
if "avx512_vnni" in pathlib.Path("/proc/cpuinfo").read_text():
    MUTANTS["dot products: the offset of weights stays in the sums"] = (
        "GroupedGemmTest.*", ("-W_OFFSET * row_sum(", "0 * row_sum("))
    MUTANTS["dot products: int4 columns change places"] = (
        "QuantizedGemmTest.TakesGroupsAcrossTheBlocks*", ("(ulong8)(0, 0, 4, 4, 0, 0, 4, 4)", "(ulong8)(0, 4, 0, 4, 0, 4, 0, 4)"))
if "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text():
    MUTANTS["tiles: the second sixteen rows multiply the first ones' elements"] = (
        "GroupedGemmTest.*", ("rows + A_TILES + i", "rows + i"))

# Mutants of the kernel for AVX2, which newer CPUs run too.
AVX2 = {}
if "avx2" in pathlib.Path("/proc/cpuinfo").read_text():
    AVX2 = {
        "pairs: the second k is the first one":
            ("Avx2GemmTest.SumsInt8Exactly*", ("next = codes16(row + OF(panel_units, W_DTYPE), part);", "next = codes16(row, part);")),
        "order: columns that bytes of two codes give change places":
            ("Avx2GemmTest.ARowDoesNotDepend*", ("#define LAST_COLUMNS 4, 12, 5, 13,", "#define LAST_COLUMNS 4, 5, 12, 13,")),
        "digits: what they leave of a number is lost":
            ("Avx2DigitsGemmTest.SmallNumbersKeep*", ("rest_of((float16)(x), of->unit).s0 / W_STEPS;", "0;")),
    }

# Mutants of kernels for tensor cores, and the test that must notice. The simulated GPU may notice first.
SIMULATED = {
    "groups: a step has the scales of the one before":
        ("QuantizedGemmTest.MultipliesRowsOfCodesWithScalesOfGroups*", ("gemm, step + 1);", "gemm, step);")),
    "groups: mma.sync has a step's scales for the next one":
        ("QuantizedGemmTest.MultipliesShortRows*", ("SCALES_AHEAD ? step + 1 : step", "SCALES_AHEAD ? step : step")),
    "codes: a large scale of an odd column alone is not seen":
        ("QuantizedGemmTest.PowersOfTwoAsScalesDiffer*", ("lanes_where((any & 0x8080) != 0)", "lanes_where((any & 0x0080) != 0)")),
    "codes: wgmma takes the odd column's scale for both":
        ("QuantizedGemmTest.PowersOfTwoAsScalesDiffer*", ("even = next->scales & 0xff,", "even = next->scales >> 8,")),
    "codes: warp groups may not see what work-items had copied":
        ("FusedMoeTest.TakesWeights*", ("  proxy_fence();\n#pragma unroll\n  for (int group", "  #pragma unroll\n  for (int group")),
    "codes: the ninth row is left out":
        ("QuantizedGemmTest.TakesGroupsAcrossTheBlocks*", ("TILES_N == 2 && tile.rows.count <= 8", "TILES_N == 2 && tile.rows.count <= 9")),
    "copies: a stage is said to be there before its rows are":
        ("GroupedGemmTest.GathersRowsByIndex*", ("barrier_arrive_after_copies(full_at);", "barrier_arrive(full_at);")),
    "copies: a stage is filled again before its products end":
        ("GroupedGemmTest.TakesTheTiles*", ("WGMMA_WAIT(1);", "WGMMA_WAIT(2);")),
    "copies: tensor cores may not see what work-items had copied":
        ("GroupedGemmTest.GathersRowsByIndex*", ("if (!A_IN_ORDER) proxy_fence();", "")),
    "stores: rows leave before all warps have put theirs":
        ("GroupedGemmTest.TakesTheTiles*", ("  warp_group_barrier(pieces->warp_group);", "")),
    "codes: a row's scale is found before all warps have its magnitudes":
        ("CodesOfProductTest.AreThose*", ('asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory")', "")),
    "tiles: whoever takes the last one leaves the count as it is":
        ("QuantizedGemmTest.CountsTiles*", ("numbers->count[0] = 0;", ";")),
    "codes: of a half tile a row's scale is of the other warp group's columns too":
        ("CodesOfProductTest.AreThose*", ("if (strip * 16 >= columns) continue;", "")),
    "codes: of a half tile a row's scale is of one warp group's columns":
        ("CodesOfProductTest.AreThose*", ("if (meets) add_other_columns(largest, share, met);", "")),
    "order: a warp counts the slots behind one instead of those before":
        ("ExpertSortTest.RandomProblems*", ("same & ((1u << team_lane()) - 1)", "same >> 1 >> team_lane()")),
    "routing: a token stands among those before it":
        ("RouteTokensTest.FewTokens*", ("((1ul << slot / top_k) - 1)", "((2ul << slot / top_k) - 1)")),
    "routing: who chooses does not wait for the parts of the logits":
        ("RouteTokensTest.MultipliesByTheRouter*", ("bool complete = await_words(&grid, 0, helpers);", "bool complete = true;")),
    "routing: parts of the logits are left out":
        ("RouteTokensTest.MultipliesByTheRouter*", ("min(begin + run_slices, slices)", "min(begin + 1, slices)")),
    "slices: sums are added before they came":
        ("GroupedGemmTest.SumsSlices*", ("looks < patience && look_at_stamps", "looks < 1 && look_at_stamps")),
    "grid: a group goes on before the others come":
        ("FusedMoeTest.TakesEveryNumber*", ("looks < grid->patience && came < groups", "looks < 1 && came < groups")),
}

# A test's check, or moecl's own: counts of ranks that do not fit end the group, in the rank that sees it first.
CHECK_FAILED = r"(?m):[0-9]+: Failure$|^C\+\+ exception with description .*: the group of ranks ended: "


class MutationTest(unittest.TestCase):
    def mutant(self, pieces):
        program = TESTS.read_bytes()
        for before, after in pieces:
            self.assertTrue(before.encode() in program, f"no kernel has the text {before!r}")
            program = program.replace(before.encode(), after.ljust(len(before)).encode())
        self.assertEqual(len(program), TESTS.stat().st_size)
        return program

    def run_mutant(self, pieces, tests, **environment):
        """The property tests of that name, until the first check that fails, which ends the program."""
        with tempfile.TemporaryDirectory() as folder:
            mutant = pathlib.Path(folder, TESTS.name)
            mutant.write_bytes(self.mutant(pieces))
            mutant.chmod(0o755)
            return subprocess.run([mutant, f"--gtest_filter=*{tests}", "--gtest_brief=1", "--gtest_throw_on_failure"],
                                  env={**os.environ, "MOECL_CACHE": "off", "MOECL_COMPILE": "in_process", "RUSTICL_ENABLE": "", **environment},
                                  capture_output=True, encoding="utf-8", errors="replace", timeout=600)

    def test_every_mutant_is_noticed(self):
        for what, (tests, *pieces) in MUTANTS.items():
            with self.subTest(mutant=what):
                done = self.run_mutant(pieces, tests)
                self.assertNotEqual(done.returncode, 0, f"{tests} does not notice this mutant\n{done.stdout}{done.stderr}")
                self.assertRegex(done.stdout, CHECK_FAILED)

    def test_every_mutant_for_avx2_is_noticed(self):
        for what, (tests, *pieces) in AVX2.items():
            with self.subTest(mutant=what):
                done = self.run_mutant(pieces, tests, MOECL_CPU_FEATURES="avx2", POCL_KERNELLIB_NAME="avx2")
                self.assertNotEqual(done.returncode, 0, f"{tests} does not notice this mutant\n{done.stdout}{done.stderr}")
                self.assertRegex(done.stdout, CHECK_FAILED)

    def test_every_mutant_for_tensor_cores_is_noticed(self):
        for what, (tests, *pieces) in SIMULATED.items():
            with self.subTest(mutant=what):
                done = self.run_mutant(pieces, tests, OPENCL_LAYERS=SIMULATED_GPU)
                self.assertNotEqual(done.returncode, 0, f"{tests} does not notice this mutant\n{done.stdout}{done.stderr}")
                self.assertRegex(done.stdout + done.stderr, CHECK_FAILED + r"|simulated GPU: [a-z_ ]+:")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
