#!/usr/bin/env bash
# The bundle travels: it is small, finds its own shared libraries wherever it is unpacked, its programs run there, and the
# license of everything in it comes along.
#
# usage: bundle_test.sh BUILD_DIR SCRATCH_DIR
set -euo pipefail
build=$(realpath "$1") scratch=$2
largest_bytes=$((40 * 1024 * 1024))
from_the_system='linux-vdso|ld-linux|/lib(c|m|stdc\+\+|gcc_s)\.so' # the latter two: see tools/package/bundle.cmake
rm -rf "$scratch"
mkdir -p "$scratch/un packed"
unset LD_LIBRARY_PATH

cpack --config "$build/CPackConfig.cmake" -B "$scratch" >/dev/null
rm -rf "$scratch/_CPack_Packages"
archive=$(echo "$scratch"/moecl-*-linux-*.tar.gz)
tar -xzf "$archive" -C "$scratch/un packed"
root=$(echo "$scratch/un packed"/moecl-*)
size_bytes=$(stat -c %s "$archive")
echo "$(basename "$archive"): $size_bytes bytes"
((size_bytes < largest_bytes)) || { echo "larger than $largest_bytes bytes" >&2; exit 1; }

for program in "$root"/bin/moecl* "$root"/lib/libmoecl.so; do
  needed=$(ldd "$program")
  if outside=$(grep -vF "$root" <<<"$needed" | grep -vE "$from_the_system"); then
    printf '%s needs libraries that are not in the bundle:\n%s\n' "$program" "$outside" >&2
    exit 1
  fi
done

for plugin in "$build"/moecl_helpers/mpi_*.so; do
  [[ -s $root/lib/moecl_helpers/$(basename "$plugin") ]] || { echo "$(basename "$plugin") is not in the bundle" >&2; exit 1; }
done

for library in "$root"/lib/*.so.* "$root"/lib/fallback/*.so.*; do
  name=$(basename "$library")
  [[ $name == libmoecl.so.* || -s $root/licenses/$name ]] || { echo "$name has no license" >&2; exit 1; }
done
named=$(grep -rhoE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$root/licenses" | sort -u)
while read -r text; do
  [[ -s $root/licenses/common-licenses/$(basename "$text") ]] || { echo "$text is not in the bundle" >&2; exit 1; }
done <<<"$named"
[[ -s $root/LICENSE ]]

cd /
export MOECL_TEST_DATA=$root/tests/data
"$root/bin/moecl_tests" --source=kernels_cl/gather_rows_test.cpp --gtest_brief=1
"$root/bin/moecl" verify "$MOECL_TEST_DATA/goldens/mixtral-e8k2" --platform "Portable Computing Language"
"$root/bin/gpu_check" "$scratch/checked" "Portable Computing Language" quick
LD_LIBRARY_PATH=$root/lib/fallback "$root/bin/moecl_bench" --benchmark_list_tests=true >/dev/null
