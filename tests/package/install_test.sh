#!/usr/bin/env bash
# The installed examples build and run: by find_package, in the steps of their pipeline of continuous integration, and by
# pkg-config. The tree is moved once installed: nothing in it may hold its first path.
#
# usage: install_test.sh BUILD_DIR SCRATCH_DIR
set -euo pipefail
here=$(realpath "$(dirname "$0")")
build=$1 scratch=$2
rm -rf "$scratch"
cmake --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/prefix"
if grep -rIl "$scratch/first" "$scratch/prefix"; then
  echo "these files hold the path they were installed to" >&2
  exit 1
fi
examples=$scratch/prefix/share/moecl/examples

/usr/bin/python3 "$here/run_steps.py" "$examples/github_actions.yml" "$here/../.." "$scratch"

echo "--- by pkg-config"
export PKG_CONFIG_PATH="$scratch/prefix/lib/pkgconfig"
make -s -f "$examples/Makefile" OUT="$scratch/make" EXAMPLES="own_queue_from_c one_operator" check
