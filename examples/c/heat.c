/* Runs a saved vkchi module on plain Vulkan: heat that spreads in a plate. See heat.py, which saves the module.
 *
 *     ./heat heat_module [part of a device's name]
 */
#define VKCHI_IMPLEMENTATION
#include "vkchi.h"
#include <vulkan/vulkan.h>

#define N 32
#define STEPS 50
#define ARENA_BYTES (32u << 20)
#define MOST_DISPATCHES 16

static void stop(const char *what, const char *why) {
    fprintf(stderr, "heat: %s: %s\n", what, why);
    exit(1);
}

static void check(VkResult result, const char *what) {
    if (result < 0) fprintf(stderr, "heat: %s: VkResult %d\n", what, (int)result), exit(1);
}

static char *read_file(const char *folder, const char *name, size_t *size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) stop(path, "cannot be opened");
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = calloc(*size + 1, 1);
    if (!data || fread(data, 1, *size, file) != *size) stop(path, "cannot be read");
    fclose(file);
    return data;
}

/* --- the device: one queue, one block of memory that the host sees, a command buffer --- */

static VkPhysicalDevice physical;
static VkDevice device;
static VkQueue queue;
static VkCommandBuffer commands;
static char *arena; /* the host's view of the memory */
static uint64_t arena_address, arena_used;

static void open_device(const char *wanted) {
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = 1u << 22 | 3u << 12};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
    VkInstance instance;
    check(vkCreateInstance(&info, NULL, &instance), "vkCreateInstance");
    VkPhysicalDevice all[16];
    uint32_t count = 16;
    check(vkEnumeratePhysicalDevices(instance, &count, all), "vkEnumeratePhysicalDevices");
    for (uint32_t k = 0; k < count && !physical; k++) {
        VkPhysicalDeviceProperties properties;
        vkGetPhysicalDeviceProperties(all[k], &properties);
        if (!wanted || strstr(properties.deviceName, wanted)) physical = all[k], printf("on %s\n", properties.deviceName);
    }
    if (!physical) stop("no device", wanted ? wanted : "here");

    VkQueueFamilyProperties families[16];
    uint32_t family = 0, family_count = 16;
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &family_count, families);
    while (family < family_count && !(families[family].queueFlags & VK_QUEUE_COMPUTE_BIT)) family++;

    /* All that the device has: what a module needs of it stands in its module.json. */
    VkPhysicalDeviceVulkan13Features in13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
    VkPhysicalDeviceVulkan12Features in12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &in13};
    VkPhysicalDeviceVulkan11Features in11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &in12};
    VkPhysicalDeviceShaderAtomicFloatFeaturesEXT atomics = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT, .pNext = &in11};
    const char *const extension = "VK_EXT_shader_atomic_float";
    static VkExtensionProperties listed[512];
    uint32_t listed_count = 512, has_atomics = 0;
    vkEnumerateDeviceExtensionProperties(physical, NULL, &listed_count, listed);
    for (uint32_t k = 0; k < listed_count; k++) has_atomics |= !strcmp(listed[k].extensionName, extension);
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = has_atomics ? (void *)&atomics : (void *)&in11};
    vkGetPhysicalDeviceFeatures2(physical, &features);
    features.features.robustBufferAccess = VK_FALSE;
    if (!in12.bufferDeviceAddress) stop("the device", "lacks bufferDeviceAddress");
    float priority = 1;
    VkDeviceQueueCreateInfo queues = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueFamilyIndex = family,
                                      .queueCount = 1, .pQueuePriorities = &priority};
    VkDeviceCreateInfo wants = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &features,
                                .queueCreateInfoCount = 1, .pQueueCreateInfos = &queues,
                                .enabledExtensionCount = has_atomics, .ppEnabledExtensionNames = &extension};
    check(vkCreateDevice(physical, &wants, NULL, &device), "vkCreateDevice");
    vkGetDeviceQueue(device, family, 0, &queue);

    VkCommandPoolCreateInfo pools = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, .queueFamilyIndex = family,
                                     .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT};
    VkCommandPool pool;
    check(vkCreateCommandPool(device, &pools, NULL, &pool), "vkCreateCommandPool");
    VkCommandBufferAllocateInfo one = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = pool,
                                       .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY, .commandBufferCount = 1};
    check(vkAllocateCommandBuffers(device, &one, &commands), "vkAllocateCommandBuffers");
}

