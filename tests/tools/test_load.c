/* SPDX-License-Identifier: Apache-2.0 */
/* The load generator without a server: arrival times, the open loop on a clock made up here, top-1
   of made-up answers, percentiles and the knee. */
#include "tools/load/results.h"
#include "tools/load/schedule.h"
#include "tools/report/report.h"
#include "tools/times.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* --- schedules --- */

static void rates_are_read(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_load_rates r;
    static const char *const wrong[] = {"",           "poisson:", "poisson:0", "poisson:-1",
                                        "poisson:1,", "even:3",   "5x",        "constant:nan",
                                        "1e7",        "5 6"};
    pare_ctx_init(&ctx);
    assert_int_equal(pare_load_rates_parse(&ctx, &r, "poisson:100,200.5"), PARE_OK);
    assert_true(r.is_poisson && r.count == 2 && r.per_s[0] == 100 && r.per_s[1] == 200.5);
    assert_int_equal(pare_load_rates_parse(&ctx, &r, "constant:7"), PARE_OK);
    assert_true(!r.is_poisson && r.count == 1 && r.per_s[0] == 7);
    assert_int_equal(pare_load_rates_parse(&ctx, &r, "3,4"), PARE_OK);
    assert_true(!r.is_poisson && r.count == 2);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pare_ctx_clear(&ctx);
        assert_int_equal(pare_load_rates_parse(&ctx, &r, wrong[i]), PARE_USAGE);
        assert_non_null(strstr(ctx.message, wrong[i]));
        assert_non_null(strstr(ctx.message, "up to 64 rates, each above 0 and at most 1000000"));
    }
}

static double *schedule(bool is_poisson, double per_s, double seconds, uint64_t seed, size_t *n)
{
    pare_ctx ctx;
    double *due;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_load_schedule(&ctx, &due, n, is_poisson, per_s, seconds, seed), PARE_OK);
    for (size_t i = 0; i < *n; i++) assert_true(due[i] >= (i ? due[i - 1] : 0) && due[i] < seconds);
    return due;
}

static void constant_gaps_are_equal(void **state)
{
    (void)state;
    size_t n;
    double *due = schedule(false, 40, 2.5, 0, &n);
    assert_int_equal(n, 100);
    for (size_t i = 0; i < n; i++) assert_true(fabs(due[i] - (double)i / 40) < 1e-12);
    pare_free(due);
}

/* Counts of a Poisson process have mean and variance rate * seconds, its gaps mean and deviation
   1 / rate: within five standard errors. */
static void poisson_gaps_are_exponential(void **state)
{
    (void)state;
    size_t n;
    double *due = schedule(true, 500, 100, 7, &n), sum = 0, squares = 0;
    assert_true(fabs((double)n - 5e4) < 5 * sqrt(5e4));
    for (size_t i = 0; i < n; i++) {
        const double gap = 500 * (due[i] - (i ? due[i - 1] : 0));
        sum += gap;
        squares += gap * gap;
    }
    const double mean = sum / (double)n, error = 1 / sqrt((double)n);
    assert_true(fabs(mean - 1) < 5 * error);
    assert_true(fabs(squares / (double)n - mean * mean - 1) < 5 * sqrt(8) * error);
    pare_free(due);
}

static void a_seed_gives_its_times(void **state)
{
    (void)state;
    size_t n, m, k, l;
    double *a = schedule(true, 100, 10, 3, &n), *b = schedule(true, 100, 10, 3, &m);
    double *other = schedule(true, 100, 10, 4, &k), *fast = schedule(true, 200, 5, 3, &l);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n * sizeof *a);
    assert_true(n != k || memcmp(a, other, n * sizeof *a) != 0);
    for (size_t i = 0; i < n && i < l; i++) assert_true(fabs(a[i] - 2 * fast[i]) < 1e-9);
    pare_free(a);
    pare_free(b);
    pare_free(other);
    pare_free(fast);
}

