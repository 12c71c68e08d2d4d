"""vllm-ascend's releases as PyPI has them, unpacked into build/vllm_ascend when tests ask, and never stored elsewhere."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

FOLDER = pathlib.Path(__file__).parents[3] / "build" / "vllm_ascend"
RELEASES = ("0.16.0rc1", "0.23.0")


def pip(*options, **environment):
    return subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options],
                          env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def fetch(release):
    """The release's folder, which has vllm_ascend; None where PyPI cannot be reached."""
    to = FOLDER / release
    if to.exists():
        return to
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as work:
        if release == "0.16.0rc1":
            pip("--only-binary=:all:", "--python-version", "3.11", "-d", work, f"vllm-ascend=={release}")
            wheels = list(pathlib.Path(work).glob("*.whl"))
            if not wheels:
                return None
            with zipfile.ZipFile(wheels[0]) as wheel:
                wheel.extractall(pathlib.Path(work) / "whole", [n for n in wheel.namelist() if n.endswith(".py")])
            found = pathlib.Path(work) / "whole"
        else:
            # pip asks a source for its metadata, which needs an NPU's software; what it unpacked before that is kept.
            pip("--no-clean", "--no-build-isolation", "--no-binary=:all:", "-d", work, f"vllm-ascend=={release}", TMPDIR=work)
            sources = list(pathlib.Path(work).glob("pip-download-*/vllm-ascend_*"))
            if not sources or not (sources[0] / "vllm_ascend").is_dir():
                return None
            found = sources[0]
        try:
            found.rename(to)
        except OSError:  # another process was faster
            shutil.rmtree(found, ignore_errors=True)
    return to


if __name__ == "__main__":
    for name in RELEASES:
        print(fetch(name) or f"{name}: PyPI cannot be reached")
