#!/usr/bin/env bash
# task.sh COMMAND [ARG…]: takes the row of this container, runs COMMAND, reports. Needs bash, psql, coreutils, iconv.
# COMMAND gets the payload on stdin and may leave a result, as JSON, on stdout. Some of its statuses are final: see the end.
set -u
[ "${1-}" != -- ] || shift
[ $# -gt 0 ] || { echo "usage: $0 COMMAND [ARG…]" >&2 && exit 2; }
for name in TASK_ID TASK_START_KEY TASK_ATTEMPT TASK_LAUNCH JOB_UID NODE_NAME POD_NAME TASK_TIMEOUT_SECONDS TASK_DATABASE_URL; do
    [ -n "${!name-}" ] || { echo "$name is not set: see docs/author.md" >&2 && exit 2; }
done
url=${TASK_DATABASE_URL%$'\n'} # as `echo` ends what it makes a Secret of
case $url in *[?\&]options=*) echo "TASK_DATABASE_URL has options=: take it out, $0 sends its own" >&2 && exit 2 ;; esac
# Sessions of one login read each other's statements: the key goes as a setting of the session (see `ask`).
work='' stopped='' run=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n') secret=$TASK_START_KEY SECRET="current_setting('task.secret')::uuid"
patience=300 # seconds; a container that waits longer for its start only keeps its room from others
ask() { # STATEMENT [-v NAME=VALUE …]: again and again, for each call may be repeated, unless its values are refused
    local statement=$1 status said && shift
    until (
        unset "${!PG@}" # COMMAND has them: they may name a database of its own
        export PGOPTIONS="-c task.secret=$secret -c statement_timeout=8s" PGCLIENTENCODING=UTF8 PGCONNECT_TIMEOUT=10 PGTARGETSESSIONATTRS=read-write
        timeout 20 psql -d "$url" -XqAt -v ON_ERROR_STOP=1 -v VERBOSITY=verbose "$@" <<<"$statement" 2>"$folder/said"
    ); do
        status=$? said=$(<"$folder/said")
        echo "$said" >&2
        [[ $said =~ :\ +(22[0-9A-Z]{3}|DI[0-9]{3}|54001):\  ]] && return 1 # the word before it is the server's language
        [[ $said =~ startup\ parameter|command-line\ options ]] && echo "$0: a pooler refuses PGOPTIONS: connect to Postgres itself" >&2 && exit 2
        case $status:$((SECONDS < patience)) in 2:1 | 3:1 | 124:1 | 143:1) sleep 2 ;; *) return 1 ;; esac # 126: too long
    done
}
beat() { # signs of life; whatever the row says but `continue` stops COMMAND
    local answer
    while sleep "${TASK_HEARTBEAT_EVERY:-15s}"; do
        answer=$(ask "SELECT dispatch.task_heartbeat($SECRET)") || continue
        [ "$answer" != continue ] || continue
        echo "$answer" >"$folder/told"
        kill -TERM -- "-$work" && sleep 30 && kill -KILL -- "-$work"
        return
    done
}
finish() { # OUTCOME [ERROR [RESULT]]
    ask "SELECT dispatch.task_finish($SECRET, :'outcome', nullif(:'error', ''), nullif(:'result', '')::jsonb)" \
        -v outcome="$1" -v error="${2-}" -v result="${3-}"
}
stop() {
    [ -n "$work" ] || exit 143 # if the row is ours by now, the next launch takes it over
    again=yes stopped=yes
    kill -TERM -- "-$work" 2>/dev/null
}
trap stop TERM INT
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && mkfifo "$folder/stderr" || exit 1

ask "SELECT run_token, coalesce(payload, 'null')
     FROM dispatch.task_start(:'id', $SECRET, :'attempt', :'launch', :'uid', :'node', :'pod', :'run')" \
    -v id="$TASK_ID" -v attempt="$TASK_ATTEMPT" -v launch="$TASK_LAUNCH" \
    -v uid="$JOB_UID" -v node="$NODE_NAME" -v pod="$POD_NAME" -v run="$run" >"$folder/row" || exit 75 # the launch does not count as one that failed
patience=$TASK_TIMEOUT_SECONDS && [ -s "$folder/row" ] || exit 0 # not ours, or not any more
IFS='|' read -r secret payload <"$folder/row"

type -P "$1" >/dev/null || { finish failed "$1: there is no such program" && exit 0 || exit 69; }

tee >(cat >&2) <"$folder/stderr" > >(tail -c 4096 >"$folder/errors" && mv "$folder/errors" "$folder/last") & log=$!
set -m # what follows gets process groups of its own, to be stopped with all their children
"$@" <<<"$payload" >"$folder/result" 2>"$folder/stderr" & work=$!
beat & beat=$!
set +m
until again=''; wait "$work"; status=$?; [ -z "$again" ]; do :; done # a signal ends `wait`, not COMMAND
kill -KILL -- "-$work" "-$beat" 2>/dev/null; wait "$beat" 2>/dev/null
for n in {1..20}; do [ -e "$folder/last" ] && break; sleep 0.1; [ $n != 10 ] || kill "$log"; done 2>/dev/null # what left the group may hold stderr
error=$(iconv -c -f UTF-8 -t UTF-8 <"$folder/last") size=$(wc -c <"$folder/result")
case $(cat "$folder/told" 2>/dev/null):$stopped:$status:$(head -c 1 "$folder/result") in
    lost:*) exit 1 ;;
    cancel:*) finish failed ;; # the row keeps the reason that came with the cancel
    *::0:* | *:yes:0:?*) [ "$size" -le 65536 ] && finish succeeded '' "$(<"$folder/result")" || finish failed 'the result is not JSON of at most 64 KiB' ;;
    *:yes:*) exit 143 ;; # stopped from outside, and no result: the next launch takes over
    *:6[4-8]:* | *:70:* | *:7[236-8]:*) finish failed "${error:-status $status}" ;; # sysexits.h: a second try cannot help
    *) finish retry "${error:-status $status}" ;;
esac || exit 69 # nobody could be told: the next launch takes over
