-- Small functions of texts, numbers and digests. They read no table.

CREATE OR REPLACE FUNCTION dispatch_private.clip(words text, most integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    words := regexp_replace(replace(left(words, most), E'\r\n', E'\n'),
                            E'[\\x01-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufffd]', '?', 'g');
    WHILE octet_length(words) > most LOOP -- a character has at most 4 bytes: a few rounds at most
        words := left(words, length(words) - greatest((octet_length(words) - most) / 4, 1));
    END LOOP;
    RETURN words;
END
$$;
COMMENT ON FUNCTION dispatch_private.clip(text, integer) IS 'The longest beginning of a text that fits into so many bytes, with ? in place of what controls a terminal or the direction of text. Every encoding of clients has that sign.';

CREATE OR REPLACE FUNCTION dispatch_private.plain_note(words text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT left(regexp_replace(left(words, 1000), E'[\\x01-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]+', ' ', 'g'), 200)
$$;
COMMENT ON FUNCTION dispatch_private.plain_note(text) IS 'The words on one line, without characters that control a terminal or the direction of text; 200 characters.';

CREATE OR REPLACE FUNCTION dispatch_private.shown(words text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN words ~ '^[A-Za-z0-9_][A-Za-z0-9._/:@*-]*$' AND length(words) <= 80 THEN format(' "%s"', words) ELSE '' END
$$;
COMMENT ON FUNCTION dispatch_private.shown(text) IS 'The words in quotes after a blank, if they look like a name; otherwise empty.';

CREATE OR REPLACE FUNCTION dispatch_private.advice(wanted text, known text[], otherwise text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    WITH pairs AS ( -- of letters
        SELECT name, array_agg(DISTINCT substr('^' || lower(name) || '$', i, 2)) AS own
        FROM (SELECT left(wanted, 63) AS name UNION SELECT unnest(known[1:1000])) AS names
        CROSS JOIN LATERAL generate_series(1, length(name) + 1) AS i GROUP BY name
    )
    SELECT coalesce('The nearest name is "' || (
        SELECT k.name
        FROM pairs AS k
        JOIN pairs AS w ON w.name = left(wanted, 63)
        CROSS JOIN LATERAL (SELECT count(*) AS number FROM unnest(k.own) AS one WHERE one = ANY (w.own)) AS shared
        WHERE k.name = ANY (known) AND 4 * shared.number >= cardinality(k.own) + cardinality(w.own)
        ORDER BY shared.number::real / (cardinality(k.own) + cardinality(w.own)) DESC, k.name
        LIMIT 1) || '". ', '') || otherwise
$$;
COMMENT ON FUNCTION dispatch_private.advice(text, text[], text) IS 'A hint: the known name with the most pairs of letters in common, if it has half of them, and what else to do.';

CREATE OR REPLACE FUNCTION dispatch_private.subdomain(name text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE WHEN length(name) <= 253
                 AND name ~ '^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$' THEN name END
$$;
COMMENT ON FUNCTION dispatch_private.subdomain(text) IS 'A name as Kubernetes allows it for nodes and Pods (RFC 1123 subdomain); any other: NULL.';

CREATE OR REPLACE FUNCTION dispatch_private.field(words text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN words IS NULL THEN int4send(-1)
           ELSE int4send(octet_length(convert_to(words, 'UTF8'))) || convert_to(words, 'UTF8') END
$$;
COMMENT ON FUNCTION dispatch_private.field(text) IS 'A text with its length before it, so that two fields never run together; NULL is not the empty text.';

CREATE OR REPLACE FUNCTION dispatch_private.hmac(inner_block bytea, outer_block bytea, message bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$ SELECT sha256(outer_block || sha256(inner_block || message)) $$;
COMMENT ON FUNCTION dispatch_private.hmac(bytea, bytea, bytea) IS 'HMAC-SHA-256 by the two blocks of a key.';

CREATE OR REPLACE FUNCTION dispatch_private.token_digest(token uuid) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT sha256(uuid_send(token)) $$;
COMMENT ON FUNCTION dispatch_private.token_digest(uuid) IS 'What a row keeps of a key.';

CREATE OR REPLACE FUNCTION dispatch_private.quantity(written text) RETURNS numeric
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT part[1]::numeric * CASE coalesce(part[2], '')
        WHEN '' THEN 1 WHEN 'm' THEN 0.001
        WHEN 'k' THEN 1e3 WHEN 'M' THEN 1e6 WHEN 'G' THEN 1e9 WHEN 'T' THEN 1e12 WHEN 'P' THEN 1e15
        WHEN 'Ki' THEN 1024 WHEN 'Mi' THEN 1048576 WHEN 'Gi' THEN 1073741824
        WHEN 'Ti' THEN 1099511627776 WHEN 'Pi' THEN 1125899906842624 END
    FROM regexp_match(written, '^([0-9]{1,18}(?:[.][0-9]{1,9})?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$') AS part
$$;
COMMENT ON FUNCTION dispatch_private.quantity(text) IS 'Value of a Kubernetes quantity without sign or exponent; NULL: not one.';

CREATE OR REPLACE FUNCTION dispatch_private.compact_bytes(value jsonb) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$
    SELECT octet_length(value::text) - length(bare) + length(replace(bare, ' ', ''))
    FROM regexp_replace(value::text, E'"([^"\\\\]|\\\\.)*"', '', 'g') AS bare -- without its strings
$$;
COMMENT ON FUNCTION dispatch_private.compact_bytes(jsonb) IS 'Bytes of the value as programs write it, without the blank that jsonb has after each comma and colon.';

CREATE OR REPLACE FUNCTION dispatch_private.json_kind(value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE jsonb_typeof(value) WHEN 'string' THEN 'a JSON string (encoded twice?)' ELSE coalesce('a JSON ' || jsonb_typeof(value), 'NULL') END
$$;
COMMENT ON FUNCTION dispatch_private.json_kind(jsonb) IS 'What the value is, for a refusal. Clients that encode JSON by themselves make a string of a text that is JSON already.';

CREATE OR REPLACE FUNCTION dispatch_private.matches_one(value text, globs text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    -- A glob with brackets is not judged here.
    SELECT coalesce(bool_or(position('[' IN glob) > 0 OR value LIKE
        replace(replace(replace(replace(replace(glob, '!', '!!'), '%', '!%'), '_', '!_'), '*', '%'), '?', '_') ESCAPE '!'), false)
    FROM unnest(globs) AS glob
$$;
COMMENT ON FUNCTION dispatch_private.matches_one(text, text[]) IS 'True: one of the patterns matches, or cannot be judged in SQL.';

-- Whole prefixes of each length are compared, because a list of words is looked up by its hash: the check of a name takes as long with ten.
CREATE OR REPLACE FUNCTION dispatch_private.is_trusted(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT name <> 'NODE_NAME' AND (
        upper(name COLLATE "C") = ANY ('{ACLOCAL_PATH,ANT_ARGS,ANT_HOME,AR,AS,AWKLIBPATH,AWKPATH,BASHOPTS,BASH_ENV,BASH_LOADABLES_PATH,BASH_XTRACEFD,BROWSER,CC,
            CDPATH,CFLAGS,CLASSPATH,COMPILER_PATH,CONFIG_SHELL,CONFIG_SITE,CONTAINERS_CONF,CONTAINERS_STORAGE_CONF,CONTAINER_HOST,CONTAINER_SSHKEY,
            CPATH,CPLUS_INCLUDE_PATH,CPP,CPPFLAGS,CUDA_INJECTION32_PATH,CUDA_INJECTION64_PATH,CVS_RSH,CXX,CXXFLAGS,C_INCLUDE_PATH,
            DJANGO_SETTINGS_MODULE,EDITOR,EMACSDATA,EMACSLOADPATH,EMACSPATH,ENV,EXECIGNORE,EXINIT,FCEDIT,FPATH,GCONV_PATH,GDAL_DATA,GDAL_DRIVER_PATH,
            GETCONF_DIR,GHCRTS,GLIBC_TUNABLES,GLOBIGNORE,GNUMAKEFLAGS,GOAUTH,GOBIN,GOCACHE,GOCACHEPROG,GOCOVERDIR,GODEBUG,GOENV,GOEXPERIMENT,GOFLAGS,
            GOINSECURE,GOMODCACHE,GONOPROXY,GONOSUMDB,GOPATH,GOPRIVATE,GOPROXY,GOROOT,GOSUMDB,GOTMPDIR,GOTOOLCHAIN,GOTOOLDIR,GOTRACEBACK,GOVCS,GOWORK,
            GUNICORN_CMD_ARGS,HG,HGEDITOR,HGRCPATH,HOME,HOSTALIASES,IFS,INPUTRC,IPYTHONDIR,IRBRC,KUBECONFIG,LD,LDAPCONF,LDAPRC,LDFLAGS,LIBPATH,
            LIBRARY_PATH,LOCALDOMAIN,LOCPATH,LOGNAME,M4PATH,MAKE,MAKEFILES,MAKEFLAGS,MALLOC_CONF,MALLOC_TRACE,MANPAGER,MFLAGS,MPLBACKEND,MPLCONFIGDIR,
            NLSPATH,OBJC_INCLUDE_PATH,OMP_TOOL_LIBRARIES,PAGER,PATH,PHPRC,PROJ_DATA,PROJ_LIB,PROMPT_COMMAND,PS4,RES_OPTIONS,RUSTC,RUSTDOC,
            RUSTDOCFLAGS,RUSTFLAGS,R_DEFAULT_PACKAGES,R_ENVIRON,R_ENVIRON_USER,R_HOME,R_LIBS,R_LIBS_SITE,R_LIBS_USER,R_PROFILE,R_PROFILE_USER,SHELL,
            SHELLOPTS,SHLIB_PATH,SSLKEYLOGFILE,STACK_ROOT,STACK_YAML,TEMP,TERMCAP,TERMINFO,TERMINFO_DIRS,TMP,TMPDIR,TNS_ADMIN,TZDIR,UCX_MODULE_DIR,
            USER,VIM,VIMINIT,VIMRUNTIME,VIRTUAL_ENV,VISUAL,XAUTHORITY,ZDOTDIR}')
        OR left(upper(name COLLATE "C"), 2) = ANY ('{PG}')
        OR left(upper(name COLLATE "C"), 3) = ANY ('{HF_,QT_,TF_,UV_}')
        OR left(upper(name COLLATE "C"), 4) = ANY ('{AWS_,BUN_,CAML,CGO_,ERL_,GCC_,GDK_,GEM_,GIO_,GIT_,GST_,GTK_,JDK_,JVM_,KRB5,KUBE,LESS,LUA_,NPM_,NSS_,ODBC,OPAM,
            PDM_,PERL,PHP_,PIP_,RUBY,SBT_,SSH_,SSL_,SVN_,WGET,XDG_,ZSH_}')
        OR left(upper(name COLLATE "C"), 5) = ANY ('{CURL_,DBUS_,DENO_,DYLD_,HELM_,JAVA_,LEIN_,NODE_,NSPR_,NVIM_,OCAML,OMPI_,PMIX_,PNPM_,YARN_}')
        OR left(upper(name COLLATE "C"), 6) = ANY ('{AZURE_,BAZEL_,CABAL_,CARGO_,CMAKE_,CONDA_,FLASK_,FLINK_,I_MPI_,JRUBY_,JULIA_,MAMBA_,MAVEN_,MYSQL_,NUGET_,PYTHON,
            REBAR_,RSYNC_,RUSTC_,SPARK_,TORCH_,UWSGI_,VAULT_,WANDB_,_JAVA_}')
        OR left(upper(name COLLATE "C"), 7) = ANY ('{BUNDLE_,CCACHE_,CONSUL_,DISTCC_,DOCKER_,DOTNET_,ELIXIR_,GCLOUD_,GNUTLS_,GOOGLE_,GRADLE_,HADOOP_,MAGICK_,MLFLOW_,
            MSBUILD,NVIDIA_,OPENAI_,ORACLE_,PKCS11_,POETRY_,RUSTUP_}')
        OR left(upper(name COLLATE "C"), 8) = ANY ('{AIRFLOW_,ALIBABA_,ANSIBLE_,BUILDAH_,COMPLUS_,CORECLR_,JUPYTER_,LDAPTLS_,MARIADB_,OPENSSL_,PYSPARK_}')
        OR left(upper(name COLLATE "C"), 9) = ANY ('{CATALINA_,CLOUDSDK_,COMPOSER_,COREPACK_,ELECTRON_,REDISCLI_}')
        OR left(upper(name COLLATE "C"), 10) = ANY ('{ANTHROPIC_,BASH_FUNC_,PKG_CONFIG}')
        OR left(upper(name COLLATE "C"), 11) = ANY ('{FONTCONFIG_}')
        OR left(upper(name COLLATE "C"), 12) = ANY ('{HUGGINGFACE_}')
        OR left(upper(name COLLATE "C"), 13) = ANY ('{TRANSFORMERS_}')
        OR right(upper(name COLLATE "C"), 6) = '_PROXY'
        OR right(upper(name COLLATE "C"), 10) = '_CA_BUNDLE'
        OR right(upper(name COLLATE "C"), 5) = '_OPTS')
$$;
COMMENT ON FUNCTION dispatch_private.is_trusted(text) IS 'True: programs run or trust the value of this variable, so a template must open it by name. The dispatcher has the same list.';
