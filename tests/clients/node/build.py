"""Builds what the Node.js program needs, outside of the tree: `python -m tests.clients.node.build DIRECTORY`.

npm's pulsar-client holds the sources of its add-on; a compiled one, and the C++ library with its headers, it
would load from a place that is no package registry. Three parts stand in for that: the sources from npm, the
library from the wheel of PyPI's pulsar-client of the same version (3.7.0), and `native/libpulsar.h`, which
declares what the add-on uses. Needs npm, g++ and the headers of the Node.js that runs (Debian: libnode-dev).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.setup import UV, uv_environment

HERE = Path(__file__).resolve().parent
COMPILE = (
    "g++", "-std=gnu++17", "-O1", "-fPIC", "-fvisibility=hidden", "-DNAPI_VERSION=4",
    "-DBUILDING_NODE_EXTENSION", "-DNODE_GYP_MODULE_NAME=pulsar",
)  # fmt: skip


class CannotBuild(Exception):
    """Raised when something that the build needs is missing or fails; says what."""


def fetch(directory: Path) -> None:
    """Load the packages into `directory`; the only step that uses the network."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, directory)
    _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", directory=directory)
    _run(
        str(UV), "pip", "install", "--quiet", "--no-config", "--no-deps", "--only-binary=:all:",
        "--require-hashes", "--target", str(directory / "wheel"), "-r", str(HERE / "requirements.txt"),
        directory=directory, environment=uv_environment(),
    )  # fmt: skip


def build(directory: Path) -> None:
    """Compile the add-on from what `fetch` put into `directory`."""
    package = directory / "node_modules" / "pulsar-client"
    sources = sorted((package / "src").glob("*.cc"))
    objects = directory / "objects"
    objects.mkdir(exist_ok=True)
    includes = (_forwarders(sources, directory / "include"), HERE / "native", _node_headers())
    flags = [f"-I{path}" for path in (*includes, directory / "node_modules" / "node-addon-api")]

    def compiled(source: Path) -> str:
        target = str(objects / f"{source.stem}.o")
        _run(*COMPILE, *flags, "-c", str(source), "-o", target, directory=directory)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        linked = list(pool.map(compiled, sources))
    (library,) = (directory / "wheel" / "pulsar_client.libs").glob("libpulsar-*.so")
    binding = package / "lib" / "binding"
    binding.mkdir(parents=True, exist_ok=True)
    # The module names the library's directory relative to itself, so that `directory` may be moved.
    origin = f"-Wl,-rpath,$ORIGIN/{os.path.relpath(library.parent, binding)}"
    module = str(binding / "pulsar.node")
    _run("g++", "-shared", "-o", module, *linked, str(library), origin, directory=directory)
    _run("node", "-e", "require('pulsar-client')", directory=directory)


def _forwarders(sources: list[Path], include: Path) -> Path:
    """Write, for each header file of the library that the sources name, one that leads to ours."""
    text = "".join(path.read_text() for source in sources for path in source.parent.glob(f"{source.stem}.*"))
    for name in set(re.findall(r'#include [<"](pulsar/[\w/]+\.h)[>"]', text)):
        forwarder = include / name
        forwarder.parent.mkdir(parents=True, exist_ok=True)
        forwarder.write_text('#include "libpulsar.h"\n')
    return include


def _node_headers() -> Path:
    """Return the directory of node_api.h, for the Node.js on the PATH."""
    print_configuration = (
        "console.log(JSON.stringify([process.execPath, process.config.variables.node_prefix]))"
    )
    done = subprocess.run(["node", "-e", print_configuration], capture_output=True, text=True, check=True)
    executable, prefix = json.loads(done.stdout)
    roots = (Path(executable).parent.parent, Path(prefix or "/usr"), Path("/usr"), Path("/usr/local"))
    for root in roots:
        if (root / "include" / "node" / "node_api.h").exists():
            return root / "include" / "node"
    looked = ", ".join(str(root / "include" / "node") for root in dict.fromkeys(roots))
    raise CannotBuild(f"node_api.h is in none of {looked}; on Debian it comes with the package libnode-dev")


def _run(*command: str, directory: Path, environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    except FileNotFoundError:
        raise CannotBuild(f"{command[0]} is not on the PATH") from None
    if done.returncode != 0:
        raise CannotBuild(f"{' '.join(command)}\nfailed with {done.returncode}:\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    built = Path(sys.argv[1]).resolve()
    try:
        fetch(built)
        build(built)
    except CannotBuild as error:
        sys.exit(f"the Node.js client cannot be built: {error}")
