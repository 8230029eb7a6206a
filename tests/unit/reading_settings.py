"""Settings as a program reads them, and their faults."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dispatcher.model.errors import SettingsError
from dispatcher.settings.loading import LoadedSettings, load


def read(environ: Mapping[str, str], files: Mapping[str, str] | None = None) -> LoadedSettings:
    """Settings from these variables, written without the prefix."""

    def read_file(path: str) -> str:
        if path not in (files or {}):
            raise FileNotFoundError(f"no such file: {path}")
        return (files or {})[path]

    return load({f"DISPATCHER_{name}": value for name, value in environ.items()}, read_file)


def faults_of(environ: Mapping[str, str], files: Mapping[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as raised:
        read(environ, files)
    return raised.value.faults
