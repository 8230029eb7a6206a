"""Environment variables of containers, and the Secrets that a Pod names. Pure.

`is_trusted`: variables whose value programs run or trust. The names are those in the manuals of shells, interpreters,
build tools, loaders, clients and TLS libraries. No such list is complete: a template that holds Secrets opens the names
that it needs. Names are compared in upper case, because npm, pip and curl read theirs in lower case. SQL has the same
list (`dispatch_private.is_trusted`).

`build_env`: later sources win: PASS_ENV, template, row, contract. Every value that is not the template's own arrives in
the container unchanged. kubelet expands `$(NAME)` and reads `$$` as `$`, so each `$` is doubled. Otherwise a row could
print a secret of its template, and a `$` in a value would change. The result is a new list in a fixed order, so that a
repeated create sends the same bytes.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from msgspec import Struct

from dispatcher.model.jobs import Json
from dispatcher.model.launches import CONTROLLER_UID, LABEL_TASK_ID

NAMES = frozenset({
    # shells, editors and pagers
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "IFS", "ENV", "BASH_ENV", "BASHOPTS", "SHELLOPTS", "PS4",
    "PROMPT_COMMAND", "CDPATH", "GLOBIGNORE", "EXECIGNORE", "BASH_LOADABLES_PATH", "BASH_XTRACEFD", "FPATH",
    "ZDOTDIR", "FCEDIT", "INPUTRC", "TERMINFO", "TERMINFO_DIRS", "TERMCAP", "BROWSER", "EDITOR", "VISUAL", "PAGER",
    "MANPAGER", "VIM", "VIMINIT", "VIMRUNTIME", "EXINIT", "EMACSPATH", "EMACSLOADPATH", "EMACSDATA", "AWKPATH",
    "AWKLIBPATH", "M4PATH",
    # loaders, the C library and names of hosts
    "GCONV_PATH", "LOCPATH", "NLSPATH", "GLIBC_TUNABLES", "MALLOC_CONF", "MALLOC_TRACE", "RES_OPTIONS",
    "LOCALDOMAIN", "HOSTALIASES", "GETCONF_DIR", "TMPDIR", "TMP", "TEMP", "TZDIR", "LIBPATH", "SHLIB_PATH",
    "CUDA_INJECTION32_PATH", "CUDA_INJECTION64_PATH", "OMP_TOOL_LIBRARIES", "UCX_MODULE_DIR", "XAUTHORITY",
    # languages
    "CLASSPATH", "VIRTUAL_ENV", "IPYTHONDIR", "MPLCONFIGDIR", "MPLBACKEND", "DJANGO_SETTINGS_MODULE",
    "GUNICORN_CMD_ARGS", "PHPRC", "IRBRC", "GHCRTS", "STACK_ROOT", "STACK_YAML", "R_HOME", "R_PROFILE",
    "R_PROFILE_USER", "R_ENVIRON", "R_ENVIRON_USER", "R_LIBS", "R_LIBS_USER", "R_LIBS_SITE", "R_DEFAULT_PACKAGES",
    "ANT_ARGS", "ANT_HOME", "GOFLAGS", "GOPATH", "GOROOT", "GOBIN", "GOENV", "GOPROXY", "GOPRIVATE", "GONOPROXY",
    "GONOSUMDB", "GOSUMDB", "GOINSECURE", "GOTOOLCHAIN", "GOTOOLDIR", "GODEBUG", "GOEXPERIMENT", "GOTRACEBACK",
    "GOCACHE", "GOCACHEPROG", "GOMODCACHE", "GOVCS", "GOAUTH", "GOTMPDIR", "GOWORK", "GOCOVERDIR", "RUSTC",
    "RUSTFLAGS", "RUSTDOC", "RUSTDOCFLAGS",
    # builds
    "CC", "CXX", "CPP", "LD", "AR", "AS", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MAKE", "MAKEFLAGS",
    "MFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH",
    "LIBRARY_PATH", "COMPILER_PATH", "ACLOCAL_PATH", "CONFIG_SITE", "CONFIG_SHELL", "HG", "HGRCPATH", "HGEDITOR",
    "CVS_RSH",
    # trust and servers
    "SSLKEYLOGFILE", "LDAPCONF", "LDAPRC", "TNS_ADMIN", "KUBECONFIG", "CONTAINER_HOST", "CONTAINER_SSHKEY",
    "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "PROJ_LIB", "PROJ_DATA", "GDAL_DRIVER_PATH", "GDAL_DATA",
})  # fmt: skip


PREFIXES = (
    "BASH_FUNC_", "LESS", "DYLD_", "ZSH_", "NVIM_", "PYTHON", "PIP_", "UV_", "POETRY_", "PDM_", "CONDA_", "MAMBA_",
    "PYSPARK_", "JUPYTER_", "FLASK_", "UWSGI_", "NODE_", "NPM_", "YARN_", "PNPM_", "BUN_", "DENO_", "COREPACK_",
    "ELECTRON_", "JAVA_", "_JAVA_", "JDK_", "JVM_", "MAVEN_", "GRADLE_", "SBT_", "CATALINA_", "JRUBY_", "LEIN_",
    "PERL", "RUBY", "GEM_", "BUNDLE_", "PHP_", "COMPOSER_", "LUA_", "JULIA_", "ERL_", "ELIXIR_", "REBAR_", "CABAL_",
    "OCAML", "CAML", "OPAM", "CGO_", "RUSTC_", "RUSTUP_", "CARGO_", "DOTNET_", "COMPLUS_", "CORECLR_", "NUGET_",
    "MSBUILD", "CMAKE_", "GCC_", "CCACHE_", "DISTCC_", "PKG_CONFIG", "BAZEL_", "GIT_", "SVN_", "SSH_", "RSYNC_",
    "CURL_", "WGET", "SSL_", "OPENSSL_", "GNUTLS_", "NSS_", "NSPR_", "PKCS11_", "KRB5", "LDAPTLS_", "PG", "MYSQL_",
    "MARIADB_", "ORACLE_", "ODBC", "REDISCLI_", "AWS_", "GOOGLE_", "AZURE_", "CLOUDSDK_", "GCLOUD_", "ALIBABA_",
    "KUBE", "HELM_", "DOCKER_", "BUILDAH_", "TF_", "VAULT_", "CONSUL_", "ANSIBLE_", "AIRFLOW_", "HADOOP_", "SPARK_",
    "FLINK_", "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "TORCH_", "OPENAI_", "ANTHROPIC_", "WANDB_", "MLFLOW_",
    "NVIDIA_", "OMPI_", "PMIX_", "I_MPI_", "GST_", "GIO_", "GTK_", "GDK_", "QT_", "XDG_", "DBUS_", "FONTCONFIG_",
    "MAGICK_",
)  # fmt: skip


SUFFIXES = ("_PROXY", "_CA_BUNDLE", "_OPTS")


def is_trusted(name: str) -> bool:
    """Whether a program runs or trusts the value of this variable.

    Such a value acts like code, and the container also has the template's Secrets. A row may set the variable only if
    the template opens it by name.
    """
    upper = name.upper()
    is_ours = name == "NODE_NAME"  # part of the contract; the prefix NODE_ means Node.js
    return not is_ours and (upper in NAMES or upper.startswith(PREFIXES) or upper.endswith(SUFFIXES))


ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
CONTRACT: Final = frozenset({
    "TASK_ID", "TASK_QUEUE", "TASK_ATTEMPT", "TASK_LAUNCH", "TASK_START_KEY", "TASK_TIMEOUT_SECONDS", "TASK_CACHE_DIR",
    "NODE_NAME", "POD_NAME", "POD_NAMESPACE", "JOB_UID",
})  # fmt: skip
OF_EXEC: Final = frozenset({"TASK_PAYLOAD_FILE", "TASK_PROGRESS_FILE", "TASK_RESULT_FILE", "TASK_TAKEN_BY"})
"""What `dispatcher exec` tells its command."""
EVERY_NAME: Final = "env"
"""The opening by which rows may set every name that is not closed."""
OUR_PREFIXES: Final = ("TASK_", "DISPATCHER_", "KUBERNETES_")
NEVER_PASSED: Final = ("DISPATCHER_*", "PG*", "KUBERNETES_*", "PATH", "HOME", "LD_*")


OF_ROWS: Final = re.compile(r"\bTASK_(?:ID|QUEUE|ATTEMPT|LAUNCH|START_KEY|TIMEOUT_SECONDS|CACHE_DIR)\b")
"""Names of the contract that other systems do not give."""


def readers_of_nothing(pod: Json, task: int) -> Iterator[str]:
    """Tells which containers read variables of the contract that the task's container alone has.

    `task`: its place among the containers.
    """
    for kind in ("initContainers", "containers"):
        for number, one in enumerate(pod.get(kind) or ()):
            env = one.get("env") or ()
            texts = (*(one.get("command") or ()), *(one.get("args") or ()), *(str(each.get("value")) for each in env))
            names = {name for text in texts for name in OF_ROWS.findall(text)} - {each.get("name") for each in env}
            if names and (kind, number) != ("containers", task):
                told = f"container {one['name']} reads {', '.join(sorted(names))}, which the task's alone has"
                yield f"{told}. Labels of its Pod, such as {LABEL_TASK_ID}, have the row: read them by a fieldRef"


FIELDS: Final = {
    "NODE_NAME": "spec.nodeName",
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "JOB_UID": f"metadata.labels['{CONTROLLER_UID}']",
}
"""Variables that only the cluster can fill. `exec` and the task functions identify their container by them."""


EnvVar = dict[str, Any]
FROM_THE_CLUSTER: Final[dict[str, EnvVar]] = {
    name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in sorted(FIELDS.items())
}


def is_closed(name: str) -> bool:
    """Whether no row may set this name."""
    return name in CONTRACT or name.startswith((*OUR_PREFIXES, "LD_"))


def is_dispatchers(variable: Json) -> bool:
    """Whether a template may not have this variable: the dispatcher, or its program in the container, sets it.

    The author of a template is trusted, so other names that are closed to rows are open to it. It may name what the
    dispatcher would set, in the same words.
    """
    name = str(variable.get("name"))
    if name not in CONTRACT:
        return name in OF_EXEC or name.startswith("DISPATCHER_")
    written: Json = {key: value for key, value in variable.items() if value is not None}
    source = written.get("valueFrom")
    field = source.get("fieldRef") if isinstance(source, dict) else None
    if not isinstance(source, dict) or source.keys() != {"fieldRef"} or not isinstance(field, dict):
        return True
    same = {**written, "valueFrom": {"fieldRef": {key: field[key] for key in field if key != "apiVersion"}}}
    return same != FROM_THE_CLUSTER.get(name) or field.get("apiVersion", "v1") != "v1"


def pass_env(environ: Mapping[str, str], globs: Iterable[str]) -> dict[str, str]:
    """Variables of this process that every container gets."""
    wanted = tuple(globs)
    return {
        name: value
        for name, value in sorted(environ.items())
        if ENV_NAME.fullmatch(name)
        and any(fnmatchcase(name, glob) for glob in wanted)
        and not any(fnmatchcase(name, glob) for glob in NEVER_PASSED)
    }


NOT_OPENED: Final = "the template"
"""Beginning of a denial if the template does not open the name. Callers that know the template put its name there."""


def check_env_names(names: Iterable[str], opened: frozenset[str], taken: frozenset[str]) -> str:
    """The first reason why a row may not set these names; empty: it may. `taken`: names of PASS_ENV or the template."""
    return next(env_denials(names, opened, taken), "")


def env_denials(names: Iterable[str], opened: frozenset[str], taken: frozenset[str]) -> Iterator[str]:
    """The reasons why a row may not set these names, one for each forbidden name."""
    for name in sorted(names):
        if not ENV_NAME.fullmatch(name):
            yield "env has an illegal name"
        elif is_closed(name):
            yield f"env.{name} is closed to rows"
        elif f"env.{name}" in opened:
            continue
        elif is_trusted(name):
            yield f"env.{name} changes what programs run or trust: the template has to open it by name"
        elif EVERY_NAME not in opened:
            yield f"{NOT_OPENED} does not open env.{name}"
        elif name in taken:
            yield f"env.{name} is set by the template or PASS_ENV, and not opened"


def build_env(
    passed: Mapping[str, str],
    own: Iterable[EnvVar],
    row: Mapping[str, str],
    contract: Mapping[str, str],
    opened: Collection[str] = (),
) -> list[EnvVar]:
    """The variables of the container. A `$(X)` refers to an earlier variable.

    So the contract comes first, then PASS_ENV and the names that the template has `opened` to rows, and then the
    template's variables in their order. Other names of the row come last: no value of the template may read them,
    because its author does not know them. If the template has the name, the value of the row takes its place.
    """
    ours = {**{name: literal(name, value) for name, value in sorted(contract.items())}, **FROM_THE_CLUSTER}
    named = {name: value for name, value in row.items() if f"env.{name}" in opened}
    layers: dict[str, EnvVar] = {name: literal(name, value) for name, value in sorted({**passed, **named}.items())}
    for variable in own:
        name = variable["name"]
        layers.pop(name, None)  # otherwise it would come before variables that its value refers to
        layers[name] = literal(name, row[name]) if name in row else dict(variable)
    layers |= {name: literal(name, value) for name, value in sorted(row.items())}
    return [*ours.values(), *(one for name, one in layers.items() if name not in ours)]


def literal(name: str, value: str) -> EnvVar:
    """A variable that reaches the container unchanged."""
    return {"name": name, "value": escape(value)}


def escape(text: str) -> str:
    """The text with each `$` doubled. kubelet's expansion of env values, command and args turns it back."""
    return text.replace("$", "$$")


