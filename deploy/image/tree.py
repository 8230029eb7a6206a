"""Makes one folder with Python, the packages of a lock file and every library that they load. For a build of an image.

`python tree.py TO LOCK SOURCE [NAME…]` fills the folder TO, for example `/dispatcher`, with all packages of the lock
file, or only those of these names. The folder works in every container of the same machine type that has it at this
path: it brings its own C library, and the loader for it. So an image needs nothing else, and a container with another C
library, or with none, can run `TO/bin/dispatcher`.

What is copied comes from the Python that runs this file. The same base image and the same commit give the same bytes.
"""

import compileall
import importlib.metadata
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

UNUSED: Final = (
    "__pycache__", "config-*", "dist-packages", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data",
    "site-packages", "sqlite3", "test", "tkinter", "turtle*", "venv",
    "_codecs_*", "_crypt.*", "_ctypes_test.*", "_curses*", "_dbm.*", "_gdbm.*", "_sqlite3.*", "_test*", "_tkinter.*",
    "_xx*", "audioop.*", "nis.*", "ossaudiodev.*", "readline.*", "spwd.*", "xx*",
)  # fmt: skip
"""Parts of the standard library that no program of ours loads. Codecs of East Asia are some of them."""
CERTIFICATES: Final = Path("/usr/share/doc/ca-certificates/copyright")
COMMAND: Final = """#!{python} -I
from dispatcher.__main__ import main

main()
"""


def main(to: Path, lock: Path, source: Path, *names: str) -> None:
    python = copy_python(to)
    packages = folder_of_packages(to)
    with tempfile.NamedTemporaryFile("w", suffix=".lock", encoding="utf-8") as wanted:
        wanted.write(only(lock.read_text(encoding="utf-8"), names))
        wanted.flush()
        install(packages, "--require-hashes", "--only-binary=:all:", "--requirement", wanted.name)
    install(packages, "--no-build-isolation", str(source))
    copy_licences(to, packages)
    copy_libraries(to)
    set_loader(to, python)
    command = to / "bin" / "dispatcher"
    command.write_text(COMMAND.format(python=to / "bin" / "python3"), encoding="utf-8")
    command.chmod(0o755)
    compile_all(to)


def copy_python(to: Path) -> Path:
    """Copies the interpreter and its standard library. Returns the interpreter's new path."""
    paths, version = sysconfig.get_paths(), f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name in dict.fromkeys((paths["stdlib"], paths["platstdlib"])):
        shutil.copytree(name, to / "lib" / version, ignore=shutil.ignore_patterns(*UNUSED), dirs_exist_ok=True)
    python = to / "bin" / version
    python.parent.mkdir(parents=True)
    shutil.copy2(Path(sys.executable).resolve(), python)
    (to / "bin" / "python3").symlink_to(version)
    return python


def folder_of_packages(to: Path) -> Path:
    """Where the copied interpreter looks for packages. Debian's has another folder than others have."""
    asked = f"import site; print(site.getsitepackages([{str(to)!r}])[-1])"
    told = subprocess.run(
        [Path(sys.executable).resolve(), "-I", "-c", asked], capture_output=True, text=True, check=True
    )
    return Path(told.stdout.strip())


def only(lock: str, names: Sequence[str]) -> str:
    """The entries of the lock file with these names; without names: all. Raises ValueError for a missing entry."""
    entries = {entry.partition("==")[0]: entry for entry in re.split(r"^(?=\S)", lock, flags=re.MULTILINE) if entry}
    if missing := set(names) - entries.keys():
        raise ValueError(f"the lock file has no {', '.join(sorted(missing))}")
    return "".join(entries[name] for name in names or entries)


def install(packages: Path, *what: str) -> None:
    """Installs into this folder alone. Nothing is compiled, and no command is kept but ours."""
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile", "--target", str(packages)]
    subprocess.run([*pip, "--root-user-action=ignore", "--disable-pip-version-check", *what], check=True)
    shutil.rmtree(packages / "bin", ignore_errors=True)
    for record in (*packages.glob("*.dist-info/direct_url.json"), *packages.glob("*.dist-info/REQUESTED")):
        record.unlink()  # they name folders of the machine that built the image


def copy_licences(to: Path, packages: Path) -> None:
    """Copies the licences of Python, of the certificates and of all packages to one place."""
    others = {"python": Path(sysconfig.get_path("stdlib"), "LICENSE.txt"), "debian/ca-certificates": CERTIFICATES}
    for name, licence in others.items():
        target = to / "licences" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(licence, target)
    for found in importlib.metadata.distributions(path=[str(packages)]):
        for file in found.files or ():
            if ".dist-info/" in str(file) and re.match(r"(?i)(licen[cs]e|notice|copying)", file.name):
                target = to / "licences" / found.metadata["Name"] / file.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(file.locate()), target)


def copy_libraries(to: Path) -> None:
    """Copies every library that a program or a module of the folder loads from elsewhere, and the loader."""
    for file in (*binaries(to),):
        for library in libraries(file):
            target = to / "lib" / library.name
            if not library.is_relative_to(to) and not target.exists():
                shutil.copyfile(library, target)
                target.chmod(0o755)
                copy_owners_licence(to, library.resolve())


def binaries(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def libraries(file: Path) -> list[Path]:
    """The libraries that the loader finds for this file. Raises RuntimeError for one that it does not find."""
    told = subprocess.run(["ldd", file], capture_output=True, text=True, check=False).stdout
    if "not found" in told:
        raise RuntimeError(f"{file} needs a library that this machine does not have:\n{told}")
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", told)]


def copy_owners_licence(to: Path, library: Path) -> None:
    """Copies the licence of the Debian package that owns the library."""
    for path in dict.fromkeys(
        (library, Path("/usr") / library.relative_to("/"), Path("/") / "/".join(library.parts[2:]))
    ):
        found = subprocess.run(["dpkg-query", "--search", path], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            name = found.stdout.split(":")[0]
            target = to / "licences" / "debian" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(f"/usr/share/doc/{name}/copyright", target)
            return


def set_loader(to: Path, python: Path) -> None:
    """Lets the interpreter start by the loader of the folder, and everything look for libraries in the folder first.

    A file with a place of its own for libraries (RUNPATH) would look there and then in the container, so it is told.
    All other files look where the interpreter looks (RPATH).
    """
    loader = Path(patchelf("--print-interpreter", python)).name
    patchelf("--set-interpreter", to / "lib" / loader, python)
    for file in (*binaries(to),):
        places = patchelf("--print-rpath", file).split(":")
        if file == python or any(places):
            own = [place for place in places if place.startswith("$ORIGIN")]
            patchelf("--force-rpath", "--set-rpath", ":".join([*own, str(to / "lib")]), file)


def patchelf(*words: object) -> str:
    done = subprocess.run(["patchelf", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"patchelf {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout.strip()


def compile_all(to: Path) -> None:
    """Compiles everything. A root file system that cannot be written would make each start compile it again."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(to, quiet=1, invalidation_mode=mode, workers=1):
        raise RuntimeError(f"a module in {to} cannot be compiled")


if __name__ == "__main__":
    os.umask(0o022)
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
