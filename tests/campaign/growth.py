#!/usr/bin/env python3
"""A layer over processes loses each of its ranks in turn, and gets it back.

usage: growth.py WORKER MODEL

Each expert is on two ranks or more. A rank is killed in a pass; the survivors name it, shrink and go on. It is started
again, and loads its experts while the others have passes. It joins them, and experts move between all of them beside
passes. Every pass has the model's recorded output in double precision, and the bits of the first.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import command  # noqa: E402

RANKS = 3
# The experts of each rank.
BLOCKS = [list(range(12)), list(range(4, 16)), [12, 13, 14, 15, 0, 1, 2, 3, 8, 9, 10, 11]]
TOLERANCE = 1e-5  # of f32, as `moecl verify` has it


class Rank:
    """A process that does what it is told."""

    def __init__(self, options, name, rank, percent):
        self.rank = rank
        self.process = subprocess.Popen([options.worker, options.model, name, str(rank), str(RANKS), str(percent)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline().rstrip("\n")
        if not line:
            raise AssertionError(f"rank {self.rank} has ended: {self.process.wait()}")
        return line


def table_of(blocks):
    return " ".join(str(expert) for block in blocks for expert in block)


class Layer:
    def __init__(self, options, name, percent, truth):
        self.truth, self.first, self.passes = truth, None, 0
        self.start = lambda rank: Rank(options, name, rank, percent)
        self.ranks = [self.start(rank) for rank in range(RANKS)]
        self.blocks = list(BLOCKS)

    def end(self, failed):
        for rank in self.ranks:
            try:
                rank.process.communicate(timeout=0 if failed else 60)  # who is told nothing more ends
            except subprocess.TimeoutExpired:
                rank.process.kill()
                rank.process.communicate()
                assert failed, f"rank {rank.rank} did not end"

    def told(self, line, ranks):
        """What the ranks answer."""
        for rank in ranks:
            rank.tell(line)
        return [rank.answer() for rank in ranks]

    def all_do(self, line, ranks):
        answers = self.told(line, ranks)
        assert len(set(answers)) == 1 and not answers[0].startswith("error"), f"{line}: {answers}"
        return answers[0]

    def load(self, line, rank, beside):
        """A rank makes its layer; before each expert `beside` is called."""
        rank.tell(line)
        experts = 0
        while (answer := rank.answer()) == "loading":
            beside()
            rank.tell("go")
            experts += 1
        assert answer == "done" and experts > 0, f"{experts} experts, {answer}"

    def forward(self, ranks):
        answers = self.told("pass", ranks)
        assert not any(answer.startswith("error") for answer in answers), answers
        out = numpy.frombuffer(bytes.fromhex("".join(answers)), dtype=">u4").astype("u4").view("f4").reshape(self.truth.shape)
        error = numpy.abs(out - self.truth).max() / numpy.abs(self.truth).max()
        assert error <= TOLERANCE, f"pass {self.passes}: {error} from the truth"
        self.first = out if self.first is None else self.first
        assert (out.view("u4") == self.first.view("u4")).all(), f"pass {self.passes}: other bits than the first"
        self.passes += 1

    def begin(self):
        self.all_do("join", self.ranks)
        with concurrent.futures.ThreadPoolExecutor() as each:
            made = [each.submit(self.load, f"make {table_of(self.blocks)}", rank, lambda: None) for rank in self.ranks]
            for one in made:
                one.result()
        self.forward(self.ranks)

    def lose(self, victim):
        """In a pass, for which the others wait."""
        left = [rank for rank in self.ranks if rank.rank != victim]
        for rank in left:
            rank.tell("pass")
        lost = self.ranks[victim].process
        lost.kill()
        lost.communicate()
        for rank in left:
            answer = rank.answer()
            assert re.search(rf"error .*rank {victim} \(process {lost.pid}\)", answer), answer
        self.all_do("shrink", left)
        self.all_do("regroup " + table_of(block for rank, block in enumerate(self.blocks) if rank != victim), left)
        self.forward(left)
        return left

    def grow(self, victim, left):
        new = self.ranks[victim] = self.start(victim)
        self.all_do("alone", [new])
        before = self.passes
        self.load(f"make {table_of([self.blocks[victim]])}", new, lambda: self.forward(left))
        assert self.passes > before
        for rank in left:
            rank.tell("rejoin")
        self.all_do("join", [new])
        assert [rank.answer() for rank in left] == ["done"] * len(left)
        self.all_do(f"regroup {table_of(self.blocks)}", self.ranks)
        self.forward(self.ranks)

    def move(self):
        """Each rank gets the experts of the next."""
        self.blocks = self.blocks[1:] + self.blocks[:1]
        self.all_do(f"move {table_of(self.blocks)}", self.ranks)
        while self.all_do("step", self.ranks) == "more":
            self.forward(self.ranks)
        self.all_do("commit", self.ranks)
        self.forward(self.ranks)
        places = self.all_do("places", self.ranks)
        assert places == table_of(self.blocks).replace(" ", ","), places


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("model")
    options = parser.parse_args()
    truth = command.load(pathlib.Path(options.model) / "golden.safetensors")["output_f64"][1]
    for percent in 0, 50:
        layer = Layer(options, f"growth-{os.getpid()}-{percent}", percent, truth)
        try:
            layer.begin()
            for victim in 2, 0, 1:
                layer.grow(victim, layer.lose(victim))
                layer.move()
            print(f"budget {percent} %: {layer.passes} passes, {RANKS} ranks lost and back")
        except BaseException:
            layer.end(failed=True)
            raise
        layer.end(failed=False)


if __name__ == "__main__":
    main()
