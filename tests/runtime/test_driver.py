"""The driver: whether it can be used at all, loading, and what it says when a call fails."""

from __future__ import annotations

import ctypes
import functools

import pytest

from cuswiglu.common.device import DeviceInfo
from cuswiglu.runtime import driver as driver_module
from cuswiglu.runtime.driver import Driver, DriverError, check
from cuswiglu.runtime.tensor_map import AlignedMemory
from tests.helpers.fake_driver import FakeDriver, Result, arguments_of, run_in_threads
from tests.helpers.processes import printed

FUNCTIONS = {  # that loading a kernel calls -> words of the error when it fails
    "cuLibraryLoadData": "loading entry_k",
    "cuLibraryGetKernel": "finding entry_k",
    "cuKernelGetFunction": "loading entry_k",
    "cuFuncSetAttribute": "asking for 1024 bytes of shared memory for entry_k",
}


@pytest.fixture
def fake():
    return FakeDriver()


def load(driver, entry="entry_k", index=0, key="hash"):
    return driver.kernel(b"code with entry_k and entry_n", key, entry, index, 1024)


# Whether it can be used


def test_a_driver_of_cuda_12_0_is_enough():
    driver = Driver(FakeDriver(version=12000))
    assert driver.version() == "12.0"


@pytest.mark.parametrize(("version", "words"), [(11080, "CUDA 11.8"), (11040, "CUDA 11.4")])
def test_an_older_driver_is_refused_and_says_what_is_needed(version, words):
    with pytest.raises(DriverError, match=r"need 12\.0 or newer \(driver 525\): update") as caught:
        Driver(FakeDriver(version=version))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "status", [Result.CUDA_ERROR_NO_DEVICE, Result.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH]
)
def test_a_driver_that_does_not_start_says_why(fake, status):
    fake.failing["cuInit"] = status
    with pytest.raises(DriverError, match=f"cuInit.*GPU.*{status.name}"):
        Driver(fake)


def test_a_machine_without_a_driver_says_what_is_needed(fake):
    def no_libcuda(flags):
        raise RuntimeError("Failed to dlopen libcuda.so.1")  # as cuda-python does

    fake.cuInit = no_libcuda
    with pytest.raises(DriverError, match=r"no NVIDIA driver .* need a Hopper GPU and driver 525"):
        Driver(fake)


def test_a_driver_without_the_tensor_map_call_is_refused(fake):
    fake.failing["cuGetProcAddress"] = Result.CUDA_ERROR_NOT_FOUND
    with pytest.raises(DriverError, match="cuGetProcAddress: CUDA_ERROR_NOT_FOUND"):
        Driver(fake)


def test_the_process_has_one_driver_whatever_the_thread(gpu):
    found = run_in_threads(lambda _: driver_module.driver())
    assert len({id(driver) for driver in found}) == 1
    assert gpu.driver.count("cuInit") == 1


def test_a_driver_that_did_not_start_is_tried_again(gpu):
    gpu.driver.failing["cuInit"] = Result.CUDA_ERROR_NO_DEVICE
    with pytest.raises(DriverError):
        driver_module.driver()
    gpu.driver.failing.clear()
    assert driver_module.driver().version() == "12.9"


def test_a_device_is_described_by_the_driver():
    fake = FakeDriver(name=b"NVIDIA A100", capability=(8, 0), multiprocessors=108)
    assert Driver(fake).device_info(0) == DeviceInfo("NVIDIA A100", (8, 0), 108, "12.9")


