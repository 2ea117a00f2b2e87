/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

pare_hash pare_hash_bytes(const void *data, size_t bytes)
{
    XXH128_hash_t h = XXH3_128bits(data, bytes);
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
