"""The command line of `moecl`: wrong words, help, versions."""
import json
import re
import shutil
import subprocess

from command import DATA, MOECL, CommandTest, golden, main

CASE = golden("mixtral-e8k2")


class Words(CommandTest):
    def said(self, *arguments):
        done = self.start(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
        return done.stderr

    def test_wrong_words_are_named_alone(self):
        for line, *arguments in (
                ("no command vreify; did you mean verify?", "vreify", CASE, "--platform", "x"),
                ("no command frobnicate; moecl --help lists them", "frobnicate"),
                ("no command runn; did you mean run?", "runn", "--help"),
                ("cache: no command claer; did you mean clear?", "cache", "claer"),
                ("run: no option --tokns; did you mean --tokens?", "run", CASE, "--tokns", 5, "--json"),
                ("run: no option --strat; did you mean --strategy?", "run", CASE, "--strat=mc2"),
                ("run: no option --act_quant; did you mean --act-quant?", "run", "--act_quant", "none"),
                ("verify: no option --paltform; did you mean --platform?", "verify", CASE, "--paltform", "Portable"),
                ("devices: no option --frobnicate; moecl devices --help lists them", "devices", "--json", "--frobnicate", "x"),
                ("cache prune: no option --max-mb; did you mean --max-mib?", "cache", "prune", "--max-mb", 3),
                ("no option --versoin; did you mean --version?", "--versoin"),
                ("devices: 'pocl' is an argument too many", "devices", "pocl"),
                ("help: no option --frobnicate; moecl help --help lists them", "help", "--frobnicate")):
            with self.subTest(arguments):
                self.assertEqual(self.said(*arguments), f"moecl: {line}\n")

    def test_names_of_values(self):
        for meant, *arguments in (
                ("int4_w4a16", "run", CASE, "--quantize", "int4_wa16"), ("int8_w8a8", "run", CASE, "--quantize", "INT8-W8A8"),
                ("multicast", "run", CASE, "--strategy", "multcast"), ("round_robin", "run", CASE, "--placement", "roundrobin"),
                ("peer_window", "verify", CASE, "--transport", "peerwindow"), ("bf16", "generate", self.folder / "new", "--dtype", "bf61"),
                ("mixtral-8x7b", "generate", self.folder / "new", "--shape", "mixtral"), ("fp8_w8a8", "bench", "--schemes", "f32,fp8w8a8"),
                ("olmoe-1b-7b", "bench", "--shapes", "olmoe"), ("verify", "help", "verfy"), ("poison", "op", "x", "--tail", "posion")):
            with self.subTest(arguments):
                said = self.said(*arguments)
                self.assertIn(f"{str(arguments[-1]).split(',')[-1]} is none of ", said)
                self.assertTrue(said.endswith(f"; did you mean {meant}?\n"), said)
        self.assertNotIn("did you mean", self.said("run", CASE, "--strategy", "walk"))

    def test_names_that_only_the_machine_knows(self):
        for option, near, meant in (("--platform", "Portible", "Portable"), ("--device", "pthraed", "pthread")):
            done = self.start("run", CASE, option, near)
            self.assertEqual(done.returncode, 4)
            self.assertTrue(done.stderr.endswith(f"; did you mean {meant}?\n"), done.stderr)
        case = json.loads((DATA / "operators/npu_swiglu/last_bf16.json").read_text())
        (self.folder / "case.json").write_text(json.dumps({**case, "operator": "npu_swigul"}))
        shutil.copy(DATA / "operators/npu_swiglu/last_bf16.safetensors", self.folder / "case.safetensors")
        self.refused(3, "; did you mean npu_swiglu?", "op", self.folder / "case.json")

    def test_help(self):
        verbs = re.findall(r"^  ([a-z]+) ", self.succeed("help").split("Subcommands:\n")[1], re.MULTILINE)
        self.assertLessEqual({"run", "verify", "op", "generate", "bench", "tune", "env", "help"}, set(verbs))
        self.assertEqual(self.succeed("help"), self.succeed("--help"))
        for verb in verbs:
            with self.subTest(verb):
                self.assertEqual(self.succeed("help", verb), self.succeed(verb, "--help"))
                self.assertIn(f"Usage: moecl {verb} ", self.succeed("help", verb))

    def test_version(self):
        moecl, loader, *drivers = self.succeed("--version").splitlines()
        self.assertRegex(moecl, r"^moecl [0-9]+\.[0-9]+\.[0-9]+ \(commit ([0-9a-f]{12}\+?|unknown)\)$")
        self.assertRegex(loader, r"^OpenCL loader: .*[0-9]+\.[0-9]+.* OpenCL [0-9]\.[0-9]$")
        devices = json.loads(self.succeed("devices", "--json"))
        for device in devices:
            if device["usable"]:
                self.assertIn(f"driver: {device['platform']} {device['driver']}", drivers)
        self.assertEqual(len(drivers), len(set(drivers)))
        none = self.folder / "vendors"
        none.mkdir()
        self.assertEqual(self.succeed("--version", OCL_ICD_VENDORS=str(none)).splitlines()[2:], ["no driver"])


if __name__ == "__main__":
    main()
