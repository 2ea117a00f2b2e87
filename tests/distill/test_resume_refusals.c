/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint refuses: to be overwritten, other options, other files, damage. */
#include "tests/distill/resume_case.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void refuse(resume_run *r, const char *words)
{
    float before[WIDTH * HIDDEN];
    memcpy(before, distill_weight(&r->c.student, "w1"), sizeof before);
    distill_expect_refusal(&r->c, NULL, PARE_INPUT, words);
    assert_int_equal(r->events, 0);
    assert_memory_equal(distill_weight(&r->c.student, "w1"), before, sizeof before);
}

static void keep_five(resume_run *r, resume_settings set)
{
    resume_begin(r, set);
    r->c.options.checkpoint.path = resume_path;
    r->c.stop_at = 5;
    distill_expect_ok(&r->c, NULL);
}

static void nothing_is_overwritten(void **state)
{
    static resume_run r;
    struct stat before, after;
    (void)state;
    keep_five(&r, resume_adamw);
    assert_int_equal(stat(resume_path, &before), 0);
    resume_go_on(&r, resume_adamw, 1);
    r.c.options.checkpoint.resume = false;
    refuse(&r, "is the checkpoint of an earlier run; continue from it with --resume");
    assert_non_null(strstr(resume_path, resume_folder));
    assert_int_equal(stat(resume_path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(unlink(resume_path), 0);
    distill_close(&r.c);
}

/* One option after the other is another one. */
static void change(pare_distill_options *o, int which)
{
    static const pare_distill_scale scale[] = {{"w1", 2}};
    static const int64_t some[20] = {1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53};
    switch (which) {
    case 0: o->steps++; break;
    case 1: o->batch = 32; break;
    case 2: o->accumulate = 2; break;
    case 3: o->optimizer = PARE_OPTIMIZER_SGD; break;
    case 4: o->beta2 = 0.99; break;
    case 5: o->learning_rate *= 1 + 1e-15; break;
    case 6: o->schedule = PARE_SCHEDULE_STEP; break;
    case 7: o->warmup = 1; break;
    case 8: o->weight_decay = 0.5; break;
    case 9: o->grad_clip_norm = 0; break;
    case 10: o->ema_decay = 0.95; break;
    case 11: o->train_zeros = true; break;
    case 12: o->batchnorm = PARE_BATCHNORM_FROZEN; break;
    case 13:
        o->scale = scale;
        o->scale_count = 1;
        break;
    case 14: o->seed = 2; break;
    case 15:
        o->samples = some;
        o->sample_count = 17;
        break;
    case 16: o->validate_every = 3; break;
    case 17: o->start = 16; break;
    case 18: o->zeros_from = 0; break;
    case 19: o->precision = PARE_TRAIN_BF16; break;
    case 20: o->bn_recalib_samples = 64; break;
    default: o->patience = 9; break;
    }
}

static void other_options_are_refused(void **state)
{
    static const char *const words[] = {
        "its number of steps is 12, this run's is 13",
        "its batch is 16, this run's is 32",
        "its accumulation is 1, this run's is 2",
        "its optimizer is adamw betas 0.9, 0.999 epsilon 1e-08, this run's is sgd momentum 0.9",
        "betas 0.9, 0.999 epsilon 1e-08, this run's is adamw betas 0.9, 0.99 ",
        "its learning rate is 0.02, this run's is 0.0200000000000000",
        "its schedule is cosine, this run's is step",
        "its warm-up is 0, this run's is 1",
        "its decay is 0.01, this run's is 0.5",
        "its clip is 0.5, this run's is 0",
        "its EMA is 0.9, this run's is 0.95",
        "its treatment of zeros is keep from 0.2 on, this run's is train",
        "its BatchNormalization is train, this run's is frozen",
        "its list of learned scales is 0 ",
        "its seed is 1, this run's is 2",
        "its training data is 64 samples ",
        "its distance of validations is 2, this run's is 3",
        "its first sample of the stream is 0, this run's is 16",
        "its treatment of zeros is keep from 0.2 on, this run's is keep from 0 on",
        "its precision is f32, this run's is bf16",
        "its number of samples for statistics is 512, this run's is 64",
        "its patience is 0, this run's is 9"};
    static resume_run r;
    (void)state;
    keep_five(&r, resume_adamw);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        resume_go_on(&r, resume_adamw, 1);
        change(&r.c.options, (int)i);
        refuse(&r, words[i]);
    }
    resume_go_on(&r, resume_adamw, 1);
    distill_expect_refusal(&r.c, "kl:3*2,feature:h", PARE_INPUT,
                           "its loss is kl:2, this run's is kl:3*2,feature:h=h");
    resume_go_on(&r, resume_adamw, 2);
    distill_expect_ok(&r.c, NULL);
    assert_int_equal(unlink(resume_path), 0);
    distill_close(&r.c);
}

static void other_files_are_refused(void **state)
{
    static resume_run r;
    (void)state;
    keep_five(&r, resume_adamw);
    resume_go_on(&r, resume_adamw, 1);
    *(float *)(uintptr_t)distill_weight(&r.c.student, "w2") += 1;
    refuse(&r, "its student is");
    resume_go_on(&r, resume_adamw, 1);
    *(float *)(uintptr_t)distill_weight(&r.c.teacher, "b") += 1;
    refuse(&r, "its teacher is");
    resume_go_on(&r, resume_adamw, 1);
    pare_data_close(r.c.data);
    r.c.data = distill_data(r.c.ctx, LABELS_RIGHT);
    refuse(&r, "its training data is 64 samples");
    resume_go_on(&r, resume_adamw, 1);
    pare_data_close(r.c.options.held_out);
    r.c.options.held_out = distill_data(r.c.ctx, LABELS_RIGHT);
    refuse(&r, "its held-out data is 64 samples");
    assert_int_equal(unlink(resume_path), 0);
    distill_close(&r.c);
}

/* Reads the checkpoint, changes it, writes it. */
static void damage(void (*change_bytes)(uint8_t *file, size_t *size))
{
    static uint8_t file[1 << 16];
    int fd = open(resume_path, O_RDWR);
    assert_true(fd >= 0);
    ssize_t n = read(fd, file, sizeof file);
    assert_true(n > 0 && n < (ssize_t)sizeof file);
    size_t size = (size_t)n;
    change_bytes(file, &size);
    assert_int_equal(pwrite(fd, file, size, 0), (ssize_t)size);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    close(fd);
}

static void cut_it(uint8_t *file, size_t *size)
{
    (void)file;
    *size -= 9;
}

static void change_version(uint8_t *file, size_t *size)
{
    (void)size;
    file[8]++;
}

/* A state that no run can be in, with the right hashes: of the first blob, after the facts, and of
   the head. */
static void step_beyond_the_end(uint8_t *file, size_t *size)
{
    uint32_t facts, length[2];
    uint64_t head, bytes;
    size_t at = 40;
    memcpy(&facts, file + 12, 4);
    memcpy(&head, file + 24, 8);
    for (; facts > 0; facts--) {
        memcpy(length, file + at, 8);
        at += 8 + length[0] + length[1];
    }
    memcpy(&bytes, file + at + 8, 8);
    assert_true(head + 16 + bytes < *size);
    const int64_t step = STEPS + 1;
    memcpy(file + head + 16, &step, 8);
    pare_hash hash = pare_hash_bytes(file + head + 16, bytes);
    memcpy(file + at + 16, &hash, 16);
    hash = pare_hash_bytes(file, head);
    memcpy(file + head, &hash, 16);
}

static void damage_is_refused(void **state)
{
    static const struct {
        void (*change)(uint8_t *file, size_t *size);
        const char *words;
    } cases[] = {{cut_it, "is cut: "},
                 {change_version, "has version 2 of the format"},
                 {step_beyond_the_end, "is damaged (step 13 of 12"}};
    static resume_run r;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        keep_five(&r, resume_adamw);
        damage(cases[i].change);
        resume_go_on(&r, resume_adamw, 1);
        refuse(&r, cases[i].words);
        assert_int_equal(unlink(resume_path), 0);
        distill_close(&r.c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_overwritten),
        cmocka_unit_test(other_options_are_refused),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(damage_is_refused),
    };
    return cmocka_run_group_tests(tests, resume_setup, resume_teardown);
}
