"""Environment variables whose value programs run or trust.

`dispatcher exec` imports this file too, so the file imports nothing of the package.
"""

NAMES = frozenset({
    "PATH", "HOME", "USER", "SHELL", "IFS", "ENV", "BASH_ENV", "BROWSER", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
    "CLASSPATH", "GCONV_PATH", "LOCPATH", "REQUESTS_CA_BUNDLE", "KUBECONFIG",
})  # fmt: skip
PREFIXES = (
    "BASH_FUNC_", "PG", "PYTHON", "NODE_", "NPM_", "JDK_", "PERL", "RUBY", "GEM_", "GIT_", "SSH_", "SSL_", "CURL_",
    "AWS_", "GOOGLE_", "AZURE_",
)  # fmt: skip
PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})


def is_trusted(name: str) -> bool:
    """Whether shells, interpreters, or clients of databases and clouds run or trust the value of this variable.

    Such a value acts like code, and the container also has the template's Secrets. A row may set the variable only if
    the template opens it by name.
    """
    is_ours = name == "NODE_NAME"  # part of the contract; the prefix NODE_ means Node.js
    return not is_ours and (name in NAMES or name.startswith(PREFIXES) or name.upper() in PROXIES)
