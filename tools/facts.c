/* SPDX-License-Identifier: Apache-2.0 */
/* One table of the keys that tables, pages and --diff read. facts.schema.json says all that
   commands write; what no reader of this program uses is not checked here. */
#include "tools/facts.h"

#include "formats/json.h"

#include <string.h>

/* Keys of one object, "name:type" where it must be there, "name?type" where it may be missing;
   types are JSON Schema's. */
#define FILE_KEYS    "file:string hash?string recipe?string bytes?integer precision?string"
#define DATA_KEYS    "file:string samples:integer range?string"
#define LATENCY_KEYS "median:number mean:number min:number max:number"
#define DEVICE_KEYS  "name:string processor?string cores?integer isa?string cuda?string"
#define MODEL_KEYS                                                                                 \
    "file:string precision:string bytes:integer hash?string recipe?string parameters?integer "     \
    "top1?number top1_interval?array drop?number drop_interval?array kept?number "                 \
    "kept_interval?array mcnemar?object agreement?number outputs?array latency_ms?object "         \
    "latency_interval?array runs?integer throughput_per_s?number speed_up?number "                 \
    "speed_up_interval?array stable?boolean emulated?boolean steps?array notes?array"
#define OUTPUT_KEYS "name:string cosine:number mse:number max_abs_error:number sqnr_interval?array"
#define STEP_KEYS                                                                                  \
    "node:string op_type:string kernel:string precision:string output:string shape:array "         \
    "bytes_in:integer bytes_out:integer live_bytes?integer macs:number time_ms:number "            \
    "share:number"
#define RANGE_KEYS     "name:string low:number high:number method:string"
#define HISTOGRAM_KEYS RANGE_KEYS " min:number max:number bins:array"
#define CHANGE_KEYS    "before:number after:number"
#define MADE_KEYS      "file:string hash:string bytes:integer layers:array distilled?object"
#define DISTILLED_KEYS                                                                             \
    "epochs:number loss:string batch:integer train_samples:integer held_out:integer steps:array"
#define SCORE_KEYS   "loss:number agreement?number top1?number"
#define FINDING_KEYS "model:string variant:string what:string text:string"

/* Where such an object is: a path of keys, [] for each entry of an array; what holds it says
   whether it must be there. Every command has a row for the object itself: "". */
