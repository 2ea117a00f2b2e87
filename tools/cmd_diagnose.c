/* SPDX-License-Identifier: Apache-2.0 */
/* pare diagnose */
#include "formats/json.h"
#include "formats/onnx.h"
#include "quant/diagnose.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "tools/report/report.h"
#include "tools/source.h"
#include "tools/table.h"

#include <math.h>
#include <string.h>

typedef struct diagnose_options {
    pare_common common;
    pare_source_options source;
    const char *fix, *report;
} diagnose_options;

#define OPTIONS diagnose_options
static const pare_option table[] = {
    PARE_OPT_OUTPUT("fix", "OUT", fix, "write the quantized model with the cures that help"),
    PARE_OPT_OUTPUT("report", "report.html", report,
                    "write findings, chart and table of all tensors as one HTML file"),
    PARE_SOURCE_ROWS("samples to run, evenly spaced (32; fewer of a large model)"),
    {0},
};

static const diagnose_options defaults = {.source = PARE_SOURCE_DEFAULTS};

/* --- facts --- */

/* Infinite decibels, where there is no error, are left out; null is what is no number. */
static void set_number(json_t *to, const char *key, double value)
{
    if (isinf(value)) return;
    json_object_set_new(to, key, isnan(value) ? json_null() : json_real(value));
}

static json_t *finding_json(const pare_finding *f, int outputs)
{
    json_t *json = json_pack("{s:s, s:o, s:o, s:o, s:b}", "fault", pare_fault_name(f->fault),
                             "node", pare_json_text(f->node), "tensor", pare_json_text(f->tensor),
                             "cause", pare_json_text(f->cause), "applied", f->applied);
    if (f->cure) json_object_set_new(json, "cure", pare_json_text(f->cure));
    set_number(json, "alone_db", pare_diagnosis_db(f->effect, outputs));
    if (!isnan(f->gain)) set_number(json, "gain_db", f->gain);
    return json;
}

static json_t *tensor_json(const pare_tensor_error *t, int outputs)
{
    json_t *json = json_pack("{s:o, s:o, s:[f, f], s:[f, f]}", "tensor", pare_json_text(t->tensor),
                             "node", pare_json_text(t->node), "range", (double)t->low,
                             (double)t->high, "seen", (double)t->seen_low, (double)t->seen_high);
    set_number(json, "clipping", t->clipping);
    set_number(json, "rounding", t->rounding);
    set_number(json, "weight", t->weight);
    set_number(json, "bias", t->bias);
    set_number(json, "carried", t->carried);
    set_number(json, "total", t->total);
    set_number(json, "sqnr_db", pare_diagnosis_db(t->total, 1));
    set_number(json, "alone_db", pare_diagnosis_db(t->effect, outputs));
    set_number(json, "effect", t->effect);
    return json;
}

static json_t *diagnosis_json(const pare_diagnosis *d)
{
    json_t *findings = json_array(), *tensors = json_array(), *notes = json_array();
    for (int i = 0; i < d->finding_count; i++)
        json_array_append_new(findings, finding_json(&d->finding[i], d->outputs));
    for (int i = 0; i < d->tensor_count; i++)
        json_array_append_new(tensors, tensor_json(&d->tensor[i], d->outputs));
    for (int i = 0; i < d->note_count; i++)
        json_array_append_new(notes, pare_json_text(d->note[i]));
    json_t *json = json_pack("{s:I, s:o, s:o, s:o}", "samples", (json_int_t)d->samples, "findings",
                             findings, "tensors", tensors, "notes", notes);
    set_number(json, "sqnr_db", pare_diagnosis_db(d->error, d->outputs));
    set_number(json, "float_form_db", pare_diagnosis_db(d->exact, d->outputs));
    if (d->model) set_number(json, "fixed_db", pare_diagnosis_db(d->mended, d->outputs));
    return json;
}

/* --- words --- */

static const char *decibels(double db, char *text, size_t size)
{
    if (isnan(db))
        snprintf(text, size, "no number");
    else if (isinf(db))
        snprintf(text, size, "no error");
    else
        snprintf(text, size, "%.1f dB", db);
    return text;
}

