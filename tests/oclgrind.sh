#!/usr/bin/env bash
# Runs a test program on oclgrind, the OpenCL simulator; fails, too, when that saw a data race, an access out of bounds or
# a wrong API call.
#
# usage: oclgrind.sh PROGRAM [OPTION...]
set -euo pipefail
# Without optimizations: version 21.10 widens the truths of a vector to 255 where LLVM means 1, which only optimized code
# asks for.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
oclgrind --check-api --data-races --max-errors 20 --build-options -cl-opt-disable --log "$log" "$@" || status=$?
if [[ -s $log ]]; then
  cat "$log" >&2
  exit 1
fi
exit "$status"
