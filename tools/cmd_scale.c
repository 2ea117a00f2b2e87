/* SPDX-License-Identifier: Apache-2.0 */
/* pare scale: what a job would take in more processes, from the facts of one. */
#include "formats/json.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/scaling_facts.h"
#include "tools/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct scale_options {
    pare_common common;
    const char *network;
    int64_t most, cores;
} scale_options;

#define OPTIONS scale_options
static const pare_option table[] = {
    PARE_OPT_TEXT("network", "2us,10GB/s", network,
                  "what a message takes, and bytes a second; mpirun -n 2 pare scale measures them"),
    PARE_OPT_INT("ranks", "N", most, 1, 1 << 20, "the most processes to ask about (1024)"),
    PARE_OPT_INT("cores", "N", cores, 1, 1 << 20,
                 "processes that compute at once, where the machines have fewer cores (all)"),
    {0},
};

static const scale_options defaults = {.most = 1024};

/* "2us,10GB/s" */
static pare_status parse_network(pare_ctx *ctx, const char *text, pare_network *out)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ns,", 1e-9}, {"us,", 1e-6}, {"ms,", 1e-3}, {"s,", 1}};
    char *end, size[32] = "";
    const double number = strtod(text, &end);
    double bytes = 0, seconds = -1;
    for (size_t i = 0; end > text && seconds < 0 && i < sizeof units / sizeof *units; i++) {
        const size_t n = strlen(units[i].unit);
        if (strncmp(end, units[i].unit, n) != 0) continue;
        seconds = number * units[i].seconds;
        end += n;
    }
    const size_t n = strlen(end);
    if (seconds >= 0 && n > 2 && n < sizeof size && !strcmp(end + n - 2, "/s")) {
        memcpy(size, end, n - 2);
        bytes = pare_bytes_parse(size);
    }
    if (seconds < 0 || seconds > 1e3 || !(bytes >= 1))
        return PARE_FAIL(ctx, USAGE,
                         "--network %s: expected what a message takes and bytes a second: "
                         "2us,10GB/s",
                         text);
    *out = (pare_network){seconds, 1 / bytes};
    return PARE_OK;
}

static pare_status read_job(pare_tool *tool, pare_scaling_job *out)
{
    json_t *facts;
    PARE_TRY(pare_json_read(tool->ctx, &facts, tool->arg[0]));
    const bool there = json_object_get(facts, "scaling");
    const bool good = pare_scaling_of_json(json_object_get(facts, "scaling"), out);
    json_decref(facts);
    if (good) return PARE_OK;
    if (there)
        return PARE_FAIL(tool->ctx, INPUT,
                         "%s: its \"scaling\" is damaged: expected start_s, steps, parts, part_s, "
                         "each_s, bytes and reductions, none below 0, steps and parts above",
                         tool->arg[0]);
    return PARE_FAIL(tool->ctx, INPUT,
                     "%s: has no \"scaling\": expected what --json of pare calibrate or pare "
                     "distill in one process writes",
                     tool->arg[0]);
}

static pare_status find_network(pare_tool *tool, const scale_options *o, pare_network *out)
{
    if (o->network) return parse_network(tool->ctx, o->network, out);
    if (tool->comm) return pare_comm_measure(tool->comm, out);
    return PARE_FAIL(tool->ctx, USAGE,
                     "scale: --network 2us,10GB/s is needed: what a message takes, and bytes a "
                     "second; mpirun -n 2 pare scale measures them");
}

/* Parts take longer where processes share cores. */
static pare_scaling_job on_cores(const pare_scaling_job *job, int64_t ranks, int64_t cores)
{
    pare_scaling_job out = *job;
    if (cores && ranks > cores) {
        const double longer = (double)ranks / (double)cores;
        out.start *= longer;
        out.part *= longer;
        out.each *= longer;
    }
    return out;
}

/* Up to as many ranks as there are parts. *end: twice of them save less than a quarter. */
static pare_status print_rows(pare_tool *tool, const scale_options *o, const pare_scaling_job *job,
                              const pare_network *network, int64_t *end)
{
    const double one = pare_scaling_seconds(job, network, 1);
    double before = INFINITY;
    bool ended = false;
    json_t *rows = json_array();
    json_object_set_new(tool->facts, "rows", rows);
    pare_print(stdout, "%8s %12s %10s %10s %11s\n", "ranks", "seconds", "speed-up", "efficiency",
               "reducing, %");
    for (int64_t ranks = 1; ranks <= o->most && ranks <= job->parts; ranks *= 2) {
        const pare_scaling_job here = on_cores(job, ranks, o->cores);
        const double seconds = pare_scaling_seconds(&here, network, (int)ranks);
        ended = ended || seconds > PARE_SCALING_WORTH * before;
        if (!ended) *end = ranks;
        before = seconds;
        const double reducing =
            (double)job->steps *
            pare_scaling_reduce(network, (int)ranks, job->bytes, job->reductions);
        pare_print(stdout, "%8lld %12.4g %9.4gx %9.1f%% %11.1f\n", (long long)ranks, seconds,
                   one / seconds, 100 * one / seconds / (double)ranks, 100 * reducing / seconds);
        json_array_append_new(rows, json_pack("{s:I, s:f, s:f, s:f}", "ranks", (json_int_t)ranks,
                                              "seconds", seconds, "speed_up", one / seconds,
                                              "reducing_s", reducing));
    }
    return rows ? PARE_OK : PARE_MEMORY;
}

static pare_status run(pare_tool *tool, const void *options)
{
    const scale_options *o = options;
    pare_scaling_job job;
    pare_network network;
    PARE_TRY(read_job(tool, &job));
    PARE_TRY(find_network(tool, o, &network));
    if (!pare_tool_leads(tool)) return PARE_OK;
    json_object_set_new(tool->facts, "network",
                        json_pack("{s:f, s:f}", "alpha_s", network.alpha, "beta_s", network.beta));
    int64_t end = 1;
    PARE_TRY(print_rows(tool, o, &job, &network, &end));
    json_object_set_new(tool->facts, "ranks_of_use", json_integer(end));
    pare_print(stdout, "scaling ends at %lld rank%s%s\n", (long long)end, end == 1 ? "" : "s",
               2 * end > job.parts ? ": there are no more parts"
               : 2 * end > o->most ? ", or later: more were not asked about"
                                   : "");
    return PARE_OK;
}

const pare_command pare_command_scale = {
    .name = "scale",
    .arguments = "FACTS.json",
    .min = 1,
    .max = 1,
    .summary = "foresee what a calibration or a training takes in more processes",
    .detail =
        "FACTS.json is what --json of pare calibrate or pare distill in one process wrote. Its "
        "work is\n"
        "divided among the ranks, and what they reduce takes messages of alpha + beta * bytes "
        "seconds.\n"
        "Scaling ends where twice the ranks save less than a quarter of the time.",
    .example = "pare scale training.json --network 2us,10GB/s",
    .options = table,
    .size = sizeof(scale_options),
    .ranks = true,
    .defaults = &defaults,
    .run = run,
};
