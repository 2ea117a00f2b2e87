/* SPDX-License-Identifier: Apache-2.0 */
/* What fuzz targets of requests share. */
#ifndef PARE_TESTS_FUZZ_TENSORS_H
#define PARE_TESTS_FUZZ_TENSORS_H

#include "tools/serve/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void expect(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* Reads every byte of a tensor, so that the sanitizer sees where it is. */
static inline void touch(const pare_infer_tensor *t)
{
    static volatile unsigned sum;
    const unsigned char *data = t->data;
    const pare_bytes *text = t->data;
    const size_t count = t->bytes / sizeof *text;
    if (!t->data) return; /* in shared memory */
    if (t->dtype == PARE_string)
        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < text[i].size; k++)
                sum += ((const unsigned char *)text[i].data)[k];
    else
        for (size_t i = 0; i < t->bytes; i++) sum += data[i];
}

/* Reads every input, and makes a result whose outputs they are. False: an input is in shared
 * memory. */
static inline bool as_result(pare_arena *arena, const pare_infer_request *r, bool binary,
                             pare_infer_result *out)
{
    pare_infer_wanted *wanted = pare_arena_alloc(arena, (size_t)r->input_count + 1, sizeof *wanted);
    bool is_whole = true;
    expect(wanted != NULL, "no memory");
    for (int i = 0; i < r->input_count; i++) {
        touch(&r->input[i]);
        is_whole &= r->input[i].data || !r->input[i].bytes;
        wanted[i] = (pare_infer_wanted){.name = r->input[i].name, .binary = binary};
    }
    *out = (pare_infer_result){.model = "m",
                               .id = r->id,
                               .version = 1,
                               .output = r->input,
                               .wanted = wanted,
                               .count = r->input_count};
    return is_whole;
}
#endif
