/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a checkpoint: a status and, on failure, a message, and memory as it was. The same
   bytes with the hashes they should have come past the checksums, to what is after them. */
#include "distill/checkpoint.h"
#include "runtime/base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void parse(const uint8_t *data, size_t size)
{
    static const pare_checkpoint_fact facts[] = {{"student", "s"}, {"options", "rate 1"}};
    static const uint8_t before[24] = "as it was before reading";
    uint8_t memory[24];
    pare_checkpoint_blob blobs[] = {{"w", memory, 16}, {"none", NULL, 0}, {"step", memory + 16, 8}};
    pare_checkpoint checkpoint = {facts, 2, blobs, 3};
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    memcpy(memory, before, sizeof memory);
    if (pare_checkpoint_parse(&ctx, "fuzz.pare", data, size, &checkpoint) == PARE_OK) return;
    expect(ctx.message[0], "a failure without a message");
    expect(!memcmp(memory, before, sizeof memory), "a failure that changed memory");
}

/* Puts the right hashes where the head says they are: of its first blob, and of itself. */
static void mend(uint8_t *data, size_t size)
{
    uint64_t head, total = size;
    uint32_t facts, blobs, length[2];
    if (size < 56) return;
    memcpy(data + 32, &total, 8);
    memcpy(&facts, data + 12, 4);
    memcpy(&blobs, data + 16, 4);
    memcpy(&head, data + 24, 8);
    if (head < 40 || head > size - 16) return;
    size_t at = 40, content = (size_t)head + 16;
    for (; facts > 0 && head - at >= 8; facts--) {
        memcpy(length, data + at, 8);
        at += 8;
        if ((uint64_t)length[0] + length[1] > head - at) break;
        at += (size_t)length[0] + length[1];
    }
    for (; facts == 0 && blobs > 0 && head - at >= 32; blobs--) {
        uint64_t bytes;
        memcpy(length, data + at, 4);
        memcpy(&bytes, data + at + 8, 8);
        if (bytes > size - content || length[0] > head - at - 32) break;
        pare_hash hash = pare_hash_bytes(data + content, (size_t)bytes);
        memcpy(data + at + 16, &hash, 16);
        at += 32 + length[0];
        content += (size_t)bytes;
    }
    pare_hash hash = pare_hash_bytes(data, (size_t)head);
    memcpy(data + head, &hash, 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    expect(copy != NULL, "no memory");
    if (size) memcpy(copy, data, size);
    parse(copy, size);
    mend(copy, size);
    parse(copy, size);
    free(copy);
    return 0;
}
