/* SPDX-License-Identifier: Apache-2.0 */
/* ModelProto to model: the file is mapped, payloads are cut out (wire.c), protobuf-c parses
   the rest, and the graph is built from that. */
#include "formats/onnx/inner.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- files of a model --- */

void pare_onnx_files_free(void *files)
{
    pare_onnx_files *f = files;
    if (!f) return;
    for (size_t i = 0; i < f->count; i++) {
        pare_map_close(&f->file[i].map);
        pare_free(f->file[i].location);
    }
    pare_map_close(&f->model);
    pare_free(f->file);
    pare_free(f->payload);
    pare_free(f->folder);
    pare_free(f);
}

pare_status pare_onnx_files_note(pare_ctx *ctx, pare_onnx_files *files, pare_bytes payload)
{
    if (!pare_grow(ctx, &files->payload, &files->payload_capacity, files->payload_count,
                   sizeof *files->payload))
        return PARE_MEMORY;
    files->payload[files->payload_count++] = payload;
    return PARE_OK;
}

/* Refuses what leads out of the folder by its text alone. */
static const char *bad_location(const char *location)
{
    if (!location[0]) return "it has no location";
    if (location[0] == '/') return "an absolute path is not allowed";
    for (const char *part = location; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (!strncmp(part, "..", 2) && (part[2] == '/' || !part[2]))
            return "'..' is not allowed in it";
    }
    return NULL;
}

static pare_status open_file(pare_ctx *ctx, const pare_onnx_files *files, pare_map *out,
                             const char *path)
{
    return files->is_copy ? pare_map_read(ctx, out, path) : pare_map_open(ctx, out, path);
}

static pare_status map_inside(pare_ctx *ctx, const pare_onnx_files *files, pare_map *out,
                              const char *location)
{
    const char *bad = bad_location(location);
    size_t folder = strlen(files->folder), size = folder + strlen(location) + 2;
    if (bad)
        return PARE_FAIL(ctx, INPUT, "'%s': %s; the file must be in the model's own folder",
                         location, bad);
    char *path = pare_alloc(ctx, size, 1);
    if (!path) return PARE_MEMORY;
    memcpy(path, files->folder, folder);
    path[folder] = '/';
    strcpy(path + folder + 1, location);
    char *real = realpath(path, NULL);
    pare_status st;
    if (!real)
        st = PARE_FAIL(ctx, IO, "'%s' is not there; put it into the model's folder", path);
    else if (strncmp(real, files->folder, folder) || (folder > 1 && real[folder] != '/'))
        st = PARE_FAIL(ctx, INPUT,
                       "'%s' is a link that leads out of the model's folder; copy the file there",
                       location);
    else
        st = open_file(ctx, files, out, real);
    free(real);
    pare_free(path);
    return st;
}

pare_status pare_onnx_files_map(pare_ctx *ctx, pare_onnx_files *files, pare_map *out,
                                const char *location, const char *title)
{
    for (size_t i = files->count; i-- > 0;)
        if (!strcmp(files->file[i].location, location)) {
            *out = files->file[i].map;
            return PARE_OK;
        }
    pare_status st = map_inside(ctx, files, out, location);
    if (st != PARE_OK) return pare_fail_prefix(ctx, st, "%s: external data", title);
    char *copy = pare_strdup(ctx, location);
    if (!copy ||
        !pare_grow(ctx, &files->file, &files->capacity, files->count, sizeof *files->file)) {
        pare_free(copy);
        pare_map_close(out);
        return PARE_MEMORY;
    }
    files->file[files->count++] = (struct pare_onnx_file){copy, *out};
    files->bytes += out->size;
    return PARE_OK;
}

/* The real folder of a model; NULL with the message set. */
static pare_status find_folder(pare_ctx *ctx, char **out, const char *path)
{
    char *copy = pare_strdup(ctx, path);
    if (!copy) return PARE_MEMORY;
    char *slash = strrchr(copy, '/');
    if (slash) slash[slash == copy] = 0;
    char *real = realpath(slash ? copy : ".", NULL);
    pare_free(copy);
    *out = pare_strdup(ctx, real ? real : "");
    free(real);
    if (*out && **out) return PARE_OK;
    pare_free(*out);
    *out = NULL;
    return ctx->message[0] ? PARE_MEMORY : PARE_FAIL(ctx, IO, "%s: its folder is not there", path);
}

/* --- the model --- */

