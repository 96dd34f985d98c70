/* vkchi.h: loader of saved vkchi modules for C programs. One header; uses only C's standard library, no Vulkan or JSON.
 *
 * It reads `module.txt`, computes memory sizes, checks arguments, counts workgroups and fills argument blocks. The program
 * makes buffers and pipelines and submits commands (examples/c/heat.c does it in plain Vulkan). C11 with GNU extensions
 * (gcc, clang). In one file of the program:
 *
 *     #define VKCHI_IMPLEMENTATION
 *     #include "vkchi.h"
 *
 * To launch a kernel:
 *  1. Provide an address for each of `kernel->own` and a vkchi_value for each of `kernel->params`; call vkchi_check.
 *  2. For each dispatch, in order, call vkchi_pack for part 0, 1, ... until it returns 0. It returns the argument block and
 *     the workgroup counts of the part. Most dispatches have one part; a dispatch without iterations has none.
 *  3. Push the block as push constants at offset 0 for the compute stage. If `by_address` is set, write the block to a
 *     buffer and push its 8-byte device address instead.
 *  4. Between dispatches, put a barrier from shader writes to shader reads and writes.
 *
 * There are no descriptor sets. Devices need Vulkan 1.3 with bufferDeviceAddress, with shaderInt64 if a module uses it, and
 * with the other features that its kernels use. Addresses of arrays and blocks must be multiples of 16. Every array has a
 * spare element after its last one, to which out-of-range accesses are redirected; vkchi_bytes counts it.
 */
#ifndef VKCHI_H
#define VKCHI_H
#include <stddef.h>
#include <stdint.h>

#define VKCHI_FORMAT 16
#define VKCHI_AXES 12
#define VKCHI_TRASH_BYTES 4096

/* A field: `components` scalars of `type` per element, from byte `start` of block `block` on. If `dense`, it is laid out as
 * a C array, with the components of an element adjacent. */
typedef struct {
    const char *name, *type;
    int components, dense, block, axes;
    uint64_t start;
    int64_t extents[VKCHI_AXES];
} vkchi_field;

/* A parameter: a scalar, vector or matrix by value (axes -1), or an array by the address of its first element. */
typedef struct { const char *name, *type; int components, axes; } vkchi_param;

/* Memory of a kernel in addition to its arguments. The caller provides an address for each, the same in all launches. */
enum vkchi_own_kind {
    VKCHI_BOUND,   /* field `field` of the module */
    VKCHI_RETURN,  /* the return value, `bytes` of memory: `components` scalars of `type` */
    VKCHI_MEMORY,  /* `bytes` of temporary memory, initially zero. If the name is ".reports": word 2 counts failed checks;
                      zero it after each launch */
    VKCHI_GRADIENT /* the gradient of the array argument named `type`, of the same size */
};
typedef struct {
    enum vkchi_own_kind kind;
    const char *name, *type;
    int components, field;
    uint64_t bytes;
} vkchi_own;

typedef struct { const char **at; int n; } vkchi_words;
typedef struct { const char *kind, *name, *type; int axis, offset; } vkchi_slot;
typedef struct { vkchi_words value, test; const char *says; } vkchi_check_line;

typedef struct {
    const char *file; /* SPIR-V, in the module's folder; entry point "main" */
    uint32_t bytes, crc;
    int args_bytes, by_address, slot_count, axis_count;
    int lengths[3];        /* workgroup size along x, y and z */
    vkchi_words counts[3]; /* iteration counts; without axes there is one workgroup */
    vkchi_slot *slots;
} vkchi_dispatch;

typedef struct {
    const char *name;
    int param_count, own_count, check_count, dispatch_count;
    vkchi_param *params;
    vkchi_own *own;
    vkchi_check_line *checks;
    vkchi_dispatch *dispatches;
} vkchi_kernel;

/* A kernel of a graph: `given[k]` is the name of the graph's argument for parameter k, or a constant. */
typedef struct { const char *name; int is_constant; vkchi_words words; } vkchi_given;
typedef struct { const char *kernel; int given_count; vkchi_given *given; } vkchi_node;
typedef struct { const char *name; int node_count; vkchi_node *nodes; } vkchi_graph;

