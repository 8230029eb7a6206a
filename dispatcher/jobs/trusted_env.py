"""Environment variables that make programs run or trust something. `dispatcher exec` reads this file too, so it imports
nothing of the package.
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
    """True: shells, interpreters, or clients of databases and clouds run or trust what this variable says, so that its
    value is code beside the template's Secrets. A row may set it only where the template opens it by name.
    """
    is_ours = name == "NODE_NAME"  # of the contract; the prefix NODE_ means Node.js
    return not is_ours and (name in NAMES or name.startswith(PREFIXES) or name.upper() in PROXIES)
