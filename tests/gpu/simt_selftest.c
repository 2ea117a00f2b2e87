/* SPDX-License-Identifier: Apache-2.0 */
/* simt_selftest: every wrapper of runtime/cuda/device/simt.h on this device, compared with results
   recorded elsewhere, normally on the emulation.

     simt_selftest --check FILE     PASS or FAIL a wrapper, with the first results that differ
     simt_selftest --record FILE    writes results
     simt_selftest --hashes         prints name and hash; NEAR3 rows, whose bits no one promises: -

   Exit 0: all agree; 1: some do not; 2: usage or a file; 77: no device, said as SKIP. */
#include "runtime/base/hash.h"
#include "tests/gpu/selftest.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS = SELFTEST_THREADS * SELFTEST_WORDS, NAME = 48, SHOWN = 3 };
static const char magic[16] = "pare selftest 1";

/* --- inputs: from integers alone, so that they are the same on every machine --- */

static const unsigned special[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x3f000000, 0xbf000000,
    0x3f800000, 0x3fc00000, 0x40200000, 0xc0200000, 0x477fe000, 0x477fefff, 0x477ff000, 0xc77ff000,
    0x33000000, 0x33000001, 0x387fc000, 0x7f7f8000, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
    0xffc00001, 0x7f800001, 0x4effffff, 0x4f000000, 0xcf000000, 0xcf000001, 0x4b000001, 0x7fffffff};

static unsigned next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 32);
}

/* A float of magnitude 2^-10 to 2^13, few bits set: ties and whole numbers are frequent. */
static unsigned moderate(unsigned r)
{
    unsigned exponent = 117 + r % 23, mantissa = (r >> 8 & 0x7fffff) & ~0u << (r >> 27) % 20;
    return (r & 0x80000000u) | exponent << 23 | mantissa;
}

static void inputs_make(unsigned *in)
{
    uint64_t state = 20240613;
    for (int t = 0; t < SELFTEST_THREADS; t++)
        for (int i = 0; i < SELFTEST_INPUTS; i++) {
            unsigned r = next(&state), kind = (unsigned)(t + i * 2) % 4;
            in[t * SELFTEST_INPUTS + i] = kind == 0   ? special[r % (sizeof special / 4)]
                                          : kind == 1 ? moderate(r)
                                                      : r;
        }
}

/* --- comparing --- */

static bool is_nan32(uint64_t v) { return (v & 0x7fffffff) > 0x7f800000; }
static bool is_nan64(uint64_t v) { return (v & INT64_MAX) > 0x7ff0000000000000; }

/* What counts as the same becomes the same. */
static uint64_t deterministic(selftest_kind kind, uint64_t v)
{
    bool f32 = kind == SELFTEST_F32 || kind == SELFTEST_ZERO || kind == SELFTEST_NEAR3;
    if (f32 && is_nan32(v)) return 0x7fc00000;
    if (kind == SELFTEST_F64 && is_nan64(v)) return 0x7ff8000000000000;
    return kind == SELFTEST_ZERO && v == 0x80000000 ? 0 : v;
}

/* Floats in their order, as integers. */
static int64_t place(uint64_t v)
{
    int64_t magnitude = (int64_t)(v & 0x7fffffff);
    return v & 0x80000000 ? -magnitude : magnitude;
}

static bool agree(selftest_kind kind, uint64_t want, uint64_t got)
{
    if (want == got) return true;
    if (kind != SELFTEST_NEAR3 || is_nan32(want) || is_nan32(got)) return false;
    int64_t apart = place(want) - place(got);
    return apart >= -3 && apart <= 3;
}

static bool row_check(const selftest_row *row, const uint64_t *want, const uint64_t *got,
                      const unsigned *in)
{
    int count = row->words * SELFTEST_THREADS, wrong = 0;
    for (int i = 0; i < count; i++) wrong += !agree(row->kind, want[i], got[i]);
    if (!wrong) {
        printf("PASS %s\n", row->name);
        return true;
    }
    printf("FAIL %s: %d of %d results differ", row->name, wrong, count);
    for (int i = 0, shown = 0; i < count && shown < SHOWN; i++)
        if (!agree(row->kind, want[i], got[i])) {
            const unsigned *x = in + i % SELFTEST_THREADS * SELFTEST_INPUTS;
            printf("; thread %d result %d of %08x %08x %08x: %llx, recorded %llx",
                   i % SELFTEST_THREADS, i / SELFTEST_THREADS, x[0], x[1], x[2],
                   (unsigned long long)got[i], (unsigned long long)want[i]);
            shown++;
        }
    printf("\n");
    return false;
}

/* --- running --- */

static cudaError_t row_run(const selftest_row *row, uint64_t *device, const unsigned *in,
                           uint64_t *out)
{
    cudaError_t error = cudaMemset(device, 0, RESULTS * sizeof *device);
    if (!error) error = row->launch(device, in, NULL);
    if (!error) error = cudaDeviceSynchronize();
    if (!error) error = cudaMemcpy(out, device, RESULTS * sizeof *out, cudaMemcpyDeviceToHost);
    for (int i = 0; i < RESULTS; i++) out[i] = deterministic(row->kind, out[i]);
    return error;
}

