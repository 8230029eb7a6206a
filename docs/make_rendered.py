"""Writes `deploy/rendered`: what helm makes of the chart, for people with kubectl alone. See `make docs`."""

from __future__ import annotations

from typing import Final

from tests.rig.deployed import RENDERED, VARIANTS, template

HEAD: Final = "# Made from deploy/chart and values/{variant}.yaml by `make docs`. Change them instead.\n"


def made(variant: str) -> str:
    return HEAD.format(variant=variant) + template(variant)


if __name__ == "__main__":
    for each in VARIANTS:
        (RENDERED / f"{each}.yaml").write_text(made(each), encoding="utf-8")
