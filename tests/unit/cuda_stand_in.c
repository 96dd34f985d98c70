/* A stand-in for libcuda: prints what it is asked for. FAILS names what gives an error. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
typedef struct { int type, handles, at, id; void *win32; unsigned char flags[8]; } P;
typedef struct { int at, id, flags; } A;
static int fails(const char *name) { const char *f = getenv("FAILS"); return f && !strcmp(f, name); }
#define SAY(...) (printf(__VA_ARGS__), fflush(stdout))
int cuMemGetAllocationGranularity(size_t *out, const P *p, int option)
{ *out = 1 << 21; return option; }
int cuMemAddressReserve(uint64_t *out, size_t n, size_t align, uint64_t at, unsigned long long flags)
{ *out = 0x700000000; SAY("reserve %zu %zu %d %d\n", n, align, (int)at, (int)flags); return fails("reserve"); }
int cuMemCreate(unsigned long long *out, size_t n, const P *p, unsigned long long flags)
{ *out = 42; SAY("create %zu type %d handles %d at %d.%d win32 %d flags %d %d size %zu offset %zu\n", n, p->type,
  p->handles, p->at, p->id, p->win32 != 0, p->flags[0], (int)flags, sizeof(P), offsetof(P, win32));
  return fails("create"); }
int cuMemMap(uint64_t at, size_t n, size_t offset, unsigned long long m, unsigned long long flags)
{ SAY("map %d %zu %zu %d %d\n", at == 0x700000000, n, offset, (int)m, (int)flags); return fails("map"); }
int cuMemSetAccess(uint64_t at, size_t n, const A *a, size_t count)
{ SAY("access %zu %d.%d %d %zu\n", n, a->at, a->id, a->flags, count); return fails("access"); }
int cuMemRelease(unsigned long long m) { SAY("release %d\n", (int)m); return 0; }
int cuCtxSynchronize(void) { SAY("synchronize\n"); return 0; }
int cuMemUnmap(uint64_t at, size_t n) { SAY("unmap %zu\n", n); return 0; }
int cuMemAddressFree(uint64_t at, size_t n) { SAY("unreserve %zu\n", n); return 0; }
