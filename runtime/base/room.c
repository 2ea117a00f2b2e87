/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/room.h"

#include <sys/mman.h>

bool pare_has_room(size_t bytes)
{
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return false;
    munmap(room, bytes);
    return true;
}
