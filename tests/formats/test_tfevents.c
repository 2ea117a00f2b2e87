/* SPDX-License-Identifier: Apache-2.0 */
/* TensorBoard's event files, read back by what their format says: TFRecord frames, protobuf's wire
   form. */
#include "formats/file.h"
#include "formats/tfevents.h"
#include "formats/wire.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/file_limit.h"

typedef struct place {
    pare_ctx ctx;
    char folder[64];
    pare_tfevents *events;
} place;

static int setup(void **state)
{
    place *p = calloc(1, sizeof *p);
    signal(SIGXFSZ, SIG_IGN);
    pare_ctx_init(&p->ctx);
    strcpy(p->folder, "/tmp/pare-tfevents-XXXXXX");
    if (!mkdtemp(p->folder)) return -1;
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;
    char path[400];
    limit(RLIM_INFINITY);
    pare_tfevents_close(p->events);
    DIR *dir = opendir(p->folder);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        snprintf(path, sizeof path, "%s/%s", p->folder, e->d_name);
        unlink(path);
    }
    closedir(dir);
    const int gone = rmdir(p->folder);
    free(p);
    return gone;
}

static int count_files(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* --- reading --- */

/* The division of polynomials that a CRC is, from the first bit on, not reflected. */
static uint32_t crc_by_division(const uint8_t *data, size_t bytes)
{
    uint32_t rest = UINT32_MAX, out = 0;
    for (size_t i = 0; i < 8 * bytes; i++) {
        const uint32_t in = (uint32_t)(data[i / 8] >> i % 8 & 1);
        rest = rest << 1 ^ ((rest >> 31 ^ in) ? 0x1edc6f41u : 0);
    }
    for (int bit = 0; bit < 32; bit++) out |= (rest >> bit & 1) << (31 - bit);
    return ~out;
}

static uint32_t unmasked(const uint8_t *at)
{
    uint32_t crc;
    memcpy(&crc, at, sizeof crc);
    crc -= 0xa282ead8u;
    return crc << 15 | crc >> 17;
}

typedef struct scalar {
    char tag[64];
    float value;
} scalar;

typedef struct event {
    double wall_time;
    int64_t step;
    char version[32];
    int session; /* -1: no session log */
    scalar value[32];
    int values;
    double histo[6]; /* by field */
    double limit[64], bucket[64];
    int limits, buckets;
} event;

static void take_text(char *out, size_t size, const pare_wire_field *f)
{
    assert_int_equal(f->type, PARE_WIRE_BYTES);
    assert_true(f->size < size);
    memcpy(out, f->data, f->size);
    out[f->size] = 0;
}

static pare_wire_field next(const uint8_t **at, const uint8_t *end)
{
    pare_wire_field f;
    assert_null(pare_wire_next(at, end, &f));
    return f;
}

static int take_doubles(double *out, const pare_wire_field *f)
{
    assert_int_equal(f->type, PARE_WIRE_BYTES); /* packed */
    assert_true(f->size % 8 == 0 && f->size <= 64 * 8);
    memcpy(out, f->data, f->size);
    return (int)(f->size / 8);
}

static void read_histogram(event *e, const uint8_t *at, size_t size)
{
    for (const uint8_t *end = at + size; at < end;) {
        const pare_wire_field f = next(&at, end);
        if (f.number == 6) e->limits = take_doubles(e->limit, &f);
        if (f.number == 7) e->buckets = take_doubles(e->bucket, &f);
        if (f.number < 6) memcpy(&e->histo[f.number], f.data, 8);
    }
}

static void read_value(event *e, const uint8_t *at, size_t size)
{
    scalar *s = &e->value[e->values++];
    for (const uint8_t *end = at + size; at < end;) {
        const pare_wire_field f = next(&at, end);
        if (f.number == 1) take_text(s->tag, sizeof s->tag, &f);
        if (f.number == 2) memcpy(&s->value, f.data, 4);
        if (f.number == 5) read_histogram(e, f.data, f.size);
    }
}

static int64_t varint_of(const pare_wire_field *f)
{
    const uint8_t *at = f->data;
    uint64_t value;
    assert_int_equal(f->type, PARE_WIRE_VARINT);
    assert_true(pare_wire_varint(&at, f->data + f->size, &value));
    return (int64_t)value;
}

static void read_inner(event *e, const pare_wire_field *outer)
{
    const uint8_t *at = outer->data;
    for (const uint8_t *end = at + outer->size; at < end;) {
        const pare_wire_field f = next(&at, end);
        assert_int_equal(f.number, 1);
        if (outer->number == 5)
            read_value(e, f.data, f.size);
        else
            e->session = (int)varint_of(&f);
    }
}

static event read_event(const uint8_t *at, size_t size)
{
    event e = {.session = -1};
    for (const uint8_t *end = at + size; at < end;) {
        const pare_wire_field f = next(&at, end);
        switch (f.number) {
        case 1: memcpy(&e.wall_time, f.data, 8); break;
        case 2: e.step = varint_of(&f); break;
        case 3: take_text(e.version, sizeof e.version, &f); break;
        case 5:
        case 7: read_inner(&e, &f); break;
        default: fail_msg("an event has a field %u", f.number);
        }
    }
    return e;
}

/* Every byte of the file is in a whole record. */
static int read_file(const char *path, event *out, int most)
{
    pare_ctx ctx;
    pare_map map;
    int count = 0;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_map_read(&ctx, &map, path), PARE_OK);
    for (size_t at = 0; at < map.size;) {
        uint64_t length;
        assert_true(map.size - at >= 16 && count < most);
        memcpy(&length, map.data + at, 8);
        assert_true(length <= map.size - at - 16);
        const uint8_t *data = map.data + at + 12;
        assert_int_equal(unmasked(map.data + at + 8), crc_by_division(map.data + at, 8));
        assert_int_equal(unmasked(data + length), crc_by_division(data, length));
        out[count++] = read_event(data, length);
        at += 16 + length;
    }
    pare_map_close(&map);
    return count;
}

