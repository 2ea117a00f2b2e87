/* SPDX-License-Identifier: Apache-2.0 */
/* Is memory short? For libraries that crash, or name another reason, where they get none. */
#ifndef PARE_RUNTIME_BASE_ROOM_H
#define PARE_RUNTIME_BASE_ROOM_H

#include <stdbool.h>
#include <stddef.h>

/* So much is left wherever memory is not short. */
#define PARE_ROOM_LEAST ((size_t)64 << 20)

/* Can the process map so many bytes more? Safe in a signal handler. */
bool pare_has_room(size_t bytes);
#endif
