"""Deselects, for the embedded cluster, the tests that `differences` names."""

import pytest

from tests.contract.differences import NAMES


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = [item for item in items if item.get_closest_marker("embedded") and name_of(item) in NAMES]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def name_of(item: pytest.Item) -> str:
    return f"{item.path.stem}::{getattr(item, 'originalname', item.name)}"