/* --- the tests --- */

/* RFC 3720, appendix B.4. */
static void crcs_are_the_published_ones(void **state)
{
    uint8_t bytes[48];
    (void)state;
    assert_int_equal(pare_crc32c("", 0), 0);
    assert_int_equal(pare_crc32c("123456789", 9), 0xe3069283);
    memset(bytes, 0, 32);
    assert_int_equal(pare_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(pare_crc32c(bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)i;
    assert_int_equal(pare_crc32c(bytes, 32), 0x46dd794e);
    assert_int_equal(crc_by_division(bytes, 32), 0x46dd794e);
}

static void a_file_begins_with_version_and_start(void **state)
{
    place *p = *state;
    event e[4];
    const double before = (double)time(NULL);
    assert_int_equal(pare_tfevents_open(&p->ctx, &p->events, p->folder, 41), PARE_OK);
    assert_int_equal(read_file(pare_tfevents_path(p->events), e, 4), 2);
    assert_string_equal(e[0].version, "brain.Event:2");
    assert_int_equal(e[0].session, -1);
    assert_int_equal(e[1].session, 1);
    assert_int_equal(e[1].step, 41);
    for (int i = 0; i < 2; i++)
        assert_true(e[i].wall_time >= before && e[i].wall_time < before + 600);
}

/* A record each; 20 are more than one holds. */
static void scalars_come_back(void **state)
{
    place *p = *state;
    event e[8];
    pare_tfevents_scalar list[20];
    for (int i = 0; i < 20; i++)
        list[i] = (pare_tfevents_scalar){i ? "train/loss" : "eval/top1", i / 3.0};
    assert_int_equal(pare_tfevents_open(&p->ctx, &p->events, p->folder, 0), PARE_OK);
    assert_int_equal(pare_tfevents_add_scalars(p->events, 7, list, 2), PARE_OK);
    assert_int_equal(pare_tfevents_add_scalars(p->events, INT64_C(1) << 40, list, 20), PARE_OK);
    assert_int_equal(read_file(pare_tfevents_path(p->events), e, 8), 5);
    assert_int_equal(e[2].step, 7);
    assert_int_equal(e[2].values, 2);
    assert_string_equal(e[2].value[0].tag, "eval/top1");
    assert_true(e[2].value[0].value == 0);
    assert_string_equal(e[2].value[1].tag, "train/loss");
    assert_true(e[2].value[1].value == (float)(1 / 3.0));
    assert_true(e[3].step == INT64_C(1) << 40 && e[4].step == e[3].step);
    assert_int_equal(e[3].values + e[4].values, 20);
    assert_true(e[4].value[e[4].values - 1].value == (float)(19 / 3.0));
}

static event add_and_read(place *p, const float *values, int64_t count, double scale)
{
    event e[3];
    pare_tfevents_close(p->events);
    p->events = NULL;
    assert_int_equal(pare_tfevents_open(&p->ctx, &p->events, p->folder, 0), PARE_OK);
    assert_int_equal(
        pare_tfevents_add_histogram(p->events, 3, "layer.weight", values, count, scale), PARE_OK);
    assert_int_equal(read_file(pare_tfevents_path(p->events), e, 3), 3);
    assert_int_equal(e[2].step, 3);
    assert_string_equal(e[2].value[0].tag, "layer.weight");
    return e[2];
}

/* min, max, num, sum, sum_squares */
static void expect_sums(const event *e, double least, double most, double count, double sum,
                        double squares)
{
    assert_true(e->histo[1] == least && e->histo[2] == most && e->histo[3] == count);
    assert_true(fabs(e->histo[4] - sum) < 1e-9 && fabs(e->histo[5] - squares) < 1e-9);
}

static void histograms_have_the_sums_of_their_values(void **state)
{
    place *p = *state;
    float values[61];
    for (int i = 0; i < 61; i++) values[i] = (float)(i - 30); /* two a bin, three in the last */
    event e = add_and_read(p, values, 61, 0.5);
    expect_sums(&e, -15, 15, 61, 0, 0.25 * 2 * (30 * 31 * 61 / 6));
    assert_true(e.limits == 30 && e.buckets == 30);
    for (int i = 0; i < 30; i++) {
        assert_true(e.limit[i] == i - 14);
        assert_true(e.bucket[i] == (i < 29 ? 2 : 3));
    }
}

static void values_that_are_no_numbers_count_for_nothing(void **state)
{
    place *p = *state;
    const float values[] = {NAN, 2, INFINITY, 2, -INFINITY, 2};
    event e = add_and_read(p, values, 6, 1);
    expect_sums(&e, 2, 2, 3, 6, 12);
    assert_true(e.limits == 1 && e.limit[0] == 2 && e.buckets == 1 && e.bucket[0] == 3);
    e = add_and_read(p, values, 1, 1);
    expect_sums(&e, 0, 0, 0, 0, 0);
    assert_true(e.limits == 0 && e.buckets == 0);
}

/* TensorBoard's reader refuses what is not UTF-8. */
static void names_become_text(void **state)
{
    place *p = *state;
    event e[3];
    const float one = 1;
    assert_int_equal(pare_tfevents_open(&p->ctx, &p->events, p->folder, 0), PARE_OK);
    assert_int_equal(pare_tfevents_add_histogram(p->events, 0, "a\xff\nb", &one, 1, 1), PARE_OK);
    assert_int_equal(read_file(pare_tfevents_path(p->events), e, 3), 3);
    assert_string_equal(e[2].value[0].tag, "a\\xFF\\nb");
}

/* TensorBoard reads them in the order of their names. */
static void later_files_come_after_earlier_ones(void **state)
{
    place *p = *state;
    char last[400] = "", path[400];
    snprintf(path, sizeof path, "%s/events.out.tfevents.%lld.elsewhere.1.0", p->folder,
             (long long)time(NULL) + 1000);
    assert_int_equal(pare_file_write(&p->ctx, path, "", 0), PARE_OK);
    strcpy(last, path);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pare_tfevents_open(&p->ctx, &p->events, p->folder, 0), PARE_OK);
        assert_true(strcmp(pare_tfevents_path(p->events), last) > 0);
        snprintf(last, sizeof last, "%s", pare_tfevents_path(p->events));
        pare_tfevents_close(p->events);
        p->events = NULL;
    }
}

