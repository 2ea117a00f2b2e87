/* SPDX-License-Identifier: Apache-2.0 */
/* Decoded groups of rows of one dataset, kept for whoever reads next (internal to formats/). A
   group is inflated once while it stays; the least recently used one makes room. */
#ifndef PARE_FORMATS_DATA_CACHE_H
#define PARE_FORMATS_DATA_CACHE_H

#include "formats/data/hdf5.h"

#include <pthread.h>

typedef struct pare_group_slot {
    int64_t group; /* -1: none */
    bool loading;
    int users;
    uint64_t stamp; /* last use */
    uint8_t *rows;  /* (group_rows, row_bytes), allocated at first use */
} pare_group_slot;

typedef struct pare_group_cache {
    const pare_h5_set *set; /* NULL: not made */
    pare_group_slot *slot;
    int slot_count;
    int32_t *where; /* (group_count): slot of a group + 1; 0: not here */
    uint64_t clock;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} pare_group_cache;

/* slots: more than the threads that take groups; cut to the number of groups. */
PARE_NODISCARD pare_status pare_group_cache_init(pare_ctx *ctx, pare_group_cache *out,
                                                 const pare_h5_set *set, int slots);
void pare_group_cache_clear(pare_group_cache *cache);

/* Borrows a group until pare_group_give, decoding it where it is not here; one that another thread
   decodes is waited for. ctx and scratch are the thread's own. A serial dataset: the opening thread
   only. After a failure there is nothing to give back. */
PARE_NODISCARD pare_status pare_group_take(pare_ctx *ctx, pare_group_slot **out,
                                           pare_group_cache *cache, pare_h5_scratch *scratch,
                                           int64_t group);
void pare_group_give(pare_group_cache *cache, pare_group_slot *slot);

/* Most memory its groups take. */
size_t pare_group_cache_bytes(const pare_group_cache *cache);

#endif
