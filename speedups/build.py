"""Compile the modules of modules.txt with mypyc, into a wheel of the distribution `magnetar-speedups`.

`make speedups` installs the wheel into .venv; `--wheel-dir` keeps it, for images and other environments. The
sources stay the only implementation: the wheel records the digest of each, and
`magnetar.common.runtime.speedups` uses compiled modules only with the sources that they were made of.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from setuptools import Extension

ROOT: Final = Path(__file__).resolve().parent.parent
HERE: Final = Path(__file__).resolve().parent
PACKAGE: Final = "magnetar_speedups"
GROUP: Final = "magnetar"
"""Name of the library that all compiled modules share."""
OPTIMIZATIONS: Final = ("0", "1", "2", "3")
VERSION: Final = "0.1.0"


def modules() -> dict[str, Path]:
    """Return the source of each module of modules.txt, relative to the repository. Raise LookupError."""
    rooms = [path.parent for path in ROOT.glob("*/*/pyproject.toml")]
    found = {}
    for line in (HERE / "modules.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        relative = Path(*line.split(".")).with_suffix(".py")
        sources = [room / relative for room in rooms if (room / relative).is_file()]
        if len(sources) != 1:
            raise LookupError(f"module {line} of speedups/modules.txt has {len(sources)} sources, not one")
        found[line] = sources[0].relative_to(ROOT)
    return found


def extensions_of(work: Path, optimization: str = "0") -> list[Extension]:
    """Translate all modules to C in `work`. mypyc ends the process with its messages if it cannot."""
    from mypyc.build import mypycify

    return mypycify(
        ["--config-file", "pyproject.toml", *map(str, modules().values())],
        opt_level=optimization,
        debug_level="0",
        multi_file=True,
        group_name=GROUP,
        target_dir=str(work / "c"),
    )


def compile_into(library: Path, work: Path, optimization: str) -> None:
    """Compile all modules into `library`: an extension module each by package, and what they share."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    extensions = extensions_of(work, optimization)
    command = build_ext(Distribution({"ext_modules": extensions}))
    command.build_lib, command.build_temp = str(library), str(work / "objects")
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    command.run()


def write_package(package: Path) -> int:
    """Add the manifest to a package that holds the compiled library; return how many modules it has."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    shared = f"{GROUP}__mypyc"
    manifest: dict[str, list[str | None]] = {shared: [f"{shared}{suffix}", None]}
    for name, source in modules().items():
        digest = hashlib.sha256((ROOT / source).read_bytes()).hexdigest()
        manifest[name] = [f"{name.replace('.', '/')}{suffix}", digest]
    missing = [file for file, _ in manifest.values() if not (package / str(file)).exists()]
    if missing:
        sys.exit(f"speedups: mypyc made no {missing[0]}")
    (package / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    (package / "__init__.py").write_text(
        '"""Modules of Magnetar, compiled by mypyc; magnetar.common.runtime.speedups uses them."""\n'
    )
    return len(manifest) - 1


def make_wheel(staging: Path, wheel_dir: Path) -> Path:
    """Return the wheel of the package in `staging`."""
    from setuptools import Distribution, setup

    # For one platform and Python, although setuptools compiled nothing of it.
    platform = type("Platform", (Distribution,), {"has_ext_modules": lambda _self: True})
    wheel_dir.mkdir(parents=True, exist_ok=True)
    for old in wheel_dir.glob("magnetar_speedups-*.whl"):
        old.unlink()
    before = Path.cwd()
    os.chdir(staging)  # setuptools finds packages and leaves its files in the working directory
    try:
        setup(
            name="magnetar-speedups",
            version=VERSION,
            description="Modules of Magnetar, compiled.",
            license="Apache-2.0",
            packages=[PACKAGE],
            package_data={PACKAGE: ["manifest.json", "*.so", "**/*.so"]},
            distclass=platform,
            script_args=["--quiet", "bdist_wheel", "--dist-dir", str(wheel_dir.resolve())],
        )
    finally:
        os.chdir(before)
    (wheel,) = wheel_dir.glob("magnetar_speedups-*.whl")
    return wheel


def build(wheel_dir: Path, optimization: str) -> tuple[Path, int]:
    """Compile all modules into a wheel; return it and how many modules it has."""
    with tempfile.TemporaryDirectory() as directory:
        staging = Path(directory, "staging")
        compile_into(staging / PACKAGE, Path(directory), optimization)
        count = write_package(staging / PACKAGE)
        return make_wheel(staging, wheel_dir), count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel-dir", type=Path, help="leave the wheel there, and do not install it")
    parser.add_argument(
        "--optimization", choices=OPTIMIZATIONS, default="3", help="of the C compiler (default 3)"
    )
    parser.add_argument(
        "--check", action="store_true", help="translate to C only: does mypyc take the modules?"
    )
    options = parser.parse_args()
    os.chdir(ROOT)
    if options.check:
        with tempfile.TemporaryDirectory() as directory:
            extensions_of(Path(directory))
        return
    if (
        sysconfig.get_config_var("CC") is None
        or shutil.which(str(sysconfig.get_config_var("CC")).split()[0]) is None
    ):
        sys.exit("speedups: no C compiler: install one, or run from the sources as they are")
    print(f"speedups: compiling {len(modules())} modules with mypyc: minutes", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        wheel, count = build(options.wheel_dir or Path(temporary), options.optimization)
        size = wheel.stat().st_size / 1e6
        if options.wheel_dir is not None:
            print(f"speedups: {count} modules in {wheel}, {size:.1f} MB")
            return
        uv = Path(sys.executable).parent / "uv"
        command = [str(uv), "pip", "install", "--quiet", "--offline", "--no-deps", "--reinstall", str(wheel)]
        subprocess.run(command, check=True, env={**os.environ, "VIRTUAL_ENV": str(Path(sys.prefix))})
    print(f"speedups: {count} compiled modules in {sys.prefix}; MAGNETAR_SPEEDUPS=off runs the sources")


if __name__ == "__main__":
    main()
