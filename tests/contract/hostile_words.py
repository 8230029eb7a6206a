"""Words of an attacker: values for each part of a row, and values that the table must refuse there."""

from collections.abc import Sequence
from typing import Any, Final

MARK: Final = "hunter2"
"""A text that rows contain; no refusal and no log may repeat it."""
TEXTS: Final = (
    "", MARK, "$(TASK_START_KEY)", "$$(KEY)", "$(KEY) $$ $", f"<script>alert('{MARK}')</script>", f"\x1b[31m{MARK}",
    f"'; DROP TABLE dispatch.tasks; -- {MARK}", "\u202egnp.exe", "a\nb\r\tc", "\U0001f4a3" * 50, "\x01\x7f\x80",
    "\ufeff\ufffe",
    '{"level": "info"}', "../../etc/passwd", "`id` ${HOME} %s {0}", "-", "--privileged", "\\u0000 \\x00 \\\\",
    "\u2028\u2029",
)  # fmt: skip
OPEN_NAMES: Final = (
    "A",
    "MODE",
    "KEY",
    "PLAIN",
    "S3_URL",
    "_x1",
    "a" * 255,
    "TASKS",
    "LDX",
    "__proto__",
    "NODEX",
    "Path",
)
TRUSTED_NAMES: Final = (
    "PATH", "HOME", "IFS", "ENV", "BASH_ENV", "BASH_FUNC_x", "BROWSER", "PGHOST", "PYTHONPATH", "PYTHONWARNINGS",
    "NODE_OPTIONS", "NPM_CONFIG_X", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "PERL5OPT", "RUBYOPT", "GEM_HOME", "GIT_SSH",
    "SSH_ASKPASS", "GCONV_PATH", "http_proxy", "HtTpS_pRoXy", "SSL_CERT_FILE", "CURL_HOME", "AWS_PROFILE", "KUBECONFIG",
)  # fmt: skip
CLOSED_NAMES: Final = (
    "TASK_ID", "TASK_", "TASK_START_KEY", "LD_PRELOAD", "DISPATCHER_X", "KUBERNETES_SERVICE_HOST", "NODE_NAME",
    "POD_NAME", "POD_NAMESPACE", "JOB_UID",
)  # fmt: skip
ILLEGAL_NAMES: Final = (
    "", "1A", "a b", "A-B", "A\n", "\nA", "é", "\uff21", "A" * 256, "A=B", "$(A)", "BASH_FUNC_x%%", "A.B", "\u0130D",
    f"{MARK}!", "a\x01",
)  # fmt: skip
IMAGES: Final = (
    "team-a/app:1", "team-a/app:2", "team-a/../team-b/app:1", "team-a/x/../../b", "team-a//b", "team-b/app",
    "TEAM-A/app",
    "team-a/app@sha256:" + "a" * 64, "a" * 512, "team-a/" + "x" * 505, "x@@y", "a:b:c:d", "http://team-a/app",
    "team-a/",
    "team-a/app:", "team-a/./b", "team-a/@", "0",
)  # fmt: skip
BAD_IMAGES: Final = (
    "",
    "-x",
    "a b",
    "a\nb",
    "team-a/app:1\n",
    "$(X)",
    "a" * 513,
    "é",
    "team-a/*",
    "a\\b",
    f"{MARK}?",
    5,
    None,
    ["a"],
)
CPU: Final = (
    "1",
    "1000m",
    "4",
    "0.5",
    "4001m",
    "0.001",
    "1m",
    "1k",
    "10k",
    "10000",
    "000001",
    "1.000000000",
    "4.000000001",
)
BAD_CPU: Final[Sequence[Any]] = (
    "0", "0m", "0.0001", "10001", "11k", "-1", "+1", ".5", "1.", "1e3", "1E3", "x", "", "1 ", "\n1", "1\n",
    "Inf", "NaN",
    "1" * 19, "1n", "1u", "0x1", "1Ki1", "\uff11", "1,5", MARK, 1, 0.5, None, {}, True,
)  # fmt: skip
MEMORY: Final = ("1Gi", "8Gi", "9Gi", "1Pi", "128974848", "1024Ti", "1P", "0001Mi")
BAD_MEMORY: Final[Sequence[Any]] = (
    "0",
    "0.5",
    "1",
    "1k",
    "1.5",
    "0.5Ki",
    "1023Ki",
    "1m",
    "1000m",
    "2Pi",
    "1E",
    "1Ei",
    "-1Gi",
    "1gi",
    "1GiB",
    "1 Gi",
    "1e9",
    "",
    "NaN",
    "1" * 19,
    1,
    None,
    [],
)
MACHINES: Final = ("team-a-1", "team-a-X", "team-b-1", "X_y.z", "a" * 63, "0")
BAD_MACHINES: Final = ("", "-a", "a-", "a b", "../x", "a" * 64, "team-a-*", "a\n", "é", "$(X)", f"={MARK}", 5, None)
STRANGE_KEYS: Final = ("hostNetwork", "volumes", "", "Image", "image ", "__proto__", "serviceAccountName", f"{MARK}=x")
NOT_OBJECTS: Final = ("[]", "null", '"x"', "5", "true", '[{"A": "1"}]', None)
NOT_TEXTS: Final[Sequence[Any]] = (5, None, True, {}, [], ["a"], 1e308)