static void open_arena(void) {
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = ARENA_BYTES,
                               .usage = VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
    VkBuffer buffer;
    check(vkCreateBuffer(device, &info, NULL, &buffer), "vkCreateBuffer");
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(device, buffer, &needs);
    VkPhysicalDeviceMemoryProperties kinds;
    vkGetPhysicalDeviceMemoryProperties(physical, &kinds);
    VkMemoryPropertyFlags shared = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    uint32_t kind = 0;
    while (kind < kinds.memoryTypeCount &&
           !(needs.memoryTypeBits >> kind & 1 && (kinds.memoryTypes[kind].propertyFlags & shared) == shared)) kind++;
    VkMemoryAllocateFlagsInfo addressed = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                           .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    VkMemoryAllocateInfo wants = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &addressed,
                                  .allocationSize = needs.size, .memoryTypeIndex = kind};
    VkDeviceMemory memory;
    check(vkAllocateMemory(device, &wants, NULL, &memory), "vkAllocateMemory");
    check(vkBindBufferMemory(device, buffer, memory, 0), "vkBindBufferMemory");
    void *view;
    check(vkMapMemory(device, memory, 0, VK_WHOLE_SIZE, 0, &view), "vkMapMemory");
    arena = memset(view, 0, ARENA_BYTES);
    VkBufferDeviceAddressInfo where = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = buffer};
    arena_address = vkGetBufferDeviceAddress(device, &where);
}

/* Memory of the device: its address. `at` is the host's view of an address. */
static uint64_t allocate(uint64_t size) {
    uint64_t address = arena_address + arena_used;
    arena_used += (size + 255) / 256 * 256;
    if (arena_used > ARENA_BYTES) stop("the arena", "is full");
    return address;
}

static void *at(uint64_t address) { return arena + (address - arena_address); }

/* --- kernels: pipelines, and addresses of what they work on --- */

typedef struct {
    const vkchi_kernel *kernel;
    uint64_t *own;
    VkPipeline pipelines[MOST_DISPATCHES];
    VkPipelineLayout layouts[MOST_DISPATCHES];
} loaded;

static uint32_t push_bytes(const vkchi_dispatch *d) { return d->by_address ? 8 : (uint32_t)(d->args_bytes + 3) / 4 * 4; }

static void make_pipeline(loaded *made, int k, const char *folder) {
    const vkchi_dispatch *d = &made->kernel->dispatches[k];
    size_t size;
    char *code = read_file(folder, d->file, &size);
    if (size != d->bytes || vkchi_crc(code, size) != d->crc) stop(d->file, "is damaged");
    VkShaderModuleCreateInfo words = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = size,
                                      .pCode = (uint32_t *)(void *)code};
    VkShaderModule module;
    check(vkCreateShaderModule(device, &words, NULL, &module), d->file);
    VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = push_bytes(d)};
    VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                         .pushConstantRangeCount = range.size ? 1 : 0, .pPushConstantRanges = &range};
    check(vkCreatePipelineLayout(device, &layout, NULL, &made->layouts[k]), "vkCreatePipelineLayout");
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module, .pName = "main"},
        .layout = made->layouts[k]};
    check(vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, NULL, &made->pipelines[k]), d->file);
    vkDestroyShaderModule(device, module, NULL);
    free(code);
}

static loaded load(const vkchi_module *module, const char *folder, const char *name, const uint64_t *blocks) {
    loaded made = {.kernel = vkchi_find_kernel(module, name)};
    if (!made.kernel || made.kernel->dispatch_count > MOST_DISPATCHES) stop(name, "no such kernel, or too long");
    made.own = calloc((size_t)made.kernel->own_count + 1, sizeof *made.own);
    for (int k = 0; k < made.kernel->own_count; k++) {
        const vkchi_own *own = &made.kernel->own[k];
        const vkchi_field *field = own->kind == VKCHI_BOUND ? &module->fields[own->field] : NULL;
        made.own[k] = field ? blocks[field->block] + field->start : allocate(own->bytes);
    }
    for (int k = 0; k < made.kernel->dispatch_count; k++) make_pipeline(&made, k, folder);
    return made;
}

