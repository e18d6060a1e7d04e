"""Make .venv: `make setup`, which every other target calls first.

Starts from a bare python3 with the venv module: creates .venv, puts uv into it (pinned with its hashes in
requirements-uv.txt), installs requirements.txt with hashes, from wheels only, and then the workspace's own
distributions, editable, with the build back end that uv contains. That is what servers and commands need.
A stamp holding the digest of all inputs makes the second call instant. With arguments, `setup.py tests`,
it adds what requirements-tests.txt pins. Written so that an older Python still gets as far as the message
it is owed.
"""

from __future__ import annotations

import ast
import hashlib
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "setup.stamp"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
BUILT = ("--no-binary", "pyspark", "--no-build-isolation")
"""PySpark comes as a source package only; setuptools of requirements-build.txt builds it."""

IMPORTED = (
    "import magnetar.cli.servers.commands, magnetar.standalone.run, magnetar.standalone.standalone, uvloop"
)
"""Modules that a standalone imports."""


def members() -> list[Path]:
    """The directories of the workspace's distributions."""
    return sorted(
        path.parent
        for room in ("cli", "libs/*", "services/*", "spark")
        for path in ROOT.glob(f"{room}/pyproject.toml")
    )


def digest() -> str:
    """Digest of everything that determines the content of .venv: change one byte and setup runs again."""
    inputs = [
        Path(__file__),
        ROOT / "requirements-uv.txt",
        ROOT / "requirements.txt",
        *(member / "pyproject.toml" for member in members()),
    ]
    sums = [str(VENV), *(hashlib.sha256(path.read_bytes()).hexdigest() for path in inputs)]
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()


def uv_environment() -> dict[str, str]:
    """This environment, and in uv's own words what pip has been told about its index and certificates."""
    environment = dict(os.environ)
    listing = subprocess.run(
        [PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    told = {}
    for line in reversed(listing.stdout.splitlines()):  # pip prints what counts most first
        name, _, value = line.partition("=")
        told[name.rpartition(".")[2]] = ast.literal_eval(value)
    for option, variable in (("index-url", "UV_DEFAULT_INDEX"), ("cert", "SSL_CERT_FILE")):
        if option in told:
            environment.setdefault(variable, told[option])
    paths = ssl.get_default_verify_paths()
    if paths.cafile or (paths.capath and any(Path(paths.capath).iterdir())):
        environment.setdefault("UV_SYSTEM_CERTS", "true")
    environment["VIRTUAL_ENV"] = str(VENV)
    return environment


def run(step: str, *command: str | Path, environment: dict[str, str] | None = None) -> None:
    print(f"setup: {step}", flush=True)
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"setup: failed at '{step}' (exit code {done.returncode}); the lines above say why")


def uv_is_pinned() -> bool:
    pin = (ROOT / "requirements-uv.txt").read_text().split()[0].partition("==")[2]
    if not UV.exists():
        return False
    version = subprocess.run([UV, "--version"], capture_output=True, text=True, check=False)
    return version.stdout.split()[1:2] == [pin]


def add(extra: str) -> None:
    """Install the packages of requirements-EXTRA.txt beside those of requirements.txt."""
    requirements = ROOT / f"requirements-{extra}.txt"
    stamp = VENV / f"setup-{extra}.stamp"
    expected = f"{digest()} {hashlib.sha256(requirements.read_bytes()).hexdigest()}"
    if stamp.exists() and stamp.read_text() == expected:
        return
    run(
        f"packages of {requirements.name}, pinned with their hashes",
        UV, "pip", "install", "--quiet", "--no-config", "--no-deps", "--only-binary=:all:", *BUILT,
        "--require-hashes", "-r", requirements, environment=uv_environment(),
    )  # fmt: skip
    stamp.write_text(expected)


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - this is the check that every other file may rely on
        version = "{}.{}".format(*sys.version_info[:2])
        sys.exit(
            f"setup: Magnetar needs Python 3.11 or newer; {sys.executable} is Python {version}.\n"
            "setup: with another interpreter: make PYTHON=/path/to/python3.11 setup"
        )
    expected = digest()
    if STAMP.exists() and STAMP.read_text() == expected:
        return
    started = time.monotonic()
    is_new = not PYTHON.exists()
    if is_new:
        run(
            "create .venv (on Debian and Ubuntu the module is in the package python3-venv)",
            sys.executable, "-m", "venv", VENV,
        )  # fmt: skip
    if not uv_is_pinned():
        if "SSL_CERT_FILE" in os.environ:
            os.environ.setdefault("PIP_CERT", os.environ["SSL_CERT_FILE"])
        run(
            "uv, pinned with its hashes",
            PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--only-binary=:all:", "--require-hashes", "-r", "requirements-uv.txt",
        )  # fmt: skip
    environment = uv_environment()
    if is_new:
        run(
            "without the setuptools of Python 3.11, which nothing here needs to run",
            UV, "pip", "uninstall", "--quiet", "--no-config", "setuptools", environment=environment,
        )  # fmt: skip
    run(
        "packages, pinned with their hashes",
        UV, "pip", "install", "--quiet", "--no-config", "--no-deps", "--only-binary=:all:",
        "--require-hashes", "-r", "requirements.txt", environment=environment,
    )  # fmt: skip
    editables = [argument for member in members() for argument in ("--editable", str(member))]
    run(
        "the workspace's own distributions, editable",
        UV, "pip", "install", "--quiet", "--no-config", "--no-deps", "--offline", "--require-build-hashes",
        *editables, environment=environment,
    )  # fmt: skip
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    run(
        "byte code, so that the first start is as fast as later ones",
        PYTHON, "-c", IMPORTED, environment=environment,
    )  # fmt: skip
    STAMP.write_text(expected)
    print(f"setup: .venv is ready ({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
    for argument in sys.argv[1:]:
        add(argument)
