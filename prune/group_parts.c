/* SPDX-License-Identifier: Apache-2.0 */
/* Which sets of units form a group, and into which parts groups with an evenness rule fall.

   Sets with the same slots have the same signature. A convolution with several groups of channels
   asks that equally many channels leave each of its groups. That can be said where all channels of
   the axis have one signature and each set is in one block; two such rules on one signature must
   be refinements of each other. Where it cannot be said, the convolution is turned to its other
   way, which ties its groups to each other, and all is bound again. */
#include "prune/groups.h"

#include <string.h>

/* Sets that hold a whole axis cannot go; sets without a weight are of no use. */
static pare_status drop_wholes(pare_units *u, bool *useful)
{
    for (int s = 0; s < u->slot_count; s++) {
        const pare_unit_slot *slot = &u->slot[s];
        bool weight = pare_units_constant(u, slot->value) && pare_type_is_float(slot->value->dtype);
        int32_t first = pare_units_find(u, slot->first);
        bool whole = true;
        for (int32_t i = 0; i < slot->extent; i++) {
            int32_t root = pare_units_find(u, slot->first + i);
            whole = whole && root == first;
            useful[root] = useful[root] || weight;
        }
        if (!whole || u->blocked[first] >= 0) continue;
        if (!pare_arena_grow(u->arena, &u->block, &u->block_capacity, u->block_count,
                             sizeof *u->block))
            return PARE_MEMORY;
        u->block[u->block_count] =
            (pare_block){slot->node, slot->value, slot->axis, "ties all of it together"};
        u->blocked[first] = (int32_t)u->block_count++;
    }
    return PARE_OK;
}

static uint64_t mix(uint64_t h)
{
    h = (h ^ (h >> 31)) * 0x7FB5D329728EA185ULL;
    h = (h ^ (h >> 27)) * 0x81DADEF4BC2DD44DULL;
    return h ^ (h >> 33);
}

typedef struct signature_slot {
    uint64_t key;
    int32_t number; /* -1: free */
} signature_slot;

/* Numbers the signatures in order of their first set. */
static pare_status number_signatures(pare_units *u, const uint64_t *key, const bool *useful,
                                     pare_even_parts *out)
{
    size_t count = 64, mask;
    int32_t sets = 0;
    for (int32_t i = 0; i < u->unit_count; i++)
        sets += u->parent[i] == i && u->blocked[i] < 0 && useful[i];
    while (count < 2 * (size_t)sets + 2) count *= 2;
    mask = count - 1;
    signature_slot *table = pare_alloc(u->ctx, count, sizeof *table);
    if (!table) return PARE_MEMORY;
    for (size_t i = 0; i < count; i++) table[i].number = -1;
    out->signatures = 0;
    for (int32_t i = 0; i < u->unit_count; i++) {
        out->signature[i] = -1;
        if (u->parent[i] != i || u->blocked[i] >= 0 || !useful[i]) continue;
        size_t at = key[i] & mask;
        while (table[at].number >= 0 && table[at].key != key[i]) at = (at + 1) & mask;
        if (table[at].number < 0) table[at] = (signature_slot){key[i], out->signatures++};
        out->signature[i] = table[at].number;
    }
    pare_free(table);
    return PARE_OK;
}

/* The sum of a set's slots' hashes, each slot once. */
static void hash_slots(pare_units *u, uint64_t *key, int32_t *seen)
{
    for (int s = 0; s < u->slot_count; s++)
        for (int32_t i = 0; i < u->slot[s].extent; i++) {
            int32_t root = pare_units_find(u, u->slot[s].first + i);
            if (seen[root] == s + 1) continue;
            seen[root] = s + 1;
            key[root] += mix((uint64_t)s + 1);
        }
}

/* --- evenness --- */

/* Notes each set's block of this axis in place; false where the rule cannot be said. */
static bool blocks_of(pare_units *u, const pare_unit_even *e, const pare_even_parts *p,
                      int32_t *place, int32_t *signature)
{
    const pare_unit_slot *slot = &u->slot[e->slot];
    int64_t length = slot->extent / e->blocks, in_first = 0, in_block = 0;
    *signature = -1;
    for (int64_t i = 0; i < slot->extent; i++)
        place[pare_units_find(u, slot->first + (int32_t)i)] = -1;
    for (int64_t i = 0; i < slot->extent; i++) {
        int32_t root = pare_units_find(u, slot->first + (int32_t)i), block = (int32_t)(i / length);
        if (i % length == 0) {
            if (i > length && in_block != in_first) return false;
            if (i == length) in_first = in_block;
            in_block = 0;
        }
        if (u->blocked[root] >= 0 || p->signature[root] < 0) continue;
        if (*signature >= 0 && p->signature[root] != *signature) return false;
        if (place[root] >= 0 && place[root] != block) return false;
        in_block += place[root] < 0;
        place[root] = block;
        *signature = p->signature[root];
    }
    return in_block == in_first;
}