static const struct row {
    const char *command, *path, *keys;
} rows[] = {
    {"validate", "", "data:object models:array device?object"},
    {"validate", "data", DATA_KEYS},
    {"validate", "device", DEVICE_KEYS},
    {"validate", "models[]", MODEL_KEYS},
    {"validate", "models[].latency_ms", LATENCY_KEYS},
    {"validate", "models[].outputs[]", OUTPUT_KEYS},
    {"validate", "models[].steps[]", STEP_KEYS},
    {"diagnose", "", "model:object quantized:object data:object diagnosis:object"},
    {"diagnose", "model", FILE_KEYS},
    {"diagnose", "quantized", FILE_KEYS},
    {"diagnose", "data", DATA_KEYS},
    {"diagnose", "diagnosis", "samples:integer findings:array tensors:array"},
    {"diagnose", "diagnosis.findings[]",
     "fault:string node:string tensor:string cause:string cure?string applied:boolean"},
    {"diagnose", "diagnosis.tensors[]", "tensor:string node:string range:array seen:array"},
    {"prune", "", "model:object smaller?array sparse?array compared?object advice?object"},
    {"prune", "model", FILE_KEYS},
    {"prune", "compared", "models:array device:object data?object held_out?boolean"},
    {"prune", "compared.data", DATA_KEYS},
    {"prune", "compared.device", DEVICE_KEYS},
    {"prune", "compared.models[]", MODEL_KEYS},
    {"prune", "compared.models[].latency_ms", LATENCY_KEYS},
    {"prune", "compared.models[].outputs[]", OUTPUT_KEYS},
    {"prune", "smaller[]", MADE_KEYS " target:object macs:object parameters:object groups:array"},
    {"prune", "smaller[].target", "of:string before:number goal:number reached:number"},
    {"prune", "smaller[].macs", CHANGE_KEYS},
    {"prune", "smaller[].parameters", CHANGE_KEYS},
    {"prune", "smaller[].distilled", DISTILLED_KEYS},
    {"prune", "smaller[].layers[]", CHANGE_KEYS " node:string shape?object note?string"},
    {"prune", "sparse[]", MADE_KEYS " sparsity:number weights:integer zeros:integer"},
    {"prune", "sparse[].distilled", DISTILLED_KEYS},
    {"prune", "sparse[].layers[]", "node:string weights:integer zeros:integer note?string"},
    {"quantize", "",
     "model:object output:object precision:string ranges?array histograms?array warnings?array"},
    {"quantize", "model", FILE_KEYS},
    {"quantize", "output", FILE_KEYS},
    {"quantize", "data", DATA_KEYS},
    {"quantize", "ranges[]", RANGE_KEYS},
    {"quantize", "histograms[]", HISTOGRAM_KEYS},
    {"calibrate", "", "model?object ranges?array histograms?array data?object"},
    {"calibrate", "model", FILE_KEYS},
    {"calibrate", "data", DATA_KEYS},
    {"calibrate", "ranges[]", RANGE_KEYS},
    {"calibrate", "histograms[]", HISTOGRAM_KEYS},
    {"distill", "", "teacher:object student:object output:object data:object before:object"},
    {"distill", "teacher", FILE_KEYS},
    {"distill", "student", FILE_KEYS},
    {"distill", "output", FILE_KEYS},
    {"distill", "data", DATA_KEYS},
    {"distill", "before", SCORE_KEYS},
    {"distill", "after", SCORE_KEYS},
    {"bench", "",
     "model:object device:object latency_ms:object phases_ms?object peak_memory_bytes:integer"},
    {"bench", "model", FILE_KEYS},
    {"bench", "device", DEVICE_KEYS},
    {"bench", "latency_ms", LATENCY_KEYS},
    {"bench", "phases_ms", "copy_in:number compute:number copy_out:number"},
    {"profile", "", "model:string device:string time_ms:number steps:array lanes?array"},
    {"profile", "steps[]", STEP_KEYS},
    {"profile", "lanes[]", "stream:integer lane:string name:string start_ms:number time_ms:number"},
    {"inspect", "", "model:object prediction?object"},
    {"inspect", "prediction",
     "device:string samples:number time_ms:number throughput_per_s:number steps:array "
     "measured?object"},
    {"inspect", "prediction.measured",
     "file:string device:string time_ms:number common:integer common_ms:number "
     "predicted_ms:number ratio?number"},
    {"inspect", "prediction.steps[]",
     "node:string op_type:string kernel:string known:boolean precision:string bytes:number "
     "ops:number bound:string time_ms:number fp16_ms?number slower_than_fp16?boolean "
     "measured_ms?number ratio?number"},
    {"inspect", "model", FILE_KEYS " bytes:integer parameters:integer"},
    {"check", "", "model:object problems:array target?object"},
    {"check", "model", FILE_KEYS},
    {"check", "target", "name:string findings:array changed?integer"},
    {"check", "target.findings[]",
     "rule:string verdict:string node:string op_type:string tensor:string text:string"},
    {"run", "", "model:object"},
    {"run", "model", FILE_KEYS},
    {"zoo", "", "name?string goals?object tasks?array ranking?array best?array diff?object"},
    {"zoo", "tasks[]",
     "model:string variant:string class:string message?string command?string goals?array "
     "file?string hash?string precision?string bytes?integer smaller?number top1?number "
     "drop?number drop_interval?array agreement?number data?string samples?integer "
     "device?string latency_ms?number latency_interval?array speed_up?number "
     "speed_up_interval?array seconds?number cpu_seconds?number peak_bytes?integer best?boolean"},
    {"zoo", "tasks[].goals[]", "goal:string wanted:number"},
    {"zoo", "ranking[]",
     "variant:string tasks:integer done:integer met:integer best:integer mean_drop?number "
     "worst_drop?number worst_model?string smaller?number speed_up?number seconds?number"},
    {"zoo", "best[]", "model:string"},
    {"zoo", "diff.regressions[]", FINDING_KEYS},
    {"zoo", "diff.improvements[]", FINDING_KEYS},
    {"serve", "", "models:array seconds:number shadows?array"},
    {"serve", "shadows[]",
     "model:string shadow:string answered:integer compared:integer dropped:integer failed:integer "
     "outputs:array agreement?number agreement_interval?array compute_ms?object"},
    {"load", "", "url:string model:string data:object rates:array knee?object plan?object"},
    {"load", "data", DATA_KEYS},
    {"load", "rates[]",
     "offered_per_s:number due:integer sent:integer answered:integer shed:integer failed:integer "
     "throughput_per_s:number latency_ms?object mean_batch?number batches?array top1?number "
     "top1_interval?array notes:array"},
    {"load", "rates[].batches[]", "most:integer runs:integer"},
    {"load", "rates[].latency_ms", LATENCY_KEYS},
    {"load", "knee", "offered_per_s?number highest:boolean text:string"},
    {"load", "plan", "rate_per_s:number servers?integer at_most:boolean text:string"},
    {"report", "", "comparisons:array"},
    {"report", "comparisons[]", "models:array data?object"},
    {"report", "comparisons[].data", DATA_KEYS},
    {"report", "comparisons[].models[]", "file:string made:string precision?string steps?array"},
    {"report", "comparisons[].models[].steps[]", STEP_KEYS},
    {"data fashion-mnist", "", ""},
    {"data import", "", ""},
    {"ops", "", "operators:array"},
    {"doctor", "", "isa:string cpu?string"},
    {"version", "", ""},
    {"completion", "", ""},
    {"replay", "", "files:array"},
};

