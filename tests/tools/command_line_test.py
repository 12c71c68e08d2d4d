"""The command line of `moecl`: wrong words, help, versions, completion, the page of the manual, progress."""
import json
import os
import pty
import re
import shutil
import subprocess
import unittest

from command import DATA, MOECL, CommandTest, golden, main

CASE = golden("mixtral-e8k2")
OPERATOR = DATA / "operators/npu_swiglu/last_bf16.json"


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


class Completion(CommandTest):
    """Each case: what is typed, its last word begun, and what the shell offers."""
    CASES = (("moecl ver", {"verify"}), ("moecl run --str", {"--strategy"}), ("moecl run dir --strategy m", {"mc2", "multicast"}),
             ("moecl bench --schemes f32,int8_w8a1", {"f32,int8_w8a16"}), ("moecl cache pr", {"prune"}),
             ("moecl cache prune --m", {"--max-mib"}), ("moecl help dev", {"devices"}), ("moecl completion z", {"zsh"}),
             ("moecl run --wire", {"--wire"}))

    def script(self, shell, name):
        path = self.folder / name
        path.write_text(self.succeed("completion", shell))
        return path

    def run_shell(self, *arguments):
        done = subprocess.run(arguments, capture_output=True, text=True, cwd=self.folder, timeout=60,
                              env={**os.environ, "HOME": str(self.folder)})
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def test_bash(self):
        script = self.script("bash", "moecl")

        def offered(words):
            typed = " ".join(f"'{word}'" for word in words)
            return set(self.run_shell("bash", "--norc", "-c", f"""source {script}
                COMP_WORDS=({typed}) COMP_CWORD={len(words) - 1}
                $(complete -p moecl | sed 's/.*-F \\([^ ]*\\).*/\\1/')
                printf '%s\\n' "${{COMPREPLY[@]}}" """).split())

        for line, expected in self.CASES:
            with self.subTest(line):
                self.assertEqual(offered(line.split()), expected)
        self.assertEqual(offered(["moecl", "run", "--dtype", "=", "b"]), {"bf16"})
        self.assertEqual(offered(["moecl", "run", "--dtype", "="]), {"f32", "f16", "bf16"})
        self.assertEqual(offered(["moecl", "run", "--input", ""]), set())  # bash offers files
        verbs = set(re.findall(r"^  ([a-z]+) ", self.succeed("help").split("Subcommands:\n")[1], re.MULTILINE))
        self.assertEqual(offered(["moecl", ""]), verbs)
        self.run_shell("shellcheck", "--shell=bash", script)

    @unittest.skipUnless(shutil.which("fish"), "needs fish: tools/setup --tests")
    def test_fish(self):
        script = self.script("fish", "moecl.fish")
        for line, expected in self.CASES:
            with self.subTest(line):
                offered = self.run_shell("fish", "--no-config", "-c", f"source {script}; complete --do-complete '{line}'")
                self.assertEqual({one.split("\t")[0] for one in offered.splitlines()}, expected)

    @unittest.skipUnless(shutil.which("zsh"), "needs zsh: tools/setup --tests")
    def test_zsh(self):
        self.script("zsh", "_moecl")
        self.run_shell("zsh", "-f", "-n", "_moecl")
        # Completion needs an editor, which needs a terminal: zpty is one.
        (self.folder / "type.zsh").write_text("""zmodload zsh/zpty
            zpty shell "env TERM=dumb zsh -f -i"
            zpty -w shell 'PS1=; fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -d $PWD/dump; moecl() { print -r -- "<$*>" }'
            for line in "$@"; do
              zpty -w -n shell "$line"$'\\t\\n'
              zpty -r shell typed $'*\\n<*>*'
              print -r -- "${typed##*$'\\n<'}"
            done
            zpty -d shell
            """)
        cases = [(line, words) for line, words in self.CASES if len(words) == 1]
        typed = self.run_shell("zsh", "-f", "type.zsh", *(line for line, _ in cases))
        for (line, words), found in zip(cases, re.findall(r"^(.*)>", typed, re.MULTILINE), strict=True):
            with self.subTest(line):
                self.assertEqual({found.split()[-1].removesuffix(",")}, words)


