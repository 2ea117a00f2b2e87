/* SPDX-License-Identifier: Apache-2.0 */
/* Pointer to number by open addressing with linear probing; at most half of the slots are in use.
 */
#include "runtime/base/ptr_map.h"

#include <stdint.h>

void pare_ptr_map_init(pare_ptr_map *map, pare_arena *arena)
{
    *map = (pare_ptr_map){.arena = arena};
}

/* The key's slot, or the free one where it would go. Fibonacci hashing (Knuth, TAOCP 3, 6.4);
   objects are aligned, so the low four bits say nothing. */
static size_t slot_of(const pare_ptr_map *map, const void *key)
{
    size_t mask = map->slots - 1,
           at = (size_t)(((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u >> 20) & mask;
    while (map->slot[at].key && map->slot[at].key != key) at = (at + 1) & mask;
    return at;
}

int pare_ptr_map_find(const pare_ptr_map *map, const void *key)
{
    if (!map->slots) return -1;
    size_t at = slot_of(map, key);
    return map->slot[at].key ? map->slot[at].value : -1;
}

pare_status pare_ptr_map_reserve(pare_ptr_map *map, size_t count)
{
    size_t slots = map->slots ? map->slots : 64;
    while (slots < 2 * count) slots *= 2;
    if (slots == map->slots) return PARE_OK;
    pare_ptr_map_slot *old = map->slot, *slot = pare_arena_alloc(map->arena, slots, sizeof *slot);
    if (!slot) return PARE_MEMORY;
    size_t old_slots = map->slots;
    map->slot = slot;
    map->slots = slots;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].key) map->slot[slot_of(map, old[i].key)] = old[i];
    return PARE_OK;
}

pare_status pare_ptr_map_put(pare_ptr_map *map, const void *key, int value)
{
    PARE_TRY(pare_ptr_map_reserve(map, map->count + 1));
    size_t slot = slot_of(map, key);
    if (!map->slot[slot].key) map->count++;
    map->slot[slot] = (pare_ptr_map_slot){key, value};
    return PARE_OK;
}
