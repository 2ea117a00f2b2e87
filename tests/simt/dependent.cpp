// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch: a kernel launched as a dependent may begin before the kernel ahead
// of it has ended, so its threads may touch what that one touches only behind
// simt_dependency_wait(), and every thread waits: else its kernel could end first, and the wait of
// the kernel behind it would say nothing of the kernel ahead. Kernels that are launched so one
// after the other, with the one ahead of the first, are a chain. The first block of a dependent
// begins on device memory as it was before the chain, which becomes what the chain has made of it
// when no thread can run but behind the wait. What its blocks touch before is the checker's affair.
#include "engine.h"
#include "simt_device.h"
#include <algorithm>
#include <cstring>

namespace simt
{

static const size_t MOST_KEPT = size_t(16) << 20; // bytes: of more, nothing is kept

struct image {
    char *at;
    std::vector<char> bytes;
};
struct chain {
    uint32_t epoch = 0; // of the checker, when its first kernel began
    std::vector<image> before;
};

static chain_ref chosen;    // of the kernel that runs next
static bool dependent;      // is it one?
static bool first_block;    // is none of its blocks run?
static bool early;          // is memory as it was before the chain?
static uint64_t early_hash; // of it
static bool waited[MAX_THREADS];
static const char wait_key = 0;
static uint64_t dependents;

chain_ref chain_new(bool keep)
{
    chain_ref c = std::make_shared<chain>();
    size_t all = 0;
    if (keep) device_each([&](char *, size_t n) { all += n; });
    if (keep && all <= MOST_KEPT)
        device_each([&](char *p, size_t n) { c->before.push_back({p, {p, p + n}}); });
    return c;
}

void chain_choose(chain_ref c, bool as_dependent)
{
    chosen = std::move(c);
    dependent = as_dependent;
}

// FNV-1a by words of 8 bytes, of what is there again.
static uint64_t hash_of(const chain &c)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const image &i : c.before)
        for (size_t at = 0; at < i.bytes.size(); at += 8) {
            uint64_t word = 0;
            memcpy(&word, i.at + at, std::min(i.bytes.size() - at, sizeof word));
            h = (h ^ word) * 0x100000001b3u;
        }
    return h;
}

// Memory and what is kept change places.
static void swap(chain *c)
{
    for (image &i : c->before) std::swap_ranges(i.bytes.begin(), i.bytes.end(), i.at);
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
    if (!check) return;
    const uint32_t epoch = check->launch(dependent ? chosen->epoch : 0);
    if (chosen && !dependent) chosen->epoch = epoch;
}

void dependent_block(int threads)
{
    memset(waited, 0, static_cast<size_t>(threads));
    early = dependent && first_block && same_memory(*chosen);
    first_block = false;
    if (!early) return;
    swap(chosen.get());
    early_hash = hash_of(*chosen);
}

bool dependent_release(void)
{
    if (!early) return false;
    early = false;
    if (hash_of(*chosen) != early_hash)
        simt_fault("device memory is written before simt_dependency_wait by a kernel that may "
                   "begin early");
    swap(chosen.get());
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

bool ahead_of_wait(int thread) { return dependent && thread >= 0 && !waited[thread]; }

} // namespace simt

using namespace simt;

uint64_t simt_dependents(void) { return dependents; }

void simt_dependency_wait(const char *file, int line)
{
    waited[current_thread()] = true;
    if (early) sleep_on(&wait_key, "simt_dependency_wait", file, line);
}
