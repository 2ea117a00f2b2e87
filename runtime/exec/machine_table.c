/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/exec/machine_table.h"

#include "formats/json.h"
#include "runtime/exec/plan.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FORMAT = 1 };

struct pare_machine_table {
    pare_ctx *ctx;
    const pare_machine_table_kind *kind;
    const char *folder;
    char *path;                      /* NULL: nothing on disk */
    char machine[PARE_MACHINE_NAME]; /* whose numbers these are, on disk */
    json_t *entry;                   /* of this machine */
    bool changed;
};

/* Model and instruction set in force. */
static pare_hash processor_hash(void)
{
    char line[256] = "";
    pare_hash sum = {0};
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "model name", 10) || !strncmp(line, "flags", 5)) {
            sum = pare_hash_sum(sum, pare_hash_bytes(line, strlen(line)));
            if (line[0] == 'f') break;
        }
    if (f) fclose(f);
    static const char *const limits[] = {"DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA"};
    for (int i = 0; i < 2; i++) {
        const char *isa = getenv(limits[i]);
        if (isa) sum = pare_hash_sum(sum, pare_hash_bytes(isa, strlen(isa)));
    }
    return sum;
}

void pare_machine_name(pare_ctx *ctx, char *out, size_t size, pare_device *device)
{
    char sum[33];
    if (device) {
        snprintf(out, size, "%s, CUDA %s, %s, kernels %s", device->name, device->driver,
                 pare_device_versions(ctx, device), pare_kernels_id);
        return;
    }
    pare_hash_text(processor_hash(), sum);
    snprintf(out, size, "processor %s, kernels %s", sum, pare_kernels_id);
}

/* --- the file --- */

/* All machines' tables; an empty set where there is no file, or none of this format (*other says
   what it is). */
static json_t *machines_read(const pare_machine_table *t, const char **other)
{
    json_t *root = NULL, *machines;
    struct stat info;
    *other = NULL;
    if (stat(t->path, &info)) return json_object();
    if (pare_json_read(t->ctx, &root, t->path) != PARE_OK || !json_is_object(root))
        *other = "not";
    else if (json_integer_value(json_object_get(root, t->kind->format)) != FORMAT ||
             !json_is_object(json_object_get(root, "machines")))
        *other = "of another version";
    pare_ctx_clear(t->ctx);
    machines = *other ? json_object() : json_incref(json_object_get(root, "machines"));
    json_decref(root);
    return machines;
}

static void load(pare_machine_table *t)
{
    const char *other;
    json_t *machines = machines_read(t, &other);
    json_t *own = json_object_get(machines, t->machine);
    if (!other && own && !json_is_object(own)) other = "not";
    if (other && !strcmp(other, "not"))
        pare_log(t->ctx, PARE_LOG_WARNING, "%s is not %s; %s", t->path, t->kind->what,
                 t->kind->without);
    else if (other)
        pare_log(t->ctx, PARE_LOG_WARNING, "%s is %s %s; %s", t->path, t->kind->what, other,
                 t->kind->without);
    else if (!own && json_object_size(machines))
        pare_log(t->ctx, PARE_LOG_WARNING,
                 "%s holds the times of other machines or versions only; %s", t->path,
                 t->kind->without);
    else if (own)
        json_object_update(t->entry, own);
    json_decref(machines);
}

/* Another process may have added entries meanwhile: they are kept. One at a time reads and writes.
 */
void pare_machine_table_store(pare_machine_table *t)
{
    const char *other;
    if (!t->path || !t->changed) return;
    t->changed = false;
    const int lock = open(t->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock >= 0) flock(lock, LOCK_EX); /* without one (some file systems) an entry may be lost */
    json_t *machines = machines_read(t, &other);
    json_t *own = json_object_get(machines, t->machine);
    if (json_is_object(own))
        json_object_update(own, t->entry);
    else
        json_object_set(machines, t->machine, t->entry);
    json_t *root = json_pack("{s:i, s:o}", t->kind->format, FORMAT, "machines", machines);
    if (!root || pare_json_write(t->ctx, root, t->path) != PARE_OK) {
        pare_log(t->ctx, PARE_LOG_WARNING, "%s was not written: %s", t->kind->what,
                 t->ctx->message);
        pare_ctx_clear(t->ctx);
        pare_free(t->path);
        t->path = NULL; /* once is enough */
    }
    if (lock >= 0) close(lock);
    json_decref(root);
}

pare_status pare_machine_table_open(pare_ctx *ctx, pare_machine_table **out, const char *folder,
                                    pare_device *device, const pare_machine_table_kind *kind)
{
    pare_machine_table *t = pare_alloc(ctx, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    t->ctx = ctx;
    t->kind = kind;
    t->folder = folder;
    t->entry = json_object();
    if (folder) {
        pare_machine_name(ctx, t->machine, sizeof t->machine, device);
        size_t n = strlen(folder) + strlen(kind->file) + 2;
        t->path = pare_alloc(ctx, n, 1);
        if (!t->path) {
            pare_machine_table_free(t);
            return PARE_MEMORY;
        }
        snprintf(t->path, n, "%s/%s", folder, kind->file);
        load(t);
    }
    *out = t;
    return PARE_OK;
}

void pare_machine_table_free(pare_machine_table *table)
{
    if (!table) return;
    json_decref(table->entry);
    pare_free(table->path);
    pare_free(table);
}

const json_t *pare_machine_table_find(const pare_machine_table *table, const char *key)
{
    return json_object_get(table->entry, key);
}

pare_status pare_machine_table_put(pare_machine_table *table, const char *key, json_t *value)
{
    if (!value || json_object_set_new(table->entry, key, value))
        return PARE_FAIL(table->ctx, MEMORY, "%s: out of memory", table->kind->what);
    table->changed = true;
    return PARE_OK;
}

/* --- keys --- */

void pare_key_add(pare_hash *sum, int place, const void *data, size_t bytes)
{
    pare_hash h = pare_hash_bytes(data, bytes);
    h.low = (h.low ^ (uint64_t)place) * 0x9E3779B97F4A7C15u;
    *sum = pare_hash_sum(*sum, h);
}

static void add_attr(pare_hash *sum, const pare_attr *a)
{
    int place = (int)strlen(a->name) + a->name[0] * 64;
    size_t n = (size_t)a->count;
    switch (a->kind) {
    case PARE_ATTR_INT: pare_key_add(sum, place, &a->i, sizeof a->i); break;
    case PARE_ATTR_FLOAT: pare_key_add(sum, place, &a->f, sizeof a->f); break;
    case PARE_ATTR_STRING: pare_key_add(sum, place, a->s.data, a->s.size); break;
    case PARE_ATTR_INTS: pare_key_add(sum, place, a->ints, n * sizeof *a->ints); break;
    case PARE_ATTR_FLOATS: pare_key_add(sum, place, a->floats, n * sizeof *a->floats); break;
    default: break;
    }
}

void pare_key_add_attrs(pare_hash *sum, const pare_node *node)
{
    for (int i = 0; i < node->attr_count; i++) add_attr(sum, &node->attr[i]);
}
