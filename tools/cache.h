/* SPDX-License-Identifier: Apache-2.0 */
/* What one command computed and another one needs again: files of a folder (--cache), each named by
   a hash of all that its content depends on. An entry says how long it is and what its content's
   hash is; one that is cut, changed or of another format is not used, and a warning says so. Who
   writes one writes beside and renames, so any number of processes may share the folder. It may be
   emptied at any time; when the entries of a kind pass a bound, those not used longest go. A cache
   never makes a command fail. */
#ifndef PARE_TOOLS_CACHE_H
#define PARE_TOOLS_CACHE_H

#include "formats/file.h"
#include "tools/options.h"

typedef struct pare_cache {
    pare_ctx *ctx;
    const char *folder; /* NULL: nothing is found or kept */
    const char *kind;   /* "outputs", "statistics": a folder in it */
    int64_t most;       /* bytes of all entries of a kind; 0: 4 GiB */
} pare_cache;

/* --- keys: begun with the program's version, the kind and the machine --- */

void pare_cache_key_begin(pare_hash *key, const pare_cache *cache, pare_device *device);
void pare_cache_key_add(pare_hash *key, const void *data, size_t bytes);
void pare_cache_key_add_text(pare_hash *key, const char *text); /* NULL differs from "" */
/* A file's content, by pare_file_hash_quick. */
PARE_NODISCARD pare_status pare_cache_key_add_file(pare_ctx *ctx, pare_hash *key, const char *path);

/* --- entries --- */

typedef struct pare_cache_entry {
    const uint8_t *data; /* on a page's boundary; NULL: there is none */
    size_t size;
    pare_map map;
} pare_cache_entry;

/* False, and an entry without data: there is none of use. */
bool pare_cache_find(const pare_cache *cache, const pare_hash *key, pare_cache_entry *out);
void pare_cache_close(pare_cache_entry *entry);
/* Takes an entry away that was found, but is not what was thought; why: "is of other data". */
void pare_cache_drop(const pare_cache *cache, const pare_hash *key, const char *why);

/* Writing: what fails is one warning at the end. NULL (no folder) is allowed everywhere. */
typedef struct pare_cache_writer pare_cache_writer;
pare_cache_writer *pare_cache_begin(const pare_cache *cache, const pare_hash *key);
void pare_cache_write(pare_cache_writer *writer, const void *data, size_t bytes);
void pare_cache_commit(pare_cache_writer *writer);
void pare_cache_discard(pare_cache_writer *writer);
#endif
