// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch: a kernel launched as a dependent may begin before the kernel ahead
// of it has ended, so its threads may touch what that one touches only behind
// simt_dependency_wait(), and every thread waits: else its kernel could end first, and the wait of
// the kernel behind it would say nothing of the kernel ahead. Kernels that are launched so one
// after the other, with the one ahead of the first, are a chain. The first block of a dependent
// begins on device memory as it was before the chain, which becomes what the chain has made of it
// when no thread can run but behind the wait. What its blocks touch before is the checker's affair.
// Under SIMT_DEPENDENT nothing is known of what is ahead: it may have written all memory, of which
// the first block finds every bit inverted; what a kernel reads as constant is believed to be so.
#include "engine.h"
#include "simt_device.h"
#include <algorithm>
#include <cstring>

namespace simt
{

// Beyond so many bytes one chain in so many keeps memory: a net's kernels are launched again and
// again.
static const size_t FEW_KEPT = size_t(4) << 20;
static const unsigned APART = 13;
static const size_t MOST_KEPT = size_t(asan ? 16 : 64) << 20; // bytes: of more, nothing is kept

struct image {
    char *at;
    std::vector<char> bytes;
};
struct chain {
    uint32_t epoch = 0; // of the checker, when it began
    std::vector<image> before;
};

static chain_ref chosen;    // of the kernel that runs next
static bool dependent;      // is it one?
static bool first_block;    // is none of its blocks run?
static bool early;          // is memory as it is ahead of the wait?
static uint64_t early_hash; // of it
static bool waited[MAX_THREADS];
static bool believed; // what is read now is constant
static const char wait_key = 0;
static uint64_t dependents;

static bool is_too_much(size_t bytes)
{
    static bool said;
    if (bytes <= MOST_KEPT) return false;
    if (!said)
        say("no copy is kept of %zu bytes of device memory (%zu at most): what is read before "
            "simt_dependency_wait is not old",
            bytes, MOST_KEPT);
    said = true;
    return true;
}

static void keep_memory(chain *c)
{
    static unsigned large;
    size_t all = 0;
    device_each([&](char *, size_t n) { all += n; });
    if (is_too_much(all) || (all > FEW_KEPT && large++ % APART)) return;
    device_each([&](char *p, size_t n) { c->before.push_back({p, {p, p + n}}); });
}

chain_ref chain_new(bool keep)
{
    chain_ref c = std::make_shared<chain>();
    if (keep && !simt_set.dependent) keep_memory(c.get());
    if (check) c->epoch = check->launch(0);
    return c;
}

void chain_choose(chain_ref c, bool as_dependent)
{
    chosen = std::move(c);
    dependent = as_dependent;
}

// FNV-1a of all memory, by words of 8 bytes in four rows.
static uint64_t hash_of_memory(void)
{
    uint64_t row[4] = {0xcbf29ce484222325u, 1, 2, 3};
    device_each([&](const char *p, size_t n) {
        for (size_t at = 0; at < n; at += sizeof row) {
            uint64_t word[4] = {};
            memcpy(word, p + at, std::min(n - at, sizeof word));
            for (int i = 0; i < 4; i++) row[i] = (row[i] ^ word[i]) * 0x100000001b3u;
        }
    });
    for (int i = 1; i < 4; i++) row[0] = (row[0] ^ row[i]) * 0x100000001b3u;
    return row[0];
}

// Memory becomes what it is ahead of the wait, or what it is behind it.
static void turn_memory(void)
{
    if (simt_set.dependent)
        device_each([](char *p, size_t n) {
            for (size_t i = 0; i < n; i++) p[i] = static_cast<char>(~p[i]);
        });
    else
        for (image &i : chosen->before) std::swap_ranges(i.bytes.begin(), i.bytes.end(), i.at);
}

static bool same_memory(const chain &c)
{
    for (const image &i : c.before) {
        char *base = nullptr;
        const allocation *a = device_find(i.at, &base);
        if (!a || base != i.at || a->bytes != i.bytes.size()) return false;
    }
    return !c.before.empty();
}

void dependent_begin(void)
{
    first_block = true;
    dependents += dependent;
    if (check) check->launch(!dependent ? 0 : simt_set.dependent ? 1 : chosen->epoch);
}

void dependent_block(int threads)
{
    memset(waited, 0, static_cast<size_t>(threads));
    early = dependent && first_block && (simt_set.dependent || same_memory(*chosen));
    first_block = false;
    if (!early) return;
    turn_memory();
    early_hash = hash_of_memory();
}

bool dependent_release(void)
{
    if (!early) return false;
    early = false;
    if (hash_of_memory() != early_hash)
        simt_fault("device memory is written before simt_dependency_wait by a kernel that may "
                   "begin early");
    turn_memory();
    wake(&wait_key);
    return true;
}

void dependent_thread_ends(int thread)
{
    if (dependent && !waited[thread])
        simt_fault("a thread ends without simt_dependency_wait in a kernel launched as a "
                   "dependent");
}

void dependent_end(void)
{
    chosen = nullptr;
    dependent = false;
}

bool ahead_of_wait(int thread)
{
    return dependent && thread >= 0 && !waited[thread] && !(believed && simt_set.dependent);
}

void constants_are_read(bool now) { believed = now; }
bool memory_is_inverted(void) { return early && simt_set.dependent; }

} // namespace simt

using namespace simt;

uint64_t simt_dependents(void) { return dependents; }

void simt_dependency_wait(const char *file, int line)
{
    waited[current_thread()] = true;
    if (early) sleep_on(&wait_key, "simt_dependency_wait", file, line);
}
