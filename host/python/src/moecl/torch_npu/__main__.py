"""python -m moecl.torch_npu SCRIPT [ARGUMENTS], or -m MODULE [ARGUMENTS]: runs a program with the stand-in installed.
--page writes TORCH_NPU.md."""
import os
import runpy
import sys

from moecl.torch_npu import install


def main() -> None:
    arguments = sys.argv[1:]
    as_module = arguments[:1] == ["-m"]
    if len(arguments) < 1 + as_module or arguments[0] in ("-h", "--help"):
        print(__doc__, file=sys.stderr)
        raise SystemExit(2)
    if arguments[0] == "--page":
        from moecl.torch_npu._page import page

        print(page(), end="")
        return
    install()
    sys.argv = arguments[as_module:]
    if as_module:
        sys.path[0] = ""
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
