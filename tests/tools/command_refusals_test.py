"""What the `moecl` command refuses: its exit code, one line on stderr, nothing on stdout, no file left behind."""
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess

import numpy

from command import MOECL, CommandTest, golden, main, save

CASE = golden("qwen3-moe-odd129-nonorm")  # one token, 129 hidden, 16 experts


class Refusals(CommandTest):
    def run_refused(self, code, expected, *options, model=CASE, **environment):
        self.refused(code, expected, "run", model, "--output", self.folder / "output.safetensors", *options, **environment)

    def copy(self, **changes):
        """A copy of the case in self.folder, with other fields in its config.json."""
        config = json.loads((CASE / "config.json").read_text())
        (self.folder / "config.json").write_text(json.dumps({**config, **changes}))
        shutil.copy(CASE / "model.safetensors", self.folder)
        return self.folder

    def test_wrong_usage(self):
        self.refused(2, "--help")
        self.refused(2, "frobnicate", "frobnicate")
        self.refused(2, "--frobnicate", "devices", "--frobnicate")
        self.refused(2, "model_dir", "run")
        self.refused(2, "dirs", "verify")
        self.refused(2, "dir", "generate")
        self.refused(2, "--shape or --config", "generate", self.folder / "new")
        self.refused(2, "qwen3-30b-a3b", "generate", self.folder / "new", "--shape", "frobnicate")
        self.refused(2, "--max-mib", "cache", "prune", "--max-mib", "-1")
        self.refused(2, "--min-time", "bench", "--list", "--min-time", "nan")
        self.refused(2, "--time-limit", "tune", "--list", "--time-limit", "nan")

    def test_empty_file_names(self):
        for option, *command in (*((option, "run", CASE) for option in ("--input", "--output", "--trace", "--router-spec")),
                                 ("--output", "op", "case.json"), ("--config", "generate", self.folder / "new"),
                                 ("--router-spec", "generate", self.folder / "new"), ("--router-spec", "verify", CASE),
                                 ("--report", "bench", "--list"), ("--baseline", "bench", "--list")):
            with self.subTest(command[0], option=option):
                self.refused(2, f"{option}: expected the name of a file", *command, option, "")

    def test_wrong_values(self):
        for option, value in (("--frobnicate", "1"), ("--tokens", "-1"), ("--tokens", "many"), ("--tokens", "1e3"),
                              ("--tokens", "9223372036854775807"), ("--seed", "-1"), ("--repeat", "0"), ("--ranks", "0"), ("--ranks", "257"),
                              ("--dtype", "f64"), ("--strategy", "walk"), ("--rules", "a4"), ("--micro-batches", "2"), ("--micro-batches", "3"),
                              ("--placement", "walk"), ("--redundant-experts", "4"), ("--wire", "int8"), ("--wire", "walk"),
                              ("--topology", "1,1"), ("--transport", "staged"), ("--transport", "walk"),
                              ("--shared-experts", "tokens"), ("--shared-experts", "walk"),
                              ("--act-quant", "int8"), ("--quantize", "int3_w3a3"), ("--tokens-per-rank", "1,x")):
            with self.subTest(option, value=value):
                self.run_refused(2, option, option, value)
        self.run_refused(2, "99", "--layer", "99")
        for expected, *options in (("mc2 without --ep", "--strategy", "mc2"), ("--tp 3: does not divide 4", "--tp", 3),
                                   ("--ranks 4 is not --tp 2 times --dp 3", "--tp", 2, "--dp", 3),
                                   ("3 numbers for 4 dp ranks", "--tokens-per-rank", "1,2,3"),
                                   ("--topology 3,1: expected nodes of one size", "--topology", "3,1"),
                                   ("--topology 2,2,2: not the nodes of 4 ranks", "--topology", "2,2,2"),
                                   ("3 of them do not have equal shares of 4 ranks", "--redundant-experts", 3),
                                   ("--redundant-experts 52: expected at most 48", "--redundant-experts", 52),
                                   ("--redundant-experts 2000000000: expected at most 48", "--redundant-experts", 2000000000),
                                   ("3 numbers for 2 dp ranks", "--tp", 2, "--tokens-per-rank", "1,2,3"),
                                   ("need --tp above 1", "--replace-allreduce"),
                                   ("-1 is negative", "--tokens-per-rank", "1,2,-1,4"),
                                   ("6 tokens in all, the input has 5", "--tokens-per-rank", "1,2,0,3", "--tokens", 5)):
            with self.subTest(expected):
                self.run_refused(2, expected, "--ranks", 4, *(() if "without" in expected else ("--ep",)), *options)
        self.run_refused(3, "rows that travel as fp8 codes cannot be quantized again, as i8", "--ranks", 2, "--ep",
                         "--wire", "fp8", "--quantize", "int8_w8a8")
        self.run_refused(2, "--tokens", "--input", CASE / "golden.safetensors", "--tokens", "4")
        self.run_refused(2, "dense", "--layer", "0", model=golden("qwen3-moe-layer1-e32k8"))

    def test_missing_files(self):
        self.run_refused(3, "no/such", model="/no/such")
        self.run_refused(3, "no/such", "--input", "/no/such.safetensors")
        self.refused(3, "no/such", "verify", "/no/such")
        self.refused(3, "no/such", "generate", self.folder / "new", "--config", "/no/such.json")
        self.run_refused(3, str(self.folder), model=self.folder)
        shutil.copy(CASE / "config.json", self.folder)
        self.run_refused(3, "model.safetensors", model=self.folder)

    def test_unwritable_outputs(self):
        self.refused(3, "no/such", "run", CASE, "--output", "/no/such/output.safetensors")
        self.refused(3, "no/such", "run", CASE, "--trace", "/no/such/trace.json")
        self.refused(3, str(self.folder), "run", CASE, "--output", self.folder)
        for command in (("env",), ("--help",), ("run", "--help"), ("--version",), ("op", "--page"), ("verify", CASE, CASE),
                        ("bench", "--list", "--shapes", "all"), ("run", CASE), ("run", CASE, "--json")):
            with self.subTest(command), open("/dev/full", "w") as full:
                done = subprocess.run([MOECL, *command], stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual((done.returncode, done.stderr), (3, "moecl: stdout: the results cannot be written\n"))

    def test_outputs_replace_no_input(self):
        model, source, link = self.copy(), self.folder / "input.safetensors", self.folder / "link.safetensors"
        save(source, {"hidden_states": ("F32", numpy.zeros((2, 129)))})
        link.symlink_to(source)
        before = {path: path.read_bytes() for path in self.folder.iterdir()}
        def refused(expected, *options):
            for option in ("--output", "--trace"):
                with self.subTest(expected, option=option):
                    self.refused(2, f"{option} {options[0]}: expected another file than {expected}", "run", model, option, *options)
        refused(f"--input {source}", source, "--input", source)
        refused(f"--input {link}", source, "--input", link)
        refused(f"--input {source}", f"{self.folder}/../{self.folder.name}/input.safetensors", "--input", source)
        refused(f"the model's {model}/config.json", model / "config.json")
        refused(f"the model's {model}/model.safetensors", model / "model.safetensors")
        self.refused(2, "--trace no.json: expected another file than --output ./no.json", "run", model, "--output", "./no.json",
                     "--trace", "no.json")
        case = golden("../operators/npu_swiglu/last_bf16")
        for suffix in (".json", ".safetensors"):
            path = pathlib.Path(shutil.copy(f"{case}{suffix}", self.folder))
            before[path] = path.read_bytes()
        for name in ("last_bf16.json", "last_bf16.safetensors"):
            self.refused(2, f"--output {self.folder / name}: expected another file", "op", self.folder / "last_bf16.json",
                         "--output", self.folder / name)
        self.assertEqual(before, {path: path.read_bytes() for path in before})

    def test_configs(self):
        self.run_refused(3, "frobnicate", model=self.copy(model_type="frobnicate"))
        self.run_refused(3, "num_experts_per_tok", model=self.copy(num_experts_per_tok="eight"))
        self.run_refused(3, "experts", model=self.copy(num_experts_per_tok=17))
        self.run_refused(3, "-129", model=self.copy(hidden_size=-129))
        self.run_refused(3, "128", model=self.copy(hidden_size=128))
        self.run_refused(3, "no quantized tensor of", model=self.copy(quantization_config={"quant_method": "gptq", "bits": 4}))
        for text in ("", "{", "[]", "null", '{"model_type": 3}', "\0\xff"):
            (self.folder / "config.json").write_text(text, encoding="latin-1")
            self.run_refused(3, "config.json", model=self.folder)
            self.refused(3, f"{self.folder}/config.json: ", "generate", self.folder / "new", "--config", self.folder / "config.json")
        gptq = golden("qwen3-moe-gptq-e8k4") / "config.json"
        self.refused(3, f"{gptq}: quantization by", "generate", self.folder / "new", "--config", gptq)
        self.refused(3, "config.json of gpt-oss-20b: gpt_oss with", "generate", self.folder / "new", "--shape", "gpt-oss-20b",
                     "--scheme", "int8_w8a8")

    def test_inputs(self):
        path = self.folder / "in.safetensors"
        def refused(expected, dtype, values, name="hidden_states"):
            save(path, {name: (dtype, values)})
            self.run_refused(3, expected, "--input", path)
            path.unlink()
        refused("[4, 128]", "F32", numpy.zeros((4, 128)))
        refused("[129]", "F32", numpy.zeros(129))
        refused("f64", "F64", numpy.zeros((4, 129)))
        refused("i32", "I32", numpy.zeros((4, 129)))
        refused('"hidden_states"', "F32", numpy.zeros((4, 129)), name="other")
        self.run_refused(3, '"other"', "--input", CASE / "golden.safetensors", "--tensor", "other")

    def test_damaged_weights(self):
        model = self.copy()
        whole = (model / "model.safetensors").read_bytes()
        for damaged in (b"", whole[:7], whole[:8], whole[:100], whole[:-1], whole + b"\0",
                        struct.pack("<Q", 2**63) + whole[8:], struct.pack("<Q", 2**64 - 1) + whole[8:],
                        struct.pack("<Q", len(whole)) + whole[8:], struct.pack("<Q", 0) + whole[8:]):
            (model / "model.safetensors").write_bytes(damaged)
            self.run_refused(3, "model.safetensors", model=model)

    def test_what_a_terminal_would_obey(self):
        """A file's controls, marks of direction and bytes that are none of UTF-8 are told as '?'."""
        model = self.copy()
        path = model / "model.safetensors"
        shown = "Gr\u00f6\u00dfe \u65e5\u672c \U0001f600"
        for obeyed in ("\x1b[2J", "\x7f", "\x85", "\x9b2J", "\xad", "\u061c", "\u200b", "\u200e", "\u200f", "\u2028",
                       "\u2029", "\u202a", "\u202e", "\u2060", "\u2066", "\u2069", "\ufeff", "\U000e0041"):
            with self.subTest(ascii(obeyed)):
                head = json.dumps({shown + obeyed: 3}, ensure_ascii=False).encode()
                path.write_bytes(struct.pack("<Q", len(head)) + head)
                self.run_refused(3, f'tensor "{shown}?{obeyed[1:]}" is number', model=model)
        done = subprocess.run([MOECL, "run", os.fsencode(self.folder) + b"/\x9b\xe2\x80\xc3\xa9\xc0\x8a\xed\xa0\x80\xf5"],
                              capture_output=True)
        self.assertEqual((done.returncode, done.stderr),
                         (3, f"moecl: {self.folder}/???\u00e9?????? is not a directory\n".encode()))

    def test_names_of_devices_and_folders(self):
        """Tables, lines and JSON show control characters in such names; a terminal must not obey them."""
        case = self.folder / "case\x1b[2J\u202e"
        case.symlink_to(golden("mixtral-e8k2"))
        text = self.succeed("verify", case, "--platform", "Portable")
        self.assertIn("\ncase?[2J? ", text)
        renamed = {"OPENCL_LAYERS": str(next(MOECL.parent.glob("tests/librenamed_device.so"))), "RENAMED_DEVICE": "a\x1b[2J\u202eb\udc9b",
                   "MOECL_CACHE": "off", "RUSTICL_ENABLE": ""}
        for command, shown in ((("devices",), "a?[2J?b?"), (("devices", "--json"), r"a\u001b[2J\u202eb\ufffd"), (("tune", "--list"), "a?[2J?b?"),
                               (("bench", "--filter", "^gather_rows/.*f32", "--min-time", "0.001", "--json"), r"a\u001b[2J\u202eb\ufffd"),
                               (("bench", "--filter", "^gather_rows/.*f32", "--min-time", "0.001"), "a?[2J?b?")):
            with self.subTest(command):
                text = self.start(*command, **renamed).stdout
                self.assertIn(shown, text)
                self.assertNotRegex(text, "[\x00-\x09\x0b-\x1f\x80-\x9f\u202e]")

    def test_mutations(self):
        """A header with a few bytes changed is read rightly or refused, and never crashes the command."""
        model, chance = self.copy(), random.Random(2)
        whole = (model / "model.safetensors").read_bytes()
        header = 8 + struct.unpack_from("<Q", whole)[0]
        outcomes = []
        for _ in range(40):
            mutated = bytearray(whole)
            for _ in range(chance.randrange(1, 4)):
                mutated[chance.randrange(header)] = chance.choice(b'0123456789[]{}":,\\F\0\xff')
            (model / "model.safetensors").write_bytes(mutated)
            done = self.start("run", model, "--tokens", 1)
            outcomes.append(done.returncode)
            self.assertIn(done.returncode, (0, 3), done.stderr)
            self.assertEqual(done.stderr.count("\n"), done.returncode // 3, done.stderr)
        self.assertGreater(outcomes.count(3), 20)

    def test_devices(self):
        none = self.folder / "vendors"
        none.mkdir()
        for verb in (("run", CASE), ("verify", CASE), ("doctor",), ("devices",)):
            self.refused(4, "no usable OpenCL device", *verb, OCL_ICD_VENDORS=str(none))
        for option in ("--platform", "--device"):
            self.run_refused(4, "Portable Computing Language", option, "frobnicate")


if __name__ == "__main__":
    main()