def test_a_real_child_is_refused_and_its_parent_is_not():
    code = """
        import os, sys
        from tests.helpers.fake_driver import FakeDriver
        from cuswiglu.runtime.driver import Driver, DriverError

        driver = Driver(FakeDriver())
        child = os.fork()
        try:
            driver.check_process()
        except DriverError:
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert printed(code) == "7"


@pytest.mark.parametrize("use", [load, functools.partial(Driver.device_info, index=0)])
def test_a_forked_child_is_refused_and_told_to_spawn(fake, fork, use):
    driver = Driver(fake)
    fork()
    calls = len(fake.calls)
    with pytest.raises(DriverError, match=r"before this process was forked.*'spawn'"):
        use(driver)
    assert len(fake.calls) == calls


# Loading


def test_a_kernel_is_got_once_under_concurrent_threads(fake):
    driver = Driver(fake)
    found = run_in_threads(lambda _: load(driver))
    assert all(function is found[0] for function in found)
    assert all(fake.count(function) == 1 for function in FUNCTIONS)


def test_a_cubin_is_loaded_once_for_its_entries_and_devices(fake):
    driver = Driver(fake)
    for index in (0, 1):
        fake.current_device = lambda index=index: index
        for entry in ("entry_k", "entry_n"):
            assert load(driver, entry, index) is load(driver, entry, index)
    assert fake.count("cuLibraryLoadData") == 1
    assert fake.told("cuKernelGetFunction") == [
        (entry, index) for index in (0, 1) for entry in ("entry_k", "entry_n")
    ]


def test_a_kernel_may_use_the_shared_memory_it_is_launched_with(fake):
    load(Driver(fake))
    assert fake.told("cuFuncSetAttribute") == [("entry_k", 1024)]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_failure_to_load_says_what_failed_and_can_be_retried(fake, function):
    driver = Driver(fake)
    fake.failing[function] = Result.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DriverError) as caught:
        load(driver)
    assert str(caught.value) == (
        f"the CUDA driver failed at {FUNCTIONS[function]}: CUDA_ERROR_OUT_OF_MEMORY"
    )
    fake.failing.clear()
    assert load(driver).entry == "entry_k"


def test_an_entry_that_the_cubin_lacks_is_named(fake):
    with pytest.raises(DriverError, match="finding missing_k: CUDA_ERROR_NOT_FOUND"):
        load(Driver(fake), "missing_k")


# Contexts


def launching(driver):
    """run(address, stream) launches a kernel with one operand, whose descriptor it encodes."""
    kinds = [kind for _, kind in arguments_of("entry_k")]
    count = len(kinds)
    memory, descriptor = AlignedMemory(8 * (count + 1)), AlignedMemory(128)
    pointers = (ctypes.c_uint64 * count).from_address(memory.address)

    def point_at(addresses):
        box = (64, 64, 128)
        driver.encode_tensor_map(descriptor.address, addresses[0], (64, 64), 128, box, "bfloat16")
        zero = memory.address + 8 * count
        pointers[:] = [descriptor.address if k == "tensor_map" else zero for k in kinds]

    config = driver.config((1, 1), (1, 1), 384, 1024)
    run = driver.launcher(config, load(driver), memory.address, point_at)
    return lambda address, stream=0: run((address,), stream)


def test_a_thread_that_has_not_used_cuda_loads_and_launches(fake):
    driver = Driver(fake)
    run = launching(driver)

    def work(number):
        fake.contexts.current = 0
        if number % 2:
            load(driver, "entry_n")
        run(0x1000 * (number + 1))
        return fake.contexts.current

    found = [run_in_threads(lambda _, number=number: work(number), 1)[0] for number in range(4)]
    assert len(fake.launches) == 4
    assert set(found) == {fake.cuCtxGetCurrent()[1]}


def test_a_thread_without_a_context_launches_on_the_addresses_of_the_last_call(fake):
    """No descriptor is encoded, so that the launch is the first that needs a context."""
    run = launching(Driver(fake))
    run(0x1000)
    fake.contexts.current = 0
    run(0x1000)
    assert [launch.addresses[0] for launch in fake.launches] == [0x1000] * 2


@pytest.mark.parametrize("address", [0x1000, 0x2000], ids=["same address", "other address"])
def test_another_context_than_the_primary_one_is_refused_until_it_is_popped(fake, address):
    driver = Driver(fake)
    run = launching(driver)
    run(0x1000)
    before = fake.contexts.__dict__.copy()
    fake.contexts.current = 0xBAD
    with pytest.raises(DriverError, match=r"not the device's primary one.*pop it"):
        run(address)
    with pytest.raises(DriverError, match=r"not the device's primary one.*pop it"):
        load(driver, "entry_n")
    assert fake.contexts.current == 0xBAD
    fake.contexts.__dict__.clear()
    fake.contexts.__dict__.update(before)
    run(address)
    assert load(driver, "entry_n").entry == "entry_n"
    assert [launch.addresses[0] for launch in fake.launches] == [0x1000, address]


# Configurations and descriptors


def test_a_configuration_has_grid_cluster_threads_and_shared_memory(fake):
    config = Driver(fake).config((2, 66), (2, 1), 384, 214016)
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (2, 66, 1)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (384, 1, 1)
    assert config.sharedMemBytes == 214016
    cluster = config.attrs[0].value.clusterDim
    assert (cluster.x, cluster.y, cluster.z) == (2, 1, 1)


@pytest.mark.parametrize("overlapping", [False, True])
def test_a_configuration_lets_a_kernel_start_early_only_where_asked(fake, overlapping):
    config = Driver(fake).config((2, 66), (2, 1), 384, 214016, overlapping)
    kind = fake.CUlaunchAttributeID
    found = {attribute.id: attribute.value for attribute in config.attrs}
    assert config.numAttrs == len(config.attrs) == 1 + overlapping
    assert kind.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION in found
    early = found.get(kind.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
    assert (early is not None) == overlapping
    assert not overlapping or early.programmaticStreamSerializationAllowed == 1


@pytest.mark.parametrize(
    ("columns", "span", "swizzle"),
    [(64, 128, 3), (32, 64, 2), (16, 32, 1), (72, 16, 0), (80, 16, 0), (64, 16, 0)],
)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_descriptor_swizzles_over_the_span_of_its_box(fake, columns, span, swizzle, dtype):
    memory = (ctypes.c_uint8 * 256)()
    destination = -(-ctypes.addressof(memory) // 128) * 128
    box = columns, 128, span
    Driver(fake).encode_tensor_map(destination, 0x1000, (200, 300), 416, box, dtype)
    (found,) = fake.maps
    assert (found.address, found.extents, found.row_bytes) == (0x1000, (200, 300), 416)
    assert (found.box, found.swizzle, found.element_strides) == ((columns, 128), swizzle, (1, 1))
    element = f"CU_TENSOR_MAP_DATA_TYPE_{dtype.upper()}"
    promotion = fake.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    # No interleave; elements beyond the extents are read as zero, as tails need.
    assert found.data_type == int(getattr(fake.CUtensorMapDataType, element))
    assert found.l2_promotion == int(promotion)
    assert (found.interleave, found.fill) == (0, 0)


def test_a_descriptor_that_the_driver_refuses_is_an_error_with_its_arguments(fake):
    driver = Driver(fake)
    with pytest.raises(DriverError, match=r"encoding a TMA descriptor \(error 1\)") as caught:
        driver.encode_tensor_map(0x1000, 0x1008, (200, 300), 416, (64, 128, 128), "bfloat16")
    for word in ("0x1008", "(200, 300)", "416 bytes", "(64, 128, 128)"):
        assert word in str(caught.value)


def test_check_names_the_status_and_what_was_done():
    with pytest.raises(DriverError, match="failed at testing: CUDA_ERROR_INVALID_VALUE"):
        check((Result.CUDA_ERROR_INVALID_VALUE,), "testing")
    assert check((Result.CUDA_SUCCESS, 7), "testing") == 7
    assert check((Result.CUDA_SUCCESS,), "testing") is None
