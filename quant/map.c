/* SPDX-License-Identifier: Apache-2.0 */
/* Open addressing from a pointer to a position; grows in an arena. */
#include "quant/parts.h"

void pare_quant_map_init(pare_quant_map *map, pare_arena *arena)
{
    *map = (pare_quant_map){.arena = arena};
}

static size_t slot_of(const pare_quant_map *map, const void *key)
{
    size_t mask = map->slots - 1,
           at = (size_t)(((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u >> 20) & mask;
    while (map->slot[at].key && map->slot[at].key != key) at = (at + 1) & mask;
    return at;
}

int pare_quant_map_find(const pare_quant_map *map, const void *key)
{
    if (!map->slots) return -1;
    size_t at = slot_of(map, key);
    return map->slot[at].key ? map->slot[at].at : -1;
}

static pare_status reserve(pare_quant_map *map)
{
    if (map->slots && 2 * map->count < map->slots) return PARE_OK;
    pare_quant_map_slot *old = map->slot;
    size_t old_slots = map->slots;
    map->slots = old_slots ? 2 * old_slots : 64;
    map->slot = pare_arena_alloc(map->arena, map->slots, sizeof *map->slot);
    if (!map->slot) return PARE_MEMORY;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].key) map->slot[slot_of(map, old[i].key)] = old[i];
    return PARE_OK;
}

pare_status pare_quant_map_put(pare_quant_map *map, const void *key, int at)
{
    PARE_TRY(reserve(map));
    size_t slot = slot_of(map, key);
    if (!map->slot[slot].key) map->count++;
    map->slot[slot] = (pare_quant_map_slot){key, at};
    return PARE_OK;
}
