/* SPDX-License-Identifier: Apache-2.0 */
/* 128-bit content hashes (XXH3). They identify files, tensors and samples; they are not signatures.
 */
#ifndef PARE_RUNTIME_BASE_HASH_H
#define PARE_RUNTIME_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_hash {
    uint64_t low, high;
} pare_hash;

pare_hash pare_hash_bytes(const void *data, size_t bytes);

/* The same of a read-only map of a file: memory of pages that were read is given back on the way,
   so that a large file does not stay resident. */
pare_hash pare_hash_map(const void *map, size_t bytes);

/* The same of data that come in pieces. NULL: out of memory; ending frees. */
typedef struct pare_hasher pare_hasher;
pare_hasher *pare_hasher_new(void);
void pare_hasher_add(pare_hasher *hasher, const void *data, size_t bytes);
pare_hash pare_hasher_end(pare_hasher *hasher);

/* Order-free sum (128-bit addition): equal multisets of items give equal sums. */
pare_hash pare_hash_sum(pare_hash a, pare_hash b);

/* 32 lower-case hex digits, high half first, and a NUL. */
void pare_hash_text(pare_hash hash, char text[33]);

/* Reads what pare_hash_text wrote; 0 on success. */
int pare_hash_parse(const char *text, pare_hash *out);

#ifdef __cplusplus
}
#endif
#endif
