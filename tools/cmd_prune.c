/* SPDX-License-Identifier: Apache-2.0 */
/* pare prune: its options and which of them go together. */
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/distill/tensorboard.h"
#include "tools/distill/training.h"
#include "tools/prune/prune.h"
#include "tools/prune/structured.h"
#include "tools/prune/report.h"
#include "tools/report/page.h"
#include "tools/ranks.h"
#include "tools/telemetry.h"

#include <string.h>

#define OPTIONS pare_prune_options
static const pare_option table[] = {
    PARE_OPT_SHORT('o', OUTPUT, "output", "OUT", output, "model to write"),
    PARE_OPT_REAL("sparsity", "F", sparsity, 0, 1,
                  "set this part of the weights to 0, biases not counted"),
    PARE_OPT_TEXT("nm", "N:M", nm,
                  "of M input channels side by side leave N at each kernel position: 2:4"),
    PARE_OPT_REAL("macs", "F", macs, 1e-6, 1,
                  "remove channels until this part of the multiply-adds is left"),
    PARE_OPT_REAL("params", "F", params, 1e-6, 1,
                  "remove channels until this part of the parameters is left"),
    PARE_OPT_BYTES("size", "2MB", size, 1, 1e15, "remove channels until the file is no larger"),
    PARE_OPT_TEXT("latency", "F|3.2ms", latency,
                  "remove channels until this part of the time of a run is left, or this time"),
    PARE_OPT_FOLDER("cache", "DIR", cache,
                    "with --latency: keep times per shape and kernel timings here, for all models"),
    PARE_OPT_CHOICE("score", pare_score_names + 1, score,
                    "what says how much a channel or weight matters (l2; with --data activation of "
                    "channels, second order of weights)"),
    PARE_OPT_INT("seed", "N", seed, 0, 9e15,
                 "of --score random (0), and of the order of samples in training (1)"),
    PARE_OPT_CHOICE("scope", "global|layer", scope,
                    "one budget for all layers, or the same fraction of each (global)"),
    PARE_OPT_TEXT(
        "sweep", "A,B,...", sweep,
        "prune once to each of these in place of the target's number, into OUT-A.onnx, OUT-B.onnx"),
    PARE_OPT_INT("steps", "N", steps, 1, 100,
                 "come to the target in N steps, scored, refitted and (--distill) trained "
                 "again each time (1)"),
    PARE_OPT_TEXT(
        "distill", "SPEC", distill,
        "train what is left to give what the dense model gives: kl:2,lr=1e-3,epochs=1, terms of "
        "the loss and options of 'pare distill' (kl:2 of a classifier, else mse; one epoch over "
        "--data)"),
    PARE_CHECKPOINT_ROWS("DIR/step-1.pare, ..."),
    PARE_TENSORBOARD_ROW("a new file in DIR/step-1, ..."),
    PARE_OPT_INT("min-channels", "N", min_channels, 1, 1e9,
                 "fewest channels that a layer keeps (1)"),
    PARE_OPT_INT("round", "N", round, 1, 1024,
                 "layers of N channels or more keep a multiple of N (1)"),
    PARE_OPT_LIST(
        "keep", "PATTERN", keep,
        "leave what these nodes make as it is: a glob on node names, or op:TYPE; may be repeated"),
    PARE_OPT_FLAG("outputs", outputs, "channels of the model's outputs may go, too"),
    PARE_OPT_FLAG("advise", advise,
                  "with --nm: time dense against sparse on the device, prune only where that is "
                  "faster; without -o only say so"),
    PARE_OPT_FLAG(
        "no-permutation", no_permutation,
        "with --nm: leave channels in their order, do not search one that keeps more magnitude"),
    PARE_OPT_FLAG("no-refit", no_refit,
                  "leave the weights that stay as they are; without --data they are left anyway"),
    PARE_OPT_OUTPUT(
        "report", "report.html", report,
        "write what became of each layer as one HTML file, of a sweep with its picture "
        "(report.svg: the picture alone); measures latency, and accuracy on samples not used"),
    PARE_OPT_FLAG("external-data", external_data,
                  "write weights to OUT.<hash>.data beside it; needed above 2 GiB"),
    PARE_OPT_GPUS,
    PARE_SOURCE_ROWS("samples to score and refit on, evenly spaced (512)"),
    {0},
};