static void a_full_disk_leaves_whole_records(void **state)
{
    place *p = *state;
    event e[8];
    const pare_tfevents_scalar one = {"train/loss", 1};
    float values[64] = {1};
    assert_int_equal(pare_tfevents_open(&p->ctx, &p->events, p->folder, 0), PARE_OK);
    assert_int_equal(pare_tfevents_add_scalars(p->events, 1, &one, 1), PARE_OK);
    limit(300);
    assert_int_equal(pare_tfevents_add_histogram(p->events, 1, "w", values, 64, 1), PARE_IO);
    assert_non_null(strstr(p->ctx.message, pare_tfevents_path(p->events)));
    limit(RLIM_INFINITY);
    assert_int_equal(read_file(pare_tfevents_path(p->events), e, 8), 3);
}

static void what_cannot_begin_leaves_nothing(void **state)
{
    place *p = *state;
    limit(20);
    assert_int_equal(pare_tfevents_open(&p->ctx, &p->events, p->folder, 0), PARE_IO);
    limit(RLIM_INFINITY);
    assert_non_null(strstr(p->ctx.message, p->folder));
    pare_ctx_clear(&p->ctx);
    assert_int_equal(pare_tfevents_open(&p->ctx, &p->events, "/nowhere", 0), PARE_IO);
    assert_non_null(strstr(p->ctx.message, "/nowhere/events.out.tfevents."));
    pare_ctx_clear(&p->ctx);
    for (long left = 0; !p->events; left++) {
        p->ctx.fail_after = left;
        const pare_status st = pare_tfevents_open(&p->ctx, &p->events, p->folder, 0);
        assert_true(st == PARE_OK || (st == PARE_MEMORY && !count_files(p->folder)));
        pare_ctx_clear(&p->ctx);
    }
    assert_int_equal(count_files(p->folder), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crcs_are_the_published_ones),
        TEST(a_file_begins_with_version_and_start),
        TEST(scalars_come_back),
        TEST(histograms_have_the_sums_of_their_values),
        TEST(values_that_are_no_numbers_count_for_nothing),
        TEST(names_become_text),
        TEST(later_files_come_after_earlier_ones),
        TEST(a_full_disk_leaves_whole_records),
        TEST(what_cannot_begin_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