typedef enum mode { CHECK, RECORD, HASHES } mode;

static bool read_row(FILE *file, const selftest_row *row, uint64_t *want)
{
    char name[NAME];
    size_t count = (size_t)row->words * SELFTEST_THREADS;
    return fread(name, NAME, 1, file) == 1 && !strncmp(name, row->name, NAME) &&
           fread(want, sizeof *want, count, file) == count;
}

static bool write_row(FILE *file, const selftest_row *row, const uint64_t *got)
{
    char name[NAME] = {0};
    size_t count = (size_t)row->words * SELFTEST_THREADS;
    snprintf(name, sizeof name, "%s", row->name);
    return fwrite(name, NAME, 1, file) == 1 && fwrite(got, sizeof *got, count, file) == count;
}

static void print_hash(const selftest_row *row, const uint64_t *got)
{
    char text[33] = "-";
    size_t count = (size_t)row->words * SELFTEST_THREADS;
    if (row->kind != SELFTEST_NEAR3)
        pare_hash_text(pare_hash_bytes(got, count * sizeof *got), text);
    printf("%s %s\n", row->name, text);
}

static uint64_t want[RESULTS], got[RESULTS];

/* Has the device what the row needs? */
static bool row_fits(const selftest_row *row)
{
    int major = 0, minor = 0;
    if (row->devices == SELFTEST_ALL) return true;
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    const bool hopper = major == 9 && minor == 0, blackwell = major == 10 && minor == 0;
    return (hopper && row->devices != SELFTEST_TCGEN) ||
           (blackwell && row->devices != SELFTEST_WGMMA);
}

/* All rows; the number of those that failed, -1: the file is not what it should be. */
static int rows_run(mode how, FILE *file, const unsigned *host, uint64_t *out, const unsigned *in)
{
    int count, failed = 0, skipped = 0;
    const selftest_row *rows = selftest_rows(&count);
    for (int r = 0; r < count; r++) {
        if (how == CHECK && !read_row(file, &rows[r], want)) return -1;
        if (how == CHECK && !row_fits(&rows[r])) {
            printf("SKIP %s: not of this device's compute capability\n", rows[r].name);
            skipped++;
            continue;
        }
        cudaError_t error = row_run(&rows[r], out, in, got);
        if (error) {
            printf("FAIL %s: %s\n", rows[r].name, cudaGetErrorString(error));
            failed++;
        } else if (how == CHECK)
            failed += !row_check(&rows[r], want, got, host);
        else if (how == HASHES)
            print_hash(&rows[r], got);
        else if (!write_row(file, &rows[r], got))
            return -1;
    }
    if (how == CHECK)
        printf("%d passed, %d failed, %d skipped\n", count - failed - skipped, failed, skipped);
    return failed;
}

static int on_device(mode how, FILE *file)
{
    static unsigned host[SELFTEST_THREADS * SELFTEST_INPUTS];
    unsigned *in = NULL;
    uint64_t *out = NULL;
    int failed = 1;
    inputs_make(host);
    cudaError_t error = cudaMalloc((void **)&in, sizeof host);
    if (!error) error = cudaMalloc((void **)&out, RESULTS * sizeof *out);
    if (!error) error = cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
    if (error)
        printf("FAIL selftest: %s\n", cudaGetErrorString(error));
    else
        failed = rows_run(how, file, host, out, in);
    (void)cudaFree(in);
    (void)cudaFree(out);
    return failed;
}

static int run(mode how, const char *path)
{
    char start[sizeof magic] = {0};
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error || !devices) {
        printf("SKIP: no GPU: %s\n", error ? cudaGetErrorString(error) : "none is visible");
        return 77;
    }
    FILE *file = path ? fopen(path, how == RECORD ? "wb" : "rb") : NULL;
    bool good = !path || (file && (how == RECORD ? fwrite(magic, sizeof magic, 1, file) == 1
                                                 : fread(start, sizeof start, 1, file) == 1 &&
                                                       !memcmp(start, magic, sizeof magic)));
    int failed = good ? on_device(how, file) : -1;
    if (file && fclose(file)) failed = -1;
    if (failed < 0)
        fprintf(stderr, "simt_selftest: %s: %s\n", path,
                how == RECORD ? "cannot be written" : "is no recording of this program");
    return failed < 0 ? 2 : failed > 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--check")) return run(CHECK, argv[2]);
    if (argc == 3 && !strcmp(argv[1], "--record")) return run(RECORD, argv[2]);
    if (argc == 2 && !strcmp(argv[1], "--hashes")) return run(HASHES, NULL);
    fputs("usage: simt_selftest --check FILE | --record FILE | --hashes\n", stderr);
    return 2;
}