static void schedules_are_refused(void **state)
{
    (void)state;
    pare_ctx ctx;
    double *due;
    size_t n;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_load_schedule(&ctx, &due, &n, true, 1e6, 1e6, 0), PARE_USAGE);
    assert_null(due);
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_load_schedule(&ctx, &due, &n, true, 1e-6, 1, 0), PARE_USAGE);
    assert_non_null(strstr(ctx.message, "no request is due"));
    for (long allowed = 0; allowed < 3; allowed++) {
        pare_ctx_init(&ctx);
        ctx.fail_after = allowed;
        assert_int_equal(pare_load_schedule(&ctx, &due, &n, true, 100, 100, 0), PARE_MEMORY);
    }
}

/* --- the open loop: a server that serves one request after the other, and stands still for a
   while --- */

enum { MOST = 400 };

typedef struct server {
    double t, service, stall_from, stall_to, free;
    double done[MOST]; /* by connection; INFINITY: idle */
    size_t request[MOST];
    double deadline[MOST], sent[MOST]; /* sent: by request */
    pare_load_end end;                 /* of those that are done in time */
    double oversleeps_at;              /* the first wait from then on takes 0.3 s more */
    double dies;                       /* no request can be sent from then on */
    pare_ctx *ctx;
    int *interrupted;
    double interrupts;
} server;

static double now(void *user)
{
    server *s = user;
    if (s->interrupted && s->t >= s->interrupts) *s->interrupted = 1;
    return s->t;
}

static pare_status send(void *user, int connection, size_t request, double deadline)
{
    server *s = user;
    if (s->t >= s->dies) return PARE_FAIL(s->ctx, IO, "the server has ended");
    assert_true(isinf(s->done[connection]));
    double at = fmax(s->t, s->free);
    if (at >= s->stall_from && at < s->stall_to) at = s->stall_to;
    s->free = at + s->service;
    s->done[connection] = fmin(s->free, deadline);
    s->deadline[connection] = deadline;
    s->request[connection] = request;
    s->sent[request] = s->t;
    return PARE_OK;
}

/* What was over before is no reason to return, as of libcurl's wait. */
static pare_status wait(void *user, double until)
{
    server *s = user;
    for (int c = 0; c < MOST; c++)
        if (s->done[c] > s->t) until = fmin(until, s->done[c]);
    s->t = fmax(s->t, until);
    if (s->t < s->oversleeps_at) return PARE_OK;
    s->t += 0.3;
    s->oversleeps_at = INFINITY;
    return PARE_OK;
}

static int next(void *user, pare_load_end *end)
{
    server *s = user;
    for (int c = 0; c < MOST; c++) {
        if (s->done[c] > s->t) continue;
        *end = s->done[c] < s->deadline[c] ? s->end : PARE_LOAD_FAILED;
        s->done[c] = INFINITY;
        return c;
    }
    return -1;
}

static server server_new(pare_ctx *ctx)
{
    server s = {.service = 1e-3,
                .stall_from = INFINITY,
                .stall_to = INFINITY,
                .oversleeps_at = INFINITY,
                .dies = INFINITY,
                .ctx = ctx,
                .t = 1000};
    pare_ctx_init(ctx);
    for (int c = 0; c < MOST; c++) s.done[c] = INFINITY;
    return s;
}

/* Two seconds of a request every 10 ms. */
static pare_status load_of(server *s, pare_load load, pare_load_result *out)
{
    double due[200];
    const pare_load_port port = {now, send, wait, next, s};
    for (int i = 0; i < 200; i++) due[i] = i / 100.0;
    load.due = due;
    load.count = 200;
    load.duration = 2 - load.warm_up;
    if (load.timeout <= 0) load.timeout = 60;
    return pare_load_run(s->ctx, out, &load, &port);
}

static int above(const pare_load_result *r, double ms)
{
    int n = 0;
    for (size_t i = 0; i < r->answered; i++) n += r->ms[i] > ms;
    return n;
}

