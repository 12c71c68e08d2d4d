#!/usr/bin/env bash
# moecl as a part of somebody's CMake project: it configures, and changes nothing outside itself.
#
# usage: subproject_test.sh BUILD_DIR SCRATCH_DIR
set -euo pipefail
here=$(realpath "$(dirname "$0")")
rm -rf "$2"
cmake -G Ninja -S "$here/subproject" -B "$2" -DMOECL_SOURCE_DIR="$here/../.." --log-level=WARNING
