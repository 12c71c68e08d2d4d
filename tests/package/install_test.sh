#!/usr/bin/env bash
# The stranger's project builds and runs against an installed tree, by find_package and by pkg-config. The tree is moved
# once installed: nothing in it may hold its first path.
#
# usage: install_test.sh BUILD_DIR SCRATCH_DIR
set -euo pipefail
stranger=$(realpath "$(dirname "$0")/../stranger")
golden=$(realpath "$(dirname "$0")/../data/goldens/qwen3-moe-e64k8")
build=$1 scratch=$2
rm -rf "$scratch"
cmake --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/prefix"
if grep -rIl "$scratch/first" "$scratch/prefix"; then
  echo "these files hold the path they were installed to" >&2
  exit 1
fi

echo "--- by find_package"
cmake -G Ninja -S "$stranger" -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$scratch/prefix" -DMOECL_GOLDEN="$golden" --log-level=WARNING
cmake --build "$scratch/cmake" -- --quiet
ctest --test-dir "$scratch/cmake" --output-on-failure --no-tests=error

echo "--- by pkg-config"
export PKG_CONFIG_PATH="$scratch/prefix/lib/pkgconfig"
make -s -f "$stranger/Makefile" OUT="$scratch/make" GOLDEN="$golden" check
