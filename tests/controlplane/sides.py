"""`pytestmark = BOTH_SIDES` runs every test of a module on the real control plane and on the embedded one."""

import pytest

EMBEDDED = pytest.param("embedded", marks=pytest.mark.embedded)
BOTH_SIDES = pytest.mark.parametrize("control_plane", ["real", EMBEDDED], indirect=True, scope="session")
EMBEDDED_SIDE = pytest.mark.parametrize("control_plane", [EMBEDDED], indirect=True, scope="session")