static void a_quick_server_is_seen_as_it_is(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_load_result r;
    server s = server_new(&ctx);
    assert_int_equal(load_of(&s, (pare_load){.connections = 4}, &r), PARE_OK);
    assert_true(r.due == 200 && r.sent == 200 && r.answered == 200 && !r.shed && !r.failed);
    for (size_t i = 0; i < 200; i++) assert_true(fabs(r.ms[i] - 1) < 1e-6);
    assert_true(fabs(r.seconds - 2) < 1e-9 && !r.late);
    pare_load_free(&r);
}

static void what_ends_while_it_is_sent_is_noted_at_once(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_load_result r;
    server s = server_new(&ctx);
    s.service = 0;
    assert_int_equal(load_of(&s, (pare_load){.connections = 4}, &r), PARE_OK);
    assert_int_equal(r.answered, 200);
    for (size_t i = 0; i < 200; i++) assert_true(fabs(r.ms[i]) < 1e-6);
    pare_load_free(&r);
}

/* The server stands still from 0.5 s to 1 s. A closed loop would see that once; here all 50
   requests that are due meanwhile do, by what is left of it when they are due. */
static void a_stall_is_seen_by_all_that_come(void **state)
{
    (void)state;
    static const int connections[] = {MOST, 1};
    for (int k = 0; k < 2; k++) {
        pare_ctx ctx;
        pare_load_result r;
        server s = server_new(&ctx);
        s.stall_from = 1000.495;
        s.stall_to = 1001;
        assert_int_equal(load_of(&s, (pare_load){.connections = connections[k]}, &r), PARE_OK);
        assert_true(r.answered == 200);
        for (size_t i = 50; i < 100; i++) /* the i-th answer: they are served in order */
            assert_true(fabs(r.ms[i] - (1000 - 10.0 * (double)i + (double)(i - 49))) < 1e-6);
        assert_int_equal(above(&r, 250), 28);
        for (size_t i = 0; k == 0 && i < 200; i++) /* none waited for an answer */
            assert_true(fabs(s.sent[i] - 1000 - (double)i / 100) < 1e-9);
        if (k == 1) assert_true(s.sent[75] > 1001);
        assert_true(!r.late);
        pare_load_free(&r);
    }
}

static void waiting_ends_with_the_timeout(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_load_result r;
    server s = server_new(&ctx);
    s.stall_from = 1000.995; /* for good */
    const pare_load load = {.connections = 3, .timeout = 0.25};
    assert_int_equal(load_of(&s, load, &r), PARE_OK);
    assert_true(r.answered == 100 && r.failed == 100 && r.due == 200);
    assert_true(r.sent + r.unsent == 200 && !r.late);
    assert_true(s.t < 1000 + 2 + 0.25 + 1e-6);
    pare_load_free(&r);
}

/* A generator that was without a core for 0.3 s sends late what can still be answered in time. */
static void a_late_generator_says_so(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_load_result r;
    server s = server_new(&ctx);
    s.oversleeps_at = 1000.995;
    const pare_load load = {.connections = 50, .timeout = 0.255};
    assert_int_equal(load_of(&s, load, &r), PARE_OK);
    assert_int_equal(r.unsent, 5); /* due 0.3 to 0.26 s before it woke */
    assert_int_equal(r.late, 25);
    assert_true(r.sent == 195 && r.answered == 195 && r.failed == 5);
    assert_int_equal(above(&r, 9), 27); /* those, and two that wait behind them */
    pare_load_free(&r);
}

static void a_warm_up_is_not_counted(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_load_result r;
    server s = server_new(&ctx);
    s.end = PARE_LOAD_SHED;
    assert_int_equal(load_of(&s, (pare_load){.connections = 3, .warm_up = 0.5}, &r), PARE_OK);
    assert_true(r.due == 150 && r.sent == 150 && r.shed == 150 && !r.answered && !r.failed);
    assert_true(fabs(r.seconds - 1.5) < 1e-9);
    pare_load_free(&r);
}

