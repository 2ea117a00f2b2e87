// SPDX-License-Identifier: Apache-2.0
// Fibers: one per CUDA thread, each on a stack of its own with a guard page below. On x86-64 a
// switch saves six registers (7 ns); elsewhere ucontext serves (160 ns: it makes a system call).
// AddressSanitizer is told of every switch, with NULL for a fiber that ends; the true bounds of the
// host's stack are learnt from the first switch away from it.
#include "engine.h"
#include <cstdlib>
#include <sys/mman.h>
#if !defined(__x86_64__)
#define SIMT_UCONTEXT 1
#endif
#ifdef SIMT_UCONTEXT
#include <ucontext.h>
#endif

namespace simt
{

enum {
    PAGE = 4096,
    STACK = 128 * 1024,
    END = 16 * 1024 // more than the frames between a fiber's entry and its last switch take
};

static char *base;

static char *pool_stacks(void)
{
    if (base) return base;
    void *room = mmap(nullptr, static_cast<size_t>(MAX_THREADS) * (STACK + PAGE),
                      PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) abort();
    base = static_cast<char *>(room);
    return base;
}

bool on_fiber_stacks(const void *p)
{
    const char *at = static_cast<const char *>(p);
    return base && at >= base && at < base + static_cast<size_t>(MAX_THREADS) * (STACK + PAGE);
}

void fiber_make(fiber *f, int number)
{
    char *guard = pool_stacks() + static_cast<size_t>(number) * (STACK + PAGE);
    if (mprotect(guard, PAGE, PROT_NONE)) abort();
    f->stack = guard + PAGE;
    f->bottom = f->stack;
    f->size = STACK;
}

#ifdef SIMT_UCONTEXT
static void prepare_context(fiber *f, void (*entry)(void))
{
    if (!f->sp) f->sp = new ucontext_t;
    ucontext_t *c = static_cast<ucontext_t *>(f->sp);
    getcontext(c);
    c->uc_stack.ss_sp = f->stack;
    c->uc_stack.ss_size = STACK;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
}
static void switch_context(fiber *from, fiber *to)
{
    if (!from->sp) from->sp = new ucontext_t;
    swapcontext(static_cast<ucontext_t *>(from->sp), static_cast<ucontext_t *>(to->sp));
}
#else
extern "C" void simt_switch_stack(void **save, void *load);
__asm__(".text\n"
        ".globl simt_switch_stack\n"
        ".type simt_switch_stack,@function\n"
        "simt_switch_stack:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size simt_switch_stack, .-simt_switch_stack\n"
        ".section .note.GNU-stack,\"\",@progbits\n"
        ".text\n");

// A frame that the switch pops: six registers, then entry, then a return address that is never used
// and keeps the stack as the calling convention wants it at entry.
static void prepare_context(fiber *f, void (*entry)(void))
{
    void **top = reinterpret_cast<void **>(f->stack + STACK - 16);
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    f->sp = top;
}
static void switch_context(fiber *from, fiber *to) { simt_switch_stack(&from->sp, to->sp); }
#endif

void fiber_prepare(fiber *f, void (*entry)(void))
{
    f->fake = nullptr;
    // an ended fiber leaves the poison of its last frames after; the kernel's own have returned
    permit(f->stack + STACK - END, END);
    prepare_context(f, entry);
}

#ifdef SIMT_ASAN
static fiber *left; // by the last switch
#endif

void fiber_entered(void)
{
#ifdef SIMT_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (!left->stack) left->bottom = bottom, left->size = size;
#endif
}

void fiber_switch(fiber *from, fiber *to, bool dying)
{
#ifdef SIMT_ASAN
    left = from;
    __sanitizer_start_switch_fiber(dying ? nullptr : &from->fake, to->bottom, to->size);
#else
    (void)dying;
#endif
    switch_context(from, to);
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
}

} // namespace simt
