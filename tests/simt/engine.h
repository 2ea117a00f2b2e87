/* SPDX-License-Identifier: Apache-2.0 */
/* What the sources of the emulation tell each other. */
#ifndef PARE_SIMT_ENGINE_H
#define PARE_SIMT_ENGINE_H

#include <cuda_runtime_api.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>
#include "emulation.h"

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#ifdef SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt
{

/* --- memory that sanitizers may not touch --- */

#ifdef SIMT_ASAN
static const bool asan = true;
inline void forbid(const void *p, size_t n) { __asan_poison_memory_region(p, n); }
inline void permit(const void *p, size_t n) { __asan_unpoison_memory_region(p, n); }
#else
static const bool asan = false;
inline void forbid(const void *, size_t) {}
inline void permit(const void *, size_t) {}
#endif

uint32_t random_number(void);

/* --- fibers (fiber.cpp) --- */

struct fiber {
    void *sp;    /* saved stack pointer, or a ucontext */
    char *stack; /* lowest usable byte; NULL: the host's own */
    void *fake;  /* ASan's fake stack */
    const void *bottom;
    size_t size;
};
void fiber_make(fiber *f, int number); /* its stack; number: which of the pool */
void fiber_prepare(fiber *f,
                   void (*entry)(void)); /* the next switch to f runs entry, on a new stack */
void fiber_entered(void);                /* entry's first call */
void fiber_switch(fiber *from, fiber *to, bool dying);
bool on_fiber_stacks(const void *p);

/* --- blocks of threads (block.cpp) --- */

/* MAX_THREADS: of a block, and of the blocks of a cluster together; MOST_CLUSTER: portable ones. */
enum { MAX_THREADS = 1024, WARPS = 32, MOST_CLUSTER = 8 };
/* A kernel with its launch. */
struct launch {
    std::string name;
    dim3 grid, block;
    size_t shared;
    std::shared_ptr<void> arguments;
    size_t argument_bytes;
    void (*run)(const void *arguments);
    bool dependent;   /* may begin before the kernel ahead of it has ended */
    unsigned cluster; /* blocks along x that run together */
};
void run_kernel(const launch &k);
bool in_kernel(void);
bool in_last_block(void);
/* May kernels read there beside device, shared and pinned memory: stacks, arguments, constants? */
bool kernel_owns(const void *p);
int current_thread(void); /* in its block or cluster, or -1 on the host */
int thread_count(void);   /* of it */
int cluster_blocks(void);
int rank_of(int thread); /* of its block in the cluster */
int current_rank(void);
bool block_has_ended(int rank); /* all of its threads */
void preempt(void);             /* the checker: let another thread run */
/* The running thread waits, in `name`, until something wakes those that wait for this key. */
void sleep_on(const void *key, const char *name, const char *file, int line);
void wake(const void *key);
void where(char *text, size_t size); /* kernel, block and thread, for messages */

/* --- programmatic dependent launch (dependent.cpp) --- */

struct chain;
typedef std::shared_ptr<chain> chain_ref;
/* Begins at a kernel, or work of a library, that waits for all ahead of it; keep: a dependent is
   known to follow. */
chain_ref chain_new(bool keep);
void chain_choose(chain_ref c, bool dependent); /* for the kernel that runs next */
void dependent_begin(void);                     /* the kernel */
void dependent_block(int threads);
bool dependent_release(void); /* no thread can run: those that wait go on; false: none does */
void dependent_thread_ends(int thread);
void dependent_end(void);
bool ahead_of_wait(int thread); /* has it yet to wait for the kernels ahead? */
/* The kernel says that no kernel ahead writes what it reads from now on, or until now. */
void constants_are_read(bool now);
bool memory_is_inverted(void);

/* --- operands of 2:4 (collective.cpp) --- */

/* The place that kept number i (0, 1) of group `group` in a word of metadata has among four. */
inline unsigned place_of(unsigned meta, unsigned group, unsigned i)
{
    return meta >> (4 * group + 2 * i) & 3;
}
/* A fault where the places of a group do not ascend, as the hardware takes for granted. */
void need_ascending(unsigned meta, const char *what, const char *file, int line);

/* --- shared memory and asynchronous copies (shared.cpp) --- */

/* SHARED_ROOM: bytes from a block's to the next one's of its cluster: 18 bits of a product's
   operand. */
enum {
    SHARED_STATIC = 48 * 1024,
    SHARED_MOST = 227 * 1024,
    SHARED_ROOM = 256 * 1024,
    SHARED_ALL = MOST_CLUSTER * SHARED_ROOM
};
void shared_begin(size_t dynamic); /* of a block */
unsigned char *shared_base(void);  /* of SHARED_ALL bytes, a room for each block of a cluster */
void copies_begin(int threads);
void copies_end(int thread); /* a fault where some were never waited for */

/* --- device memory (memory.cpp) --- */

struct pool;
struct allocation {
    size_t bytes;
    pool *from;    /* NULL: cudaMalloc */
    bool ready;    /* stream-ordered: its allocation has happened */
    bool released; /* stream-ordered: cudaFreeAsync was called, its point may be ahead */
    int device;
    uint64_t handle; /* for other processes (ipc.cpp); 0: none */
    int opened;      /* by it, and not closed */
};
bool in_device_space(
    const void *p); /* where allocations are made and nothing else; not under ASan */
/* The allocation that holds p, its first byte; NULL: not device memory. */
allocation *device_find(const void *p, char **base);
/* Are the n bytes at p inside one device allocation that may be used now? */
bool device_covers(const void *p, size_t n);
bool host_pinned(const void *p);
/* Kernels, copies and library calls see device memory between open and close; the host never does.
 */
void device_open(void);
void device_open_on(int device); /* and see memory that this device may reach; -1: all */
void device_close(void);
/* Of memory that is open. */
void device_each(const std::function<void(char *p, size_t n)> &f);
void device_check_edges(void); /* a fault where bytes after an allocation changed */
void *device_new(size_t bytes, pool *from);
void device_delete(void *p);
int device_current(void); /* of the calling thread */
size_t device_used(int device);
int pool_device(const pool *p);              /* -1: any */
bool pool_serves(const pool *p, int device); /* may the device reach its memory? */

/* The driver's cuMemGetAddressRange (ipc.cpp). */
void *address_range_entry(void);

/* --- streams and graphs (stream.cpp, graph.cpp) --- */

enum work_kind {
    WORK_KERNEL,
    WORK_COPY,
    WORK_SET,
    WORK_HOST,
    WORK_EVENT,
    WORK_MEMORY,
    WORK_GRAPH,
    WORK_LIBRARY
};
struct work {
    work_kind kind;
    std::string shape; /* what a graph update may not change */
    std::function<void()> run;
    std::function<bool()> ready = nullptr; /* may it run? Asked again and again; NULL: yes */
    bool dependent = false; /* a kernel that may begin before the one ahead of it has ended */
};
/* Queues work (or captures it); returns what the CUDA call returns. */
cudaError_t enqueue(cudaStream_t stream, work w);
bool capturing(cudaStream_t stream);
cudaError_t capture_forbids(void); /* spoils the captures that forbid an unsafe call here */
void drain_all(void);
void clock_tick(void); // a piece of work is done
bool stream_known(cudaStream_t stream);
int stream_device(cudaStream_t stream); /* of a known one; -1: the default stream */
bool in_host_work(void);                /* of a stream: it may call nothing */

/* --- failures (failure.cpp) --- */

/* Begins every call that can fail: counts, serialises, fails on demand. */
struct call {
    explicit call(const char *name);
    std::lock_guard<std::recursive_mutex> guard;
    int code; /* to return instead of working; 0: work */
};
bool device_lost(void);             /* a sticky failure came: nothing queued runs any more */
cudaError_t fail(cudaError_t code); /* remembers it for cudaGetLastError */
void live_add(const char *kind, int n);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- the checker (check.cpp), NULL where it is not linked --- */

struct checker {
    /* since: what is written from then on may be of the kernels ahead (1: all is), which this one
       has to wait for; 0: it begins when they have ended. Returns its own. */
    uint32_t (*launch)(uint32_t since);
    void (*block)(void);
    void (*barrier)(void); /* of all threads */
    void (*warp)(int warp, unsigned lanes);
    void (*acquire_grid)(void);
    void (*allocated)(void *p, size_t n);
    void (*freed)(void *p);
    void (*written)(const void *p, size_t n); /* by a copy, a fill, a library */
    void (*access)(const void *p, size_t n, bool write, bool atomic, const void *pc);
    void (*in_flight)(const void *p, size_t n); /* cp.async begins to write it */
    void (*landing)(const void *p, size_t n);   /* and has written it */
    /* async.h: the running thread arrives at a barrier; its phase completes, clock counts them; a
       thread that waited goes on; threads met in a named barrier */
    void (*release)(int barrier);
    void (*complete)(int barrier, unsigned clock);
    void (*acquire)(int barrier);
    void (*meet)(const int *threads, int n);
    void (*fence_async)(void);
    /* Lanes of the running warp waited for what the agent did up to the clock. */
    void (*learn)(unsigned lanes, int agent, unsigned clock);
    /* An access of the asynchronous proxy that the running thread begins; warp: that all lanes do,
       after view_warp. */
    void (*view_warp)(void);
    void (*async)(const void *p, size_t n, bool write, int who, unsigned clock, bool warp,
                  const void *pc);
    /* The running thread's clock; was it told what another did at that one's? */
    unsigned (*now)(void);
    bool (*told)(int thread, unsigned clock);
    uint64_t (*reports)(void);
};
extern const checker *check;

} // namespace simt

/* Opens a call of the runtime that returns cudaError_t. */
#define SIMT_CALL(name)                                                                            \
    simt::call here(name);                                                                         \
    if (here.code) return simt::fail(static_cast<cudaError_t>(here.code))

#endif