class Manual(CommandTest):
    def test_page(self):
        """man shows it without a warning, and it has every command and option."""
        page = self.folder / "moecl.1"
        page.write_text(self.succeed("man"))
        shown = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-cbou", page], capture_output=True, text=True)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        for section in ("NAME", "SYNOPSIS", "OPTIONS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT"):
            self.assertRegex(shown.stdout, rf"(?m)^{section}$")
        for verb in re.findall(r"^  ([a-z]+) ", self.succeed("help").split("Subcommands:\n")[1], re.MULTILINE):
            section = re.search(rf"(?ms)^   moecl {verb}$(.*?)^(   )?[mE]", shown.stdout).group(1)
            for option in set(re.findall(r"^  (--[a-z-]+)", self.succeed("help", verb), re.MULTILINE)):
                self.assertRegex(section, rf"(?m)^       {option}\b")


class Tables(CommandTest):
    BENCH = "bench", "--filter", "^(gather_rows|layer)/", "--shapes", "olmoe-1b-7b", "--experts", 8, "--schemes", "bf16", "--tokens", 4, "--min-time", 0.001

    def test_width(self):
        """80 columns hold them, also in a file; a device's name may be longer."""
        for command in (("devices",), ("env",), ("op", "--check", OPERATOR), ("doctor", "--platform", "Portable"), ("verify", CASE, "--platform", "Portable"), (*self.BENCH, "--platform", "Portable")):
            with self.subTest(command[0]):
                text = self.start(*command).stdout
                self.assertGreater(text.count("\n"), 2)
                self.assertEqual([line for line in text.splitlines() if len(line) > 80 and not line.startswith(("program cache", "Portable"))], [])

    def test_colours(self):
        """On a terminal alone, and not where NO_COLOR or TERM forbids it."""
        verify = "verify", CASE, "--platform", "Portable", "--quiet"
        on_terminal = Progress.on_terminal
        for command in (verify, ("op", "--check", OPERATOR, "--platform", "Portable"), ("doctor", "--platform", "Portable", "--quiet")):
            self.assertRegex(on_terminal(self, *command, TERM="xterm", NO_COLOR=""), r"\x1b\[32mok[^\x1b]*\x1b\[0m")
        for environment in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb", "NO_COLOR": ""}):
            self.assertNotIn("\x1b", on_terminal(self, *verify, **environment))
        self.assertNotIn("\x1b", self.succeed(*verify, TERM="xterm"))


class Progress(CommandTest):
    VERIFY = "verify", *[CASE] * 3, "--platform", "Portable"

    def on_terminal(self, *arguments, **environment):
        """What a terminal gets that is stdout and stderr."""
        primary, secondary = pty.openpty()
        with subprocess.Popen([MOECL, *map(str, arguments)], stdout=secondary, stderr=secondary, env={**os.environ, **environment}) as command:
            os.close(secondary)
            shown = b""
            while True:
                try:
                    part = os.read(primary, 4096)
                except OSError:  # the command has closed the other end
                    break
                shown += part
        os.close(primary)
        self.assertEqual(command.returncode, 0, shown)
        return shown.decode()

    def test_bar(self):
        """It is drawn on a terminal, wiped before other lines and at the end, and --quiet has none."""
        cold = {"XDG_CACHE_HOME": str(self.folder), "NO_COLOR": "1"}  # so that it compiles, which takes seconds
        shown = self.on_terminal(*self.VERIFY, **cold)
        self.assertRegex(shown, r"\rverify \[#* *\] [0-3]/3 [0-9]+ s")
        lines = re.sub(r"\rverify [^\r\n]*|\r\x1b\[K", "", shown).replace("\r\n", "\n")
        self.assertEqual(lines, self.succeed(*self.VERIFY))
        self.assertEqual(shown.count("\x1b[K"), len(re.findall(r"s\r\x1b\[K", shown)))
        self.assertEqual(self.on_terminal(*self.VERIFY, "--quiet", NO_COLOR="1").replace("\r\n", "\n"), lines)

    def test_log(self):
        """If stderr is no terminal, work that ends within ten seconds has no line."""
        done = subprocess.run([MOECL, *map(str, self.VERIFY)], capture_output=True, text=True)
        self.assertNotIn("\r", done.stderr)
        self.assertRegex(done.stderr, r"\A(moecl: verify: [0-9] of 3 after [0-9]+ s\n)*\Z")


if __name__ == "__main__":
    main()
