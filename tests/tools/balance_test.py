#!/usr/bin/env python3
"""`moecl balance` gives the tables that the published balancers gave, as recorded in tests/data/eplb.

usage: balance_test.py MOECL DATA_DIR [unittest option...]
"""
import json

import numpy

from command import DATA, CommandTest, golden, load, main, save

ANSWERS = ("expected", "also", "expected_exit", "compare", "recorded")


def rows_of_ranks(row, ranks):
    return [row[len(row) // ranks * r:len(row) // ranks * (r + 1)] for r in range(ranks)]


class Balance(CommandTest):
    def balance(self, case, policy, *options):
        path = self.folder / "case.json"
        path.write_text(json.dumps({key: value for key, value in case.items() if key not in ANSWERS}))
        return self.succeed("balance", path, "--policy", policy, *options)

    def tables(self, case, policy):
        return json.loads(self.balance(case, policy, "--json"))

    def expect_ranks(self, got, expected, current, ranks, any_rank):
        """Checks the experts of each rank (`any_rank`: ranks in any order). Experts that stay keep their place."""
        for row, wanted, old in zip(got, expected, current, strict=True):
            of_rank, of_wanted = ([sorted(rank) for rank in rows_of_ranks(table, ranks)] for table in (row, wanted))
            self.assertEqual(*((sorted(of_rank), sorted(of_wanted)) if any_rank else (of_rank, of_wanted)))
            for new, was in zip(rows_of_ranks(row, ranks), rows_of_ranks(old, ranks), strict=True):
                for place, expert in enumerate(new):
                    if expert in was:
                        self.assertIn(expert, (was[place],) if was.count(expert) == 1 else was)

    def expect_answer(self, case, got, answer):
        how = case.get("compare", "exact")
        if how == "exact":
            self.assertEqual(got["physical_to_logical"], answer["physical_to_logical"])
            self.assertEqual(got["logical_to_physical"], answer["logical_to_physical"])
        else:
            self.expect_ranks(got["physical_to_logical"], answer["physical_to_logical"], case["current"], case["ranks"],
                              how == "rank_permutation")
            for row, places in zip(got["physical_to_logical"], got["logical_to_physical"], strict=True):
                self.assertEqual([sorted(of) for of in places],
                                 [[p for p, expert in enumerate(row) if expert == e] for e in range(case["experts"])])
        self.assertEqual(got["replicas"], answer["replicas"])
        for key in ("max_load", "mean_load"):
            self.assertAlmostEqual(got[key], answer[key], delta=1e-6 * answer[key])
        for key in ("moves", "changed", "layer_priority"):
            if key in answer:
                self.assertEqual(got[key], answer[key], key)

    def test_published_policies(self):
        cases = sorted((DATA / "eplb").glob("*.json"))
        self.assertGreater(len(cases), 150)
        for path in cases:
            case = json.loads(path.read_text())
            with self.subTest(path.stem):
                if "expected_exit" in case:
                    bare = self.folder / "case.json"
                    bare.write_text(json.dumps({key: value for key, value in case.items() if key not in ANSWERS}))
                    self.refused(case["expected_exit"], "" if case["expected_exit"] == 2 else "case.json", "balance", bare, "--policy", case["policy"], "--json")
                    continue
                got = self.tables(case, case["policy"])
                answers = [case["expected"], *case.get("also", [])]  # equal loads that torch's sort turned round
                tables = [answer["physical_to_logical"] for answer in answers]
                self.expect_answer(case, got, answers[tables.index(got["physical_to_logical"])]
                                   if got["physical_to_logical"] in tables else answers[0])

    def test_own_policy(self):
        """The fullest rank has no more load than by the published policy. Every expert has a place. Moves cost."""
        for path in sorted((DATA / "eplb").glob("deepseek-*.json"))[::6]:
            case = json.loads(path.read_text())
            if "expected" not in case:
                continue
            with self.subTest(path.stem):
                got = self.tables(case, "moecl")
                self.assertLessEqual(got["max_load"], case["expected"]["max_load"] * (1 + 1e-9))
                self.assertGreaterEqual(got["max_load"], got["mean_load"] * (1 - 1e-9))
                for row in got["physical_to_logical"]:
                    self.assertEqual(set(row), set(range(case["experts"])))
                kept = self.tables({**case, "current": got["physical_to_logical"]}, "moecl")
                self.assertLessEqual(kept["max_load"], got["max_load"] * (1 + 1e-9))

    def record(self, model, *options):
        path = self.folder / "record.safetensors"
        self.succeed("run", golden(model), "--input", golden(model) / "golden.safetensors", "--record", path, *options)
        return path, {name: values for name, (_, values) in load(path).items()}

    def test_record(self):
        """Ids and counts are those of PyTorch. The loads of places add up to the counts."""
        chosen = load(golden("qwen2-moe-e16k4") / "golden.safetensors")["topk_ids"][1]
        counts = numpy.bincount(chosen.ravel(), minlength=16)
        for options in ((), ("--ranks", 2, "--ep", "--redundant-experts", 4), ("--ranks", 4, "--tp", 2, "--strategy", "allgather")):
            with self.subTest(options):
                path, got = self.record("qwen2-moe-e16k4", *options)
                self.assertEqual(numpy.sort(got["layer.0.topk_ids"]).tolist(), numpy.sort(chosen).tolist())
                self.assertEqual(got["layer.0.pass_ends"].tolist(), [len(chosen)])
                self.assertEqual(got["layer.0.prefill_counts"].tolist(), counts.tolist())
                self.assertEqual(got["layer.0.decode_counts"].tolist(), [0] * 16)
                of_places = numpy.zeros(16, int)
                numpy.add.at(of_places, got["layer.0.physical_to_logical"], got["layer.0.place_counts"])
                self.assertEqual(of_places.tolist(), counts.tolist())
                self.assertEqual(got["ranks"].tolist(), [options[1] if options else 1])
                answer = json.loads(self.succeed("balance", path, "--policy", "vllm", "--ranks", 4, "--slots", 20, "--json"))
                case = {"layers": 1, "experts": 16, "slots": 20, "ranks": 4, "loads": [counts.tolist()], "current": [[p % 16 for p in range(20)]]}
                self.assertEqual(answer, self.tables(case, "vllm"))
                # ascend_default has at most one copy a rank
                for policy in ("deepseek", "ascend_swift", "flashlb", "moecl", *(() if "--redundant-experts" in options else ("ascend_default",))):
                    self.succeed("balance", path, "--policy", policy)

    def test_record_of_one_token_is_of_decoding(self):
        path = self.folder / "record.safetensors"
        self.succeed("run", golden("qwen2-moe-e16k4"), "--tokens", 1, "--record", path)
        got = {name: values for name, (_, values) in load(path).items()}
        self.assertEqual((int(got["layer.0.decode_counts"].sum()), int(got["layer.0.prefill_counts"].sum())), (4, 0))

    def test_broken_records(self):
        path, good = self.record("qwen2-moe-e16k4")
        types = {name: dtype for name, (dtype, _) in load(path).items()}
        for expected, name, values in (("layer.0.topk_ids: 16 is not in [-1, 16)", "topk_ids", good["layer.0.topk_ids"] + (good["layer.0.topk_ids"] == 15)),
                                       ("pass_ends: expected rising ends", "pass_ends", numpy.array([3])),
                                       ("counts: -1 is negative", "place_counts", good["layer.0.place_counts"] * 0 - 1),
                                       ("decode_counts: 3 experts, prefill_counts has 16", "decode_counts", numpy.zeros(3)),
                                       ("place_counts: 5 places, physical_to_logical has 16", "place_counts", numpy.zeros(5)),
                                       ("place 1 of layer 0 holds expert 17 of 16", "physical_to_logical", numpy.array([0, 17] + [3] * 14))):
            with self.subTest(expected):
                changed = {**good, "layer.0." + name: values}
                save(path, {key: (types[key], value) for key, value in changed.items()})
                self.refused(3, expected, "balance", path, "--policy", "vllm")
        save(path, {"output": ("F32", numpy.zeros(2))})
        self.refused(3, "expected layer.N.topk_ids", "balance", path, "--policy", "vllm")
        path = self.folder / "case.json"
        path.write_text("{}")
        self.refused(2, "--ranks, --slots: of a record", "balance", path, "--policy", "vllm", "--ranks", 2)

    def test_for_people(self):
        case = {"layers": 1, "experts": 4, "slots": 4, "ranks": 2, "loads": [[90, 10, 20, 30]], "current": [[0, 3, 1, 2]]}
        shown = self.balance(case, "moecl")
        self.assertRegex(shown, r"fullest rank +load +of the mean\nbefore +120 +1\.600\nafter +100 +1\.333\n")
        self.assertRegex(shown, r"\n2 experts move, of 4 places in 1 layers\n\Z")

    def test_refusals(self):
        path = self.folder / "case.json"
        good = {"layers": 1, "experts": 2, "slots": 2, "ranks": 2, "loads": [[1, 2]]}
        for expected, change in (("expected a list of 2, got 1", {"loads": [[1]]}), ("expected numbers, got string", {"loads": [[1, "2"]]}),
                                 ("not negative", {"loads": [[1, -2]]}), ("3 ranks do not divide 2 places", {"ranks": 3}),
                                 ("place 1 of layer 0 holds expert 7 of 2", {"current": [[0, 7]]}),
                                 ("expert 1 has no place in layer 0", {"current": [[0, 0]]}), ("expected a whole number", {"slots": 2.5})):
            with self.subTest(expected):
                path.write_text(json.dumps({**good, **change}))
                self.refused(3, expected, "balance", path, "--policy", "deepseek")
        path.write_text("{")
        self.refused(3, "case.json", "balance", path, "--policy", "deepseek")
        self.refused(2, "--policy", "balance", path)
        self.refused(2, "nobody", "balance", path, "--policy", "nobody")


if __name__ == "__main__":
    main()