static pare_status read_opsets(pare_onnx_reader *r, pare_model *model, const Onnx__Model *m)
{
    if (m->n_opset_import > PARE_ONNX_MANY)
        return pare_onnx_problem(r, PARE_UNSUPPORTED, "it imports %zu opsets, expected at most %d",
                                 m->n_opset_import, PARE_ONNX_MANY);
    model->opset = pare_arena_alloc(r->arena, m->n_opset_import + 1, sizeof *model->opset);
    if (!model->opset) return PARE_MEMORY;
    for (size_t i = 0; i < m->n_opset_import; i++) {
        const Onnx__Opset *from = m->opset_import[i];
        pare_opset *to = &model->opset[model->opset_count];
        PARE_TRY(pare_onnx_text(r, &to->domain, from->has_domain, from->domain, "opset's domain"));
        PARE_TRY(pare_onnx_unknown(r, &to->unknown, &from->base));
        to->present = !from->has_version ? PARE_NO_VERSION : 0;
        if (to->domain && !to->domain[0]) to->present |= PARE_HAS_DOMAIN;
        if (to->domain && !strcmp(to->domain, "ai.onnx")) to->present |= PARE_LONG_DOMAIN;
        if (!to->domain || to->present & PARE_LONG_DOMAIN) to->domain = "";
        to->version = from->version;
        if (pare_model_opset(model, to->domain))
            PARE_TRY(pare_onnx_problem(r, PARE_INPUT, "opset domain '%s' is imported twice",
                                       to->domain));
        else
            model->opset_count++;
    }
    return PARE_OK;
}

static pare_status read_model(pare_onnx_reader *r, pare_model *model, const Onnx__Model *m)
{
    if (!m->graph || !m->has_ir_version)
        return PARE_FAIL(r->ctx, INPUT, "%s: is not an ONNX model: it has no %s", r->path,
                         m->graph ? "ir_version" : "graph");
    if (m->ir_version > PARE_ONNX_IR_MAX || m->ir_version < 1)
        PARE_TRY(pare_onnx_problem(r, PARE_UNSUPPORTED,
                                   "its IR version %" PRId64
                                   " is unknown, expected 1 to %d; export "
                                   "it for an older ONNX",
                                   m->ir_version, PARE_ONNX_IR_MAX));
    model->ir_version = m->ir_version;
    model->model_version = m->model_version;
    if (m->has_model_version) model->present |= PARE_HAS_VERSION;
    PARE_TRY(pare_onnx_text(r, &model->producer_name, m->has_producer_name, m->producer_name,
                            "producer_name"));
    PARE_TRY(pare_onnx_text(r, &model->producer_version, m->has_producer_version,
                            m->producer_version, "producer_version"));
    PARE_TRY(pare_onnx_text(r, &model->domain, m->has_domain, m->domain, "model's domain"));
    PARE_TRY(pare_onnx_text(r, &model->doc, m->has_doc_string, m->doc_string, "doc_string"));
    PARE_TRY(pare_onnx_pairs(r, &model->meta, m->n_metadata_props, m->metadata_props));
    PARE_TRY(pare_onnx_unknown(r, &model->unknown, &m->base));
    PARE_TRY(pare_onnx_ranges(r, &model->function, m->n_functions, m->functions));
    model->function_count = (int)m->n_functions;
    PARE_TRY(pare_onnx_ranges(r, &model->training_info, m->n_training_info, m->training_info));
    model->training_info_count = (int)m->n_training_info;
    PARE_TRY(read_opsets(r, model, m));
    if (pare_model_opset(model, "") > PARE_NEWEST_OPSET)
        pare_log(r->ctx, PARE_LOG_WARNING,
                 "%s: its opset %" PRId64 " is newer than %d, the newest that is known; operators "
                 "are read by their definition of opset %d",
                 model->path, pare_model_opset(model, ""), PARE_NEWEST_OPSET, PARE_NEWEST_OPSET);
    PARE_TRY(pare_onnx_graph(r, model->graph, m->graph));
    return pare_onnx_inline_functions(r, model);
}