/* Record a part of a dispatch. */
static void record(const loaded *it, int k, unsigned char *block, const uint32_t *groups) {
    const vkchi_dispatch *d = &it->kernel->dispatches[k];
    if (d->by_address) {
        uint64_t copy = allocate((uint64_t)d->args_bytes);
        memcpy(at(copy), block, (size_t)d->args_bytes);
        memcpy(block, &copy, 8);
    }
    VkMemoryBarrier order = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
                             .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1,
                         &order, 0, NULL, 0, NULL);
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, it->pipelines[k]);
    if (push_bytes(d))
        vkCmdPushConstants(commands, it->layouts[k], VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes(d), block);
    vkCmdDispatch(commands, groups[0], groups[1], groups[2]);
}

/* Record a launch; its argument blocks that travel by address stay valid until `finish`. */
static void launch(const loaded *it, const vkchi_value *args) {
    static uint32_t seed;
    static uint64_t trash;
    if (!trash) trash = allocate(VKCHI_TRASH_BYTES);
    for (int k = 0; k < it->kernel->dispatch_count; k++) {
        const vkchi_dispatch *d = &it->kernel->dispatches[k];
        vkchi_call call = {.args = args, .own = it->own, .trash = trash, .seed = ++seed * 0x85EBCA6Bu};
        const char *wrong = vkchi_check(it->kernel, &call);
        if (wrong) stop(it->kernel->name, wrong);
        unsigned char block[4096];
        uint32_t groups[3];
        if (d->args_bytes > (int)sizeof block) stop(it->kernel->name, "too many arguments");
        int found, part = 0;
        while ((found = vkchi_pack(it->kernel, k, part++, &call, block, groups)) > 0) record(it, k, block, groups);
        if (found < 0) stop(it->kernel->name, "this program cannot give its arguments");
    }
}

static void begin(void) {
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    check(vkBeginCommandBuffer(commands, &info), "vkBeginCommandBuffer");
}

static void finish(void) {
    VkMemoryBarrier order = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
                             .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &order, 0, NULL,
                         0, NULL);
    check(vkEndCommandBuffer(commands), "vkEndCommandBuffer");
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
    check(vkQueueSubmit(queue, 1, &info, VK_NULL_HANDLE), "vkQueueSubmit");
    check(vkQueueWaitIdle(queue), "vkQueueWaitIdle");
}

int main(int argc, char **argv) {
    if (argc < 2) stop("usage", "heat FOLDER [DEVICE]");
    size_t size;
    char *text = read_file(argv[1], "module.txt", &size);
    vkchi_module module;
    if (vkchi_read(&module, text, size)) stop(argv[1], module.error);
    free(text);
    open_device(argc > 2 ? argv[2] : NULL);
    open_arena();

    uint64_t *blocks = calloc((size_t)module.block_count + 1, sizeof *blocks);
    for (int k = 0; k < module.block_count; k++) blocks[k] = allocate(module.blocks[k]);
    loaded place = load(&module, argv[1], "place", blocks);
    loaded spread = load(&module, argv[1], "spread", blocks);
    loaded total = load(&module, argv[1], "total", blocks);

    vkchi_number row = {.i = 3}, spot[2] = {{.f = 20}, {.f = 9}}, rate = {.f = 0.2};
    vkchi_value plates[2] = {{.extents = {N, N}}, {.extents = {N, N}}};
    for (int k = 0; k < 2; k++) plates[k].address = allocate(vkchi_bytes("f32", 1, N * N));

    begin();
    launch(&place, (vkchi_value[]){{.numbers = &row}, {.numbers = spot}});
    for (int step = 0; step < STEPS; step++)
        launch(&spread, (vkchi_value[]){{.numbers = &rate}, plates[step % 2], plates[(step + 1) % 2]});
    launch(&total, plates + STEPS % 2);
    finish();

    const float *heat = at(plates[STEPS % 2].address), *sum = at(total.own[0]);
    printf("total %.4f, at the source %.6f, in a corner %.6f\n", (double)*sum, (double)heat[20 * N + 9],
           (double)heat[N * N - 1]);
    vkchi_free(&module);
    /* what Vulkan made ends with the process, the device too: destroying it first wants all of it destroyed */
    return 0;
}
