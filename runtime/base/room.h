/* SPDX-License-Identifier: Apache-2.0 */
/* Is memory short? For libraries that crash, or name another reason, where they get none. And
   memory that need not be held. */
#ifndef PARE_RUNTIME_BASE_ROOM_H
#define PARE_RUNTIME_BASE_ROOM_H

#include <stdbool.h>
#include <stddef.h>

/* So much is left wherever memory is not short. */
#define PARE_ROOM_LEAST ((size_t)64 << 20)

/* Can the process map so many bytes more? Safe in a signal handler. */
bool pare_has_room(size_t bytes);

/* Takes whole pages out of the process' memory. Those of a file's read-only map come back from the
   file when they are read again; what was in the process' own is lost. */
void pare_memory_give_back(const void *data, size_t bytes);

#endif
