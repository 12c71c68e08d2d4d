#!/usr/bin/env bash
# The reference is made without a warning, and types and functions of the public headers have a docstring. Those that are
# the same of every operator have none, the main page tells of them; nor have constructors and what takes no argument.
#
# usage: reference_test.sh DOXYFILE SCRATCH_DIR
set -euo pipefail
of_operators='(reject|enqueue|cost|infer|workspace_bytes|moecl_\w+_(defaults|plan))\(|(Call &how|moecl_call \*call)\b|::(Args|Config) is'
self_evident='\((variable|typedef)\) of (class|struct|union) |Member (operator|\w+\(\)|(\w+)\(.* of (class|struct) (\w+::)*\4 is)'
rm -rf "$2"
mkdir -p "$2"
cd "$2"
doxygen <(cat "$1" && echo OUTPUT_DIRECTORY = made) 2>&1
[[ -s made/html/index.html && -s made/html/own_gemm_8cpp-example.html ]] || { echo "pages are missing" >&2; exit 1; }

doxygen <(cat "$1" && printf '%s\n' OUTPUT_DIRECTORY=. GENERATE_HTML=NO EXTRACT_ALL=NO WARN_AS_ERROR=NO) 2>undocumented || true
grep -q 'is not documented' undocumented || { echo "this check sees nothing" >&2; exit 1; }
! grep 'is not documented' undocumented | grep -vE "$of_operators" | grep -vE "$self_evident" >&2
