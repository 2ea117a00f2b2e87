/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/data/cache.h"

pare_status pare_group_cache_init(pare_ctx *ctx, pare_group_cache *out, const pare_h5_set *set,
                                  int slots)
{
    if (slots > set->group_count) slots = (int)set->group_count;
    *out = (pare_group_cache){.slot_count = slots};
    out->slot = pare_alloc(ctx, (size_t)slots, sizeof *out->slot);
    out->where = pare_alloc(ctx, (size_t)set->group_count, sizeof *out->where);
    if (!out->slot || !out->where) {
        pare_free(out->slot);
        pare_free(out->where);
        *out = (pare_group_cache){0};
        return PARE_MEMORY;
    }
    for (int i = 0; i < slots; i++) out->slot[i].group = -1;
    pthread_mutex_init(&out->lock, NULL);
    pthread_cond_init(&out->changed, NULL);
    out->set = set;
    return PARE_OK;
}

void pare_group_cache_clear(pare_group_cache *cache)
{
    if (!cache->set) return;
    for (int i = 0; i < cache->slot_count; i++) pare_free(cache->slot[i].rows);
    pare_free(cache->slot);
    pare_free(cache->where);
    pthread_cond_destroy(&cache->changed);
    pthread_mutex_destroy(&cache->lock);
    *cache = (pare_group_cache){0};
}

static pare_status load(pare_ctx *ctx, const pare_h5_set *set, pare_h5_scratch *scratch,
                        pare_group_slot *slot)
{
    int64_t first = slot->group * set->group_rows, rows = set->dim[0] - first;
    if (rows > set->group_rows) rows = set->group_rows;
    if (!slot->rows) slot->rows = pare_alloc(ctx, (size_t)set->group_rows, set->row_bytes);
    if (!slot->rows) return PARE_MEMORY;
    return set->serial ? pare_h5_read_rows(ctx, set, first, rows, slot->rows)
                       : pare_h5_read_group(ctx, set, scratch, slot->group, slot->rows);
}

/* The slot that nothing uses and that was used longest ago. There is one: more slots than threads,
   or one for each group. */
static pare_group_slot *oldest(const pare_group_cache *cache)
{
    pare_group_slot *old = NULL;
    for (int i = 0; i < cache->slot_count; i++) {
        pare_group_slot *s = &cache->slot[i];
        if (!s->users && (!old || s->stamp < old->stamp)) old = s;
    }
    return old;
}

/* The group's slot, its users raised, or an empty one that waits to be loaded. Called with the lock
   held. */
static pare_group_slot *claim(pare_group_cache *cache, int64_t group)
{
    pare_group_slot *slot;
    for (;;) {
        int at = cache->where[group];
        slot = at ? &cache->slot[at - 1] : oldest(cache);
        if (!slot->loading) break;
        pthread_cond_wait(&cache->changed, &cache->lock);
    }
    if (slot->group != group) {
        if (slot->group >= 0) cache->where[slot->group] = 0;
        cache->where[group] = (int32_t)(slot - cache->slot) + 1;
        slot->group = group;
        slot->loading = true;
    }
    slot->users++;
    slot->stamp = ++cache->clock;
    return slot;
}

pare_status pare_group_take(pare_ctx *ctx, pare_group_slot **out, pare_group_cache *cache,
                            pare_h5_scratch *scratch, int64_t group)
{
    pthread_mutex_lock(&cache->lock);
    pare_group_slot *slot = claim(cache, group);
    bool mine = slot->loading;
    pthread_mutex_unlock(&cache->lock);
    *out = slot;
    if (!mine) return PARE_OK;
    pare_status st = load(ctx, cache->set, scratch, slot);
    pthread_mutex_lock(&cache->lock);
    slot->loading = false;
    if (st != PARE_OK) {
        cache->where[group] = 0;
        slot->group = -1;
        slot->users = 0;
    }
    pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->lock);
    return st;
}

void pare_group_give(pare_group_cache *cache, pare_group_slot *slot)
{
    pthread_mutex_lock(&cache->lock);
    slot->users--;
    pthread_mutex_unlock(&cache->lock);
}

size_t pare_group_cache_bytes(const pare_group_cache *cache)
{
    if (!cache->set) return 0;
    return (size_t)cache->slot_count * (size_t)cache->set->group_rows * cache->set->row_bytes;
}