static void what_was_found_stays_when_the_server_ends(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_load_result r;
    server s = server_new(&ctx);
    s.dies = 1000.995;
    assert_int_equal(load_of(&s, (pare_load){.connections = 3}, &r), PARE_IO);
    assert_true(r.answered == 100 && r.due == 101);
    assert_true(fabs(r.seconds - 1) < 1e-3);
    pare_load_free(&r);
}

static void what_was_found_stays_when_it_is_interrupted(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_load_result r;
    int interrupted = 0;
    server s = server_new(&ctx);
    s.interrupted = &interrupted;
    s.interrupts = 1000.505;
    ctx.interrupted = &interrupted;
    assert_int_equal(load_of(&s, (pare_load){.connections = 3}, &r), PARE_INTERRUPTED);
    assert_true(r.answered >= 50 && r.answered <= 52 && r.due >= r.sent && r.due < 60);
    pare_load_free(&r);
    for (long allowed = 0; allowed < 3; allowed++) {
        server again = server_new(&ctx);
        ctx.fail_after = allowed;
        assert_int_equal(load_of(&again, (pare_load){.connections = 3}, &r), PARE_MEMORY);
        assert_null(r.ms);
    }
}

/* --- top-1 --- */

static pare_client_reply reply_of(char *body, const char *json, const float *scores, size_t n)
{
    const size_t length = strlen(json);
    memcpy(body, json, length);
    memcpy(body + length, scores, n * sizeof *scores);
    return (pare_client_reply){
        .status = 200, .body = body, .bytes = length + n * sizeof *scores, .json_bytes = length};
}

/* Two requests of two samples of three classes; the output is behind another one. */
static void answers_are_compared_with_labels(void **state)
{
    (void)state;
    static const char json[] =
        "{\"outputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[2,1],\"parameters\":"
        "{\"binary_data_size\":8}},{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[2,3],"
        "\"parameters\":{\"binary_data_size\":24}}]}";
    const float right[] = {9, 9, 0, 5, 1, NAN, 2, 3}; /* classes 1 and 2 */
    const float wrong[] = {9, 9, 7, 5, 1, NAN, 2, 3}; /* 0 and 2 */
    char body[512];
    int64_t label[] = {1, 2, 0, 1};
    pare_ctx ctx;
    pare_load_top1 t;
    const pare_load_target target = {.output = "y", .classifies = true, .classes = 3};
    const pare_load_requests r = {.count = 2, .batch = 2, .label = label, .target = &target};
    pare_ctx_init(&ctx);
    assert_int_equal(pare_load_top1_init(&ctx, &t, &r), PARE_OK);
    pare_client_reply reply = reply_of(body, json, right, 8);
    pare_load_top1_add(&t, &r, 0, &reply);
    assert_true(t.samples == 2 && t.hits == 2 && !t.changed && !t.unread);
    pare_load_top1_add(&t, &r, 3, &reply); /* request 1 again */
    assert_true(t.samples == 4 && t.hits == 2);
    reply = reply_of(body, json, wrong, 8);
    pare_load_top1_add(&t, &r, 2, &reply); /* request 0 */
    assert_true(t.samples == 4 && t.hits == 2 && t.changed == 1);
    for (size_t cut = 0; cut < reply.bytes; cut++) { /* none of these is read beyond its end */
        pare_client_reply less = reply;
        less.bytes = cut;
        char *own = malloc(cut + 1);
        memcpy(own, body, cut);
        less.body = own;
        pare_load_top1_add(&t, &r, 0, &less);
        free(own);
    }
    assert_true(t.unread == (int64_t)reply.bytes && t.samples == 4);
    pare_load_top1_free(&t);
}

/* --- percentiles and the knee --- */

