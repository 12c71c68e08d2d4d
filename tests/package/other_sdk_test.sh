#!/usr/bin/env bash
# Beside another OpenCL SDK, laid out as CUDA's and first in CMake's search path, the system's ICD loader is still taken:
# by moecl's own build and by a project that uses the installed moecl.
#
# usage: other_sdk_test.sh BUILD_DIR SCRATCH_DIR
set -euo pipefail
source=$(realpath "$(dirname "$0")/../..")
build=$1 scratch=$2
rm -rf "$scratch"
sdk=$scratch/other_sdk
mkdir -p "$sdk/include/CL" "$sdk/lib64"
echo '#error "the header of the other SDK was taken"' >"$sdk/include/CL/cl.h"
echo 'not a library' >"$sdk/lib64/libOpenCL.so"
ln -s lib64 "$sdk/lib"
export CUDA_PATH=$sdk AMDAPPSDKROOT=$sdk INTELOCLSDKROOT=$sdk

cmake --install "$build" --prefix "$scratch/prefix" >/dev/null
cmake -G Ninja -S "$source" -B "$scratch/moecl" -DCMAKE_PREFIX_PATH="$sdk" --log-level=WARNING
cmake -G Ninja -S "$source/host/examples" -B "$scratch/examples" -DCMAKE_PREFIX_PATH="$sdk;$scratch/prefix" --log-level=WARNING
if grep -n "$sdk" "$scratch/moecl/build.ninja" "$scratch/examples/build.ninja"; then
  echo "the other SDK was taken" >&2
  exit 1
fi
cmake --build "$scratch/examples" --target one_operator own_queue_from_c -- --quiet