static void print_finding(const pare_finding *f, int outputs)
{
    char alone[32];
    if (*f->node)
        pare_print(stdout, "%s: node '%s', tensor '%s': %s\n", pare_fault_name(f->fault), f->node,
                   f->tensor, f->cause);
    else
        pare_print(stdout, "%s: input '%s': %s\n", pare_fault_name(f->fault), f->tensor, f->cause);
    if (f->fault != PARE_FAULT_F16_OVERFLOW)
        pare_print(stdout, "    it alone: %s\n",
                   decibels(pare_diagnosis_db(f->effect, outputs), alone, sizeof alone));
    if (!f->cure) return;
    pare_print(stdout, "    cure: %s", f->cure);
    if (!isnan(f->gain)) pare_print(stdout, " (%+.1f dB)", f->gain);
    pare_print(stdout, "%s\n", f->applied ? ", applied" : "");
}

/* A part of the total in percent. */
static const char *part(double value, double total, char *text, size_t size)
{
    if (total > 0 && value >= 0 && isfinite(total))
        snprintf(text, size, "%.0f %%", fmin(100 * value / total, 100));
    else
        snprintf(text, size, "-");
    return text;
}

static int by_effect(const void *a, const void *b)
{
    const pare_tensor_error *const *x = a, *const *y = b;
    const double p = isnan((*x)->effect) ? INFINITY : (*x)->effect,
                 q = isnan((*y)->effect) ? INFINITY : (*y)->effect;
    if (p != q) return p > q ? -1 : 1;
    return (*x > *y) - (*x < *y);
}

static pare_status print_tensors(pare_tool *tool, const pare_diagnosis *d)
{
    enum { MOST = 10 };
    pare_table rows;
    const pare_tensor_error **list =
        pare_arena_alloc(&tool->arena, (size_t)d->tensor_count + 1, sizeof(void *));
    if (!list) return PARE_MEMORY;
    for (int i = 0; i < d->tensor_count; i++) list[i] = &d->tensor[i];
    qsort(list, (size_t)d->tensor_count, sizeof *list, by_effect);
    pare_table_init(&rows, &tool->arena, "lrrrrrrr");
    pare_table_add(&rows, "tensor|alone|its error|clipping|rounding|weight|bias|carried in");
    for (int i = 0; i < d->tensor_count && i < MOST; i++) {
        const pare_tensor_error *t = list[i];
        char alone[32], total[32], text[5][16];
        const double value[] = {t->clipping, t->rounding, t->weight, t->bias, t->carried};
        for (int k = 0; k < 5; k++) part(value[k], t->total, text[k], sizeof text[k]);
        pare_table_add(&rows, "%s|%s|%s|%s|%s|%s|%s|%s", t->tensor,
                       decibels(pare_diagnosis_db(t->effect, d->outputs), alone, sizeof alone),
                       decibels(pare_diagnosis_db(t->total, 1), total, sizeof total), text[0],
                       text[1], text[2], text[3], text[4]);
    }
    if (d->tensor_count) {
        pare_print(stdout, "\n%d of %d quantized tensors, by what each alone costs the outputs:\n",
                   d->tensor_count < MOST ? d->tensor_count : MOST, d->tensor_count);
        pare_table_print(&rows, stdout);
    }
    return PARE_OK;
}

static pare_status print_all(pare_tool *tool, const pare_diagnosis *d, const char *fixed)
{
    char text[32];
    for (int i = 0; i < d->finding_count; i++) print_finding(&d->finding[i], d->outputs);
    if (d->finding_count) putchar('\n');
    pare_print(stdout, "%s: %s on %lld samples\n", tool->arg[1],
               decibels(pare_diagnosis_db(d->error, d->outputs), text, sizeof text),
               (long long)d->samples);
    if (!d->finding_count) pare_print(stdout, "nothing in it stands out\n");
    if (!isnan(d->exact) && d->exact > 1e-3 * d->outputs)
        pare_print(stdout,
                   "with all its numbers made float again: %s; so much differs by more than "
                   "rounding\n",
                   decibels(pare_diagnosis_db(d->exact, d->outputs), text, sizeof text));
    if (fixed && d->model)
        pare_print(stdout, "%s: %s\n", fixed,
                   decibels(pare_diagnosis_db(d->mended, d->outputs), text, sizeof text));
    for (int i = 0; i < d->note_count; i++) pare_log(tool->ctx, PARE_LOG_WARNING, "%s", d->note[i]);
    return print_tensors(tool, d);
}

/* --- the work --- */

