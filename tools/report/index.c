/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report/index.h"

#include <stdlib.h>

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text && *text ? text : NULL;
}

void pare_report_index_init(pare_report_index *index)
{
    *index = (pare_report_index){json_array(), json_object(), json_object(), json_object(),
                                 json_object()};
}

void pare_report_index_clear(pare_report_index *index)
{
    json_decref(index->models);
    json_decref(index->by_hash);
    json_decref(index->by_file);
    json_decref(index->nameless);
    json_decref(index->comparisons);
}

/* --- models --- */

static void put(json_t *map, const char *key, size_t place)
{
    if (key && !json_object_get(map, key))
        json_object_set_new(map, key, json_integer((json_int_t)place));
}

/* The place that a map has under a key, or else. */
static size_t place_of(const json_t *map, const char *key, size_t other)
{
    const json_t *place = key ? json_object_get(map, key) : NULL;
    return place ? (size_t)json_integer_value(place) : other;
}

void pare_report_index_add(pare_report_index *index, json_t *model)
{
    const char *hash = text_of(model, "hash"), *file = text_of(model, "file");
    const size_t end = json_array_size(index->models);
    size_t place = place_of(index->nameless, file, end);
    if (place < end && json_array_get(index->models, place) == model) {
        if (!hash) return;
        json_object_del(index->nameless, file);
    } else {
        place = end;
        json_array_append(index->models, model);
        put(index->by_file, file, place);
        if (!hash) put(index->nameless, file, place);
    }
    put(index->by_hash, hash, place);
}

json_t *pare_report_index_find(const pare_report_index *index, const json_t *like)
{
    const char *hash = text_of(like, "hash"), *file = text_of(like, "file");
    const size_t none = json_array_size(index->models);
    size_t by_name = place_of(hash ? index->nameless : index->by_file, file, none);
    const size_t by_hash = place_of(index->by_hash, hash, none);
    if (by_hash < by_name) by_name = by_hash;
    return json_array_get(index->models, by_name);
}

/* --- comparisons --- */

/* What makes two of validate's facts parts of one comparison, as text. NULL: out of memory. */
static char *key_of(const json_t *facts)
{
    static const char *const parts[] = {"file", "samples", "range", "classes"};
    static const char *const machine[] = {"name", "cuda", "driver", "processor", "isa"};
    const json_t *first = json_array_get(json_object_get(facts, "models"), 0);
    const json_t *data = json_object_get(facts, "data"), *device = json_object_get(facts, "device");
    json_t *key = json_array();
    json_array_append(key, json_object_get(facts, "version"));
    json_array_append(key, json_object_get(first, "file"));
    json_array_append_new(key, json_pack("s?", text_of(first, "hash")));
    for (int i = 0; i < 4; i++)
        json_array_append_new(key, json_pack("[s, O?]", parts[i], json_object_get(data, parts[i])));
    for (int i = 0; i < 5; i++)
        json_array_append_new(
            key, json_pack("[s, O?]", machine[i], json_object_get(device, machine[i])));
    char *text = json_dumps(key, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(key);
    return text;
}

json_t *pare_report_index_same(const pare_report_index *index, const json_t *facts)
{
    char *key = key_of(facts);
    json_t *found = key ? json_object_get(index->comparisons, key) : NULL;
    free(key);
    return found;
}

void pare_report_index_keep(pare_report_index *index, const json_t *facts, json_t *comparison)
{
    char *key = key_of(facts);
    if (key) json_object_set(index->comparisons, key, comparison);
    free(key);
}
