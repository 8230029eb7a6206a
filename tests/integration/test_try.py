"""`dispatcher try -- CMD…` as a shell sees it: what it tells, how it stops CMD, and what it refuses."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dispatcher.container.row import NOTHING, Progress, read_progress
from dispatcher.jobs.env import CONTRACT
from tests.rig.execing import DONE, FOR_EVER, PYTHON, TERMINATED, WRONG, Wrapper, sh, started
from tests.rig.trying import TRY, run_try, says, tried, try_json

KILLED = 137
MOST_PAYLOAD_BYTES = 1 << 20
IGNORES_SIGTERM = f"trap '' TERM; {FOR_EVER} & echo begun; while :; do sleep 0.05; done"
ENDS_WITH = "trap 'echo told; exit {}' TERM; echo begun; while :; do sleep 0.05; done"
# As the program runs it, but with a short grace. Prints the exit status.
SHORT_GRACE = """
import asyncio, sys
from dispatcher.commands import trying
from dispatcher.container.row import Codes
asked = trying.TryOptions(sys.argv[2:], Codes(), 'null', {}, int(sys.argv[1]))
ended = asyncio.run(trying.run_command(asked, grace_seconds=0.3))
trying.tell(trying.in_words(ended))
sys.exit(ended.status)
"""


async def test_end_is_told_in_words_and_output_passes_through() -> None:
    ended = await run_try("--payload", '{"b":1,"a":2}', "--", *sh('echo err >&2; cat "$TASK_PAYLOAD_FILE"'))
    assert (ended.status, ended.out) == (DONE, b'{"a": 2, "b": 1}')
    assert ended.said == "err\ndispatcher try: succeeded, without a result\n"


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ('echo "{}" >"$TASK_RESULT_FILE"', 0, "succeeded, with the result {}"),
        ("exit 3", 3, "retry: CMD ended with status 3; the row runs again after 10 s while max_failures lasts; "),
        ("echo no >&2; exit 65", 65, "failed: the row does not run again; the row's error would be: no"),
        ('echo x >"$TASK_RESULT_FILE"', 1, "TASK_RESULT_FILE cannot be stored: invalid input syntax for type json"),
        ("exec /no/such", 127, "retry: CMD ended with status 127"),
    ],
)
async def test_words_say_what_becomes_of_the_row(script: str, status: int, words: str) -> None:
    ended = await run_try("--", *sh(script))
    assert (ended.status, words in ended.said) == (status, True), ended


IS_ROOT = os.geteuid() == 0
AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups") if IS_ROOT else ()
"""Entrypoints that start as root go on so (gosu, su-exec). As nobody else we cannot try it."""
HARDENED = ("setpriv", "--bounding-set", "-all,+setuid,+setgid", "--inh-caps", "-all") if IS_ROOT else ()
"""The capabilities of `drop: [ALL]`, and those that another user needs."""


@pytest.mark.parametrize("program", [TRY, (*HARDENED, *TRY)], ids=["root", "without capabilities"])
async def test_command_may_go_on_as_another_user(program: tuple[str, ...]) -> None:
    script = 'cat "$TASK_PAYLOAD_FILE"; umask 077; echo 50 >"$TASK_PROGRESS_FILE"; echo "{}" >"$TASK_RESULT_FILE"'
    words = ("--payload", "7", "--", *AS_NOBODY, *sh(f"umask 022; {script}"))
    async with started((*program, *words), {"PATH": os.environ["PATH"]}) as wrapper:
        ended = await wrapper.has_ended()
    assert (ended.status, ended.out, "with the result {}" in ended.said) == (DONE, b"7", True), ended


@pytest.mark.skipif(not IS_ROOT, reason="root alone reads what another user cannot")
async def test_link_of_another_user_leads_only_to_what_that_user_can_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('"hush"')
    secret.chmod(0o440)
    ended = await run_try("--", *AS_NOBODY, "sh", "-c", f'ln -s {secret} "$TASK_RESULT_FILE"')
    assert (ended.status, "Permission denied" in ended.said, "hush" in ended.said) == (1, True, False), ended
    own = 'umask 077; cd "${TASK_RESULT_FILE%/*}"; echo 17 >own; ln -s own "$TASK_RESULT_FILE"'
    ended = await run_try("--", *AS_NOBODY, "sh", "-c", own)
    assert (ended.status, "with the result 17" in ended.said) == (DONE, True), ended


EXCHANGES = """
import ctypes, os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
one, other = (name.encode() for name in sys.argv[1:])
exchanged = ctypes.CDLL(None).renameat2
while exchanged(-100, one, -100, other, 2) == 0: pass
"""


@pytest.mark.skipif(not IS_ROOT, reason="root alone reads what another user cannot")
def test_file_that_another_user_exchanges_is_read_by_no_right_of_root() -> None:
    """In an emptyDir every user may rename a file of root: it is open to all, and not sticky."""
    with TemporaryDirectory() as place:
        progress, link, secret = (Path(place, name) for name in ("progress", "link", "secret"))
        Path(place).chmod(0o777)
        progress.write_text("0.1 of root")
        secret.write_text("0.5 hush")
        secret.chmod(0o400)
        link.symlink_to(secret)
        os.lchown(link, 65534, 65534)
        exchanging = subprocess.Popen([*PYTHON, EXCHANGES, progress, link])
        try:
            seen = [read_progress(progress)]
            while len(seen) < 1000 and exchanging.poll() is None:
                seen += [told] if (told := read_progress(progress)) != seen[-1] else []
        finally:
            exchanging.kill()
            exchanging.wait()
    assert (len(seen), {told.note for told in seen}) == (1000, {None, "of root"})


@pytest.mark.skipif(not IS_ROOT, reason="root alone reads what another user cannot")
def test_second_name_of_a_private_file_of_root_is_not_read(tmp_path: Path) -> None:
    """Where fs.protected_hardlinks is 0, another user can make it."""
    (tmp_path / "of root").write_text("0.1 of root")
    (tmp_path / "progress").hardlink_to(tmp_path / "of root")
    assert read_progress(tmp_path / "progress") == Progress(0.1, "of root")
    (tmp_path / "of root").chmod(0o600)
    assert read_progress(tmp_path / "progress") == NOTHING


async def test_command_that_cannot_be_signalled_is_named_once_and_not_said_to_be_stopped() -> None:
    words = ("--cancel-after", "0.1", "--", *AS_NOBODY, *sh("read -r go"))
    async with started((*HARDENED, *TRY, *words), {"PATH": os.environ["PATH"]}) as wrapper:
        await says(wrapper, "the row says cancel")
        ended = await wrapper.has_ended()
    assert (ended.said.count("exec lacks CAP_KILL"), "is stopped" in ended.said) == (int(IS_ROOT), False), ended


@pytest.mark.parametrize("script", ["exit 0", "echo no >&2; exit 65", "sleep 600 & exit 3", "exec /no/such"])
async def test_no_file_is_left_open(script: str) -> None:
    ended = await run_try("--", *sh(script), PYTHONDEVMODE="1", PYTHONWARNINGS="default")
    assert "Warning" not in ended.said, ended.said


async def test_command_has_the_variables_of_a_container() -> None:
    words = ("--env", "MODE=a=b", "--attempt", "4", "--timeout", "77")
    shows = "import json, os; print(json.dumps(dict(os.environ)))"
    ended = await run_try(*words, "--", *PYTHON, shows, OWN="kept")
    env = json.loads(ended.out)
    assert set(env) & CONTRACT == CONTRACT - {"TASK_START_KEY"}, "who would take the row itself would be refused"
    assert "TASK_DATABASE_URL" not in env
    assert (env["TASK_ATTEMPT"], env["TASK_TIMEOUT_SECONDS"], env["TASK_CACHE_DIR"]) == ("4", "77", "")
    assert (env["MODE"], env["OWN"], env["TASK_ID"], env["TASK_QUEUE"]) == ("a=b", "kept", "1", "default")
    shows = 'echo "${LC_CTYPE-unset}"'
    assert [(await run_try("--", *sh(shows), LC_CTYPE=one)).out for one in (None, "C")] == [b"unset\n", b"C\n"]


async def test_pause_grows_with_the_attempt() -> None:
    told = (await try_json("--attempt", "3", "--", *sh("exit 1"))).told
    assert told["row"] == {"status": "waiting", "runs_again_after_seconds": 40.0}


async def test_json_is_alone_on_stdout() -> None:
    ended, told = await try_json("--", *sh('echo out; echo err >&2; echo "[1]" >"$TASK_RESULT_FILE"'))
    assert {"out", "err"} <= set(ended.said.splitlines())
    assert told == {
        "outcome": "succeeded", "status": 0, "error": None, "result": [1], "progress": None, "note": None,
        "heartbeats": 0, "row": {"status": "succeeded", "runs_again_after_seconds": None},
        "words": "succeeded, with the result [1]",
    }  # fmt: skip


@pytest.mark.slow
async def test_heartbeats_are_shown_with_progress_when_it_changes() -> None:
    script = """echo "0.5 half" >"$TASK_PROGRESS_FILE"; read -r go; echo "0.5 \x1b[2Jmore" >"$TASK_PROGRESS_FILE"
    read -r go"""
    async with tried("--", *sh(script)) as wrapper:
        await says(wrapper, 'heartbeat 1 with progress 0.5, note "half": continue')
        await says(wrapper, "heartbeat 2: continue")
        wrapper.go()
        await says(wrapper, 'with progress 0.5, note " [2Jmore": continue')
        wrapper.go()
        assert (await wrapper.has_ended()).status == DONE


async def test_heartbeat_answers_cancel_and_the_command_is_stopped() -> None:
    async with tried("--cancel-after", "0.5", "--", *sh(ENDS_WITH.format(0))) as wrapper:
        ended = await wrapper.has_ended()
    assert "heartbeat 1: cancel\n" in ended.said
    assert "failed: the row becomes cancelled, and keeps the reason of the cancel as its error" in ended.said
    assert (ended.status, ended.out) == (DONE, b"begun\ntold\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_reaches_the_command_as_sigterm(number: signal.Signals) -> None:
    async with tried("--", *sh(ENDS_WITH.format(5))) as wrapper:
        await says(wrapper, "begun")
        wrapper.process.send_signal(number)
        ended = await wrapper.has_ended()
    assert (ended.status, b"told" in ended.out) == (TERMINATED, True)
    assert "nothing: ended after SIGTERM, without a result file, the next launch takes over" in ended.said


async def test_second_signal_kills_the_command() -> None:
    async with tried("--", *sh(IGNORES_SIGTERM)) as wrapper:
        await says(wrapper, "begun")
        wrapper.terminate()
        await says(wrapper, "CMD gets SIGTERM")
        wrapper.terminate()
        assert await wrapper.is_gone() == KILLED
        assert wrapper.living() == []
    assert b"nothing: killed, because it did not end after SIGTERM, the next launch takes over" in wrapper.err


async def test_command_gets_sigterm_at_the_run_limit() -> None:
    tried_once = await try_json("--timeout", "1", "--", *sh(ENDS_WITH.format(5)))
    assert tried_once.told["status"] == TERMINATED
    assert tried_once.told["row"] == {"status": "processing", "runs_again_after_seconds": 10.0}
    assert "the run limit of 1 s is over" in tried_once.ended.said


async def test_end_at_the_run_limit_is_no_success_without_a_result() -> None:
    assert (await try_json("--timeout", "1", "--", *sh(ENDS_WITH.format(0)))).told["outcome"] == "nothing"
    leaves = ENDS_WITH.format(0).replace("exit 0", 'echo null > "$TASK_RESULT_FILE"; exit 0')
    assert (await try_json("--timeout", "1", "--", *sh(leaves))).told["outcome"] == "succeeded"


async def test_command_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    """The grace is an argument here, so the test does not wait for half a minute."""
    argv = (sys.executable, "-c", SHORT_GRACE, "1", *sh(IGNORES_SIGTERM))
    async with started(argv, {"PATH": "/usr/bin:/bin"}) as wrapper:
        assert await wrapper.is_gone() == KILLED
        assert wrapper.living() == []
    assert b"did not end after SIGTERM at the run limit, the row runs again after 10 s" in wrapper.err


async def test_stopped_try_leaves_no_folder(tmp_path: Path) -> None:
    async with tried("--", *sh(ENDS_WITH.format(5)), TMPDIR=tmp_path) as wrapper:
        await says(wrapper, "begun")
        assert [name[:5] for name in names_in(tmp_path)] == ["task-"]
        wrapper.terminate()
        await wrapper.has_ended()
    assert names_in(tmp_path) == []


def names_in(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


async def test_closed_stderr_does_not_affect_the_command() -> None:
    async with tried("--", *sh("sleep 1.2; echo 1; exit 0")) as wrapper:
        assert wrapper.process.stderr is not None
        wrapper.process.stderr._transport.close()  # type: ignore[attr-defined]  # nobody reads it any more
        assert await ends(wrapper) == DONE


async def ends(wrapper: Wrapper) -> int:
    async with asyncio.timeout(30):
        return await wrapper.process.wait()


WRONG_WORDS = {
    (): "CMD is missing",
    ("--",): "CMD is missing",
    ("--payload", "{'a': 1}", "--", "true"): "invalid input syntax for type json, line 1, column 2",
    ("--payload", '{"a":\n nope}', "--", "true"): "line 2, column 2: 'nope}' is no JSON",
    ("--payload", '"\\u0000"', "--", "true"): "\\u0000 cannot be converted to text",
    ("--payload", "", "--", "true"): "the text ends too early",
    ("--payload", "@/no/such/file", "--", "true"): "@/no/such/file: No such file or directory",
    ("--payload", "@/", "--", "true"): "@/: Is a directory",
    ("--payload", "@/dev/zero", "--", "true"): "larger than 8 MiB",
    ("--env", "MODE", "--", "true"): "'MODE' has no `=`",
    ("--env", "=x", "--", "true"): "env has an illegal name",
    ("--env", "TASK_ID=1", "--", "true"): "env.TASK_ID is closed to rows",
    ("--env", "POD_NAME=x", "--", "true"): "POD_NAME is closed to rows",
    ("--env", "LD_PRELOAD=x", "--", "true"): "LD_PRELOAD is closed to rows",
    ("--timeout", "0", "--", "true"): "--timeout",
    ("--attempt", "0", "--", "true"): "--attempt",
    ("--cancel-after", "-1", "--", "true"): "--cancel-after",
    ("--cancel-after", "nan", "--", "true"): "--cancel-after",
    ("--final", "0", "--", "true"): "CODES are exit statuses",
    ("--final", "7", "--retry", "6-8", "--", "true"): "7 is in --final and in --retry",
    ("--no-such", "--", "true"): "No such option",
}


@pytest.mark.slow
async def test_wrong_usage_starts_nothing_and_names_the_rule() -> None:
    ended = await asyncio.gather(*(run_try(*words) for words in WRONG_WORDS))
    for (words, told), one in zip(WRONG_WORDS.items(), ended, strict=True):
        assert (one.status, one.out, told in one.said) == (WRONG, b"", True), (words, one.said)


async def test_payload_of_a_file_is_bounded_as_the_row_stores_it(tmp_path: Path) -> None:
    most, more, broken = tmp_path / "most.json", tmp_path / "more.json", tmp_path / "broken.json"
    most.write_text(f'{" " * 2_000_000}"{"x" * (MOST_PAYLOAD_BYTES - 2)}"')
    more.write_text(f'"{"x" * (MOST_PAYLOAD_BYTES - 1)}"')
    broken.write_bytes(b'"\xff"')
    command = ("--", *sh('wc -c <"$TASK_PAYLOAD_FILE"'))
    assert int((await run_try("--payload", f"@{most}", *command)).out) == MOST_PAYLOAD_BYTES
    assert "has 1048577 bytes: a row takes 1048576" in (await run_try("--payload", f"@{more}", *command)).said
    assert "no UTF-8 at byte 1" in (await run_try("--payload", f"@{broken}", *command)).said


async def test_name_that_templates_have_to_open_is_noted() -> None:
    ended = await run_try("--env", "PYTHONPATH=/x", "--", "true")
    assert (ended.status, "env.PYTHONPATH changes what programs run or trust" in ended.said) == (DONE, True)


async def test_options_after_the_command_are_its_own() -> None:
    assert (await run_try("echo", "--json", "--help")).out == b"--json --help\n"
