"""Full-size models are built only when asked for: `pytest -m slow tests/models`."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: builds full-size models (half a minute, 4 GB); chosen with -m slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" in str(config.getoption("markexpr")):
        return
    for item in items:
        if "models" in item.path.parts and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="full-size model: choose it with -m slow"))