LOGIN: Final = "TASK_DATABASE_URL"
"""The key that each task needs. Whatever a task can do with it, its image can do anyway."""


class SecretReference(Struct, frozen=True, order=True):
    """A Secret that a Pod names. `key`: empty if any keys will do."""

    secret: str
    key: str = ""


def named_secrets(pod: Json) -> list[SecretReference]:
    """The Secrets without which the Pod cannot start, each reference once."""
    found = {*in_env(pod), *in_volumes(pod)}
    found |= {SecretReference(str(one.get("name", ""))) for one in pod.get("imagePullSecrets") or ()}
    return sorted(one for one in found if one.secret)


def beside_variables(pod: Json) -> Iterator[SecretReference]:
    """All Secrets of the Pod's containers, optional ones included."""
    yield from in_env(pod, with_optional=True)
    yield from in_volumes(pod, with_optional=True)


def provider_classes(pod: Json) -> Iterator[str]:
    """The SecretProviderClasses by which the Secrets Store driver mounts secrets into the Pod."""
    for volume in pod.get("volumes") or ():
        if name := ((volume.get("csi") or {}).get("volumeAttributes") or {}).get(PROVIDER_CLASS):
            yield str(name)


PROVIDER_CLASS: Final = "secretProviderClass"


def other_secrets(template: Json) -> Iterator[str]:
    """What the containers get that is as secret as a Secret. `template`: metadata and spec of the Pod."""
    pod = template["spec"]
    yield from (f"{name} (SecretProviderClass)" for name in provider_classes(pod))
    for volume in pod.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from (f"{volume.get('name')} ({kind})" for kind in TOKENS if source.get(kind) is not None)
    yield from injectors(template.get("metadata") or {})


