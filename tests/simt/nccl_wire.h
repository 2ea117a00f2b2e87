/* SPDX-License-Identifier: Apache-2.0 */
/* How processes with an emulated device reach each other: a socket between every two of them. A
   message is sent when its receiver has said that it waits for it, as between GPUs. */
#ifndef PARE_SIMT_NCCL_WIRE_H
#define PARE_SIMT_NCCL_WIRE_H

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace simt
{

struct wire;

enum wire_state { WIRE_DONE, WIRE_BUSY, WIRE_GONE };

struct wire_hello {
    int rank, size, version;
    char device[32];
};

/* A message of a group. */
struct wire_message {
    bool send;
    int other, type;
    char *data;
    size_t count, bytes;
    bool done;
};

/* Messages that go at once. */
struct wire_group {
    std::vector<wire_message> messages;
    std::string what; /* in words, which the others' faults name */
    bool begun;
    double start;
};

/* name: of the job; the same in each of its ranks. */
wire *wire_new(const char *name, const wire_hello &mine);
void wire_free(wire *w);
/* Goes on joining; returns at once: done or busy. */
wire_state wire_join(wire *w);
const wire_hello &wire_peer(const wire *w, int rank); /* once that is done */
/* Goes on with a group; returns at once. WIRE_GONE: a rank that it needs has gone. Two sides that
   do not fit together, and a wait past the limit, are faults that name both. */
wire_state wire_go_on(wire *w, wire_group *g);
/* "10 f32" */
std::string wire_count_text(size_t count, int type);

} // namespace simt

#endif
