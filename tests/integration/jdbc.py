"""Java and the JDBC driver for the Java example. Maven loads the driver once, into the cache folder of the account."""

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.node.cache import cached, digest_of

PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
ARTIFACT: Final = "org.postgresql:postgresql:42.7.14"
SHA256: Final = "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c"
INSTALL: Final = "install a JDK of Java 17 or later and Maven (of Debian: apt-get install default-jdk-headless maven)"


class JavaFault(Exception):
    """Java, Maven or the driver is missing. The message says what to install, or has Maven's output."""


def java() -> str:
    """Path of a Java that compiles and runs a source file."""
    path = program("java")
    asked = subprocess.run([path, "--list-modules"], capture_output=True, text=True, check=False)
    if "jdk.compiler@" not in asked.stdout:
        raise JavaFault(f"{path} has no compiler: {INSTALL}")
    return path


def driver() -> Path:
    """The driver's jar."""
    return cached("jdbc", digest_of([ARTIFACT, SHA256]), load) / "postgresql.jar"


def load(folder: Path) -> None:
    command = [program("mvn"), "--batch-mode", "--quiet", f"{PLUGIN}:copy", f"-Dartifact={ARTIFACT}"]
    options = [f"-DoutputDirectory={folder}", "-Dmdep.stripVersion=true"]
    done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JavaFault(f"Maven did not load {ARTIFACT}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    check(folder / "postgresql.jar")


def check(jar: Path) -> None:
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    if found != SHA256:
        raise JavaFault(f"{ARTIFACT} has the sha256 {found}, not {SHA256}: look at it before you change the pin")


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise JavaFault(f"the Java example needs `{name}`, which is not on PATH: {INSTALL}")
    return path
