#!/usr/bin/env python3
"""Ranks of the command that are processes: started by the command, joined by a name, or of MPI.

usage: processes_test.py MOECL DATA_DIR [unittest option...]
"""
import itertools
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest.mock

from command import DATA, MOECL, CommandTest, golden, main

STRATEGIES = ("mc2", "allgather", "all2allv", "multicast")
# Golden models: plain, with shared experts, of 16 bits, of codes, without tokens.
SAMPLE = ("mixtral-e8k2", "qwen3-moe-e64k8", "deepseek-v3-fp8block-e8k4", "qwen3-moe-e128k8-bf16", "mixtral-t0")
EVERY = os.environ.get("MOECL_TEST_ALL") == "1"
CASES = sorted(path.name for path in (DATA / "goldens").iterdir()) if EVERY else SAMPLE
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
TWO_NODES = pathlib.Path(__file__).resolve().with_name("two_nodes.sh")
MPIRUN = {"openmpi": ("mpirun.openmpi", "--oversubscribe"), "mpich": ("mpirun.mpich",)}

LONG_RUN = ("run", golden("mixtral-e8k2"), "--platform", "Portable", "--tokens", "8", "--ep", "--quiet")


def children_of(process):
    return [int(child) for child in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def descendants_of(process):
    children = children_of(process)
    return [*children, *itertools.chain.from_iterable(map(descendants_of, children))]


def shared_files():
    folder = pathlib.Path(f"/dev/shm/moecl-{os.geteuid()}")
    return set(folder.iterdir()) if folder.exists() else set()


class Processes(CommandTest):
    @classmethod
    def setUpClass(cls):
        """Compiles the kernels first: a rank that is still compiling does not notice a lost rank."""
        super().setUpClass()
        subprocess.run([MOECL, *LONG_RUN, "--ranks", "3", "--launch", "threads"], check=True, timeout=300, capture_output=True)

    def tensors(self, case, ranks, strategy, *options, by=()):
        """The bytes of the output file."""
        path = self.folder / "output.safetensors"
        path.unlink(missing_ok=True)
        arguments = ["run", golden(case), "--input", golden(case) / "golden.safetensors", "--output", path, "--platform", "Portable",
                     "--ranks", ranks, "--ep", "--strategy", strategy, "--json", *options]
        done = subprocess.run([*by, MOECL, *map(str, arguments)], env={**os.environ, **AS_ROOT}, capture_output=True,
                              encoding="utf-8", timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        try:
            return json.loads(done.stdout), path.read_bytes()
        except ValueError as error:
            self.fail(f"{error}: {done.stdout}")

    def test_bits_are_those_of_threads(self):
        for number, case in enumerate(CASES):
            for strategy in STRATEGIES:
                for ranks in (2, 3, 4, 8) if EVERY else ((2, 3, 4, 8)[(number + STRATEGIES.index(strategy)) % 4],):
                    with self.subTest(case=case, strategy=strategy, ranks=ranks):
                        threads, expected = self.tensors(case, ranks, strategy)
                        processes, got = self.tensors(case, ranks, strategy, "--launch", "processes")
                        self.assertEqual(got, expected)
                        for what in ("bytes_exchanged", "host_syncs", "weight_bytes", "workspace_bytes", "strategy", "read_bytes"):
                            self.assertEqual(processes[what], threads[what], what)
                        self.assertEqual((threads["parallel"]["launch"], processes["parallel"]["launch"]), ("threads", "processes"))
                        self.assertEqual(len(processes["transports"]), ranks * (ranks - 1))
                        for transport in processes["transports"]:
                            self.assertRegex(transport, r"^\d -> \d: shared_memory: .* GB/s in the probe")

    def test_micro_batches_nodes_and_tp_groups_too(self):
        for options in (("--tp", "2", "--micro-batches", "2"), ("--topology", "2,2", "--wire", "int8", "--act-quant", "none"),
                        ("--tokens-per-rank", "0,5,1,27")):
            with self.subTest(options=options):
                strategy = "all2allv" if "--tp" in options else "mc2"
                expected = self.tensors("mixtral-e8k2", 4, strategy, *options)[1]
                self.assertEqual(self.tensors("mixtral-e8k2", 4, strategy, *options, "--launch", "processes")[1], expected)

    def test_threads_of_processes(self):
        """Two ranks of each process: the bits, and each pair's transport."""
        for number, (case, strategy) in enumerate(zip(SAMPLE, (*STRATEGIES, STRATEGIES[0]), strict=True)):
            ranks = (4, 3)[number % 2]
            with self.subTest(case=case, strategy=strategy, ranks=ranks):
                threads, expected = self.tensors(case, ranks, strategy)
                mixed, got = self.tensors(case, ranks, strategy, "--launch", "processes", "--ranks-per-process", "2")
                self.assertEqual(got, expected)
                for what in ("bytes_exchanged", "host_syncs", "weight_bytes", "workspace_bytes", "strategy", "read_bytes"):
                    self.assertEqual(mixed[what], threads[what], what)
                self.assertEqual(len(mixed["transports"]), ranks * (ranks - 1))
                for transport in mixed["transports"]:
                    near = int(transport[0]) // 2 == int(transport[5]) // 2
                    self.assertRegex(transport, r"^\d -> \d: " + ("shared_context: same device, " if near else "shared_memory: another process, "))

    def test_bits_over_mpi(self):
        every = itertools.product(CASES, STRATEGIES, (2, 3, 4, 8))
        sample = zip(itertools.repeat("mixtral-e8k2"), STRATEGIES, (4, 3, 2, 4))
        for mpi, (case, strategy, ranks) in itertools.product(MPIRUN, every if EVERY else sample):
            with self.subTest(mpi=mpi, case=case, strategy=strategy, ranks=ranks):
                expected = self.tensors(case, ranks, strategy)[1]
                for way, options in (("mpi", ("--transport", "mpi")), ("shared_memory", ())):
                    summary, got = self.tensors(case, "mpi", strategy, *options, by=(*MPIRUN[mpi], "-n", str(ranks)))
                    self.assertEqual(got, expected)
                    self.assertEqual((summary["parallel"]["launch"], summary["parallel"]["ranks"]), ("mpi", ranks))
                    self.assertIn(f": {way}: another process, ", summary["transports"][0])

    def test_threads_of_processes_of_mpi(self):
        """Two ranks of each process: bits, bytes, and each pair's transport."""
        for case, strategy in itertools.product(CASES, STRATEGIES) if EVERY else zip(SAMPLE, STRATEGIES):
            threads, expected = self.tensors(case, 4, strategy)
            for mpi, way in itertools.product(MPIRUN, ("mpi", "shared_memory")):
                if not EVERY and (STRATEGIES.index(strategy) % 2 == 0) != (way == "mpi"):
                    continue
                with self.subTest(mpi=mpi, case=case, strategy=strategy, way=way):
                    options = ("--ranks-per-process", "2", *(("--transport", "mpi") if way == "mpi" else ()))
                    mixed, got = self.tensors(case, "mpi", strategy, *options, by=(*MPIRUN[mpi], "-n", "2"))
                    self.assertEqual(got, expected)
                    for what in ("bytes_exchanged", "host_syncs", "weight_bytes", "workspace_bytes", "strategy", "read_bytes"):
                        self.assertEqual(mixed[what], threads[what], what)
                    self.assertEqual((mixed["parallel"]["launch"], mixed["parallel"]["ranks"]), ("mpi", 4))
                    self.assertEqual(len(mixed["transports"]), 4 * 3)
                    for transport in mixed["transports"]:
                        near = int(transport[0]) // 2 == int(transport[5]) // 2
                        self.assertRegex(transport, r"^\d -> \d: " + ("shared_context: " if near else f"{way}: another process, "))

    def calls_of_engine(self, mpi, *arguments):
        """What each process of an engine with MPI of its own says."""
        caller = MOECL.with_name("tests") / f"moecl_mpi_caller_{mpi}"
        done = subprocess.run([*MPIRUN[mpi], "-n", str(len(arguments) - 1), caller, *arguments], env={**os.environ, **AS_ROOT},
                              capture_output=True, encoding="utf-8", timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(line for line in done.stdout.splitlines() if line.startswith("process "))

    def test_an_engine_joins_with_its_own_communicator(self):
        """Different numbers of ranks; the duplicate lives as long as the group."""
        for mpi in MPIRUN:
            with self.subTest(mpi=mpi):
                said = self.calls_of_engine(mpi, "serialized", "2", "1", "3")
                shared_memory = 4
                self.assertEqual(said, [f"process {process}: 6 ranks, {count} from {first} on, 0 failed, transport {shared_memory}"
                                        f"; duplicates 1, then 0" for process, (count, first) in enumerate(((2, 0), (1, 2), (3, 3)))])

    def test_engines_that_are_refused_have_no_duplicate_left(self):
        unsupported, invalid = 2, 1
        for mpi in MPIRUN:
            for arguments, status, why in (
                    (("single", "2", "1"), unsupported, "MPI_THREAD_SINGLE: moecl calls it from several threads"),
                    (("funneled", "2", "1"), unsupported, "MPI_THREAD_FUNNELED: moecl calls it from several threads"),
                    (("serialized", "0", "1"), invalid, "process 0 has 0 ranks, not 1 to 64"),
                    (("serialized", "1", "65"), invalid, "process 1 has 65 ranks, not 1 to 64")):
                with self.subTest(mpi=mpi, arguments=arguments):
                    said = self.calls_of_engine(mpi, *arguments)
                    self.assertEqual(len(said), 2)
                    for process, line in enumerate(said):
                        self.assertTrue(line.startswith(f"process {process}: refused with {status}: "), line)
                        self.assertIn(why, line)
                        self.assertTrue(line.endswith("; duplicates 0, then 0"), line)

    def begin(self, *options, by=()):
        """Starts a command that runs for long."""
        run = subprocess.Popen([*by, MOECL, *LONG_RUN, "--repeat", "1000000", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               encoding="utf-8", env={**os.environ, **AS_ROOT})
        self.addCleanup(run.kill)
        return run

    def wait_for_group(self, run, ranks):
        """The processes of the ranks, once all of them compute."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            children = children_of(run.pid)
            if len(children) == ranks and all(
                    any("/dev/shm/moecl-" in line for line in pathlib.Path(f"/proc/{child}/maps").read_text().splitlines())
                    for child in children):
                time.sleep(2)
                return children
            time.sleep(0.05)
        self.fail("the ranks did not begin")

    def test_a_rank_that_is_lost_ends_the_command_and_is_named(self):
        before = shared_files()
        for how, within in ((signal.SIGKILL, 15), (signal.SIGSTOP, 17)):
            with self.subTest(signal=how):
                run = self.begin("--ranks", "3", "--launch", "processes", "--deadline", "2")
                ranks = self.wait_for_group(run, 3)
                begin = time.monotonic()
                os.kill(ranks[1], how)
                out, messages = run.communicate(timeout=30)
                self.assertLess(time.monotonic() - begin, within)
                self.assertEqual((run.returncode, out), (4, ""), messages)
                self.assertRegex(messages, rf"\Amoecl: [^\n]*rank 1 \(process {ranks[1]}\) [^\n]*\n\Z")
                for rank in ranks:
                    self.assertFalse(pathlib.Path(f"/proc/{rank}").exists())
        # Groups of other tests have such files while they join.
        deadline = time.monotonic() + 60
        while (left := shared_files() - before) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(left)

    def test_a_process_of_several_ranks_that_is_lost_is_named(self):
        run = self.begin("--ranks", "4", "--launch", "processes", "--ranks-per-process", "2", "--deadline", "2")
        _, victim = self.wait_for_group(run, 2)
        begin = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        out, messages = run.communicate(timeout=30)
        self.assertLess(time.monotonic() - begin, 15)
        self.assertEqual((run.returncode, out), (4, ""), messages)
        self.assertRegex(messages, rf"\Amoecl: [^\n]*rank [23] \(process {victim}\) [^\n]*\n\Z")

    def test_ranks_end_with_the_command(self):
        run = self.begin("--ranks", "2", "--launch", "processes")
        ranks = self.wait_for_group(run, 2)
        run.kill()
        run.communicate()
        deadline = time.monotonic() + 10
        while any(pathlib.Path(f"/proc/{rank}").exists() for rank in ranks) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse([rank for rank in ranks if pathlib.Path(f"/proc/{rank}").exists()])

    def wait_for_mpi(self, run, mpi, count):
        """The processes of MPI in order, once all of them compute."""
        name, deadline = {"openmpi": "OMPI_COMM_WORLD_RANK=", "mpich": "PMI_RANK="}[mpi], time.monotonic() + 120
        found = {}
        while time.monotonic() < deadline:
            try:
                for process in descendants_of(run.pid):
                    path = pathlib.Path(f"/proc/{process}")
                    if os.readlink(path / "exe") == str(MOECL) and "/dev/shm/moecl-" in (path / "maps").read_text():
                        for line in (path / "environ").read_text().split("\0"):
                            if line.startswith(name):
                                found.setdefault(int(line.removeprefix(name)), process)  # before a child that it forks
            except OSError:
                pass
            if len(found) == count:
                time.sleep(2)
                return [found[number] for number in range(count)]
            time.sleep(0.05)
        self.fail(f"the processes of {mpi} did not begin: {found}")

    def test_a_process_of_mpi_that_is_stopped_ends_the_job(self):
        """Also a process of several ranks, and the process that prints."""
        for mpi, processes, options, victim, named in (("openmpi", 3, (), 1, "1"), ("mpich", 3, (), 0, "0"),
                                                       ("openmpi", 2, ("--ranks-per-process", "2"), 1, "[23]"),
                                                       ("mpich", 2, ("--ranks-per-process", "2"), 0, "[01]")):
            with self.subTest(mpi=mpi, options=options, victim=victim):
                run = self.begin("--ranks", "mpi", "--deadline", "4", *options, by=(*MPIRUN[mpi], "-n", str(processes)))
                process = self.wait_for_mpi(run, mpi, processes)[victim]
                begin = time.monotonic()
                os.kill(process, signal.SIGSTOP)
                _, messages = run.communicate(timeout=30)
                self.assertLess(time.monotonic() - begin, 20)
                self.assertEqual(run.returncode, 4, messages)
                said = [line for line in messages.splitlines() if line.startswith("moecl: ")]
                self.assertEqual(len(said), 1, messages)
                self.assertRegex(said[0], f"rank {named} of MPI ")

    def test_a_process_that_is_stopped_as_mpi_begins_or_ends_ends_the_job(self):
        """Within the deadline, although MPI itself would wait. The first process that is left prints the reason."""
        for (mpi, words), (victim, when) in itertools.product((("openmpi", "Open MPI"), ("mpich", "MPICH")),
                                                              ((0, "begins"), (1, "begins"), (0, "ends"), (2, "ends"))):
            with self.subTest(mpi=mpi, victim=victim, when=when):
                stopped = {"LD_PRELOAD": str(MOECL.with_name("tests") / "libmoecl_mpi_stopper.so"), "MOECL_TEST_STOPPED": f"{victim}:{when}"}
                begin = time.monotonic()
                run = subprocess.run([*MPIRUN[mpi], "-n", "3", MOECL, "run", golden("mixtral-e8k2"), "--platform", "Portable", "--ranks", "mpi",
                                      "--ep", "--quiet", "--deadline", "4"], capture_output=True, encoding="utf-8", timeout=60,
                                     env={**os.environ, **AS_ROOT, **stopped})
                self.assertLess(time.monotonic() - begin, 25)
                self.assertEqual(run.returncode, 4, run.stderr)
                said = [line for line in run.stderr.splitlines() if line.startswith("moecl: ")]
                self.assertEqual(said, [f"moecl: mpi: {words} has not begun within 4000 ms: a process did not come" if when == "begins" else
                                        f"moecl: {words} has not ended within 4000 ms"])

    def test_bits_over_two_nodes(self):
        """MPI over TCP between network namespaces."""
        for each, strategy, options in ((1, "mc2", ("--topology", "1,1")), (1, "all2allv", ()), (2, "mc2", ("--topology", "2,2"))):
            with self.subTest(strategy=strategy, each=each):
                expected = self.tensors("mixtral-e8k2", 2 * each, strategy, *options)[1]
                summary, got = self.tensors("mixtral-e8k2", "mpi", strategy, *options, by=("env", f"RANKS_EACH={each}", TWO_NODES))
                self.assertEqual(got, expected)
                self.assertEqual(summary["parallel"]["ranks"], 2 * each)
                for transport in summary["transports"]:
                    near = int(transport[0]) // each == int(transport[5]) // each
                    way = "shared_memory: another process" if near else "mpi: another node"
                    self.assertRegex(transport, rf"^\d -> \d: {way}, .* GB/s in the probe")

    def test_threads_of_processes_on_two_nodes(self):
        """Four ranks of a node: threads of one process, another process by shared memory, and the other node by MPI."""
        options = ("--topology", "4,4")
        expected = self.tensors("mixtral-e8k2", 8, "mc2", *options)[1]
        summary, got = self.tensors("mixtral-e8k2", "mpi", "mc2", *options, "--ranks-per-process", "2", by=("env", "RANKS_EACH=2", TWO_NODES))
        self.assertEqual(got, expected)
        self.assertEqual(len(summary["transports"]), 8 * 7)
        for transport in summary["transports"]:
            one, other = int(transport[0]), int(transport[5])
            way = "shared_context: " if one // 2 == other // 2 else "shared_memory: another process, " if one // 4 == other // 4 else \
                "mpi: another node, "
            self.assertRegex(transport, rf"^\d -> \d: {way}")

    def test_a_node_that_is_cut_off_is_named(self):
        """Within the deadline, by the rank that prints. mpirun and all processes of both nodes end with code 4."""
        cut_after, deadline = 8, 4  # MPI itself begins within both
        begin = time.monotonic()
        run = subprocess.Popen([TWO_NODES, MOECL, "run", golden("mixtral-e8k2"), "--platform", "Portable", "--tokens", "8", "--repeat",
                                "1000000", "--ep", "--quiet", "--ranks", "mpi", "--deadline", str(deadline)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, encoding="utf-8", env={**os.environ, "CUT_AFTER": str(cut_after)})
        self.addCleanup(run.kill)
        out, messages = run.communicate(timeout=60)
        self.assertEqual((run.returncode, out), (4, ""), messages)
        self.assertNotIn("still there", messages)
        said = [line for line in messages.splitlines() if line.startswith("moecl: ")]
        self.assertEqual(len(said), 1, messages)
        self.assertRegex(said[0], "^moecl: the group of ranks ended: (rank 1 of MPI .* has not run for [0-9]{4} ms"
                                  "|.*: rank 0 waited 4000 ms for (rows of )?rank 1 of MPI)")  # the judge itself may be starved
        self.assertGreater(time.monotonic() - begin, cut_after)
        self.assertLess(time.monotonic() - begin, cut_after + deadline + 10)  # the machine runs other tests too

    def test_processes_share_the_cores(self):
        """Each has its own part of PoCL's threads and cores, unless a launcher or the environment says otherwise."""
        cores, processes = os.cpu_count(), ("--launch", "processes")
        share = f", 2 processes share {cores} cores: {max(1, cores // 2)} thread"
        own = f", bound to {'a core' if cores < 4 else 'cores'} of its own"
        bound = (share, own) if cores > 1 else (share,)
        for options, given, by, expected in (
                (processes, {}, (), bound), (processes, {}, ("taskset", "-c", "0"), (share,)),
                (processes, {"POCL_MAX_PTHREAD_COUNT": "2"}, (), ()), (processes, {"POCL_CPU_MAX_CU_COUNT": "2"}, (), ()),
                ((*processes, "--ranks-per-process", "2"), {}, (), ()), ((), {}, (), ()), ((*processes, "--sub-devices"), {}, (), ())):
            with self.subTest(options=options, given=given, by=by), unittest.mock.patch.dict(os.environ, given):
                if not given:
                    os.environ.pop("POCL_MAX_PTHREAD_COUNT", None)
                places = self.tensors("mixtral-t0", 2, "mc2", *options, by=by)[0]["rank_places"]
                self.assertEqual([words for words in (share, own) if words in places], list(expected))
                self.assertEqual("of PoCL each" in places, expected != ())

    def test_joined_ranks(self):
        name = f"processes_test-{os.getpid()}"
        ranks = [subprocess.Popen([MOECL, "verify", golden("mixtral-e8k2"), "--platform", "Portable", "--ep", "--ranks", "2", "--join", name,
                                   "--rank", str(rank), "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") for rank in (0, 1)]
        (out, messages), (silent, more) = (rank.communicate(timeout=120) for rank in ranks)
        self.assertEqual((messages, silent, more), ("", "", ""))
        self.assertIn("1 passed, 0 failed", out)

    def test_refusals(self):
        case = golden("mixtral-e8k2")
        self.refused(2, "--rank -1 is not in [0, 2)", "run", case, "--ranks", "2", "--join", "name")
        self.refused(2, "--ranks-per-process 2: with --launch processes, --join or --ranks mpi", "run", case, "--ranks", "4", "--ranks-per-process", "2")
        self.refused(2, "no mpirun of Open MPI or MPICH", "run", case, "--ranks", "mpi")
        self.refused(2, "--tp 3: does not divide 2 ranks", "run", case, "--ranks", "2", "--tp", "3", "--launch", "processes")
        self.refused(2, "processes of a node have shared_memory", "run", case, "--ranks", "2", "--ep", "--launch", "processes",
                     "--transport", "staged")
        self.refused(2, "needs ranks that are processes", "run", case, "--ranks", "2", "--ep", "--transport", "shared_memory")
        self.refused(3, "", "run", self.folder, "--ranks", "2", "--ep", "--launch", "processes")
        self.refused(4, "waited 50 ms for rank 1", "run", case, "--ranks", "2", "--ep", "--join", f"nobody-{os.getpid()}", "--rank", "0",
                     "--deadline", "0.05")


if __name__ == "__main__":
    main()
