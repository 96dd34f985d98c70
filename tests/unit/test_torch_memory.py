"""The allocator of `ti.torch_memory`, compiled, with a library that stands in for CUDA's."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import vkchi as ti
from vkchi.errors import MissingPackageError
from vkchi.interop.cuda import pool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ti.torch_memory is for Linux")

STAND_IN = Path(__file__).with_name("cuda_stand_in.c")
MIB2 = 1 << 21


@pytest.fixture(scope="module")
def allocator(tmp_path_factory):
    """Output of calls of the allocator."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("allocator")
    command = [compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", STAND_IN]
    subprocess.run(command, check=True)
    path = pool.compile_allocator(folder)
    assert pool.compile_allocator(folder) == path  # once

    def run(code, fails=""):
        whole = f"""
            import ctypes
            pool = ctypes.CDLL({str(path)!r})
            pool.vkchi_alloc.restype = ctypes.c_void_p
            pool.vkchi_alloc.argtypes = (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
            pool.vkchi_free.argtypes = (ctypes.c_void_p, *pool.vkchi_alloc.argtypes)
            {code}
        """
        env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "FAILS": fails}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(whole)], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_memory_is_made_so_that_it_can_be_exported(allocator):
    said = allocator("print(hex(pool.vkchi_alloc(MIB2 + 1, 3, None)))".replace("MIB2", str(MIB2)))
    n = 2 * MIB2
    assert said == [
        f"reserve {n} 0 0 0",
        # pinned (1), file descriptors (1), on device (1) 3; the struct as cuda.h has it
        f"create {n} type 1 handles 1 at 1.3 win32 0 flags 0 0 size 32 offset 16",
        f"map 1 {n} 0 42 0",
        "release 42",
        f"access {n} 1.3 3 1",  # read and write
        "0x700000000",
    ]


def test_memory_is_given_up_after_the_device_is_done(allocator):
    said = allocator("pool.vkchi_free(0x700000000, 5, 0, None); pool.vkchi_free(None, 5, 0, None)")
    assert said == ["synchronize", f"unmap {MIB2}", f"unreserve {MIB2}"]


@pytest.mark.parametrize(
    "fails, rest",
    [
        ("reserve", []),
        ("create", ["unreserve"]),
        ("map", ["release", "unreserve"]),
        ("access", ["unmap", "unreserve"]),
    ],
)
def test_failed_allocation_leaves_nothing(allocator, fails, rest):
    said = allocator("print(pool.vkchi_alloc(5, 0, None))", fails)
    assert said[-1] == "None"
    names = [line.split()[0] for line in said]
    assert (
        names[names.index(fails) + 1 : -1] == rest
        if fails != "access"
        else (names[names.index(fails) + 1 : -1] == rest and "release" in names)
    )


def test_missing_cuda_raises():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is CUDA")
    with pytest.raises(ti.DeviceError, match="no CUDA device"):
        ti.torch_memory()


def test_folders_that_others_can_write_raise(tmp_path):
    folder = tmp_path / "allocators"
    folder.mkdir()
    folder.chmod(0o777)  # whoever writes there has code run here
    with pytest.raises(ti.DeviceError, match="can be written by others"):
        pool.compile_allocator(folder)
    (tmp_path / "file").touch()
    with pytest.raises(ti.DeviceError, match="cannot be used: Not a directory"):
        pool.compile_allocator(tmp_path / "file" / "allocators")


def test_a_missing_compiler_raises(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(MissingPackageError, match="C compiler"):
        pool.compile_allocator(tmp_path)