/* Is each part of `fine` inside one part of `coarse`? Both are of sets with this signature. */
static bool refines(pare_units *u, const pare_even_parts *p, int32_t signature, const int32_t *fine,
                    int32_t fine_count, const int32_t *coarse, int32_t *scratch)
{
    for (int32_t i = 0; i < fine_count; i++) scratch[i] = -1;
    for (int32_t i = 0; i < u->unit_count; i++) {
        if (p->signature[i] != signature) continue;
        int32_t *in = &scratch[fine[i]];
        if (*in >= 0 && *in != coarse[i]) return false;
        *in = coarse[i];
    }
    return true;
}

/* The finer of what is known of this signature and the new blocks becomes its parts. */
static bool adopt(pare_units *u, pare_even_parts *p, int32_t signature, const int32_t *place,
                  int32_t blocks, int32_t *scratch)
{
    int32_t known = p->parts[signature];
    if (known > 1 && refines(u, p, signature, p->part, known, place, scratch)) return true;
    if (known > 1 && !refines(u, p, signature, place, blocks, p->part, scratch)) return false;
    for (int32_t i = 0; i < u->unit_count; i++)
        if (p->signature[i] == signature) p->part[i] = place[i];
    p->parts[signature] = blocks;
    return true;
}

static pare_status find_parts(pare_units *u, pare_even_parts *p, int32_t *place, bool *turned)
{
    int32_t *scratch = pare_alloc(u->ctx, (size_t)u->unit_count + 1, sizeof *scratch);
    if (!scratch) return PARE_MEMORY;
    for (int32_t i = 0; i < u->unit_count; i++) p->part[i] = 0;
    for (int32_t i = 0; i < p->signatures; i++) p->parts[i] = 1;
    for (size_t i = 0; i < u->even_count; i++) {
        const pare_unit_even *e = &u->even[i];
        pare_unit_question *q = &u->question[e->question];
        int32_t signature;
        if (q->way) continue; /* turned by its other side */
        bool fits = blocks_of(u, e, p, place, &signature);
        if (fits && signature >= 0)
            fits = adopt(u, p, signature, place, (int32_t)e->blocks, scratch);
        if (fits) continue;
        q->way = 1;
        *turned = true;
    }
    pare_free(scratch);
    return PARE_OK;
}

static pare_status find_once(pare_units *u, pare_even_parts *p, bool *turned)
{
    size_t n = (size_t)u->unit_count + 1;
    uint64_t *key = pare_alloc(u->ctx, n, sizeof *key);
    int32_t *seen = pare_alloc(u->ctx, n, sizeof *seen);
    bool *useful = pare_alloc(u->ctx, n, sizeof *useful);
    pare_status st = key && seen && useful ? PARE_OK : PARE_MEMORY;
    *turned = false;
    if (st == PARE_OK) st = drop_wholes(u, useful);
    if (st == PARE_OK) {
        hash_slots(u, key, seen);
        st = number_signatures(u, key, useful, p);
    }
    if (st == PARE_OK) {
        p->parts = pare_arena_alloc(u->arena, (size_t)p->signatures + 1, sizeof *p->parts);
        st = p->parts ? find_parts(u, p, seen, turned) : PARE_MEMORY;
    }
    pare_free(key);
    pare_free(seen);
    pare_free(useful);
    return st;
}

pare_status pare_even_find(pare_units *units, pare_even_parts *out)
{
    size_t n = (size_t)units->unit_count + 1;
    bool turned = true;
    out->signature = pare_arena_alloc(units->arena, n, sizeof *out->signature);
    out->part = pare_arena_alloc(units->arena, n, sizeof *out->part);
    if (!out->signature || !out->part) return PARE_MEMORY;
    while (turned) {
        PARE_TRY(find_once(units, out, &turned));
        if (turned) PARE_TRY(pare_units_rebind(units));
    }
    return PARE_OK;
}
