/* SPDX-License-Identifier: Apache-2.0 */
/* Packs weights of 2:4 and unpacks them again, on the host. */
#include "runtime/cuda/sparse.h"

#include <string.h>

enum { TILE = 16, GROUP = 4 };
#define NONE_KEPT 0x44444444u /* places 0 and 1 of each four */

static int64_t steps_of(int64_t depth, int bytes)
{
    return (depth * bytes + PARE_SPARSE_STEP - 1) / PARE_SPARSE_STEP;
}

/* Words of a tile's step: one a lane, or one a lane of each pair that hands over. */
static int words_of(int bytes) { return bytes == 1 ? 32 : 16; }

size_t pare_sparse_kept_bytes(int64_t depth, int bytes)
{
    return (size_t)steps_of(depth, bytes) * PARE_SPARSE_STEP / 2;
}

size_t pare_sparse_meta_bytes(int64_t rows, int64_t depth, int bytes)
{
    int64_t tiles = (rows + PARE_SPARSE_ROWS - 1) / PARE_SPARSE_ROWS * (PARE_SPARSE_ROWS / TILE);
    return (size_t)(tiles * steps_of(depth, bytes)) * (size_t)words_of(bytes) * 4;
}

static bool is_zero(const void *from, int bytes, int64_t i)
{
    if (bytes == 1) return ((const uint8_t *)from)[i] == 0;
    uint16_t v;
    memcpy(&v, (const char *)from + i * 2, sizeof v);
    return (v & 0x7fff) == 0;
}

bool pare_sparse_fits(const void *from, int bytes, int64_t step, int64_t count)
{
    for (int64_t i = 0; i < count; i += GROUP) {
        int kept = 0;
        for (int64_t j = i; j < i + GROUP && j < count; j++)
            kept += !is_zero(from, bytes, j * step);
        if (kept > 2) return false;
    }
    return true;
}

void pare_sparse_meta_clear(uint32_t *meta, size_t meta_bytes)
{
    for (size_t i = 0; i < meta_bytes / 4; i++) meta[i] = NONE_KEPT;
}

/* The word with the places of row r's group of four, and how far up they lie in it: PTX ISA,
   "Matrix fragments for sparse mma.m16n8k64" and "... m16n8k32", figures of the metadata. */
static int64_t word_find(int bytes, int64_t r, int64_t depth, int64_t group, int *shift)
{
    const int groups = PARE_SPARSE_STEP / GROUP / bytes, row = (int)(r % TILE);
    const int at = (int)(group % groups), g = row % 8, upper = row / 8;
    int64_t word = (r / TILE * steps_of(depth, bytes) + group / groups) * words_of(bytes);
    *shift = bytes == 1 ? 4 * (at % 8) : 4 * (at % 4 + 4 * upper);
    return word + (bytes == 1 ? g * 4 + at / 8 * 2 + upper : g * 2 + at / 4);
}

/* Two places of four that hold all that is not 0. */
static void places_find(const void *row, int bytes, int64_t first, int64_t depth, int place[2])
{
    int kept = 0;
    for (int i = 0; i < GROUP && first + i < depth; i++)
        if (kept < 2 && !is_zero(row, bytes, first + i)) place[kept++] = i;
    if (kept == 0) place[0] = 0;
    if (kept < 2) {
        if (place[0] == GROUP - 1) place[0]--;
        place[1] = place[0] + 1;
    }
}

void pare_sparse_row_pack(const void *row, int bytes, int64_t r, int64_t depth, void *kept,
                          uint32_t *meta)
{
    memset(kept, 0, pare_sparse_kept_bytes(depth, bytes));
    for (int64_t group = 0; group * GROUP < depth; group++) {
        int place[2], shift;
        places_find(row, bytes, group * GROUP, depth, place);
        uint32_t *word = meta + word_find(bytes, r, depth, group, &shift);
        *word &= ~(0xfu << shift);
        *word |= (uint32_t)(place[0] | place[1] << 2) << shift;
        for (int i = 0; i < 2; i++) {
            int64_t from = group * GROUP + place[i];
            if (from < depth)
                memcpy((char *)kept + (group * 2 + i) * bytes, (const char *)row + from * bytes,
                       (size_t)bytes);
        }
    }
}

void pare_sparse_row_unpack(const void *kept, const uint32_t *meta, int bytes, int64_t r,
                            int64_t depth, void *row)
{
    memset(row, 0, (size_t)(depth * bytes));
    for (int64_t group = 0; group * GROUP < depth; group++) {
        int shift;
        const uint32_t *from = meta + word_find(bytes, r, depth, group, &shift);
        uint32_t word = *from >> shift;
        for (int i = 0; i < 2; i++) {
            int64_t to = group * GROUP + (word >> 2 * i & 3);
            if (to < depth)
                memcpy((char *)row + to * bytes, (const char *)kept + (group * 2 + i) * bytes,
                       (size_t)bytes);
        }
    }
}
