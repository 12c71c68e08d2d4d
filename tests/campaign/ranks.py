#!/usr/bin/env python3
"""Kills and stops ranks of a group of processes, one after the other, in every step of every strategy.

usage: ranks.py WORKER [--rounds N] [--ranks R] [--step S] [--deadline MS]

Every survivor has to get an error within the deadline that names the rank that failed, go on with those that are left,
and take the rank back once it was started again. 256 rounds are all there are of 4 ranks; --step S goes through them in
steps of S.
"""
import argparse
import collections
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import threading
import time


class Rank:
    def __init__(self, options, name, rank, first, lines):
        self.rank, self.round = rank, first
        # A group of its own: the kernel continues what is stopped in the group of a shell that ends.
        self.process = subprocess.Popen(
            [options.worker, name, str(rank), str(options.ranks), str(first), str(options.rounds), str(options.step)],
            stdout=subprocess.PIPE, text=True, preexec_fn=os.setpgrp, env={**os.environ, "DEADLINE_MS": str(options.deadline)})
        threading.Thread(target=self.read, args=(lines,), daemon=True).start()

    def read(self, lines):
        for line in self.process.stdout:
            lines.put((self, line.rstrip("\n")))
        self.process.wait()
        lines.put((self, f"exit {self.process.returncode}"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--rounds", type=int, default=256)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--deadline", type=int, default=2000, help="ms")
    options = parser.parse_args()
    name, lines = f"campaign-{os.getpid()}", queue.Queue()
    ranks = {r: Rank(options, name, r, 0, lines) for r in range(options.ranks)}
    everybody = list(ranks.values())
    failed_at, ended, problems = {}, collections.defaultdict(set), []
    late = wrong = 0
    returned, going_on, rejoined = [], [], []
    began_again = {}
    done = set()

    def begin_again(victim):
        ranks[victim.rank] = Rank(options, name, victim.rank, victim.round + 1, lines)
        everybody.append(ranks[victim.rank])
        began_again[victim.round] = time.monotonic()

    try:
        while len(done) < options.ranks and not problems:
            try:
                rank, line = lines.get(timeout=30)
            except queue.Empty:
                problems.append("nobody says anything for 30 s")
                break
            word, *rest = line.split(" ", 3)
            if word == "fails":
                rank.round = int(rest[0])
                failed_at[rank.round] = int(rest[1]), rank
            elif word == "ended":
                round_, at, cause = int(rest[0]), int(rest[1]), rest[2]
                victim = (round_ * options.step) % options.ranks
                # What the victim wrote before is read by another thread.
                later, until = [], time.monotonic() + 5
                while round_ not in failed_at and time.monotonic() < until:
                    try:
                        other, text = lines.get(timeout=0.1)
                    except queue.Empty:
                        continue
                    if text.startswith("fails"):
                        other.round = int(text.split()[1])
                        failed_at[other.round] = int(text.split()[2]), other
                    else:
                        later.append((other, text))
                for line in later:
                    lines.put(line)
                if round_ not in failed_at:
                    problems.append(f"round {round_}: rank {rank.rank} ended before anybody failed: {cause}")
                    break
                took = (at - failed_at[round_][0]) / 1e3
                returned.append(took)
                late += took > options.deadline
                if not re.search(rf"rank {victim} \(process \d+\)", cause):
                    wrong += 1
                    print(f"round {round_}, rank {rank.rank}: {cause}")
                ended[round_].add(rank.rank)
                if len(ended[round_]) == options.ranks - 1:
                    stopped = failed_at[round_][1]
                    if stopped.process.poll() is None:
                        stopped.process.send_signal(signal.SIGKILL)
            elif word == "shrunk":
                going_on.append(int(rest[2].split()[0]) / 1e3)
            elif word == "whole":
                if int(rest[0]) in began_again:
                    rejoined.append((time.monotonic() - began_again[int(rest[0])]) * 1e3)
            elif word == "error":
                problems.append(f"rank {rank.rank} in round {rank.round}: {line}")
            elif word == "done":
                done.add(rank.rank)
            elif word == "exit" and rank.rank not in done:
                if rest[0] == "-9" and rank.round in failed_at and failed_at[rank.round][1] is rank:
                    begin_again(rank)
                else:
                    problems.append(f"rank {rank.rank} in round {rank.round}: {line}")
    except KeyboardInterrupt:  # what there is so far is told
        problems.append("interrupted")
    finally:
        for rank in everybody:
            if rank.process.poll() is None:
                try:
                    rank.process.wait(timeout=5 if not problems else 0)
                except subprocess.TimeoutExpired:
                    rank.process.send_signal(signal.SIGKILL)
                    problems.append(f"rank {rank.rank} did not end")
    for problem in problems:
        print(problem)
    if returned:
        for what, values in (("survivors returned after", returned), ("new group after", going_on), ("whole again after", rejoined)):
            values.sort()
            print(f"{what}: median {statistics.median(values):.1f} ms, most {values[-1]:.1f} ms, of {len(values)}")
    print(f"{len(ended)} failures of {options.ranks} ranks: {late} survivors late, {wrong} named another culprit, {len(problems)} problems")
    return 1 if late or wrong or problems or len(ended) != options.rounds else 0


if __name__ == "__main__":
    sys.exit(main())
