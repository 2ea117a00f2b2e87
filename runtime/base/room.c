/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/room.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

bool pare_has_room(size_t bytes)
{
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return false;
    munmap(room, bytes);
    return true;
}

void pare_memory_give_back(const void *data, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = ((uintptr_t)data + page - 1) & ~(page - 1);
    const uintptr_t to = ((uintptr_t)data + bytes) & ~(page - 1);
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}
