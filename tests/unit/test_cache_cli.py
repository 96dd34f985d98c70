"""`vkchi cache`: every verb, on a small cache."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tracemalloc

import pytest

from tests.terminals import open_terminal
from vkchi.__main__ import main
from vkchi.cache.content import get_or_build
from vkchi.cache.store import CacheStore
from vkchi.cache.version import compiler_version
from vkchi.compiler import _build
from vkchi.ir.text import parse_func
from vkchi.target.caps import FULL
from vkchi.target.options import Options

TEXT = """
func @{name}(%x: array<f32[?]>) {{
  %c0 = const 0 : i32
  %n = shape %x [0] : i32
  %two = const {value} : f32
  parallel %c0, %n {{
    ^(%i: i32)
    %p = elem %x, %i : ptr<f32 global>
    %v = load %p : f32
    %w = mul %v, %two : f32
    store %p, %w
    yield
  }}
  yield
}}
"""


def add(store, name, value="2.0", options=Options(), caps=FULL):
    fn = parse_func(TEXT.format(name=name, value=value), f"/home/me/{name}.py")
    get_or_build(fn, options, caps, store, _build)


@pytest.fixture
def store(tmp_path):
    made = CacheStore(str(tmp_path / "cache"), version="v1")
    add(made, "scale")
    add(made, "scale", "3.0")
    add(made, "shift", "3.0")
    add(made, "shift", "3.0")  # found
    return made


@pytest.fixture
def run(store, capsys):
    """Run a verb on the cache; return exit status and output."""

    def run_verb(*words, status=0):
        found = main(["cache", "--folder", store.root, *words])
        assert status is None or found == status, capsys.readouterr()
        said = capsys.readouterr()
        return said.out if found == 0 else said.out + said.err

    return run_verb


def keys_of(run, name):
    return [row["key"] for row in json.loads(run("ls", name, "--json"))]


def test_ls_lists_entries(run):
    head, *lines = run("ls").splitlines()
    assert head.split() == "key kind kernel size hits age device place signature".split()
    assert [line.split()[2] for line in lines] == ["scale", "scale", "shift"]
    assert len(run("ls", "sh*").splitlines()) == 2
    assert run("ls", "--sort", "hits").splitlines()[1].split()[2] == "shift"
    assert len(run("ls", "--kind", "kernel").splitlines()) == 1


def test_ls_as_json(run):
    rows = json.loads(run("ls", "--json"))
    assert [row["hits"] for row in rows] == [0, 0, 1]
    assert all(row["version"] == "v1" and row["place"].startswith("/home/me/") for row in rows)


def test_show_prints_an_entry(run):
    (key,) = keys_of(run, "shift")
    text = run("show", key[:8])
    assert "func @shift(%x: array<f32[?]>)" in text and "OpEntryPoint" in text
    assert "device float64 = True" in text and "option fast_math = False" in text


def test_why_explains_a_miss(run):
    a, b = keys_of(run, "scale")
    text = run("why", a, b)
    assert text.splitlines()[1].strip().startswith("ir: ") and len(text.splitlines()) == 2
    assert "nothing differs" in run("why", a, a)


@pytest.mark.parametrize(
    "change, part",
    [
        ({"options": Options(fast_math=True)}, "option fast_math: False -> True"),
        ({"caps": FULL.__class__(subgroup_size=8)}, "device subgroup_size: 32 -> 8"),
    ],
)
def test_why_options_and_devices(run, store, change, part):
    before = set(store.keys())
    add(store, "shift", "3.0", **change)
    (new,) = set(store.keys()) - before
    (old,) = before & set(keys_of(run, "shift"))
    assert part in run("why", old, new)


def test_why_versions(run, store):
    add(CacheStore(store.root, version="v2"), "shift", "3.0")
    old, new = sorted(keys_of(run, "shift"), key=lambda k: store.entry(k).header["version"])
    assert "compiler: v1 -> v2" in run("why", old, new)


def test_diff_compares_entries(run):
    text = run("diff", *keys_of(run, "scale"))
    assert "= const 2.0 : f32" in text and "= const 3.0 : f32" in text
    assert {line[0] for line in text.splitlines()[2:]} <= set(" +-@")


def test_stats_counts_entries(run):
    text = run("stats")
    assert "entries  3" in text and "hits     1" in text


def test_verify_checks_entries(run, store):
    assert "3 entries, 0 damaged" in run("verify")
    path = store.path_of(store.keys()[0])
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) - 9)
        file.write(b"???")
    shutil.copy(store.path_of(store.keys()[1]), store.path_of(store.keys()[2]))
    text = run("verify", status=1)
    assert "3 entries, 2 damaged" in text and "its sum is wrong" in text
    assert "another entry under its name" in text
    assert "is damaged" in run("show", store.keys()[0], status=1)


def test_entries_of_other_versions_are_not_damaged(run, store, tmp_path):
    """They have a form that this version does not know, and another key than any of its."""
    key = store.keys()[0]
    header, body = store.get(key)
    store.put(key, {**header, "version": "0.0.9"}, b"what that version wrote")
    text = run("verify")
    assert "3 entries, 0 damaged" in text and "1 are of other versions" in text
    assert "of another version of vkchi" in run("show", key, status=1)
    run("report", "--html", str(tmp_path / "page.html"))
    store.put(key, {**header, "version": compiler_version()}, b"what this version never wrote")
    assert "3 entries, 1 damaged" in run("verify", status=1)


@pytest.mark.skipif(not shutil.which("spirv-val"), reason="no spirv-val here")
def test_verify_validates_spirv(run, store):

    from vkchi.cache.codec import decode, encode

    key = store.keys()[0]
    header, body = store.get(key)
    made = decode(body, "Artifact")
    (dispatch,) = made.dispatches
    bad = dispatch.shader._replace(words=dispatch.shader.words[:-8])
    store.put(
        key, header, encode(made._replace(dispatches=(dispatch._replace(shader=bad),)), "Artifact")
    )
    assert "spirv-val: " in run("verify", status=1)


def test_prune_removes_old_entries(run, store):
    size = max(os.path.getsize(store.path_of(k)) for k in store.keys())
    assert "0 entries dropped" in run("prune")
    assert "2 entries dropped" in run("prune", "--most", str(size + 10))
    assert keys_of(run, "shift")  # used last


def test_clear_removes_all_entries(run, store):
    assert "3 entries dropped" in run("clear", "--yes")
    assert store.keys() == [] and os.listdir(store.folder) == []


def test_clear_asks(run, store, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    run("clear", status=1)  # nobody answers
    assert len(store.keys()) == 3


def test_pack_and_unpack(run, store, tmp_path):
    file = str(tmp_path / "kernels.tar.gz")
    assert "3 entries written" in run("pack", file)
    before = {key: store.get(key) for key in store.keys()}
    run("clear", "--yes")
    assert "3 entries taken, 0 refused" in run("unpack", file)
    assert {key: store.get(key) for key in store.keys()} == before
    assert "1 entries written" in run("pack", file, "shift")


def test_an_archive_of_other_things(run, store, tmp_path):
    file, good = tmp_path / "odd.tar", store.keys()[0]
    data = open(store.path_of(good), "rb").read()
    run("clear", "--yes")
    with tarfile.open(file, "w") as archive:
        for name, kind, text in [
            ("../../escaped", tarfile.REGTYPE, data), (good, tarfile.SYMTYPE, b""),
            (good[::-1], tarfile.REGTYPE, data), (good, tarfile.REGTYPE, data[:-1]),
            ("f" * 64, tarfile.REGTYPE, os.urandom(500)),
        ]:  # fmt: skip
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(text), "/etc/passwd"
            archive.addfile(info, io.BytesIO(text))
    assert "0 entries taken, 5 refused" in run("unpack", str(file), status=1)
    assert store.keys() == []
    assert "cannot be read" in run("unpack", str(tmp_path / "none.tar"), status=1)


def bomb(file, kind):
    """A small file that says, or is, much."""
    if kind == "zeros":
        with tarfile.open(file, "w:xz") as archive:
            info = tarfile.TarInfo("a" * 64)
            info.size = 200 << 20
            archive.addfile(info, io.BytesIO(bytes(info.size)))
        return
    info = tarfile.TarInfo("a" * 64)
    info.size = {"long name": 1 << 26}.get(kind, 1 << 40)
    info.type = {"sparse": tarfile.GNUTYPE_SPARSE, "long name": tarfile.GNUTYPE_LONGNAME}.get(
        kind, tarfile.REGTYPE
    )
    with gzip.open(file, "wb") as out:
        out.write(info.tobuf(tarfile.GNU_FORMAT))
        if kind == "long name":
            out.write(bytes(info.size))


@pytest.mark.parametrize("kind", ["huge", "sparse", "long name", "zeros"])
def test_an_archive_that_would_take_all_memory(run, store, tmp_path, kind):
    file = str(tmp_path / "bomb.tar.gz")
    bomb(file, kind)
    tracemalloc.start()
    said = run("unpack", file, status=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "cannot be read" in said
    assert peak < 30 << 20


def test_names_that_change_a_terminal(run, store, tmp_path):
    wild = "\x1b]0;owned\x07\x1b[2J\rk\u202e"
    header = {"kind": "kernel", "name": wild, "place": wild, "seconds": 1.0}
    store.put("d" * 64, header, b"")
    file = str(tmp_path / "wild.tgz")
    run("pack", file)
    run("unpack", file)
    for words in (("ls",), ("ls", "--json"), ("show", "dddd"), ("stats",), ("verify",)):
        said = run(*words, status=None)
        assert not set(said) & set("\x1b\x07\r\u202e"), words
    assert "\\x1b]0;owned\\x07" in run("ls")
    assert "\\x1b" in run("unpack", "\x1b[2J.tar", status=1)


def test_missing_entry_fails(run):
    assert "no entries have a key" in run("show", "ff" * 32, status=1)
    assert "3 entries have a key" not in run("show", "", status=1)
    assert "the cache has no kernel step" in run("why", "program.py:step", status=1)


def test_entries_that_others_wrote(run, store, tmp_path):
    """Their sums are right, and they hold no artifact, or headers of other types."""
    version = compiler_version()
    store.put("a" * 64, {"kind": "kernel", "name": "odd", "version": version}, b"no artifact")
    store.put("b" * 64, {"kind": "kernel", "name": "odd", "seconds": "many"}, b"")
    store.put("c" * 64, {"kind": "kernel", "name": ["odd"], "parts": 3}, b"")
    assert "aaaaaaaaaaaa cannot be read" in run("show", "aaaa", status=1)
    assert "aaaaaaaaaaaa cannot be read" in run("diff", "aaaa", "aaaa", status=1)
    assert "its header's seconds is 'many'" in run("show", "bbbb", status=1)
    assert "6 entries, 3 damaged" in run("verify", status=1)
    assert run("ls", "odd").count("aaaaaaaaaaaa") == 1
    assert "entries  4" in run("stats")
    assert "1 entries written" in run("pack", str(tmp_path / "odd.tgz"), "od*")
    page = tmp_path / "page.html"
    said = run("report", "--html", str(page), status=1)
    assert "aaaaaaaaaaaa cannot be read" in said and "4 entries, 3 of them whole" in said
    assert page.read_text(encoding="utf-8").count("<summary>scale ") == 2


def test_files_that_cannot_be_written_or_read(run, store, tmp_path, capsys):
    for words in (("report", "--html"), ("pack",)):
        path = str(tmp_path / "none" / "file")
        assert main(["cache", "--folder", store.root, *words, path]) == 1
        said = "".join(capsys.readouterr())
        assert path in said and "No such file" in said and "standard output" not in said
    for words in (("report", "--html"), ("pack",)):
        said = run(*words, "/dev/full", status=1)
        assert "/dev/full cannot be written: No space left on device" in said
    for text in ("no json", "[]", '{"traceEvents": [{}]}', '{"traceEvents": 3}', None):
        trace = tmp_path / "trace.json"
        trace.unlink() if text is None else trace.write_text(text, encoding="utf-8")
        words = ["report", "--html", os.devnull, "--timings", str(trace)]
        assert main(["cache", "--folder", store.root, *words]) == 2
        assert "--timings" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("ls", "--sort", "colour"), ("burn",), ("prune", "--most", "much"), ("why", "x")]
)
def test_wrong_command_lines(store, words, capsys):
    assert main(["cache", "--folder", store.root, *words]) == 2


def test_ls_needs_no_compiler(store):
    code = (
        "import sys, vkchi.__main__ as m; status = m.main(sys.argv[1:]);"
        "slow = [n for n in sys.modules if n.startswith(('vkchi.ir', 'vkchi.opt', 'vkchi.spirv',"
        " 'vkchi.frontend', 'vkchi.compiler', 'vulkan'))]; print(slow, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "cache", "--folder", store.root, "ls"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 4 and "\x1b" not in done.stdout
    assert "vkchi.ir.core" not in done.stderr and "vkchi.compiler" not in done.stderr, done.stderr


@pytest.mark.budget
def test_ls_of_a_thousand_entries(tmp_path, monkeypatch):
    """The time is CPU time of the child process."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    made = CacheStore(str(tmp_path / "many"), version="v1")
    add(made, "scale")
    (key,) = made.keys()
    header, body = made.get(key)
    for number in range(999):
        made.put(f"{number:064x}", {**header, "key": f"{number:064x}"}, body)
    command = [sys.executable, "-m", "vkchi", "cache", "--folder", made.root, "ls"]
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert len(done.stdout.splitlines()) == 1001
    assert min(times) < 0.3, times