typedef struct work {
    pare_model *exact, *quantized;
    pare_source source;
    pare_diagnosis *diagnosis;
} work;

static pare_status diagnose(pare_tool *tool, const diagnose_options *o, work *w)
{
    enum { SAMPLES = 32 };
    pare_progress bar;
    PARE_TRY(pare_onnx_read(tool->ctx, &w->exact, tool->arg[0]));
    PARE_TRY(pare_onnx_read(tool->ctx, &w->quantized, tool->arg[1]));
    PARE_TRY(pare_source_open(tool, &w->source, w->exact, &o->source, SAMPLES));
    const pare_quant_search on = {.data = w->source.data,
                                  .samples = w->source.samples,
                                  .sample_count = w->source.count,
                                  .threads = (int)tool->common->threads,
                                  .device = tool->device,
                                  .progress = pare_progress_step,
                                  .progress_user = &bar};
    pare_progress_begin(&bar, stderr, tool->common->quiet, "diagnose", "trials");
    const pare_status st =
        pare_diagnose(tool->ctx, w->exact, w->quantized, &on, o->fix != NULL, &w->diagnosis);
    pare_progress_end(&bar);
    return st;
}

/* No cure helps: a fault remains, or there is nothing but rounding. */
static pare_status not_written(pare_tool *tool, const pare_diagnosis *d, const char *fix)
{
    for (int i = 0; i < d->finding_count; i++)
        if (d->finding[i].fault < PARE_FAULT_WEIGHT) {
            tool->found = true;
            return PARE_FAIL(tool->ctx, INPUT, "%s: not written, for no cure helps %s", fix,
                             tool->arg[1]);
        }
    pare_log(tool->ctx, PARE_LOG_WARNING, "%s: not written, for %s has no fault to mend", fix,
             tool->arg[1]);
    return PARE_OK;
}

static pare_status finish(pare_tool *tool, const diagnose_options *o, work *w)
{
    const pare_onnx_write_options writing = {0};
    json_object_update_new(tool->facts, json_pack("{s:{s:o}, s:{s:o}, s:o, s:o}", "model", "file",
                                                  pare_json_text(tool->arg[0]), "quantized", "file",
                                                  pare_json_text(tool->arg[1]), "data",
                                                  pare_source_json(&w->source, &o->source),
                                                  "diagnosis", diagnosis_json(w->diagnosis)));
    if (w->diagnosis->model) {
        PARE_TRY(pare_onnx_write(tool->ctx, w->diagnosis->model, o->fix, &writing));
        json_object_set_new(tool->facts, "output",
                            json_pack("{s:o}", "file", pare_json_text(o->fix)));
    }
    PARE_TRY(print_all(tool, w->diagnosis, o->fix));
    if (o->report) PARE_TRY(pare_diagnosis_write(tool->ctx, tool->facts, o->report));
    return o->fix && !w->diagnosis->model ? not_written(tool, w->diagnosis, o->fix) : PARE_OK;
}

static pare_status check(pare_tool *tool, const void *options)
{
    const diagnose_options *o = options;
    return pare_need_option(tool, o->source.data, "--data F.h5", "the samples to run");
}

static pare_status run(pare_tool *tool, const void *options)
{
    work w = {0};
    PARE_TRY(check(tool, options));
    pare_status st = diagnose(tool, options, &w);
    if (st == PARE_OK) st = finish(tool, options, &w);
    pare_diagnosis_free(w.diagnosis);
    pare_source_close(&w.source);
    pare_model_free(w.quantized);
    pare_model_free(w.exact);
    return st;
}

const pare_command pare_command_diagnose = {
    .name = "diagnose",
    .arguments = "MODEL QUANTIZED --data F.h5",
    .min = 2,
    .max = 2,
    .summary = "find what a quantized model lost, where and why, and mend it",
    .detail =
        "Quantizes each tensor and each weight alone, as the file does, and measures what the\n"
        "outputs lose. Names the worst, the cause and a cure with its measured gain. The file may\n"
        "come from any tool that writes QuantizeLinear and DequantizeLinear, or be in FP16.",
    .example = "pare diagnose net.onnx net.int8.onnx --data data/test.h5 --fix net.fixed.onnx",
    .options = table,
    .size = sizeof(diagnose_options),
    .defaults = &defaults,
    .check = check,
    .run = run,
};
