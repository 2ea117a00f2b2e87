/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of compute capability 9.0: what their sources tell each other. Bytes of shared
   memory are numbered from shared_base(), as simt_shared_address() numbers them. */
#ifndef PARE_SIMT_ASYNC_H
#define PARE_SIMT_ASYNC_H

#include "engine.h"
#include "simt_sm90.h"

namespace simt
{

/* --- who accesses memory beside threads: numbers of the checker's clocks (clock.h) --- */

enum {
    BARRIERS = 130, /* most of a block or cluster; the last is the cluster's own */
    STORERS = 32,   /* most threads of a block that store boxes */
    FIRST_BARRIER = MAX_THREADS,
    FIRST_STORER = FIRST_BARRIER + BARRIERS,
    FIRST_MULTIPLIER = FIRST_STORER + STORERS, /* a warp's products */
    CLOCKS = FIRST_MULTIPLIER + WARPS,
    FIRST_PRODUCT = CLOCKS, /* those of a group of four warps: has no clock of its own */
    MOST_CLOCK = 65000
};

/* --- shared memory --- */

/* The byte in its place under a swizzle over spans of 32, 64 or 128 bytes (0: none): PTX ISA,
   "Tensor swizzling modes". */
inline unsigned swizzled(unsigned at, unsigned span)
{
    return at ^ ((at >> 7 & (span / 16 - (span > 0))) << 4);
}

struct range {
    unsigned from, bytes;
};
inline bool overlap(const range &a, const range &b)
{
    return a.from < b.from + b.bytes && b.from < a.from + a.bytes;
}

bool shared_holds(const range &r); /* are all of them a variable's? (shared.cpp) */

/* --- barriers (mbarrier.cpp) --- */

void barriers_begin(void);
void barriers_tell(void);            /* those that are waited for, for a fault's message */
bool barriers_touch(const range &r); /* is one in there? */
int barrier_for_copy(unsigned bar, const char *file, int line); /* its number; a fault if none */
unsigned barrier_phase(int number);
void barrier_bytes(int number, unsigned bytes); /* so many have arrived */
void barrier_arrival(int number);               /* of products, which told it already */

/* --- copies of boxes (box.cpp, tensor_map.cpp) --- */

/* What the emulated driver keeps in a CUtensorMap. */
struct tensor_map {
    uint64_t kind; /* MAP_TILED, MAP_IM2COL */
    uint64_t address;
    uint64_t stride[4]; /* bytes, of dimension 1 on */
    uint32_t last[5];   /* the last element of each dimension */
    uint16_t box[5];    /* im2col: channels, pixels */
    int16_t low[3], high[3];
    uint8_t step[5];
    uint8_t rank, bytes, span; /* of an element; of the swizzle */
};
const uint64_t MAP_TILED = 0x74696c656420626full, MAP_IM2COL = 0x696d32636f6c2062ull;
static_assert(sizeof(tensor_map) <= sizeof(CUtensorMap), "the driver's maps have 128 bytes");

void boxes_begin(void);
void boxes_end(void);             /* a fault where a block ends before its copies */
bool boxes_wait(void);            /* is any on its way? */
void stores_end(int thread);      /* a fault where a thread never waited for its stores */
bool boxes_land(void);            /* one copy arrives; false: none is on its way */
bool boxes_arriving(int barrier); /* is a copy on its way that it counts? */

/* --- clusters (cluster.cpp) --- */

enum { CLUSTER_BARRIER = BARRIERS - 1 };
void cluster_begin(void);
void cluster_block_ends(void); /* the running thread is its block's last */

/* --- products (wgmma.cpp) --- */

void products_begin(void);
void products_end(int thread);            /* a fault where its warp never waited for them */
bool products_read(const range &r);       /* do some that were not waited for? */
bool sums_cover(const void *p, size_t n); /* are these sums of the running thread in flight? */

/* --- products in tensor memory (tcgen.cpp) --- */

void tcgen_begin(void);
void tcgen_end(void);             /* a fault where a block ends before them, or with memory */
bool tcgen_waits(void);           /* are products or arrivals begun and not done? */
bool tcgen_land(void);            /* one is done; false: there is none */
bool tcgen_reads(const range &r); /* do products that are not done? */
void tcgen_waited(int thread);    /* at a barrier */
void tcgen_tells(int thread, const char *what, const char *file, int line);

} // namespace simt

#endif
