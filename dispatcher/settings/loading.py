"""Reads settings from the environment. The result is all settings, or all faults at once."""

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import Any, Final

from msgspec import Struct

from dispatcher.model.errors import SettingsError
from dispatcher.model.resources import parse_quantity
from dispatcher.settings.definition import ExtenderSettings, JobSettings, KeeperSettings, Settings

PREFIX: Final = "DISPATCHER_"
INJECTED: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT|SERVICE_PORT_.*|PORT|PORT_.*)")
"""Names of the variables that Kubernetes adds to a container for a Service called dispatcher-…"""
COMPONENTS: Final = {field.name: field.type for field in dataclasses.fields(Settings)}
READ_FROM_FILE: Final = "_FILE"


class SettingSource(Struct, frozen=True):
    """A setting's value and its origin, for `dispatcher config`."""

    name: str
    value: str
    origin: str
    default: str
    meaning: str


class LoadedSettings(Struct, frozen=True):
    """Settings, their sources, and warnings. A warning does not stop the program."""

    settings: Settings
    sources: tuple[SettingSource, ...]
    warnings: tuple[str, ...]


def load(environ: Mapping[str, str], read_file: Callable[[str], str]) -> LoadedSettings:
    """Reads all settings. Raises SettingsError with every fault. `read_file`: content of a path, or OSError."""
    given = {name: value for name, value in environ.items() if value.strip()}  # an empty variable counts as unset
    faults: list[str] = []
    sources: list[SettingSource] = []
    parts: dict[str, Any] = {}
    for part, component in COMPONENTS.items():
        values = {}
        for field in dataclasses.fields(component):  # type: ignore[arg-type]  # the classes above, by annotation
            try:
                value, origin = read_field(field, given, read_file)
            except ValueError as fault:
                faults.append(str(fault))
                continue
            values[field.name] = value
            sources.append(describe(field, value, origin))
        if len(values) == len(dataclasses.fields(component)):  # type: ignore[arg-type]  # as above
            parts[part] = component(**values)  # type: ignore[operator]  # as above
    faults += [*crossed(parts.get("jobs")), *no_gap(parts.get("keeper")), *open_doors(parts.get("extender"))]
    if faults:
        raise SettingsError(tuple(faults))
    return LoadedSettings(Settings(**parts), tuple(sources), tuple(unknown_names(environ)))


def crossed(jobs: JobSettings | None) -> Iterable[str]:
    """Faults of values that are valid alone but not together. `jobs` is None if a value alone has a fault."""
    for what in ("cpu", "memory") if jobs else ():
        request, limit = getattr(jobs, f"{what}_request"), getattr(jobs, f"{what}_limit")
        if parse_quantity(request) > parse_quantity(limit):
            name = f"{PREFIX}{what.upper()}"
            yield f"{name}_REQUEST is {request!r}: must not be over {name}_LIMIT {limit!r}"


def no_gap(keeper: KeeperSettings | None) -> Iterable[str]:
    """A fault if the low mark is not below the high one."""
    if keeper and keeper.low_percent >= keeper.high_percent:
        name, high = f"{PREFIX}CACHE_LOW_PERCENT", f"{PREFIX}CACHE_HIGH_PERCENT {keeper.high_percent}"
        yield f"{name} is {keeper.low_percent}: must be below {high}"


def open_doors(extender: ExtenderSettings | None) -> Iterable[str]:
    """A fault if the extender listens outside loopback without certificates. Its callers decide where Pods go."""
    host = extender.address.rpartition(":")[0].strip("[]") if extender else ""
    if extender and not extender.tls_dir and not is_loopback(host):
        where = f"{PREFIX}EXTENDER_ADDRESS is {extender.address!r}"
        yield f"{where}: off loopback {PREFIX}EXTENDER_TLS_DIR must be set"


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def read_field(field: Any, environ: Mapping[str, str], read_file: Callable[[str], str]) -> tuple[Any, str]:
    """Value and origin of a setting. Raises ValueError with variable, value and rule, never with a secret's value."""
    meta = field.metadata
    name = PREFIX + meta["name"]
    written, origin = environ.get(name), "environment"
    if meta["secret"] and name + READ_FROM_FILE in environ:
        if written is not None:
            raise ValueError(f"{name} and {name}{READ_FROM_FILE} are both set: choose one")
        origin = f"file {environ[name + READ_FROM_FILE]}"
        try:
            written = read_secret(environ[name + READ_FROM_FILE], read_file)
        except OSError as fault:
            raise ValueError(f"{name}{READ_FROM_FILE}: {fault}") from fault
    if not written and meta["of_pod"]:
        written, origin = of_service_account(meta["of_pod"], environ, read_file), "service account"
    if not written:
        return field.default, "default"
    try:
        written.encode()  # an environment may hold any bytes
        return meta["read"](written), origin
    except UnicodeEncodeError as fault:
        raise ValueError(f"{name}: no UTF-8 at character {fault.start + 1}: write it in UTF-8") from None
    except ValueError as fault:
        shown = "(hidden)" if meta["secret"] else repr(written[:80])
        raise ValueError(f"{name} is {shown}: {fault}") from fault


def of_service_account(path: str, environ: Mapping[str, str], read_file: Callable[[str], str]) -> str | None:
    """The value in the Pod's ServiceAccount; None outside a Pod, and if a kubeconfig is used instead."""
    if "KUBERNETES_SERVICE_HOST" not in environ or environ.get(f"{PREFIX}KUBECONFIG"):
        return None
    try:
        return read_file(path).strip()
    except OSError:
        return None  # a Pod without an account


def reread(name: str, value: str | None, environ: Mapping[str, str], read_file: Callable[[str], str]) -> str | None:
    """A secret as its file holds it now, or `value` if no file was named. Raises OSError as `read_secret`."""
    path = environ.get(PREFIX + name + READ_FROM_FILE)
    return read_secret(path, read_file) if path else value


def read_secret(path: str, read_file: Callable[[str], str]) -> str:
    """The secret in a file. Raises OSError if the file is gone, no text, or empty: without a URL libpq asks this
    machine.
    """
    try:
        written = read_file(path).strip()
    except UnicodeDecodeError as fault:
        raise OSError(f"{path} is not a text file") from fault
    if not written:
        raise OSError(f"{path} is empty: write the value into it")
    return written


def describe(field: Any, value: Any, origin: str) -> SettingSource:
    meta = field.metadata
    hidden = meta["secret"] and value is not None
    return SettingSource(
        meta["name"], "(hidden)" if hidden else show(value), origin, show(field.default), meta["meaning"]
    )


def show(value: Any) -> str:
    if value in (None, "", ()):
        return "—"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


def known_names() -> set[str]:
    fields = [field for component in COMPONENTS.values() for field in dataclasses.fields(component)]  # type: ignore[arg-type]  # as above
    secret = {PREFIX + field.metadata["name"] + READ_FROM_FILE for field in fields if field.metadata["secret"]}
    return {PREFIX + field.metadata["name"] for field in fields} | secret


def unknown_names(environ: Iterable[str]) -> Iterable[str]:
    """A warning for each variable of our prefix that is no setting."""
    known = known_names()
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known and not INJECTED.fullmatch(name):
            short = {one.removeprefix(PREFIX) for one in known}
            near = difflib.get_close_matches(name.removeprefix(PREFIX), short, 1)
            yield f"{name} is not a setting" + (f"; did you mean {PREFIX}{near[0]}?" if near else "")