typedef struct {
    char *text;
    int block_count, field_count, kernel_count, graph_count;
    uint64_t *blocks; /* sizes in bytes of memory for fields, initially zero */
    vkchi_field *fields;
    vkchi_kernel *kernels;
    vkchi_graph *graphs;
    char error[200];
} vkchi_module;

/* An argument. One vkchi_number per component: `f` for floating-point types, `i` for others. */
typedef union { double f; int64_t i; } vkchi_number;
typedef struct {
    const vkchi_number *numbers;
    uint64_t address;
    int64_t extents[VKCHI_AXES]; /* for a texture, slowest axis first */
} vkchi_value;

typedef struct {
    const vkchi_value *args; /* as kernel->params */
    const uint64_t *own;     /* as kernel->own */
    uint64_t trash;          /* VKCHI_TRASH_BYTES of memory, for out-of-range accesses to empty arrays */
    uint32_t seed;           /* random seed, different for each dispatch */
} vkchi_call;

/* Parse a copy of the text of `module.txt`. Returns 0, or -1 with module->error. Call vkchi_free in both cases. */
int vkchi_read(vkchi_module *module, const char *text, size_t size);
void vkchi_free(vkchi_module *module);
/* Return the kernel or field of this name, or NULL. */
const vkchi_kernel *vkchi_find_kernel(const vkchi_module *module, const char *name);
const vkchi_field *vkchi_find_field(const vkchi_module *module, const char *name);
/* Return the bytes of an array including its spare element, and of one scalar; 0 for an unknown type. */
uint64_t vkchi_bytes(const char *type, int components, uint64_t elements);
int vkchi_size(const char *type);
uint32_t vkchi_crc(const void *data, size_t size); /* CRC-32 of shaders and of the text */
/* Return why a launch is invalid, or NULL. */
const char *vkchi_check(const vkchi_kernel *kernel, const vkchi_call *call);
/* Compute the argument block (args_bytes) and the workgroup counts in x, y and z of a part of a dispatch, counted from 0. A
 * dispatch has several parts if an axis exceeds the devices' workgroup limit. Returns 1; 0 if there is no such part; -1 if
 * unsupported (f16 by value, unknown names). */
int vkchi_pack(const vkchi_kernel *kernel, int dispatch, int part, const vkchi_call *call, void *block, uint32_t groups[3]);

#ifdef VKCHI_IMPLEMENTATION
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 vkchi_int; /* unbounded integers, saturated at 128 bits */
#define VKCHI_MOST ((vkchi_int)(~(unsigned __int128)0 >> 1))

