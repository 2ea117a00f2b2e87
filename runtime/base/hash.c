/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/hash.h"
#include "runtime/base/room.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

pare_hash pare_hash_bytes(const void *data, size_t bytes)
{
    XXH128_hash_t h = XXH3_128bits(data, bytes);
    return (pare_hash){h.low64, h.high64};
}

pare_hash pare_hash_map(const void *map, size_t bytes)
{
    enum { CHUNK = 4 << 20 };
    if (bytes <= CHUNK) return pare_hash_bytes(map, bytes);
    const char *data = map;
    XXH3_state_t *state = XXH3_createState();
    if (!state) return pare_hash_bytes(map, bytes);
    XXH3_128bits_reset(state);
    for (size_t done = 0; done < bytes; done += CHUNK) {
        size_t size = bytes - done < CHUNK ? bytes - done : CHUNK;
        XXH3_128bits_update(state, data + done, size);
        pare_memory_give_back(data + done, size);
    }
    XXH128_hash_t h = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    return (pare_hash){h.low64, h.high64};
}

pare_hasher *pare_hasher_new(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (state) XXH3_128bits_reset(state);
    return (pare_hasher *)state;
}

void pare_hasher_add(pare_hasher *hasher, const void *data, size_t bytes)
{
    if (bytes) XXH3_128bits_update((XXH3_state_t *)hasher, data, bytes);
}

pare_hash pare_hasher_end(pare_hasher *hasher)
{
    XXH128_hash_t h = XXH3_128bits_digest((XXH3_state_t *)hasher);
    XXH3_freeState((XXH3_state_t *)hasher);
    return (pare_hash){h.low64, h.high64};
}

pare_hash pare_hash_sum(pare_hash a, pare_hash b)
{
    pare_hash sum = {a.low + b.low, a.high + b.high};
    sum.high += sum.low < a.low;
    return sum;
}

void pare_hash_text(pare_hash hash, char text[33])
{
    snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}

int pare_hash_parse(const char *text, pare_hash *out)
{
    if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32) return -1;
    return sscanf(text, "%16" SCNx64 "%16" SCNx64, &out->high, &out->low) == 2 ? 0 : -1;
}