/* Takes files over: they are freed with the model, or here on failure. */
static pare_status read_bytes(pare_ctx *ctx, pare_model **out, pare_bytes bytes, const char *path,
                              pare_onnx_files *files, pare_onnx_report report, void *user)
{
    pare_model *model;
    ProtobufCMessage *message;
    pare_onnx_reader r;
    pare_status st = pare_model_new(ctx, &model, path);
    if (st != PARE_OK) {
        pare_onnx_files_free(files);
        return st;
    }
    model->release = pare_onnx_files_free;
    model->release_user = files;
    pare_onnx_reader_init(&r, ctx, &model->arena, model->path);
    r.files = files;
    r.report = report;
    r.report_user = user;
    if (!bytes.size)
        st = PARE_FAIL(ctx, INPUT, "%s: is empty, expected an ONNX model", model->path);
    else
        st = pare_onnx_unpack(&r, &message, &onnx__model__descriptor, PARE_WIRE_MODEL, bytes);
    if (st == PARE_OK) st = read_model(&r, model, (const Onnx__Model *)message);
    pare_onnx_reader_free(&r);
    if (st != PARE_OK) {
        pare_model_free(model);
        return st;
    }
    *out = model;
    return PARE_OK;
}

static pare_status read_path(pare_ctx *ctx, pare_model **out, const char *path, bool is_copy,
                             pare_onnx_report report, void *user)
{
    pare_onnx_files *files = pare_alloc(ctx, 1, sizeof *files);
    if (!files) return PARE_MEMORY;
    files->is_copy = is_copy;
    pare_status st = open_file(ctx, files, &files->model, path);
    if (st == PARE_OK) st = find_folder(ctx, &files->folder, path);
    if (st != PARE_OK) {
        pare_onnx_files_free(files);
        return st;
    }
    files->bytes = files->model.size;
    pare_bytes bytes = {files->model.data, files->model.size};
    return read_bytes(ctx, out, bytes, path, files, report, user);
}

pare_status pare_onnx_read(pare_ctx *ctx, pare_model **out, const char *path)
{
    return read_path(ctx, out, path, false, NULL, NULL);
}

pare_status pare_onnx_read_copy(pare_ctx *ctx, pare_model **out, const char *path)
{
    return read_path(ctx, out, path, true, NULL, NULL);
}

pare_status pare_onnx_read_all(pare_ctx *ctx, pare_model **out, const char *path,
                               pare_onnx_report report, void *user)
{
    *out = NULL;
    return read_path(ctx, out, path, false, report, user);
}

pare_status pare_onnx_read_memory(pare_ctx *ctx, pare_model **out, const void *data, size_t bytes,
                                  const char *path)
{
    pare_onnx_files *files = pare_alloc(ctx, 1, sizeof *files);
    if (!files) return PARE_MEMORY;
    pare_status st = path ? find_folder(ctx, &files->folder, path) : PARE_OK;
    if (st != PARE_OK) {
        pare_onnx_files_free(files);
        return st;
    }
    files->bytes = bytes;
    return read_bytes(ctx, out, (pare_bytes){data, bytes}, path, files, NULL, NULL);
}

pare_status pare_onnx_hash(pare_ctx *ctx, const char *path, char *text, uint64_t *bytes)
{
    pare_model *model;
    PARE_TRY(pare_onnx_read(ctx, &model, path));
    const pare_onnx_files *files = model->release_user;
    if (bytes) *bytes = files->bytes;
    pare_status st = PARE_OK;
    if (text) {
        pare_hash hash[2] = {pare_hash_map(files->model.data, files->model.size), {0, 0}};
        for (size_t i = 0; i < files->payload_count && st == PARE_OK; i++) {
            hash[1] = pare_hash_map(files->payload[i].data, files->payload[i].size);
            hash[0] = pare_hash_bytes(hash, sizeof hash);
            st = pare_ctx_poll(ctx);
        }
        pare_hash_text(hash[0], text);
    }
    pare_model_free(model);
    return st;
}

pare_status pare_onnx_read_tensor(pare_ctx *ctx, pare_arena *arena, pare_tensor **out,
                                  const char *path)
{
    pare_map map;
    ProtobufCMessage *message;
    pare_onnx_reader r;
    PARE_TRY(pare_map_open(ctx, &map, path));
    pare_onnx_reader_init(&r, ctx, arena, path);
    /* the map goes at the end: the arena gets the bytes first */
    const void *copy = pare_arena_memdup(arena, map.data, map.size);
    pare_status st = copy ? PARE_OK : PARE_MEMORY;
    if (st == PARE_OK)
        st = pare_onnx_unpack(&r, &message, &onnx__tensor__descriptor, PARE_WIRE_TENSOR,
                              (pare_bytes){copy, map.size});
    if (st == PARE_OK) st = pare_onnx_tensor(&r, out, (const Onnx__Tensor *)message);
    pare_onnx_reader_free(&r);
    pare_map_close(&map);
    return st;
}
