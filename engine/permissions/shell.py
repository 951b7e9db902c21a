"""Which shell commands need no asking: an exact prefix on the person's list, and nothing clever.

An unsure answer is no. A pipe, a separator or a substitution never passes, even where each part
by itself is on the list.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["allowlisted"]

_FORBIDDEN = frozenset(";&|<>`$()")

#: What quotes or a backslash take out of the shell's hands.
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.")

#: Unquoted, the shell makes other words of these: globs (a file may be named like a flag), braces,
#: a comment, a home folder, a negation.
_EXPANDS = re.compile(r"[*?\[\]{}#!]|(?:(?<!\S)|[=:])~")

#: A program by its bare name. Not by path: the file there may be one the model wrote itself.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")

#: An argument that leads out of the current folder, also behind an option or an address.
_OUTSIDE = re.compile(r"(?:^|[=:,@]|^-\w+)[/~]|(?:^|[/=:,@]|^-\w+)\.\.(?:/|$)")

#: Never, whatever the list says. The criterion: the arguments, or a file they name, are run as a
#: program; or later commands come to mean something else; or bytes go to a place they choose.
_NEVER = frozenset(
    # shells, and builtins that run words or change what later ones mean
    """ash bash busybox cmd csh dash elvish fish ksh mksh nu powershell pwsh rbash sh tcsh toybox
    yash zsh
    alias bind builtin command compgen complete coproc declare enable eval exec export fc getopts
    hash let local mapfile read readarray readonly set shopt source time trap typeset unalias unset
    """.split()
    # wrappers: they start the program that their arguments name
    + """at batch bwrap chpst chroot chronic chrt crontab doas docker entr env expect fakeroot
    firejail flock gdb ionice kubectl lldb ltrace lxc nerdctl nice nohup nsenter numactl npx bunx
    uvx pipx parallel perf pkexec podman prlimit proxychains rlwrap run-parts runcon runuser script
    setarch setpriv setsid sg start-stop-daemon stdbuf strace su sudo systemd-run taskset timeout
    tmux screen torsocks unbuffer unshare valgrind viddy watch watchexec xargs xvfb-run""".split()
    # interpreters, and programs with a language of their own that can start others
    + """awk bc bmake bun cmake clisp crystal dc deno ed elixir emacs erl ex gawk ghci gmake gnuplot
    groovy guile iex ipython irb java jshell js julia kotlin less lua luajit m4 make man mariadb
    mawk more most mysql nano nawk ninja node nodejs nvim ocaml octave osascript perl php pry psql
    pypy python racket raku r rscript ruby runghc sbcl scala sed sqlite swift tar tclsh ts-node tsx
    vi view vim wish zip""".split()
    # the network
    + """aria2c autossh curl dig ftp host http https lftp lynx links mosh nc ncat netcat nslookup
    openssl ping rclone rsync scp sftp socat ssh sshpass telnet tftp w3m wget wget2 xh""".split()
)


def allowlisted(command: str, entries: Iterable[str]) -> bool:
    """Tell whether `command` begins with the words of an entry and can do nothing beyond it.

    A pipe of two listed commands asks all the same: one rule for every operator can be
    understood, a grammar of exceptions cannot.
    """
    if any(char in _FORBIDDEN or not (char.isprintable() or char == "\t") for char in command):
        return False
    words = _words(command)
    if not words or _EXPANDS.search(_QUOTED.sub("", command)) or not _is_harmless(words):
        return False
    return any(_begins(words, _words(entry)) for entry in entries)


def _words(line: str) -> list[str]:
    """Split like a shell; no words when quotes do not close."""
    try:
        return shlex.split(line)
    except ValueError:
        return []


def _begins(words: Sequence[str], entry: Sequence[str]) -> bool:
    """Tell whether `entry` is a prefix; what comes after it must stay in the current folder."""
    rest = words[len(entry) :]
    return (
        bool(entry)
        and list(words[: len(entry)]) == list(entry)
        and not any(_OUTSIDE.search(word) for word in rest)
    )


def _is_harmless(words: Sequence[str]) -> bool:
    name = words[0].casefold()
    plain = re.sub(r"[-.\d]+$", "", name)  # python3.11, lua5.4
    if not _NAME.fullmatch(words[0]) or name in _NEVER or plain in _NEVER:
        return False
    guard = _GUARDS.get(name)
    return guard is None or guard(words[1:])


def _without(short: str = "", long: Sequence[str] = ()) -> Callable[[Sequence[str]], bool]:
    """Guard against flags: letters also inside a cluster, long ones also shortened."""

    def guard(words: Sequence[str]) -> bool:
        return not any(_carries(word, short, long) for word in words)

    return guard


def _carries(word: str, short: str, long: Sequence[str]) -> bool:
    if word.startswith("--"):
        flag = word.partition("=")[0]
        return len(flag) > 2 and any(each.startswith(flag) for each in long)
    return word.startswith("-") and any(letter in word for letter in short)


def _operands(words: Sequence[str]) -> list[str]:
    return [word for word in words if not word.startswith("-")]


def _find(words: Sequence[str]) -> bool:
    return not any(
        word.startswith(("-exec", "-ok", "-delete", "-fprint", "-fls")) for word in words
    )


def _date(words: Sequence[str]) -> bool:
    sets = any(re.fullmatch(r"[\d.]+", word) for word in words)
    return not sets and _without("s", ("--set",))(words)


def _uniq(words: Sequence[str]) -> bool:
    return len(_operands(words)) <= 1  # a second one is written to


def _xxd(words: Sequence[str]) -> bool:
    return len(_operands(words)) <= 1 and _without("r")(words)


def _go(words: Sequence[str]) -> bool:
    flags = {word.lstrip("-").partition("=")[0] for word in words}
    return flags.isdisjoint({"exec", "toolexec", "vettool"})


def _no_word(*banned: str) -> Callable[[Sequence[str]], bool]:
    return lambda words: not set(banned) & set(words)


#: The only flags that may stand before git's subcommand: the others move it to another folder or
#: hand it settings, and settings can name programs.
_GIT_GLOBAL = frozenset({"--no-pager", "--no-optional-locks", "--version"})
_GIT_NEVER = frozenset(
    """bisect credential daemon difftool filter-branch gui help hook instaweb mergetool
    receive-pack send-email shell submodule upload-pack web--browse""".split()
)
_GIT_LONG = (
    "--output --output-directory --open-files-in-pager --exec --ext-diff --upload-pack "
    "--receive-pack --config --template --interactive"
).split()


def _git(words: Sequence[str]) -> bool:
    rest = list(words)
    while rest and rest[0] in _GIT_GLOBAL:
        rest.pop(0)
    if not rest:
        return True
    verb, rest = rest[0], rest[1:]
    if verb.startswith("-") or verb in _GIT_NEVER or not _without("", _GIT_LONG)(rest):
        return False
    guard = _GIT_GUARDS.get(verb)
    return guard is None or guard(rest)


def _git_config(words: Sequence[str]) -> bool:
    """One reading action with one name; another flag behind it could be a writing one."""
    if words and words[0] in {"--list", "-l", "list"}:
        return len(words) == 1
    asks = bool(words) and words[0] in {"--get", "--get-all", "get"}
    return asks and len(words) == 2 and not words[1].startswith("-")


def _git_remote(words: Sequence[str]) -> bool:
    return list(words) in ([], ["-v"]) or words[0] == "get-url"


_GIT_GUARDS: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "archive": _without("o"),
    "clone": _without("cu"),
    "config": _git_config,
    "format-patch": _without("o"),
    "grep": _without("O"),
    "ls-remote": _without("u"),
    "rebase": _without("ix"),
    "remote": _git_remote,
}

_GUARDS: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "cargo": _without("", ("--config",)),
    "date": _date,
    "fd": _without("xX", ("--exec", "--exec-batch")),
    "fdfind": _without("xX", ("--exec", "--exec-batch")),
    "file": _without("C", ("--compile",)),
    "find": _find,
    "git": _git,
    "go": _go,
    "npm": _no_word("exec", "x", "explore"),
    "pnpm": _no_word("exec", "dlx"),
    "poetry": _no_word("run"),
    "printf": _without("v"),
    "rg": _without("", ("--pre", "--hostname-bin")),
    "sort": _without("o", ("--output", "--compress-program")),
    "tail": _without("fF", ("--follow", "--retry")),
    "uniq": _uniq,
    "uv": _no_word("run", "tool"),
    "xxd": _xxd,
    "yarn": _no_word("exec", "dlx"),
}
