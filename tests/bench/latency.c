/* SPDX-License-Identifier: Apache-2.0 */
/* bench_latency A B: how long model A takes in its runtime against model B in its own, in one
   process, on the same inputs; one CSV line.

   A pair is a sample of A and a sample of B, in turn first; the result is the median of the
   pairs' ratios with a 95 % interval from order statistics (ranks of the binomial distribution, no
   assumption on the noise). A sample repeats the run until it is long enough for the clock, and
   is the mean of its runs. Before a sample the process sleeps, so that the other side's worker
   threads, which spin for some milliseconds after a run in the hope of the next, are asleep; then
   one run that does not count wakes its own. Both sides are treated alike and keep their default
   spinning. */
#include "runtime/base/ctx.h"
#include "tests/bench/profile.h"
#include "tests/bench/side.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_PAIRS = 1000, MIN_PAIRS = 5 };

typedef struct bench {
    side_options side;
    const char *a, *b, *image, *profile, *label;
    int pairs;
    double sample_seconds, pause_seconds, max_seconds, tolerance;
    bool header;
} bench;

typedef struct result {
    int pairs;
    double a, b, ratio, low, high, difference; /* seconds; ratios of a to b */
} result;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pause_for(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
    nanosleep(&t, NULL);
}

/* How many runs make a sample of so many seconds, by the quickest of a few: one that waited for a
   core says nothing. */
static pare_status count_repeats(side *s, double seconds, int *out)
{
    enum { TRIED = 9 };
    double quickest = seconds;
    for (int i = 0; i < TRIED; i++) {
        double start = now();
        PARE_TRY(s->calls->run(s));
        quickest = fmin(quickest, now() - start);
    }
    *out = (int)ceil(seconds / fmax(quickest, 1e-9));
    return PARE_OK;
}

