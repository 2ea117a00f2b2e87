/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that runs out inside a library, which then ends the program in its own way: oneDNN throws
   std::bad_alloc, which no C code can catch; the OpenMP runtime prints a line and calls exit();
   libhdf5 and oneDNN follow null pointers; the stack does not grow. The guard turns each of these
   into one message on standard error and exit status 1. Output files are complete or absent then,
   as after a kill (formats/file.h). */
#ifndef PARE_TOOLS_MEMORY_GUARD_H
#define PARE_TOOLS_MEMORY_GUARD_H

/* Once, at the start of the program. The guard does not serve processes that are forked later. */
void pare_memory_guard_install(void);

/* What the message names: the file that is worked on (NULL: none) and what would need less memory.
   Until the first call and after pare_memory_guard_clear, exit() is the program's own. */
void pare_memory_guard_set(const char *file, const char *cure);
void pare_memory_guard_clear(void);

/* The message goes into this file, too, as pare_ending_leave (tools/ending.h) writes it; path lives
   as long as the program. */
void pare_memory_guard_tell(const char *path);
#endif