uint32_t vkchi_crc(const void *data, size_t size) {
    const unsigned char *p = data;
    uint32_t crc = 0xFFFFFFFFu;
    while (size--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

int vkchi_size(const char *type) {
    int bits = type[0] ? atoi(type + 1) : 0;
    return bits == 1 ? 1 : bits / 8;
}

uint64_t vkchi_bytes(const char *type, int components, uint64_t elements) {
    return (elements + 1) * (uint64_t)components * (uint64_t)vkchi_size(type);
}

/* Append a zeroed element to a growing array. */
static void *vkchi_grow(void **array, int *count, size_t size) {
    char *grown = realloc(*array, ((size_t)*count + 1) * size);
    if (!grown) abort();
    *array = grown;
    return memset(grown + (size_t)(*count)++ * size, 0, size);
}
#define VKCHI_ADD(array, count) vkchi_grow((void **)&(array), &(count), sizeof *(array))

static vkchi_words vkchi_part(char **words, int from, int to) {
    vkchi_words found = {NULL, 0};
    for (int k = from; k < to; k++) *(const char **)VKCHI_ADD(found.at, found.n) = words[k];
    return found;
}

static int vkchi_read_field(vkchi_module *m, char **w, int n) {
    if (atoi(w[7]) != n - 8 || n - 8 > VKCHI_AXES || atoi(w[5]) < 0 || atoi(w[5]) >= m->block_count) return 0;
    vkchi_field *f = VKCHI_ADD(m->fields, m->field_count);
    f->name = w[1], f->type = w[2], f->components = atoi(w[3]), f->dense = atoi(w[4]), f->block = atoi(w[5]);
    f->start = strtoull(w[6], NULL, 10), f->axes = atoi(w[7]);
    for (int k = 0; k < f->axes; k++) f->extents[k] = atoll(w[8 + k]);
    return 1;
}

/* True if a slot is within the argument block of its dispatch. */
static int vkchi_is_inside(const vkchi_dispatch *d, char **w) {
    int axis = atoi(w[3]), size = vkchi_size(w[4]), offset = atoi(w[5]);
    if (axis < 0 || (axis > 2 && (!strcmp(w[1], "count") || !strcmp(w[1], "base")))) return 0;
    return size > 0 && size <= 8 && offset >= 0 && offset <= d->args_bytes - size;
}

static void vkchi_read_own(vkchi_kernel *kernel, char **w, int n, enum vkchi_own_kind kind) {
    vkchi_own *own = VKCHI_ADD(kernel->own, kernel->own_count);
    own->kind = kind, own->name = w[1], own->type = w[2];
    if (kind == VKCHI_BOUND) own->field = atoi(w[2]);
    if (kind == VKCHI_MEMORY) own->bytes = strtoull(w[2], NULL, 10);
    if (kind == VKCHI_RETURN && n > 3) {
        own->components = atoi(w[3]);
        own->bytes = vkchi_bytes(w[2], own->components, 1);
    }
}

/* Parse a line of a kernel; 0 if it is none. `line` is a copy that was not split into words. */
static int vkchi_kernel_line(vkchi_kernel *kernel, char **w, int n, const char *line) {
    vkchi_dispatch *last = kernel->dispatch_count ? &kernel->dispatches[kernel->dispatch_count - 1] : NULL;
    if ((!strcmp(w[0], "value") && n == 4) || (!strcmp(w[0], "array") && n == 5)) {
        vkchi_param *p = VKCHI_ADD(kernel->params, kernel->param_count);
        p->name = w[1], p->type = w[2], p->components = atoi(w[3]), p->axes = n == 5 ? atoi(w[4]) : -1;
        if (p->components < 1 || p->axes < -1 || p->axes > VKCHI_AXES) return 0;
    } else if (!strcmp(w[0], "bound") && n == 3) {
        vkchi_read_own(kernel, w, n, VKCHI_BOUND);
    } else if (!strcmp(w[0], "return") && n == 4) {
        vkchi_read_own(kernel, w, n, VKCHI_RETURN);
    } else if (!strcmp(w[0], "memory") && n == 3) {
        vkchi_read_own(kernel, w, n, VKCHI_MEMORY);
    } else if (!strcmp(w[0], "gradient") && n == 3) {
        vkchi_read_own(kernel, w, n, VKCHI_GRADIENT);
    } else if (!strcmp(w[0], "check")) {
        vkchi_check_line *check = VKCHI_ADD(kernel->checks, kernel->check_count);
        int middle = 1;
        while (middle < n && strcmp(w[middle], ";")) middle++;
        check->value = vkchi_part(w, 1, middle), check->test = vkchi_part(w, middle + 1, n);
    } else if (!strcmp(w[0], "says") && kernel->check_count) {
        kernel->checks[kernel->check_count - 1].says = line + 5;
    } else if (!strcmp(w[0], "dispatch") && n == 6 && atoi(w[4]) >= 0 && !strchr(w[1], '/')) {
        vkchi_dispatch *d = VKCHI_ADD(kernel->dispatches, kernel->dispatch_count);
        d->file = w[1], d->bytes = (uint32_t)strtoul(w[2], NULL, 10), d->crc = (uint32_t)strtoul(w[3], NULL, 10);
        d->args_bytes = atoi(w[4]), d->by_address = !strcmp(w[5], "buffer");
    } else if (!strcmp(w[0], "axis") && last && n > 2 && last->axis_count < 3 && atoi(w[1]) > 0) {
        last->lengths[last->axis_count] = atoi(w[1]);
        last->counts[last->axis_count++] = vkchi_part(w, 2, n);
    } else if (!strcmp(w[0], "slot") && last && n == 6 && vkchi_is_inside(last, w)) {
        vkchi_slot *s = VKCHI_ADD(last->slots, last->slot_count);
        s->kind = w[1], s->name = w[2], s->axis = atoi(w[3]), s->type = w[4], s->offset = atoi(w[5]);
    } else {
        return 0;
    }
    return 1;
}

/* Parse a line of a graph; 0 if it is none. */
static int vkchi_graph_line(vkchi_graph *graph, char **w, int n) {
    if (!strcmp(w[0], "node") && n == 2) {
        ((vkchi_node *)VKCHI_ADD(graph->nodes, graph->node_count))->kernel = w[1];
        return 1;
    }
    if (!graph->node_count || (strcmp(w[0], "given") && strcmp(w[0], "constant"))) return 0;
    vkchi_node *node = &graph->nodes[graph->node_count - 1];
    vkchi_given *given = VKCHI_ADD(node->given, node->given_count);
    given->is_constant = w[0][0] == 'c', given->name = n > 1 ? w[1] : "";
    given->words = vkchi_part(w, 1, n);
    return 1;
}

static int vkchi_line(vkchi_module *m, char **w, int n, const char *line) {
    if (!strcmp(w[0], "block") && n == 2)
        *(uint64_t *)VKCHI_ADD(m->blocks, m->block_count) = strtoull(w[1], NULL, 10);
    else if (!strcmp(w[0], "field") && n >= 8)
        return vkchi_read_field(m, w, n);
    else if (!strcmp(w[0], "bound") && n == 3 && (atoi(w[2]) < 0 || atoi(w[2]) >= m->field_count))
        return 0;
    else if (!strcmp(w[0], "kernel") && n == 2)
        ((vkchi_kernel *)VKCHI_ADD(m->kernels, m->kernel_count))->name = w[1];
    else if (!strcmp(w[0], "graph") && n == 2)
        ((vkchi_graph *)VKCHI_ADD(m->graphs, m->graph_count))->name = w[1];
    else if (m->graph_count)
        return vkchi_graph_line(&m->graphs[m->graph_count - 1], w, n);
    else
        return m->kernel_count && vkchi_kernel_line(&m->kernels[m->kernel_count - 1], w, n, line);
    return 1;
}

static int vkchi_wrong(vkchi_module *m, const char *what) {
    snprintf(m->error, sizeof m->error, "%s", what);
    return -1;
}

int vkchi_read(vkchi_module *m, const char *text, size_t size) {
    memset(m, 0, sizeof *m);
    char *end = m->text = malloc(2 * size + 2);  /* two copies: words and lines */
    if (!end) return vkchi_wrong(m, "out of memory");
    char *lines = memcpy(m->text + size + 1, text, size);
    memcpy(m->text, text, size), m->text[size] = lines[size] = 0;
    size_t body = size;
    while (body > 1 && m->text[body - 2] != '\n') body--;  /* the last line is a checksum of the others */
    if (body < 2 || strncmp(m->text + --body, "crc ", 4)) return vkchi_wrong(m, "no module.txt: it has no sum");
    if (vkchi_crc(text, body) != strtoul(m->text + body + 4, NULL, 10)) return vkchi_wrong(m, "the module is damaged");
    m->text[body] = lines[body] = 0;
    int is_first = 1;
    for (char *line = m->text; *line; line = end + 1) {
        char **words = NULL;
        int n = 0, known = 1;
        if (!(end = strchr(line, '\n'))) return vkchi_wrong(m, "a line without an end");
        char *whole = lines + (line - m->text);
        whole[end - line] = *end = 0;
        for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) *(char **)VKCHI_ADD(words, n) = word;
        if (is_first) known = n == 2 && !strcmp(words[0], "vkchi-module") && atoi(words[1]) == VKCHI_FORMAT;
        else known = n && vkchi_line(m, words, n, whole);
        free(words);
        if (!known) {
            const char *why = is_first ? "the module is of another format than this header's" : "unknown";
            snprintf(m->error, sizeof m->error, "%s: %.100s", why, whole);
            return -1;
        }
        is_first = 0;
    }
    return is_first ? vkchi_wrong(m, "the module is empty") : 0;
}

void vkchi_free(vkchi_module *m) {
    for (int k = 0; k < m->kernel_count; k++) {
        vkchi_kernel *kernel = &m->kernels[k];
        for (int i = 0; i < kernel->check_count; i++) {
            free((void *)kernel->checks[i].value.at), free((void *)kernel->checks[i].test.at);
        }
        for (int i = 0; i < kernel->dispatch_count; i++) {
            for (int j = 0; j < kernel->dispatches[i].axis_count; j++) free((void *)kernel->dispatches[i].counts[j].at);
            free(kernel->dispatches[i].slots);
        }
        free(kernel->params), free(kernel->own), free(kernel->checks), free(kernel->dispatches);
    }
    for (int k = 0; k < m->graph_count; k++) {
        for (int i = 0; i < m->graphs[k].node_count; i++) {
            vkchi_node *node = &m->graphs[k].nodes[i];
            for (int j = 0; j < node->given_count; j++) free((void *)node->given[j].words.at);
            free(node->given);
        }
        free(m->graphs[k].nodes);
    }
    free(m->blocks), free(m->fields), free(m->kernels), free(m->graphs), free(m->text);
    memset(m, 0, sizeof *m);
}

const vkchi_kernel *vkchi_find_kernel(const vkchi_module *m, const char *name) {
    for (int k = 0; k < m->kernel_count; k++)
        if (!strcmp(m->kernels[k].name, name)) return &m->kernels[k];
    return NULL;
}

const vkchi_field *vkchi_find_field(const vkchi_module *m, const char *name) {
    for (int k = 0; k < m->field_count; k++)
        if (!strcmp(m->fields[k].name, name)) return &m->fields[k];
    return NULL;
}

/* --- counts ------------------------------------------------------------------------------------------------------ */

static vkchi_int vkchi_clip(vkchi_int x, vkchi_int least, vkchi_int most) { return x < least ? least : x > most ? most : x; }

static vkchi_int vkchi_floor(vkchi_int a, vkchi_int b) {
    return b ? a / b - (a % b && (a < 0) != (b < 0)) : 0;
}

/* Wrap a number to an integer type. */
static vkchi_int vkchi_wrap(vkchi_int x, const char *type) {
    unsigned __int128 size = (unsigned __int128)1 << atoi(type + 1), half = type[0] == 'i' ? size >> 1 : 0;
    return (vkchi_int)(((unsigned __int128)x + half) % size) - (vkchi_int)half;
}

/* arg:NAME, item:NAME:K, dim:NAME:AXIS; sets *ok to 0 for unknown names. */
static vkchi_int vkchi_leaf(const vkchi_kernel *kernel, const vkchi_call *call, const char *word, int *ok) {
    const char *name = strchr(word, ':') + 1, *end = strchr(name, ':');
    size_t length = end ? (size_t)(end - name) : strlen(name);
    int axis = end ? atoi(end + 1) : 0;
    for (int k = 0; k < kernel->param_count; k++) {
        const vkchi_param *p = &kernel->params[k];
        if (strlen(p->name) != length || memcmp(p->name, name, length)) continue;
        if (axis < 0 || axis >= (word[0] == 'd' ? VKCHI_AXES : p->components)) return *ok = 0;
        if (word[0] == 'd') return call->args[k].extents[axis];
        if (p->axes >= 0) return *ok = 0;
        return p->type[0] == 'f' ? (vkchi_int)call->args[k].numbers[axis].f : (vkchi_int)call->args[k].numbers[axis].i;
    }
    return *ok = 0;
}

static vkchi_int vkchi_apply(const char *op, vkchi_int a, vkchi_int b, int *ok) {
    vkchi_int r;
    if (!strcmp(op, "add")) return __builtin_add_overflow(a, b, &r) ? (a < 0 ? -VKCHI_MOST : VKCHI_MOST) : r;
    if (!strcmp(op, "sub")) return __builtin_sub_overflow(a, b, &r) ? (a < 0 ? -VKCHI_MOST : VKCHI_MOST) : r;
    if (!strcmp(op, "mul")) return __builtin_mul_overflow(a, b, &r) ? ((a < 0) != (b < 0) ? -VKCHI_MOST : VKCHI_MOST) : r;
    if (!strcmp(op, "max")) return a > b ? a : b;
    if (!strcmp(op, "min")) return a < b ? a : b;
    if (!strcmp(op, "floordiv")) return vkchi_floor(a, b);
    if (!strcmp(op, "mod")) return b ? a - vkchi_floor(a, b) * b : 0;
    if (!strcmp(op, "lt")) return a < b;
    if (!strcmp(op, "le")) return a <= b;
    if (!strcmp(op, "gt")) return a > b;
    if (!strcmp(op, "ge")) return a >= b;
    if (!strcmp(op, "eq")) return a == b;
    if (!strcmp(op, "ne")) return a != b;
    if (!strcmp(op, "and")) return a && b;
    if (!strcmp(op, "or")) return a || b;
    return *ok = 0;
}

/* Evaluate a count, or a test of (n, w). `wraps`: apply `wrap:TYPE` words. */
static vkchi_int vkchi_count(const vkchi_kernel *kernel, const vkchi_call *call, vkchi_words words, int wraps,
                             const vkchi_int *nw, int *ok) {
    enum { DEPTH = 64 };
    vkchi_int stack[DEPTH] = {0};
    int top = 0;
    for (int k = 0; k < words.n && *ok; k++) {
        const char *w = words.at[k];
        if (top > DEPTH - 2) return *ok = 0;
        if ((w[0] >= '0' && w[0] <= '9') || (w[0] == '-' && w[1])) stack[top++] = strtoll(w, NULL, 10);
        else if (nw && !strcmp(w, "n")) stack[top++] = nw[0];
        else if (nw && !strcmp(w, "w")) stack[top++] = nw[1];
        else if (!strncmp(w, "wrap:", 5) && top && vkchi_size(w + 5) > 0 && vkchi_size(w + 5) <= 8)
            stack[top - 1] = wraps ? vkchi_wrap(stack[top - 1], w + 5) : stack[top - 1];
        else if (strchr(w, ':')) stack[top++] = vkchi_leaf(kernel, call, w, ok);
        else if (!strcmp(w, "neg") && top) stack[top - 1] = -stack[top - 1];
        else if (!strcmp(w, "trip_count") && top > 2) {
            vkchi_int step = stack[top - 1], length = vkchi_apply("sub", stack[top - 3], stack[top - 2], ok);
            top -= 2;
            stack[top - 1] = step ? vkchi_clip(-vkchi_floor(length, step), 0, VKCHI_MOST) : 0;
        } else if (top > 1) {
            top--;
            stack[top - 1] = vkchi_apply(w, stack[top - 1], stack[top], ok);
        } else return *ok = 0;
    }
    if (top != 1) *ok = 0;
    return stack[0];
}

const char *vkchi_check(const vkchi_kernel *kernel, const vkchi_call *call) {
    for (int k = 0; k < kernel->check_count; k++) {
        const vkchi_check_line *check = &kernel->checks[k];
        int ok = 1;
        vkchi_int n = vkchi_count(kernel, call, check->value, 0, NULL, &ok);
        vkchi_int w = vkchi_count(kernel, call, check->value, 1, NULL, &ok), nw[2] = {n, w};
        if (!vkchi_count(kernel, call, check->test, 1, nw, &ok) || !ok) return check->says ? check->says : "a check failed";
    }
    return NULL;
}

/* --- argument blocks --------------------------------------------------------------------------------------------- */

static int vkchi_put(void *at, const char *type, vkchi_number x) {
    float f = (float)x.f;
    if (!strcmp(type, "f16")) return -1;
    if (!strcmp(type, "f32")) memcpy(at, &f, 4);
    else if (!strcmp(type, "f64")) memcpy(at, &x.f, 8);
    else memcpy(at, &x.i, (size_t)vkchi_size(type));  /* the low bytes: Vulkan hosts are little-endian */
    return 0;
}

/* Numbers m and l with a / n == (a * m) >> (31 + l) for all a below 2^31. */
static int64_t vkchi_magic(const char *kind, vkchi_int extent) {
    uint64_t n = extent > 1 ? (uint64_t)extent : 1;
    int bits = 0;
    while ((n - 1) >> bits) bits++;
    return !strcmp(kind, "magic_shift") ? bits : (int64_t)((((uint64_t)1 << (31 + bits)) + n - 1) / n);
}

static int vkchi_fill(const vkchi_kernel *kernel, const vkchi_slot *s, const vkchi_call *call, const vkchi_int *counts,
                      const vkchi_int *bases, unsigned char *block) {
    vkchi_number x = {.i = 0};
    if (!strcmp(s->kind, "trash")) return x.i = (int64_t)call->trash, vkchi_put(block + s->offset, s->type, x);
    if (!strcmp(s->kind, "count")) return x.i = (int64_t)counts[s->axis], vkchi_put(block + s->offset, s->type, x);
    if (!strcmp(s->kind, "base")) return x.i = (int64_t)bases[s->axis], vkchi_put(block + s->offset, s->type, x);
    if (!strcmp(s->name, ".seed")) return x.i = call->seed, vkchi_put(block + s->offset, s->type, x);
    for (int k = 0; k < kernel->own_count; k++) {
        if (strcmp(kernel->own[k].name, s->name)) continue;
        if (strcmp(s->kind, "ptr")) return -1;
        return x.i = (int64_t)call->own[k], vkchi_put(block + s->offset, s->type, x);
    }
    for (int k = 0; k < kernel->param_count; k++) {
        const vkchi_param *p = &kernel->params[k];
        const vkchi_value *arg = &call->args[k];
        if (strcmp(p->name, s->name)) continue;
        if (s->axis >= (!strcmp(s->kind, "value") ? (p->axes < 0 ? p->components : 0) : VKCHI_AXES)) return -1;
        if (!strcmp(s->kind, "value")) return vkchi_put(block + s->offset, s->type, arg->numbers[s->axis]);
        if (!strcmp(s->kind, "ptr")) x.i = (int64_t)arg->address;
        if (!strcmp(s->kind, "dim")) x.i = arg->extents[s->axis];
        if (!strncmp(s->kind, "magic_", 6)) x.i = vkchi_magic(s->kind, arg->extents[s->axis]);
        if (!strcmp(s->kind, "size")) {
            x.i = p->components;
            for (int axis = 0; axis < p->axes; axis++) x.i *= arg->extents[axis];
        }
        return vkchi_put(block + s->offset, s->type, x);
    }
    return -1;
}

int vkchi_pack(const vkchi_kernel *kernel, int dispatch, int part, const vkchi_call *call, void *block,
               uint32_t groups[3]) {
    enum { MOST = 65535 }; /* the minimum of Vulkan's limit of workgroups along an axis */
    const vkchi_dispatch *d = &kernel->dispatches[dispatch];
    vkchi_int counts[3] = {1, 1, 1}, bases[3] = {0, 0, 0}, needed[3] = {1, 1, 1}, left = part;
    int ok = 1;
    for (int k = 0; k < d->axis_count; k++) {
        counts[k] = vkchi_count(kernel, call, d->counts[k], 1, NULL, &ok);
        if (!ok) return -1;
        if (counts[k] <= 0) return 0;
        if (counts[k] >> 62) return -1;
        needed[k] = (counts[k] + d->lengths[k] - 1) / d->lengths[k];
    }
    if (d->axis_count == 1) { /* the excess of x is in y */
        needed[1] = (needed[0] + MOST - 1) / MOST, needed[0] = (needed[0] + needed[1] - 1) / needed[1];
    }
    for (int k = 2; k >= 0; k--) {
        vkchi_int parts = (needed[k] + MOST - 1) / MOST, first = left % parts * MOST;
        left /= parts;
        groups[k] = (uint32_t)(needed[k] - first < MOST ? needed[k] - first : MOST);
        bases[k] = first * (k < d->axis_count ? d->lengths[k] : 1);
    }
    if (left) return 0;
    memset(block, 0, (size_t)d->args_bytes);
    for (int k = 0; k < d->slot_count; k++)
        if (vkchi_fill(kernel, &d->slots[k], call, counts, bases, block)) return -1;
    return 1;
}
#endif
#endif