static const pare_prune_options defaults = {.source = PARE_SOURCE_DEFAULTS,
                                            .sparsity = -1,
                                            .score = -1,
                                            .steps = 1,
                                            .min_channels = 1,
                                            .round = 1};

static pare_status check_target(pare_tool *tool, const pare_prune_options *o)
{
    int targets = (o->macs > 0) + (o->params > 0) + (o->size > 0) + (o->sparsity >= 0) +
                  (o->nm != NULL) + (o->latency != NULL);
    if (targets == 1) return PARE_OK;
    return PARE_FAIL(tool->ctx, USAGE,
                     targets ? "prune: --sparsity, --nm, --macs, --params, --size and --latency "
                               "exclude each other"
                             : "prune: one of --sparsity, --nm, --macs, --params, --size, "
                               "--latency is needed: how small is the model to be?");
}

pare_status pare_prune_parse_nm(pare_ctx *ctx, const char *text, int *n, int *m)
{
    enum { MOST = 64 };
    char rest;
    if (sscanf(text, "%d:%d%c", n, m, &rest) == 2 && *n >= 1 && *n < *m && *m <= MOST)
        return PARE_OK;
    return PARE_FAIL(ctx, USAGE, "prune: --nm %s: expected N:M with 1 <= N < M <= %d, as 2:4", text,
                     MOST);
}

/* What is only of use with --data, and scores that need it. */
static pare_status check_data(pare_tool *tool, const pare_prune_options *o)
{
    static const char *const of_samples[] = {"gpus", NULL};
    if (o->source.data) return PARE_OK;
    PARE_TRY(pare_refuse_options(tool, "without --data", pare_source_names));
    if (!o->latency && !o->advise)
        PARE_TRY(pare_refuse_options(tool, "without --data", of_samples));
    const pare_score_row *row = &pare_scores[pare_prune_score(o)];
    if (row->needs == PARE_SCORE_NEEDS_WEIGHTS) return PARE_OK;
    return PARE_FAIL(tool->ctx, USAGE, "prune: --score %s needs --data F.h5", row->name);
}

/* Training, and what it does not go with. */
static pare_status check_distill(pare_tool *tool, const pare_prune_options *o)
{
    static const char *const of_training[] = {"checkpoint", "checkpoint-every", "resume",
                                              "tensorboard", NULL};
    pare_training_spec spec;
    if (!o->distill) return pare_refuse_options(tool, "without --distill", of_training);
    PARE_TRY(pare_training_parse(tool, o->distill, &spec));
    PARE_TRY(pare_training_check(tool, &spec.training, true));
    PARE_TRY(pare_need_option(tool, o->source.data, "--data F.h5", "what to train on"));
    if (o->latency)
        return PARE_FAIL(tool->ctx, USAGE,
                         "prune: --distill does not go with --latency, which times models "
                         "between its steps; prune first, then train with pare distill");
    if (o->outputs)
        return PARE_FAIL(tool->ctx, USAGE,
                         "prune: --distill does not go with --outputs: outputs with fewer "
                         "channels have nothing to be compared with");
    return PARE_OK;
}

static pare_status check_weights(pare_tool *tool, const pare_prune_options *o)
{
    static const char *const of_channels[] = {"min-channels", "round", "outputs", "cache", NULL};
    static const char *const of_nm[] = {"scope", "sweep", "steps", NULL};
    static const char *const of_sparsity[] = {"no-permutation", "advise", NULL};
    static const char *const of_training[] = {"steps", NULL};
    PARE_TRY(pare_refuse_options(tool, "with --sparsity and --nm", of_channels));
    PARE_TRY(pare_refuse_options(tool, o->nm ? "with --nm" : "with --sparsity",
                                 o->nm ? of_nm : of_sparsity));
    if (!o->distill)
        PARE_TRY(pare_refuse_options(tool, "with --sparsity without --distill", of_training));
    return check_data(tool, o);
}

static pare_status check_channels(pare_tool *tool, const pare_prune_options *o)
{
    static const char *const of_size[] = {"sweep", NULL};
    static const char *const of_nm[] = {"no-permutation", "advise", NULL};
    static const char *const of_random[] = {"seed", NULL};
    static const char *const of_latency[] = {"cache", NULL};
    double fraction, seconds;
    PARE_TRY(pare_refuse_options(tool, "without --nm", of_nm));
    if (o->size) PARE_TRY(pare_refuse_options(tool, "with --size", of_size));
    if (!o->latency) PARE_TRY(pare_refuse_options(tool, "without --latency", of_latency));
    if (o->latency) PARE_TRY(pare_prune_parse_latency(tool->ctx, o->latency, &fraction, &seconds));
    if (o->latency && seconds > 0)
        PARE_TRY(pare_refuse_options(tool, "with --latency in seconds", of_size));
    if (pare_prune_score(o) != PARE_SCORE_RANDOM && !o->distill)
        PARE_TRY(pare_refuse_options(tool, "without --score random", of_random));
    return check_data(tool, o);
}

