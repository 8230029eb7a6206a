"""An image as a folder in the layout of OCI."""

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Image:
    """The only image of the layout."""

    def __init__(self, layout: Path) -> None:
        self._layout = layout
        (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
        self.digest: str = entry["digest"]
        self.manifest: dict[str, Any] = json.loads(self._blob(self.digest))
        self.config: dict[str, Any] = json.loads(self._blob(self.manifest["config"]["digest"]))

    @property
    def size(self) -> int:
        """Compressed bytes."""
        return sum(int(layer["size"]) for layer in self.manifest["layers"])

    @property
    def platform(self) -> str:
        return f"{self.config['os']}/{self.config['architecture']}"

    def members(self) -> Iterator[tarfile.TarInfo]:
        for layer in self.manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(self._blob(layer["digest"]))) as archive:
                yield from archive

    def _blob(self, digest: str) -> bytes:
        return (self._layout / "blobs" / digest.replace(":", "/")).read_bytes()
