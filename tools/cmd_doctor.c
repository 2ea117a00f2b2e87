/* SPDX-License-Identifier: Apache-2.0 */
/* pare doctor: what this machine and this build offer, and what would serve. */
#include "runtime/exec/exec.h"
#include "tools/commands.h"
#include "tools/table.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct doctor_options {
    pare_common common;
} doctor_options;

/* --- what the machine says --- */

/* The value behind "key ... :" in a file of such lines, or "". */
static void file_value(const char *path, const char *key, char *text, size_t size)
{
    char line[512];
    FILE *file = fopen(path, "r");
    *text = 0;
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !colon) continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = 0;
        snprintf(text, size, "%s", colon);
        break;
    }
    if (file) fclose(file);
}

static double memory_of(const char *key)
{
    char text[64];
    file_value("/proc/meminfo", key, text, sizeof text);
    return strtod(text, NULL) * 1024; /* kB */
}

/* Instruction sets that kernels ask for, widest first; DNNL_MAX_CPU_ISA narrows oneDNN's. */
static const char *instruction_set(bool *vnni)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool v512 = __builtin_cpu_supports("avx512vnni") != 0;
    *vnni = v512;
    if (v512) return "AVX-512 with VNNI";
    if (__builtin_cpu_supports("avx512bw")) return "AVX-512 without VNNI";
    if (__builtin_cpu_supports("avx2")) return "AVX2";
    return "SSE";
#else
    *vnni = false;
    return "not x86-64";
#endif
}

/* --- libraries --- */

/* The version of a library that is loaded already; its function fills up to three numbers. */
static void dnnl_version(char *text, size_t size)
{
    struct version {
        int major, minor, patch;
    };
    union {
        void *symbol;
        const struct version *(*call)(void);
    } ask = {dlsym(RTLD_DEFAULT, "dnnl_version")};
    if (!ask.symbol) {
        snprintf(text, size, "absent");
        return;
    }
    const struct version *v = ask.call();
    snprintf(text, size, "%d.%d.%d", v->major, v->minor, v->patch);
}

static void hdf5_version(char *text, size_t size)
{
    union {
        void *symbol;
        int (*call)(unsigned *, unsigned *, unsigned *);
    } ask = {dlsym(RTLD_DEFAULT, "H5get_libversion")};
    unsigned major, minor, release;
    if (!ask.symbol || ask.call(&major, &minor, &release) < 0)
        snprintf(text, size, "absent");
    else
        snprintf(text, size, "%u.%u.%u", major, minor, release);
}

static const char *advice(bool dnnl, bool vnni)
{
    if (!dnnl)
        return "install libdnnl-dev and build again: without oneDNN float networks run slowly";
    if (!vnni)
        return "INT8 runs on our own 16-bit multiply-add kernels: exact, but a CPU with VNNI is "
               "about twice as fast";
    return "nothing is missing";
}

static pare_status run(pare_tool *tool, const void *options)
{
    (void)options;
    char cpu[256], dnnl[32], hdf5[32], total[32], available[32];
    bool vnni;
    const char *isa = instruction_set(&vnni), *limit = getenv("DNNL_MAX_CPU_ISA");
    file_value("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    dnnl_version(dnnl, sizeof dnnl);
    hdf5_version(hdf5, sizeof hdf5);
    double all = memory_of("MemTotal"), left = memory_of("MemAvailable");
    const char *say = advice(strcmp(dnnl, "absent") != 0, vnni);
    printf("pare      %s\n", PARE_VERSION);
    printf("cpu       %s\n", *cpu ? cpu : "unknown");
    printf("cores     %d\n", pare_cpu_cores());
    printf("isa       %s%s%s\n", isa, limit ? ", DNNL_MAX_CPU_ISA=" : "", limit ? limit : "");
    printf("memory    %s, %s available\n", pare_bytes_text(all, total, sizeof total),
           pare_bytes_text(left, available, sizeof available));
    printf("oneDNN    %s\n", dnnl);
    printf("HDF5      %s\n", hdf5);
    printf("jansson   %s\n", jansson_version_str());
    printf("CUDA      this build computes on the CPU only\n");
    printf("advice    %s\n", say);
    json_object_update_new(tool->facts,
                           json_pack("{s:s, s:i, s:s, s:b, s:f, s:f, s:{s:s, s:s, s:s}, s:b, s:s}",
                                     "cpu", cpu, "cores", pare_cpu_cores(), "isa", isa, "vnni",
                                     vnni, "memory_bytes", all, "memory_available_bytes", left,
                                     "libraries", "onednn", dnnl, "hdf5", hdf5, "jansson",
                                     jansson_version_str(), "cuda", false, "advice", say));
    return PARE_OK;
}

const pare_command pare_command_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "show what this machine and this build offer, and what would help",
    .example = "pare doctor",
    .size = sizeof(doctor_options),
    .run = run,
};
