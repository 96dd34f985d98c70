"""The tests' stand-in for CUDA's driver against the real package cuda-bindings, where installed; it
needs no CUDA for this."""

import pytest

from tests import cuda_stand_in
from tests.cuda_stand_in import ENUMS, FIELDS, StandIn

driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")


@pytest.mark.parametrize("name", FIELDS)
def test_structs_have_these_fields(name):
    ours, theirs = getattr(StandIn(), name)(), getattr(driver, name)()
    for path in FIELDS[name]:
        one, other = ours, theirs
        *inner, last = path.split(".")
        for part in inner:
            one, other = getattr(one, part), getattr(other, part)
        assert hasattr(one, last)
        if last != "type":  # an enum, which 0 is none of
            setattr(other, last, 5)
            assert int(getattr(other, last)) == 5


def test_enums_have_these_numbers():
    for enum in ENUMS:
        theirs = getattr(driver, enum.__name__)
        assert {one.name: int(getattr(theirs, one.name)) for one in enum} == {
            one.name: int(one) for one in enum
        }
    assert (
        int(driver.CUDA_EXTERNAL_MEMORY_DEDICATED) == cuda_stand_in.CUDA_EXTERNAL_MEMORY_DEDICATED
    )


def test_every_function_is_there():
    for name in vars(StandIn):
        if name.startswith("_cu"):
            assert hasattr(driver, name[1:]), name


def test_types_are_taken():
    info = driver.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
    kinds = driver.CUexternalMemoryHandleType
    info.type = kinds.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
    assert int(info.type) == 1
    info = driver.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
    kinds = driver.CUexternalSemaphoreHandleType
    info.type = kinds.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD
    assert int(info.type) == 9