/* A picture is of several models that samples were run through. */
static pare_status check_report(pare_tool *tool, const pare_prune_options *o)
{
    if (!o->report || !pare_page_is_picture(o->report) || (o->sweep && o->source.data))
        return PARE_OK;
    return PARE_FAIL(tool->ctx, USAGE,
                     "prune: --report %s: a picture is of a sweep; give --sweep A,B,... and --data "
                     "F.h5, or a report of another name for a page",
                     o->report);
}

/* Processes share what is done with samples, training too, and that alone. */
static pare_status check_ranks(pare_tool *tool)
{
    static const char *const of_one[] = {"latency", "advise", "report", NULL};
    return tool->comm ? pare_refuse_options(tool, "with several processes", of_one) : PARE_OK;
}

static pare_status check(pare_tool *tool, const void *options)
{
    const pare_prune_options *o = options;
    PARE_TRY(check_ranks(tool));
    if (!o->advise) PARE_TRY(pare_need_option(tool, o->output, "-o OUT", "the model to write"));
    PARE_TRY(check_target(tool, o));
    PARE_TRY(check_report(tool, o));
    PARE_TRY(check_distill(tool, o));
    return o->sparsity >= 0 || o->nm ? check_weights(tool, o) : check_channels(tool, o);
}

/* The watch has a context of its own: the tool's holds the message of what was missed. */
static pare_status note_device(pare_tool *tool)
{
    pare_ctx ctx;
    pare_watch *watch;
    pare_ctx_child(&ctx, tool->ctx);
    const pare_status st = pare_watch_start(&ctx, &watch, tool->device);
    json_t *device = st == PARE_OK ? pare_watch_end(watch) : NULL;
    if (!device) return pare_fail(tool->ctx, st == PARE_OK ? PARE_MEMORY : st, "%s", ctx.message);
    json_object_set_new(tool->facts, "device", device);
    return PARE_OK;
}

static pare_status run(pare_tool *tool, const void *options)
{
    const pare_prune_options *o = options;
    PARE_TRY(check(tool, o));
    if (o->cache) pare_make_cache(tool->ctx, o->cache);
    const pare_status st =
        o->sparsity >= 0 || o->nm ? pare_prune_weights(tool, o) : pare_prune_structured(tool, o);
    if (st != PARE_OK && st != PARE_MISSED) return st;
    PARE_TRY(note_device(tool));
    return st;
}

const pare_command pare_command_prune = {
    .name = "prune",
    .arguments = "MODEL -o OUT (--sparsity F | --nm N:M | --macs F | --params F | --size SIZE "
                 "| --latency F)",
    .min = 1,
    .max = 1,
    .summary = "remove channels of a float model until it has a given size, or set weights to 0",
    .detail =
        "--macs, --params and --latency are what is kept, --sparsity is what becomes 0. The\n"
        "result is plain ONNX. With --data, what stays is fitted to what the dense model\n"
        "computes, without training. Where --nm --advise finds no layer that becomes faster,\n"
        "no file is written. --distill trains it, too, step by step, three quarters of the\n"
        "epochs after the last one. Its list takes terms of the loss and KEY=VALUE: epochs,\n"
        "and lr, schedule, warmup, optimizer, momentum, decay, clip, ema, batch, accumulate,\n"
        "bn, bn-estimate and augment (words joined by +) as 'pare distill --help' has them.\n"
        "Ctrl-C in the last step writes the best so far (exit status 3), before it nothing. With "
        "--checkpoint,\n"
        "what was stopped or killed continues by the same command with --resume, to the same\n"
        "bytes. Processes that mpirun starts share the samples, and train together; the bytes are\n"
        "those of one.",
    .example = "pare prune resnet.onnx -o resnet.half.onnx --macs 0.5 --data data/train.h5",
    .options = table,
    .size = sizeof(pare_prune_options),
    .ranks = true,
    .defaults = &defaults,
    .check = check,
    .run = run,
};
