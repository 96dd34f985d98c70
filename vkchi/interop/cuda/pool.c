/* The allocator of `vkchi.torch_memory`: CUDA's virtual memory, which can be exported to Vulkan.
 *
 * In C, because torch calls it under its own lock, with and without the GIL. Each allocation is one
 * physical allocation, mapped at one address, from which `cuMemRetainAllocationHandle` finds it.
 * Source: CUDA Driver API, Virtual Memory Management; torch.cuda.memory.CUDAPluggableAllocator. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

typedef struct { int type, id; } Location;                      /* CUmemLocation */
typedef struct {                                                /* CUmemAllocationProp */
    int type, requested_handle_types;
    Location location;
    void *win32_metadata;
    unsigned char flags[8];
} Properties;
typedef struct { Location location; int flags; } Access;        /* CUmemAccessDesc */

enum { PINNED = 1, ON_DEVICE = 1, FILE_DESCRIPTOR = 1, READ_WRITE = 3, MINIMUM = 0 };

static void *library(void)
{
    static void *found;
    if (!found)
        found = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    return found;
}

#define CALL(name, types, ...)                                                                 \
    (library() && dlsym(library(), name) ? ((int (*) types)dlsym(library(), name))(__VA_ARGS__) : -1)

static Properties properties(int device)
{
    Properties made;
    memset(&made, 0, sizeof made);
    made.type = PINNED;
    made.requested_handle_types = FILE_DESCRIPTOR;
    made.location.type = ON_DEVICE;
    made.location.id = device;
    return made;
}

static size_t rounded(ssize_t size, int device)
{
    Properties wanted = properties(device);
    size_t step = 0;
    int error = CALL("cuMemGetAllocationGranularity", (size_t *, const Properties *, int), &step,
                     &wanted, MINIMUM);
    return error || !step ? 0 : ((size_t)size + step - 1) / step * step;
}

/* Allocate `size` bytes on a device; NULL on failure. The stream is unused: torch moves memory
 * between streams itself. */
void *vkchi_alloc(ssize_t size, int device, void *stream)
{
    Properties wanted = properties(device);
    Access access = { { ON_DEVICE, device }, READ_WRITE };
    uint64_t address = 0;
    unsigned long long memory = 0;
    size_t whole = rounded(size, device);
    (void)stream;
    if (!whole || CALL("cuMemAddressReserve", (uint64_t *, size_t, size_t, uint64_t, unsigned long long),
                       &address, whole, 0, 0, 0))
        return NULL;
    if (!CALL("cuMemCreate", (unsigned long long *, size_t, const Properties *, unsigned long long),
              &memory, whole, &wanted, 0)) {
        int error = CALL("cuMemMap", (uint64_t, size_t, size_t, unsigned long long, unsigned long long),
                         address, whole, 0, memory, 0);
        CALL("cuMemRelease", (unsigned long long), memory); /* the mapping keeps it */
        if (!error) {
            if (!CALL("cuMemSetAccess", (uint64_t, size_t, const Access *, size_t), address, whole,
                      &access, 1))
                return (void *)(uintptr_t)address;
            CALL("cuMemUnmap", (uint64_t, size_t), address, whole);
        }
    }
    CALL("cuMemAddressFree", (uint64_t, size_t), address, whole);
    return NULL;
}

/* Free memory after all work of the device: unlike cudaFree, unmapping does not wait. */
void vkchi_free(void *pointer, ssize_t size, int device, void *stream)
{
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    size_t whole = rounded(size, device);
    (void)stream;
    if (!pointer || !whole)
        return;
    if (CALL("cuCtxSynchronize", (void)) || CALL("cuMemUnmap", (uint64_t, size_t), address, whole)
        || CALL("cuMemAddressFree", (uint64_t, size_t), address, whole))
        fprintf(stderr, "vkchi: CUDA did not take memory back\n");
}
