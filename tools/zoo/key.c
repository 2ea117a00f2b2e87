/* SPDX-License-Identifier: Apache-2.0 */
/* A key is a chain: each text that decides is hashed, and the chain with it. */
#include "tools/zoo/key.h"

#include "formats/file.h"
#include "formats/onnx.h"
#include "tools/zoo/plan.h"

#include <stdio.h>
#include <string.h>

struct pare_zoo_known_file {
    const char *path;
    pare_hash hash;
};

static void fold(pare_hash *key, pare_hash with)
{
    const pare_hash both[2] = {*key, with};
    *key = pare_hash_bytes(both, sizeof both);
}

/* Texts of different lengths cannot be taken for each other: each is hashed apart. */
static void fold_text(pare_hash *key, const char *text)
{
    fold(key, pare_hash_bytes(text, strlen(text)));
}

static pare_status fold_file(pare_zoo_keys *k, pare_hash *key, const char *path)
{
    size_t i = 0;
    while (i < k->count && strcmp(k->known[i].path, path) != 0) i++;
    if (i == k->count) {
        pare_hash hash;
        if (!pare_arena_grow(k->arena, &k->known, &k->capacity, k->count, sizeof *k->known))
            return PARE_MEMORY;
        PARE_TRY(pare_file_hash_quick(k->arena->ctx, path, &hash));
        k->known[k->count++] = (struct pare_zoo_known_file){path, hash};
    }
    fold(key, k->known[i].hash);
    return PARE_OK;
}

/* A file that is no model, or cannot be read, is for its first step to refuse. */
static pare_status fold_model(pare_zoo_keys *k, pare_hash *key, const char *file)
{
    pare_ctx *ctx = k->arena->ctx;
    char text[33];
    pare_hash bytes;
    pare_status st = pare_onnx_hash(ctx, file, text, NULL);
    if (st == PARE_OK) fold_text(key, text);
    if (st == PARE_OK || st == PARE_MEMORY || st == PARE_INTERRUPTED) return st;
    pare_ctx_clear(ctx);
    fold_text(key, "no model");
    st = pare_file_hash(ctx, file, &bytes);
    if (st == PARE_OK) fold(key, bytes);
    if (st == PARE_OK || st == PARE_MEMORY || st == PARE_INTERRUPTED) return st;
    pare_ctx_clear(ctx);
    fold_text(key, file);
    return PARE_OK;
}

pare_status pare_zoo_key_model(pare_zoo_keys *k, pare_hash *key, const char *file)
{
    *key = (pare_hash){0};
    fold_text(key, "pare zoo 1");
    fold_text(key, k->version);
    fold_text(key, k->isa);
    fold_text(key, k->machine);
    return fold_model(k, key, file);
}

pare_status pare_zoo_key_step(pare_zoo_keys *k, pare_hash *key, const pare_zoo_step *step,
                              const pare_zoo_model *model)
{
    fold_text(key, step->command->name);
    if (step->takes_data && model->data) {
        fold_text(key, "data");
        PARE_TRY(fold_file(k, key, model->data));
    }
    for (int i = 0; i < step->option_count; i++) {
        const pare_zoo_option *o = &step->options[i];
        fold_text(key, o->row->name);
        if (o->row->kind == PARE_OPTION_FILE)
            PARE_TRY(fold_file(k, key, o->value));
        else if (o->value)
            fold_text(key, o->value);
    }
    return PARE_OK;
}

pare_status pare_zoo_key_judge(pare_zoo_keys *k, pare_hash *key, const pare_zoo *zoo,
                               const pare_zoo_model *model)
{
    char samples[32];
    snprintf(samples, sizeof samples, "%lld", (long long)zoo->samples);
    fold_text(key, "validate");
    fold_text(key, samples);
    fold_text(key, zoo->latency ? "latency" : "");
    if (zoo->any_accuracy) fold_text(key, "any accuracy");
    return fold_file(k, key, model->test);
}
