#!/usr/bin/env bash
# The reference is made without a warning, and every type and function of the public headers has a docstring, but those
# that are the same of every operator; the main page tells of them.
#
# usage: reference_test.sh DOXYFILE SCRATCH_DIR
set -euo pipefail
of_operators='(reject|enqueue|cost|infer|workspace_bytes|moecl_\w+_(defaults|plan))\(|(Call &how|moecl_call \*call)\b|::(Args|Config) is'
of_classes='\((variable|function|typedef)\) of (class|struct|union) '
rm -rf "$2"
mkdir -p "$2"
cd "$2"
doxygen <(cat "$1" && echo OUTPUT_DIRECTORY = made) 2>&1
[[ -s made/html/index.html && -s made/html/own_gemm_8cpp-example.html ]] || { echo "pages are missing" >&2; exit 1; }

doxygen <(cat "$1" && printf '%s\n' OUTPUT_DIRECTORY=. GENERATE_HTML=NO EXTRACT_ALL=NO WARN_AS_ERROR=NO) 2>undocumented || true
grep -q 'is not documented' undocumented || { echo "this check sees nothing" >&2; exit 1; }
! grep 'is not documented' undocumented | grep -vE "$of_operators|$of_classes" >&2
