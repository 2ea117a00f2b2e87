// SPDX-License-Identifier: Apache-2.0
// Atomics. Threads switch only where they wait, so that a plain update is atomic; the checker is
// told of it. Compiled without the checker's instrumentation.
#include "engine.h"
#include "simt_device.h"

using namespace simt;

namespace
{

template <class T> T wrapped(T a, T b)
{
    return a + b;
}
int wrapped(int a, int b)
{
    return static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b));
}

template <class T> T make_atomicAdd(T old, T value)
{
    return wrapped(old, value);
}
template <class T> T make_atomicSub(T old, T value)
{
    return static_cast<T>(static_cast<unsigned>(old) - static_cast<unsigned>(value));
}
template <class T> T make_atomicExch(T, T value)
{
    return value;
}
template <class T> T make_atomicMin(T old, T value)
{
    return value < old ? value : old;
}
template <class T> T make_atomicMax(T old, T value)
{
    return old < value ? value : old;
}
template <class T> T make_atomicAnd(T old, T value)
{
    return old & value;
}
template <class T> T make_atomicOr(T old, T value)
{
    return old | value;
}
template <class T> T make_atomicXor(T old, T value)
{
    return old ^ value;
}

template <class T> void announce(T *address, const void *pc)
{
    if (reinterpret_cast<uintptr_t>(address) % sizeof(T))
        simt_fault("an atomic's address is not aligned to its %zu bytes", sizeof(T));
    if (check) check->access(address, sizeof(T), true, true, pc);
}

template <class T> T compare_and_swap(T *address, T expected, T value, const void *pc)
{
    announce(address, pc);
    T old = *address;
    if (old == expected) *address = value;
    return old;
}

} // namespace

#define SIMT_DEFINE(name, T)                                                                       \
    T name(T *address, T value)                                                                    \
    {                                                                                              \
        announce(address, __builtin_return_address(0));                                            \
        T old = *address;                                                                          \
        *address = make_##name(old, value);                                                        \
        return old;                                                                                \
    }
SIMT_ATOMICS(SIMT_DEFINE)

int atomicCAS(int *address, int expected, int value)
{
    return compare_and_swap(address, expected, value, __builtin_return_address(0));
}
unsigned atomicCAS(unsigned *address, unsigned expected, unsigned value)
{
    return compare_and_swap(address, expected, value, __builtin_return_address(0));
}
unsigned long long atomicCAS(unsigned long long *address, unsigned long long expected,
                             unsigned long long value)
{
    return compare_and_swap(address, expected, value, __builtin_return_address(0));
}
