"""Prints what a folder of `tree.py` is made of, as SPDX 2.3 JSON: packages of Python, and Debian packages of libraries.

`python sbom.py FOLDER`. The same folder gives the same text: times and ids come from its content.
"""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

UNKNOWN: Final = "NOASSERTION"


def main(folder: Path) -> str:
    packages = [python(), *distributions(folder), *debian(folder)]
    text = json.dumps(packages, sort_keys=True)
    return json.dumps(document(packages, uuid.uuid5(uuid.NAMESPACE_URL, text)), indent=1, sort_keys=True)


def document(packages: list[dict[str, Any]], name: uuid.UUID) -> dict[str, Any]:
    at = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    described = next(one["SPDXID"] for one in packages if one["name"] == "pg-job-dispatcher")
    return {
        "spdxVersion": "SPDX-2.3",
        "SPDXID": "SPDXRef-DOCUMENT",
        "dataLicense": "CC0-1.0",
        "name": "dispatcher",
        "documentNamespace": f"urn:uuid:{name}",
        "creationInfo": {"created": f"{at:%Y-%m-%dT%H:%M:%SZ}", "creators": ["Tool: deploy/image/sbom.py"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": described},
            *(
                {"spdxElementId": described, "relationshipType": "CONTAINS", "relatedSpdxElement": one["SPDXID"]}
                for one in packages
                if one["SPDXID"] != described
            ),
        ],
    }


def package(name: str, version: str, licence: str, url: str) -> dict[str, Any]:
    return {
        "SPDXID": f"SPDXRef-{url[4:].partition('/')[0]}-{name.replace('_', '-').replace('+', '')}",  # after `pkg:`
        "name": name,
        "versionInfo": version,
        "downloadLocation": UNKNOWN,
        "licenseDeclared": licence,
        "licenseConcluded": UNKNOWN,
        "copyrightText": UNKNOWN,
        "filesAnalyzed": False,
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}
        ],
    }  # fmt: skip


def python() -> dict[str, Any]:
    version = platform.python_version()
    return package("python", version, "PSF-2.0", f"pkg:generic/python@{version}")


def distributions(folder: Path) -> Iterator[dict[str, Any]]:
    paths = [str(path.parent) for path in folder.glob("lib/**/*.dist-info")]
    found = {one.metadata["Name"]: one for one in importlib.metadata.distributions(path=sorted(set(paths)))}
    for name, one in sorted(found.items()):
        licence = str(one.metadata.json.get("license_expression", UNKNOWN))
        yield package(name, one.version, licence, f"pkg:pypi/{name.lower().replace('_', '-')}@{one.version}")


def debian(folder: Path) -> Iterator[dict[str, Any]]:
    """The Debian packages whose licences `tree.py` has copied."""
    for path in sorted((folder / "licences" / "debian").glob("*")):
        asked = ["dpkg-query", "--show", "--showformat=${Version}\n", path.name]
        version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        yield package(path.name, version, UNKNOWN, f"pkg:deb/debian/{path.name}@{version}")


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