static void percentiles_are_those_of_the_values(void **state)
{
    (void)state;
    pare_ctx ctx;
    double ms[1001], q[PARE_PERCENTILES];
    int count;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_percentiles_parse(&ctx, "90,99,99.9", q, &count), PARE_OK);
    assert_int_equal(count, 3);
    for (int i = 0; i <= 1000; i++) ms[i] = i;
    json_t *notes = json_array(), *json = pare_latency_json(ms, 1001, "answers", q, count, notes);
    assert_true(fabs(pare_report_number(json, "median", 0) - 500) < 1e-9);
    assert_true(fabs(pare_report_number(json, "p90", 0) - 900) < 1e-9);
    assert_true(fabs(pare_report_number(json, "p99", 0) - 990) < 1e-9);
    assert_null(json_object_get(json, "p99.9")); /* needs 10,000 */
    assert_int_equal(json_array_size(notes), 1);
    assert_non_null(strstr(json_string_value(json_array_get(notes, 0)),
                           "p99.9 is not given: it needs 10000 answers, there are 1001"));
    json_decref(json);
    json_decref(notes);
    assert_int_equal(pare_percentiles_parse(&ctx, "90,", q, &count), PARE_USAGE);
    assert_int_equal(pare_percentiles_parse(&ctx, "101", q, &count), PARE_USAGE);
}

/* n requests, of which the slowest hundredth and a few more take `tail` ms. */
static pare_load_row row_of(double *ms, double offered, size_t n, double tail, size_t lost)
{
    pare_load_row row = {.offered = offered, .work = {.samples = NAN, .runs = NAN}};
    for (size_t i = 0; i < n; i++) ms[i] = i * 50 < n ? tail : 1;
    row.result = (pare_load_result){
        .due = n + lost, .sent = n + lost, .answered = n, .failed = lost, .ms = ms, .seconds = 1};
    return row;
}

static void knee_is(pare_load_row *rows, int count, double offered, bool highest, const char *word)
{
    static const double q[] = {99};
    for (int i = 0; i < count; i++) json_decref(pare_load_row_json(&rows[i], q, 1));
    json_t *knee = pare_load_knee(rows, count);
    const char *text = json_string_value(json_object_get(knee, "text"));
    assert_true(pare_report_number(knee, "offered_per_s", -1) == offered);
    assert_int_equal(json_is_true(json_object_get(knee, "highest")), highest);
    assert_non_null(text);
    assert_non_null(strstr(text, word));
    json_decref(knee);
}

static void the_knee_is_the_last_rate_that_is_answered_well(void **state)
{
    (void)state;
    enum { N = 2000 };
    static double a[N], b[N], c[N], d[N];
    pare_load_row rows[] = {row_of(a, 100, N, 4, 0), row_of(b, 400, N, 9, 0),
                            row_of(c, 200, N, 7.5, 19), row_of(d, 800, N, 5, 0)};
    knee_is(rows, 2, 100, false, "100 per second (p99 4 ms)");
    knee_is(rows, 3, 200, false, "200 per second"); /* 99.06 % answered */
    knee_is(rows, 4, 800, true, "not reached");
    rows[3].result.shed = 1;
    knee_is(rows, 4, 200, false, "200 per second");
    rows[2].result.due += 2; /* 98.96 % */
    knee_is(rows, 4, 100, false, "100 per second");
    rows[0].result.due += 100;
    knee_is(rows, 4, -1, false, "none");
    rows[0].result.answered = 999;
    knee_is(rows, 4, -1, false,
            "not known: p99 needs 1000 answers, at 100 per second there were 999");
}

static void plan_is(bool known, bool highest, double servers, const char *words)
{
    json_t *knee = json_pack("{s:b}", "highest", highest);
    if (known) json_object_set_new(knee, "offered_per_s", json_real(400));
    json_t *plan = pare_load_plan(knee, 1000);
    assert_true(pare_report_number(plan, "servers", -1) == servers);
    assert_int_equal(json_is_true(json_object_get(plan, "at_most")), highest);
    assert_non_null(strstr(json_string_value(json_object_get(plan, "text")), words));
    json_decref(plan);
    json_decref(knee);
}

