/* SPDX-License-Identifier: Apache-2.0 */
/* The part of JSON Schema (draft 2020-12) that facts.schema.json uses: $ref, type, enum, const,
   required, properties, additionalProperties as a rule, items. */
#include "tools/facts.h"

#include "formats/json.h"
#include "tools/embedded.h"

#include <string.h>

enum { DEEPEST = 24 };

typedef struct checker {
    pare_ctx *ctx;
    const char *file;
    const json_t *defs;
    char at[256]; /* "models[1].bytes" */
} checker;

static const char *kind_of(const json_t *value)
{
    static const char *const kinds[] = {"object", "array",   "string",  "integer",
                                        "number", "boolean", "boolean", "null"};
    return kinds[json_typeof(value)];
}

static bool is_kind(const json_t *value, const char *kind)
{
    return !strcmp(kind_of(value), kind) || (!strcmp(kind, "number") && json_is_number(value));
}

/* "integer" or "number or null" */
static pare_status check_type(checker *c, const json_t *value, const json_t *type)
{
    char words[96] = "";
    if (!type || (json_is_string(type) && is_kind(value, json_string_value(type)))) return PARE_OK;
    size_t i;
    json_t *one;
    if (json_is_string(type)) snprintf(words, sizeof words, "%s", json_string_value(type));
    json_array_foreach((json_t *)type, i, one)
    {
        const size_t n = strlen(words);
        if (is_kind(value, json_string_value(one))) return PARE_OK;
        snprintf(words + n, sizeof words - n, "%s%s", i ? " or " : "", json_string_value(one));
    }
    return PARE_FAIL(c->ctx, INPUT, "%s: %s is of type %s, expected %s", c->file, c->at,
                     kind_of(value), words);
}

static pare_status check_words(checker *c, const json_t *value, const json_t *rule)
{
    const json_t *words = json_object_get(rule, "enum"), *only = json_object_get(rule, "const");
    bool found = !words && (!only || json_equal(value, only));
    size_t i;
    json_t *word;
    json_array_foreach((json_t *)words, i, word) found |= json_equal(value, word);
    if (found) return PARE_OK;
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const pare_status st =
        PARE_FAIL(c->ctx, INPUT, "%s: %s is %.64s, which this version does not know", c->file,
                  c->at, text ? text : "what");
    free(text);
    return st;
}

static pare_status check(checker *c, const json_t *value, const json_t *rule, int depth);

/* check of a part of value: a key, or an index where key is NULL. */
static pare_status check_part(checker *c, const json_t *part, const json_t *rule, const char *key,
                              size_t index, int depth)
{
    const size_t n = strlen(c->at);
    if (key)
        snprintf(c->at + n, sizeof c->at - n, "%s%.64s", n ? "." : "", key);
    else
        snprintf(c->at + n, sizeof c->at - n, "[%zu]", index);
    PARE_TRY(check(c, part, rule, depth + 1));
    c->at[n] = 0;
    return PARE_OK;
}

static pare_status check_object(checker *c, const json_t *value, const json_t *rule, int depth)
{
    const json_t *known = json_object_get(rule, "properties"),
                 *rest = json_object_get(rule, "additionalProperties");
    size_t i;
    json_t *name, *part;
    const char *key;
    json_array_foreach(json_object_get(rule, "required"), i, name)
    {
        if (!json_object_get(value, json_string_value(name)))
            return PARE_FAIL(c->ctx, INPUT, "%s: %s%s%s is missing; it holds no facts of pare",
                             c->file, c->at, *c->at ? "." : "", json_string_value(name));
    }
    json_object_foreach((json_t *)value, key, part)
    {
        const json_t *own = json_object_get(known, key);
        if (!own && json_is_object(rest)) own = rest;
        if (own) PARE_TRY(check_part(c, part, own, key, 0, depth));
    }
    return PARE_OK;
}

static pare_status check(checker *c, const json_t *value, const json_t *rule, int depth)
{
    const char *reference = json_string_value(json_object_get(rule, "$ref"));
    if (depth > DEEPEST) return PARE_OK; /* the rules are not that deep */
    if (reference)
        PARE_TRY(check(c, value, json_object_get(c->defs, strrchr(reference, '/') + 1), depth + 1));
    PARE_TRY(check_type(c, value, json_object_get(rule, "type")));
    PARE_TRY(check_words(c, value, rule));
    if (json_is_object(value)) return check_object(c, value, rule, depth);
    const json_t *each = json_object_get(rule, "items");
    size_t i;
    json_t *part;
    json_array_foreach((json_t *)value, i, part)
    {
        if (each) PARE_TRY(check_part(c, part, each, NULL, i, depth));
    }
    return PARE_OK;
}

/* --- the rules --- */

struct pare_facts_rules {
    pare_ctx *ctx;
    json_t *schema;
};

pare_status pare_facts_rules_new(pare_ctx *ctx, pare_facts_rules **out)
{
    pare_facts_rules *rules = pare_alloc(ctx, 1, sizeof *rules);
    if (!rules) return PARE_MEMORY;
    *rules = (pare_facts_rules){ctx, json_loads((const char *)pare_embedded_schema, 0, NULL)};
    if (!rules->schema) {
        pare_free(rules);
        return PARE_FAIL(ctx, MEMORY, "no memory for the rules of facts");
    }
    *out = rules;
    return PARE_OK;
}

void pare_facts_rules_free(pare_facts_rules *rules)
{
    if (rules) json_decref(rules->schema);
    pare_free(rules);
}

static pare_status check_all(const pare_facts_rules *rules, const json_t *facts, const char *path)
{
    checker c = {.ctx = rules->ctx, .file = path, .defs = json_object_get(rules->schema, "$defs")};
    if (!json_is_object(facts))
        return PARE_FAIL(rules->ctx, INPUT, "%s: holds no facts of pare: it is no JSON object",
                         path);
    PARE_TRY(check(&c, facts, rules->schema, 0));
    return check(&c, facts,
                 json_object_get(c.defs, json_string_value(json_object_get(facts, "command"))), 0);
}

pare_status pare_facts_rules_read(const pare_facts_rules *rules, json_t **out, const char *path)
{
    json_t *facts;
    PARE_TRY(pare_json_read(rules->ctx, &facts, path));
    const pare_status st = check_all(rules, facts, path);
    if (st == PARE_OK)
        *out = facts;
    else
        json_decref(facts);
    return st;
}

/* --- once --- */

pare_status pare_facts_check(pare_ctx *ctx, const json_t *facts, const char *path)
{
    pare_facts_rules *rules = NULL;
    PARE_TRY(pare_facts_rules_new(ctx, &rules));
    const pare_status st = check_all(rules, facts, path);
    pare_facts_rules_free(rules);
    return st;
}

pare_status pare_facts_read(pare_ctx *ctx, json_t **out, const char *path)
{
    pare_facts_rules *rules = NULL;
    PARE_TRY(pare_facts_rules_new(ctx, &rules));
    const pare_status st = pare_facts_rules_read(rules, out, path);
    pare_facts_rules_free(rules);
    return st;
}
