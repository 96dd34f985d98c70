"""`ti.init`: the requested device, and invalid options."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import vkchi as ti
from vkchi import compiler, env, runtime
from vkchi.errors import DeviceError
from vkchi.ir.core import Func, Region
from vkchi.target.options import Config, read_options


@pytest.mark.parametrize(
    ("arch", "kinds"),
    [
        (None, ["any"]), ([], ["any"]), ("cpu", ["cpu"]), (ti.gpu, ["gpu"]),
        ([ti.cuda, ti.cpu], ["nvidia", "cpu"]), ([ti.metal, "vulkan"], ["gpu", "any"]),
    ],
)  # fmt: skip
def test_archs_are_asked_for_in_order(
    arch: Any, kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def open_device(kind: str, device: Any, *, fallback: bool) -> None:
        asked.append((kind, fallback))
        raise DeviceError(f"no {kind} here")

    monkeypatch.setattr(import_module("vkchi.device"), "open_device", open_device)
    with pytest.raises(DeviceError):
        ti.init(arch=arch)
    assert asked == [(kind, kind == kinds[-1]) for kind in kinds]


@pytest.mark.parametrize(
    "options",
    [
        {"arch": "nope"}, {"arch": [[]]}, {"arch": 3}, {"random_seed": "x"}, {"random_seed": 1.5},
        {"log_level": "loud"}, {"default_fp": ti.i32}, {"default_ip": ti.f32}, {"colour": 1},
    ],
)  # fmt: skip
def test_options_without_meaning_raise(options: dict[str, Any]) -> None:
    with pytest.raises(ti.TaichiRuntimeTypeError):
        ti.init(**options)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("VKCHI_DEBUG", "yes", "VKCHI_DEBUG is 'yes', and may be 0, 1"),
        ("VKCHI_TIME", "on", "VKCHI_TIME is 'on', and may be 0, 1"),
        ("VKCHI_VALIDATE", "all", "VKCHI_VALIDATE is 'all', and may be 0, 1, sync"),
        ("VKCHI_LOG", "loud", "VKCHI_LOG is 'loud', and may be trace, debug, "),
        ("VKCHI_PRINT", "ir,spv", "VKCHI_PRINT asks for 'spv', and may be a comma list of ir, "),
    ],
)
def test_flags_without_meaning_raise(
    name: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ti.TaichiRuntimeTypeError, match=sentence):
        ti.init()


@pytest.mark.parametrize("value", ["", "ir", "ir, opt,"])
def test_flags_that_mean_something(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in env.FLAGS:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("VKCHI_PRINT", value)
    env.check_flags()
    assert env.flag("VKCHI_LOG") == "info"


def bad_folder(kind: str, tmp_path: Path) -> str:
    """A path where no file can be written: below a file, without a right to, on a full disk, with
    a name that no file has."""
    if kind == "a file":
        (tmp_path / "file").write_text("", encoding="utf-8")
        return str(tmp_path / "file")
    return {"full": "/dev/full", "long": "x" * 5000, "system": "/proc/vkchi"}[kind]


@pytest.mark.parametrize("kind", ["a file", "full", "long", "system"])
@pytest.mark.parametrize("name", ["VKCHI_DUMP", "VKCHI_DUMP_SPV"])
def test_a_dump_into_a_bad_folder_names_the_variable(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bad_folder(kind, tmp_path)
    monkeypatch.setenv(name, folder)
    with pytest.raises(ti.TaichiRuntimeError) as caught:
        env.dump(name, "f.chi", b"text")
    begin = f"{name} is {folder!r}, and nothing can be written there: "
    assert str(caught.value).startswith(begin)
    assert str(caught.value).endswith("; name a folder that can be written to, or unset it")


def test_dumps_are_utf8_for_every_terminal_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VKCHI_DUMP", str(tmp_path / "new" / "folder"))
    compiler.show_stage("ir", Func("größe", (), Region((), [])))
    (file,) = (tmp_path / "new" / "folder").iterdir()
    assert file.name == "größe.ir.chi"
    assert file.read_text(encoding="utf-8").startswith("func @größe(")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("TI_DEBUG", "yes", "TI_DEBUG is 'yes', and may be 0 or 1"),
        ("TI_CUDA_STACK_LIMIT", "x", "TI_CUDA_STACK_LIMIT is 'x', and may be an integer"),
        ("TI_DEVICE_MEMORY_GB", "x", "TI_DEVICE_MEMORY_GB is 'x', and may be a number"),
        ("TI_ARCH", "nope", "no arch is called 'nope'"),
        ("TI_DEFAULT_FP", "8", "default_fp is ti.f16, ti.f32 or ti.f64, not 8"),
        ("TI_LOG_LEVEL", "loud", "no log level is called 'loud'"),
    ],
)
def test_variables_of_taichi_without_meaning_raise(
    name: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ti.TaichiRuntimeTypeError, match=sentence):
        ti.init()


def test_options_without_effect_warn_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime.RuntimeState, "noted", set())
    config = {"print_ir": True, "packed": False, "debug": True}
    with caplog.at_level("INFO", logger="vkchi"):
        for _ in range(2):
            runtime.log_idle_options(config)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "these options of ti.init change nothing here: print_ir (set VKCHI_PRINT=ir), packed"
    )


def test_options_can_be_looked_at_and_set() -> None:
    config = Config({"debug": True})
    assert config.debug and config.packed is False
    config.packed = True
    assert config.packed is True and "debug=True" in repr(config)
    with pytest.raises(AttributeError, match=r"ti.cfg.debug cannot be assigned: call ti.init"):
        config.debug = False
    with pytest.raises(AttributeError, match="there is no option called colour"):
        config.colour = 1


def test_a_cleaning_policy_that_is_none() -> None:
    with pytest.raises(ti.TaichiRuntimeTypeError, match="offline_cache_cleaning_policy is 'best'"):
        ti.init(offline_cache_cleaning_policy="best")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"debug": "no"}, "debug is True, False or 'nan', not 'no'"),
        ({"debug": 2}, "debug is True, False or 'nan', not 2"),
        ({"fast_math": []}, r"fast_math is True or False, not \[\]"),
        ({"kernel_profiler": "yes"}, "kernel_profiler is True or False, not 'yes'"),
        ({"opt_level": "high"}, "opt_level is an integer, not 'high'"),
        ({"offline_cache_cleaning_factor": "x"}, "cleaning_factor is a number, not 'x'"),
    ],
)
def test_an_option_of_another_kind(option: dict[str, object], said: str) -> None:
    with pytest.raises(ti.TaichiRuntimeTypeError, match=said):
        read_options(option, {})


def test_reading_options() -> None:
    environment = {"TI_OPT_LEVEL": "3", "TI_PACKED": "1", "TI_VERBOSE": "", "TI_OFFLINE_CACHE": "0"}
    found = read_options({"offline_cache": True, "debug": None}, environment)
    assert found == {"offline_cache": True, "opt_level": 3, "packed": True}
