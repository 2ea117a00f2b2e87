/* SPDX-License-Identifier: Apache-2.0 */
/* A hash map from a pointer to a number, open addressing. It grows in an arena and is freed with
   it. Its order depends on addresses, so it cannot be iterated. */
#ifndef PARE_RUNTIME_BASE_PTR_MAP_H
#define PARE_RUNTIME_BASE_PTR_MAP_H

#include "runtime/base/arena.h"

typedef struct pare_ptr_map_slot {
    const void *key; /* NULL: free */
    int value;
} pare_ptr_map_slot;

typedef struct pare_ptr_map {
    pare_arena *arena;
    pare_ptr_map_slot *slot;
    size_t slots, count; /* slots: 0 or a power of two */
} pare_ptr_map;

void pare_ptr_map_init(pare_ptr_map *map, pare_arena *arena);

/* Room for so many keys, so that no later put of one of them can fail. */
PARE_NODISCARD pare_status pare_ptr_map_reserve(pare_ptr_map *map, size_t count);

/* The value of a key, -1 where it is not in the map. */
int pare_ptr_map_find(const pare_ptr_map *map, const void *key);

/* Adds a key, which is not NULL, or changes its value. */
PARE_NODISCARD pare_status pare_ptr_map_put(pare_ptr_map *map, const void *key, int value);

#endif
