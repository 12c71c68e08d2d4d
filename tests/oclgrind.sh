#!/usr/bin/env bash
# Runs a test program on oclgrind, the OpenCL simulator; fails, too, when that saw a data race, an access out of bounds or
# a wrong API call.
#
# usage: oclgrind.sh PROGRAM [OPTION...]
set -euo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
oclgrind --check-api --data-races --max-errors 20 --log "$log" "$@"
if [[ -s $log ]]; then
  cat "$log" >&2
  exit 1
fi