static void a_plan_has_servers_enough(void **state)
{
    (void)state;
    plan_is(true, false, 3, "3 for 1000 per second, each given 400");
    plan_is(true, true, 3, "at most 3");
    plan_is(false, false, -1, "not known");
    json_t *knee = json_pack("{s:f}", "offered_per_s", 1e6), *plan = pare_load_plan(knee, 2.5e7);
    assert_string_equal(json_string_value(json_object_get(plan, "text")),
                        "25 for 25000000 per second, each given 1000000");
    json_decref(plan);
    json_decref(knee);
}

static void a_row_has_what_was_found(void **state)
{
    (void)state;
    static const double q[] = {90, 99};
    double ms[] = {3, 1, 2};
    pare_load_row row = {.offered = 5,
                         .result = {.due = 6,
                                    .sent = 5,
                                    .answered = 3,
                                    .shed = 1,
                                    .failed = 2,
                                    .unsent = 1,
                                    .late = 1,
                                    .ms = ms,
                                    .seconds = 2},
                         .work = {.samples = 12, .runs = 8, .bin = {5, 2, 1}},
                         .top1 = {.hits = 9, .samples = 10},
                         .error = "HTTP 400: no"};
    json_t *json = pare_load_row_json(&row, q, 2);
    assert_true(pare_report_number(json, "latency_ms.median", 0) == 2);
    assert_true(pare_report_number(json, "throughput_per_s", 0) == 1.5);
    assert_true(pare_report_number(json, "mean_batch", 0) == 1.5);
    assert_int_equal(json_array_size(json_object_get(json, "batches")), 3);
    assert_true(pare_report_number(json, "batches.2.most", 0) == 4);
    assert_true(pare_report_number(json, "batches.2.runs", 0) == 1);
    assert_true(fabs(pare_report_number(json, "top1", 0) - 90) < 1e-9);
    assert_true(pare_report_number(json, "top1_interval.1", 0) < 100);
    assert_int_equal(json_array_size(json_object_get(json, "notes")), 5);
    assert_string_equal(json_string_value(json_object_get(json, "first_error")), "HTTP 400: no");
    json_decref(json);
    row = (pare_load_row){.offered = 5, .work = {NAN, NAN}};
    json = pare_load_row_json(&row, q, 2); /* nothing at all */
    assert_null(json_object_get(json, "latency_ms"));
    assert_null(json_object_get(json, "mean_batch"));
    assert_null(json_object_get(json, "top1"));
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_read),
        cmocka_unit_test(constant_gaps_are_equal),
        cmocka_unit_test(poisson_gaps_are_exponential),
        cmocka_unit_test(a_seed_gives_its_times),
        cmocka_unit_test(schedules_are_refused),
        cmocka_unit_test(a_quick_server_is_seen_as_it_is),
        cmocka_unit_test(what_ends_while_it_is_sent_is_noted_at_once),
        cmocka_unit_test(a_stall_is_seen_by_all_that_come),
        cmocka_unit_test(waiting_ends_with_the_timeout),
        cmocka_unit_test(a_late_generator_says_so),
        cmocka_unit_test(a_warm_up_is_not_counted),
        cmocka_unit_test(what_was_found_stays_when_the_server_ends),
        cmocka_unit_test(what_was_found_stays_when_it_is_interrupted),
        cmocka_unit_test(answers_are_compared_with_labels),
        cmocka_unit_test(percentiles_are_those_of_the_values),
        cmocka_unit_test(a_plan_has_servers_enough),
        cmocka_unit_test(the_knee_is_the_last_rate_that_is_answered_well),
        cmocka_unit_test(a_row_has_what_was_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