def on_a_terminal(store, *words, **around):
    """Output of `vkchi cache` on a terminal."""
    reader, writer = open_terminal()
    command = [sys.executable, "-m", "vkchi", "cache", "--folder", store.root, *words]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "200", **around}
    with subprocess.Popen(command, stdout=writer, stdin=writer, stderr=writer, env=env) as run:
        os.close(writer)
        found = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(reader, 65536):
                found += piece
    os.close(reader)
    assert run.returncode == 0, found
    return found.decode()


def test_coloured_output(store):
    assert on_a_terminal(store, "ls").startswith("\x1b[1mkey")
    assert "\x1b" not in on_a_terminal(store, "--no-color", "ls")
    assert "\x1b" not in on_a_terminal(store, "ls", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(store, "--no-color", "stats")
    assert "\x1b" not in on_a_terminal(store, "stats", "--no-color")
    assert "\x1b" not in on_a_terminal(store, "ls", "--no-color")


def test_ls_by_device(run, store):
    add(store.of_device("A Card"), "turn")
    assert len(run("ls", "--device", "a card").splitlines()) == 2
    assert json.loads(run("ls", "turn", "--json"))[0]["device"] == "A Card"


def test_pipeline_cache_entries(run, store):
    """Such entries are shown, and hold no code of ours."""
    store.put("5" * 64, {"kind": "pipelines", "device": "A Card", "parts": {"driver": "7"}}, b"x")
    assert len(run("ls", "--kind", "pipelines").splitlines()) == 2
    assert "driver = 7" in run("show", "5" * 64)
    assert "4 entries, 0 damaged" in run("verify")
    assert "no IR" in run("diff", "5" * 64, "5" * 64, status=1)


def test_a_pipe_that_closes(store):
    command = [sys.executable, "-m", "vkchi", "cache", "--folder", store.root, "ls", "--json"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    run.stdout.close()
    assert run.wait() in (0, 1) and b"Traceback" not in run.stderr.read()
