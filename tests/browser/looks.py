"""How readers see a page: with a light or a dark screen, on a phone, without scripts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Look:
    """name: part of the names of pictures. options: of a context of the browser."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs_scripts(self) -> bool:
        return bool(self.options.get("java_script_enabled", True))


SCREEN: Final = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB", "timezone_id": "UTC"}
PHONE_SIZE: Final = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
LIGHT: Final = Look("light", {**SCREEN, "color_scheme": "light"})
DARK: Final = Look("dark", {**SCREEN, "color_scheme": "dark"})
PHONE: Final = Look("phone", {**SCREEN, **PHONE_SIZE})
WITHOUT_SCRIPTS: Final = Look("without-scripts", {**SCREEN, "java_script_enabled": False})
LOOKS: Final = (LIGHT, DARK, PHONE, WITHOUT_SCRIPTS)