typedef struct checker {
    pare_ctx *ctx;
    const char *file;
    char at[256]; /* "models[1].bytes" */
} checker;

static const char *kind_of(const json_t *value)
{
    static const char *const kinds[] = {"object", "array",   "string",  "integer",
                                        "number", "boolean", "boolean", "null"};
    return kinds[json_typeof(value)];
}

static pare_status check_kind(const checker *c, const char *name, const json_t *value,
                              const char *kind)
{
    if (!strcmp(kind_of(value), kind) || (!strcmp(kind, "number") && json_is_number(value)))
        return PARE_OK;
    return PARE_FAIL(c->ctx, INPUT, "%s: %s%s%s is of type %s, expected %s", c->file, c->at,
                     *c->at && *name ? "." : "", name, kind_of(value), kind);
}

static pare_status check_keys(const checker *c, const json_t *object, const char *keys)
{
    char name[32], mark, kind[16];
    int n;
    PARE_TRY(check_kind(c, "", object, "object"));
    for (; sscanf(keys, " %31[a-z0-9_]%c%15[a-z]%n", name, &mark, kind, &n) == 3; keys += n) {
        const json_t *value = json_object_get(object, name);
        if (value)
            PARE_TRY(check_kind(c, name, value, kind));
        else if (mark == ':')
            return PARE_FAIL(c->ctx, INPUT, "%s: %s%s%s is missing; it holds no facts of pare",
                             c->file, c->at, *c->at ? "." : "", name);
    }
    return PARE_OK;
}

/* The objects at the end of a path that begins in value. */
static pare_status check_path(checker *c, const json_t *value, const char *path, const char *keys)
{
    if (!*path) return check_keys(c, value, keys);
    const size_t length = strcspn(path, ".["), end = strlen(c->at);
    const bool each = path[length] == '[';
    const char *rest = path + length + (each ? 2 : 0);
    char key[32];
    size_t i;
    json_t *one;
    rest += *rest == '.';
    snprintf(key, sizeof key, "%.*s", (int)length, path);
    PARE_TRY(check_kind(c, "", value, "object"));
    json_t *part = json_object_get(value, key);
    if (!part) return PARE_OK;
    snprintf(c->at + end, sizeof c->at - end, "%s%s", end ? "." : "", key);
    if (!each) PARE_TRY(check_path(c, part, rest, keys));
    if (each) PARE_TRY(check_kind(c, "", part, "array"));
    json_array_foreach(part, i, one)
    {
        const size_t name = strlen(c->at);
        snprintf(c->at + name, sizeof c->at - name, "[%zu]", i);
        PARE_TRY(check_path(c, one, rest, keys));
        c->at[name] = 0;
    }
    c->at[end] = 0;
    return PARE_OK;
}

static pare_status check_command(checker *c, const json_t *facts)
{
    const char *command = json_string_value(json_object_get(facts, "command"));
    bool known = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].command, command) != 0) continue;
        PARE_TRY(check_path(c, facts, rows[i].path, rows[i].keys));
        known = true;
    }
    if (known) return PARE_OK;
    return PARE_FAIL(c->ctx, INPUT, "%s: command is \"%.64s\", which this version does not know",
                     c->file, command);
}

static pare_status check_facts(pare_ctx *ctx, const json_t *facts, const char *path)
{
    checker c = {.ctx = ctx, .file = path};
    if (!json_is_object(facts))
        return PARE_FAIL(ctx, INPUT, "%s: holds no facts of pare: it is no JSON object", path);
    PARE_TRY(check_keys(&c, facts, "schema:integer command:string version:string"));
    const json_int_t schema = json_integer_value(json_object_get(facts, "schema"));
    if (schema != 1)
        return PARE_FAIL(ctx, INPUT, "%s: schema is %lld, which this version does not know", path,
                         (long long)schema);
    return check_command(&c, facts);
}

pare_status pare_facts_read(pare_ctx *ctx, json_t **out, const char *path)
{
    json_t *facts;
    PARE_TRY(pare_json_read(ctx, &facts, path));
    const pare_status st = check_facts(ctx, facts, path);
    if (st == PARE_OK)
        *out = facts;
    else
        json_decref(facts);
    return st;
}