static pare_status take_sample(side *s, int repeats, double pause, double *out)
{
    pause_for(pause);
    if (repeats > 1) PARE_TRY(s->calls->run(s));
    double start = now();
    for (int i = 0; i < repeats; i++) PARE_TRY(s->calls->run(s));
    *out = (now() - start) / repeats;
    return PARE_OK;
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* How many of n sorted values to leave out at each end so that the rest covers the true median with
   95 % probability: the largest k with P(Binomial(n, 1/2) < k) <= 2.5 %. */
static int median_rank(int n)
{
    double chance = pow(0.5, n), sum = 0;
    for (int k = 0; k <= n; k++) {
        sum += chance;
        if (sum > 0.025) return k;
        chance *= (double)(n - k) / (k + 1);
    }
    return 0;
}

static pare_status compare(side *a, side *b, const bench *o, result *r)
{
    double time_a[MAX_PAIRS], time_b[MAX_PAIRS], ratio[MAX_PAIRS];
    int repeats_a, repeats_b;
    PARE_TRY(count_repeats(a, o->sample_seconds, &repeats_a));
    PARE_TRY(count_repeats(b, o->sample_seconds, &repeats_b));
    double start = now();
    for (r->pairs = 0; r->pairs < o->pairs; r->pairs++) {
        int i = r->pairs;
        if (i >= MIN_PAIRS && o->max_seconds > 0 && now() - start > o->max_seconds) break;
        if (i % 2 == 0) PARE_TRY(take_sample(a, repeats_a, o->pause_seconds, &time_a[i]));
        PARE_TRY(take_sample(b, repeats_b, o->pause_seconds, &time_b[i]));
        if (i % 2 == 1) PARE_TRY(take_sample(a, repeats_a, o->pause_seconds, &time_a[i]));
        ratio[i] = time_a[i] / time_b[i];
    }
    r->difference = side_difference(a, b);
    r->a = median(time_a, r->pairs);
    r->b = median(time_b, r->pairs);
    r->ratio = median(ratio, r->pairs);
    int cut = median_rank(r->pairs);
    r->low = ratio[cut > 0 ? cut - 1 : 0];
    r->high = ratio[r->pairs - (cut > 0 ? cut : 1)];
    return PARE_OK;
}

static void print_result(const bench *o, const side *a, const side *b, const result *r)
{
    if (o->header)
        printf("label,a,b,batch,threads,pairs,a_ms,b_ms,ratio,ratio_low,ratio_high,difference,"
               "a_load_s,b_load_s,a_mmacs\n");
    printf("%s,%s,%s,%lld,%d,%d,%.5f,%.5f,%.4f,%.4f,%.4f,%.3g,%.4f,%.4f,%.3f\n", o->label, o->a,
           o->b ? o->b : "", (long long)o->side.batch, o->side.threads, r->pairs, 1e3 * r->a,
           1e3 * r->b, r->ratio, r->low, r->high, r->difference, a->load_seconds,
           b ? b->load_seconds : 0, 1e-6 * side_macs(a));
    fflush(stdout);
}

/* A alone: the median of pairs samples. */
static pare_status time_alone(side *a, const bench *o, result *r)
{
    double times[MAX_PAIRS];
    int repeats;
    PARE_TRY(count_repeats(a, o->sample_seconds, &repeats));
    for (int i = 0; i < o->pairs; i++)
        PARE_TRY(take_sample(a, repeats, o->pause_seconds, &times[i]));
    r->pairs = o->pairs;
    r->a = median(times, o->pairs);
    return PARE_OK;
}

static pare_status run_bench(pare_ctx *ctx, const bench *o, const void *image, size_t image_bytes)
{
    side *a = NULL, *b = NULL;
    result r = {.ratio = NAN, .low = NAN, .high = NAN, .b = NAN, .difference = NAN};
    pare_status st;
    if ((st = side_open(ctx, &a, o->a, &o->side, image, image_bytes))) goto done;
    if (o->b && (st = side_open(ctx, &b, o->b, &o->side, image, image_bytes))) goto done;
    pare_threads_bind(o->side.threads); /* after both have their threads; the rival's stay free */
    if ((st = b ? compare(a, b, o, &r) : time_alone(a, o, &r))) goto done;
    print_result(o, a, b, &r);
    if (o->profile && (st = profile_write(ctx, a, o->profile))) goto done;
    if (b && !(r.difference <= o->tolerance))
        st = PARE_FAIL(ctx, INPUT, "%s: outputs are %.3g of the largest off %s's, at most %.3g",
                       o->a, r.difference, o->b, o->tolerance);
done:
    side_close(a);
    side_close(b);
    return st;
}

static pare_status read_image(pare_ctx *ctx, const char *path, void **out, size_t *bytes)
{
    pare_status st = PARE_OK;
    FILE *file = fopen(path, "rb");
    if (!file) return PARE_FAIL(ctx, IO, "%s: cannot be opened", path);
    long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    rewind(file);
    *out = size > 0 ? malloc((size_t)size) : NULL;
    if (!*out || fread(*out, 1, (size_t)size, file) != (size_t)size)
        st = PARE_FAIL(ctx, IO, "%s: cannot be read", path);
    *bytes = size > 0 ? (size_t)size : 0;
    fclose(file);
    return st;
}

static const char usage[] =
    "bench_latency [options] pare:A.onnx|ort:A.onnx [pare:B.onnx|ort:B.onnx]\n"
    "  --ort FILE         libonnxruntime.so, for ort: sides\n"
    "  --batch N          size of an unknown first axis (1)\n"
    "  --dim NAME=N       size of another named axis\n"
    "  --threads N        of both sides (1)\n"
    "  --pairs N          pairs of samples (30)\n"
    "  --sample-ms MS     shortest sample (2)\n"
    "  --pause-ms MS      sleep before a sample (120)\n"
    "  --max-seconds S    stop after S seconds, but not before 5 pairs (0: never)\n"
    "  --input FILE       raw data of the first input, repeated to fill it\n"
    "  --tolerance T      largest difference of outputs relative to the largest value (1e-3)\n"
    "  --profile FILE     time of each step of A, a pare: side, as CSV\n"
    "  --cache DIR, --no-tune   timing cache, no timing of kernels (pare: sides)\n"
    "  --label TEXT, --header   first column, line of column names\n";

enum {
    ORT = 256,
    BATCH,
    DIM,
    THREADS,
    PAIRS,
    SAMPLE,
    PAUSE,
    MAX,
    INPUT,
    TOLERANCE,
    PROFILE,
    CACHE,
    NO_TUNE,
    LABEL,
    HEADER
};

static const struct option options[] = {
    {"ort", 1, NULL, ORT},         {"batch", 1, NULL, BATCH},
    {"dim", 1, NULL, DIM},         {"threads", 1, NULL, THREADS},
    {"pairs", 1, NULL, PAIRS},     {"sample-ms", 1, NULL, SAMPLE},
    {"pause-ms", 1, NULL, PAUSE},  {"max-seconds", 1, NULL, MAX},
    {"input", 1, NULL, INPUT},     {"tolerance", 1, NULL, TOLERANCE},
    {"profile", 1, NULL, PROFILE}, {"cache", 1, NULL, CACHE},
    {"no-tune", 0, NULL, NO_TUNE}, {"label", 1, NULL, LABEL},
    {"header", 0, NULL, HEADER},   {NULL, 0, NULL, 0}};

static bool add_dim(side_options *o, char *text)
{
    char *equals = strchr(text, '=');
    if (!equals || o->dim_count == SIDE_MAX_DIMS) return false;
    *equals = 0;
    o->dim[o->dim_count].name = text;
    o->dim[o->dim_count++].size = atoll(equals + 1);
    return true;
}

static bool take_option(bench *o, int option, char *value)
{
    switch (option) {
    case ORT: o->side.library = value; return true;
    case BATCH: return (o->side.batch = atoll(value)) > 0;
    case DIM: return add_dim(&o->side, value);
    case THREADS: return (o->side.threads = atoi(value)) > 0;
    case PAIRS: return (o->pairs = atoi(value)) > 0 && o->pairs <= MAX_PAIRS;
    case SAMPLE: o->sample_seconds = 1e-3 * atof(value); return o->sample_seconds > 0;
    case PAUSE: o->pause_seconds = 1e-3 * atof(value); return o->pause_seconds >= 0;
    case MAX: o->max_seconds = atof(value); return true;
    case INPUT: o->image = value; return true;
    case TOLERANCE: o->tolerance = atof(value); return true;
    case PROFILE: o->profile = value; return true;
    case CACHE: o->side.cache_dir = value; return true;
    case NO_TUNE: o->side.tune = false; return true;
    case LABEL: o->label = value; return true;
    case HEADER: o->header = true; return true;
    default: return false;
    }
}

int main(int argc, char **argv)
{
    bench o = {.side = {.threads = 1, .batch = 1, .tune = true},
               .pairs = 30,
               .label = "",
               .sample_seconds = 2e-3,
               .pause_seconds = 120e-3,
               .tolerance = 1e-3};
    bool good = true;
    for (int option; good && (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        good = take_option(&o, option, optarg);
    if (!good || optind >= argc || argc - optind > 2) {
        fputs(usage, stderr);
        return 2;
    }
    o.a = argv[optind];
    o.b = argc - optind == 2 ? argv[optind + 1] : NULL;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    void *image = NULL;
    size_t image_bytes = 0;
    pare_status st = o.image ? read_image(&ctx, o.image, &image, &image_bytes) : PARE_OK;
    if (!st) st = run_bench(&ctx, &o, image, image_bytes);
    free(image);
    if (st) fprintf(stderr, "bench_latency: %s\n", ctx.message);
    return pare_status_exit_code(st);
}
