"""The template of the author's page for an image without Python."""

from dispatcher.jobs.templates import parse_template
from tests.house.tree import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "without-python.yaml"


def test_example_for_an_image_without_python_is_a_template_that_mounts_what_is_copied() -> None:
    template = parse_template("without-python", EXAMPLE.read_text(encoding="utf-8"))
    spec = template.manifest["spec"]["template"]["spec"]
    (copied,), (mounted, tmp) = spec["initContainers"][0]["volumeMounts"], template.task_container["volumeMounts"]
    assert copied["name"] == mounted["name"] == spec["volumes"][0]["name"]
    assert tmp["mountPath"] == "/tmp", "exec writes the payload's file there"
    assert (copied["mountPath"], mounted["mountPath"]) == ("/copy", "/dispatcher")
    assert template.task_container["command"][:3] == ["/dispatcher/bin/dispatcher", "exec", "--"]