TOKENS: Final = ("serviceAccountToken", "podCertificate")
"""Sources of a projected volume by which the Pod proves who it is."""


def injectors(meta: Json) -> Iterator[str]:
    """The labels and annotations of a Pod by which a webhook brings secrets into it."""
    for field in ("labels", "annotations"):
        for key, value in (meta.get(field) or {}).items():
            if INJECTOR.fullmatch(key) and str(value).lower() not in NOT_ON:
                yield f"{key} ({field.removesuffix('s')})"


INJECTOR: Final = re.compile(
    r"vault\.hashicorp\.com/agent-inject|vault\.security\.banzaicloud\.io/vault-.*"
    r"|secrets-webhook\.security\.bank-vaults\.io/.*|operator\.1password\.io/inject|org\.infisical\.com/inject"
    r"|akeyless/enabled|azure\.workload\.identity/use"
)
"""Those of Vault, Bank-Vaults, 1Password, Infisical, Akeyless, and of identities of Azure. No such list is complete."""
NOT_ON: Final = frozenset({"", "0", "f", "false", "none"})
"""Values by which they bring nothing."""


def in_env(pod: Json, *, with_optional: bool = False) -> Iterator[SecretReference]:
    for one in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
        for variable in one.get("env") or ():
            yield from reference((variable.get("valueFrom") or {}).get("secretKeyRef"), with_optional)
        for source in one.get("envFrom") or ():
            yield from reference(source.get("secretRef"), with_optional)


def in_volumes(pod: Json, *, with_optional: bool = False) -> Iterator[SecretReference]:
    for volume in pod.get("volumes") or ():
        yield from with_items(volume.get("secret"), "secretName", with_optional)
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from with_items(source.get("secret"), "name", with_optional)


def reference(named: Json | None, with_optional: bool) -> Iterator[SecretReference]:
    if named and (with_optional or not named.get("optional")):
        yield SecretReference(str(named.get("name", "")), str(named.get("key", "")))


def with_items(source: Json | None, field: str, with_optional: bool) -> Iterator[SecretReference]:
    """The references of a volume: it needs the Secret and, if it lists keys, these keys."""
    if source and (with_optional or not source.get("optional")):
        keys = [str(item.get("key", "")) for item in source.get("items") or ()]
        yield from (SecretReference(str(source.get(field, "")), key) for key in keys or [""])
