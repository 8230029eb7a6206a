"""The kinds of the Prometheus operator that the chart may make, as the operator's Go module has them."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

import yaml

from tests.controlplane.api import Json
from tests.controlplane.binaries import find_go

MODULE = "github.com/prometheus-operator/prometheus-operator"
KINDS = ("podmonitors", "prometheusrules")


@cache
def operator_kinds() -> tuple[Json, ...]:
    """The CustomResourceDefinitions. The module comes from Go's cache, or by download; go.sum has its hash."""
    go, _ = find_go(shutil.which("go"))
    words = [str(go), "mod", "download", "-json", MODULE]
    told = subprocess.run(words, cwd=Path(__file__).parent / "operator", capture_output=True, text=True, check=True)
    folder = Path(json.loads(told.stdout)["Dir"]) / "example" / "prometheus-operator-crd"
    texts = [(folder / f"monitoring.coreos.com_{kind}.yaml").read_text(encoding="utf-8") for kind in KINDS]
    return tuple(yaml.load(text, yaml.CSafeLoader) for text in texts)
