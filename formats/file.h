/* SPDX-License-Identifier: Apache-2.0 */
/* Files: read-only maps, and outputs that are complete or absent. */
#ifndef PARE_FORMATS_FILE_H
#define PARE_FORMATS_FILE_H

#include "runtime/base/ctx.h"
#include "runtime/base/hash.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_map {
    const uint8_t *data;
    size_t size;
} pare_map;

/* Maps a whole regular file read-only. PARE_IO where it cannot be opened or read, with the reason.
 */
PARE_NODISCARD pare_status pare_map_open(pare_ctx *ctx, pare_map *out, const char *path);
/* The same with a copy in memory, which stays as it is whatever happens to the file. PARE_INPUT
   where the file changes while it is read. */
PARE_NODISCARD pare_status pare_map_read(pare_ctx *ctx, pare_map *out, const char *path);
void pare_map_close(pare_map *map);

/* A file that appears under its name only when committed: written without a name (or beside, as
   "path.XXXXXX"), flushed to disk, renamed. A process that dies leaves the old file or the new one.
 */
typedef struct pare_output pare_output;
PARE_NODISCARD pare_status pare_output_open(pare_ctx *ctx, pare_output **out, const char *path);
/* Append; PARE_IO names the file and the reason (no space, no permission). */
PARE_NODISCARD pare_status pare_output_write(pare_output *output, const void *data, size_t bytes);
/* Writes over the first bytes of what was written, which are at least as many. PARE_IO where the
   path is no file: what a pipe or a device took cannot be taken back. */
PARE_NODISCARD pare_status pare_output_overwrite(pare_output *output, const void *data,
                                                 size_t bytes);
int pare_output_fd(pare_output *output);
/* Brings what was written to the disk: for those who commit several files after each other. */
PARE_NODISCARD pare_status pare_output_flush(pare_output *output);
/* Commits and frees, or on failure removes and frees. */
PARE_NODISCARD pare_status pare_output_commit(pare_output *output);
/* The same without waiting for the disk: for what is checked when it is read, and can be made
 * again.
 */
PARE_NODISCARD pare_status pare_output_commit_unflushed(pare_output *output);
/* Removes what was written and frees; NULL is allowed. */
void pare_output_discard(pare_output *output);
/* Takes the room that a file of so many bytes will need at path, under no name, until it is
   discarded: work of hours that ends with this file fails before it starts where there is no room.
   PARE_IO: there is none. *out is NULL where room cannot be taken: a device, a pipe, a file system
   without nameless files. */
PARE_NODISCARD pare_status pare_output_reserve(pare_ctx *ctx, pare_output **out, const char *path,
                                               uint64_t bytes);
/* Both at once for content in memory. */
PARE_NODISCARD pare_status pare_file_write(pare_ctx *ctx, const char *path, const void *data,
                                           size_t bytes);

/* Makes the folder where it is missing. PARE_IO: it cannot be made or written to. what: what it is
   for, in the message ("checkpoints"). */
PARE_NODISCARD pare_status pare_folder_make(pare_ctx *ctx, const char *folder, const char *what);

/* True where both paths name the same existing file. */
bool pare_file_same(const char *a, const char *b);
/* Hash of a file's content. */
PARE_NODISCARD pare_status pare_file_hash(pare_ctx *ctx, const char *path, pare_hash *out);
/* The same of a file up to 1 GiB; of a larger one the hash of its size, its time of change and 512
   blocks of 4 KiB, evenly spaced. */
PARE_NODISCARD pare_status pare_file_hash_quick(pare_ctx *ctx, const char *path, pare_hash *out);

#ifdef __cplusplus
}
#endif
#endif
