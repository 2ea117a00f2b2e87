/* SPDX-License-Identifier: Apache-2.0 */
/* pare doctor: what this machine and this build offer, and what would serve. */
#include "runtime/exec/exec.h"
#include "tools/commands.h"
#include "tools/cpu_info.h"
#include "tools/table.h"
#include "tools/text.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct doctor_options {
    pare_common common;
} doctor_options;

/* --- what the machine says --- */

static double memory_of(const char *key)
{
    char text[64];
    pare_line_value("/proc/meminfo", key, text, sizeof text);
    return strtod(text, NULL) * 1024; /* kB */
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

/* --- GPUs --- */

static void version_text(int version, char *text, size_t size)
{
    snprintf(text, size, "%d.%d", version / 1000, version % 1000 / 10);
}

/* Names and memory of those that the driver shows. */
static pare_status list_gpus(pare_tool *tool, const pare_gpu_facts *facts, json_t *list)
{
    char name[256], size[32];
    for (int i = 0; i < facts->count; i++) {
        size_t bytes;
        pare_status st = pare_gpu_name(tool->ctx, i, name, sizeof name, &bytes);
        if (st != PARE_OK) return pare_fail_prefix(tool->ctx, st, "cuda:%d", i);
        pare_print(stdout, "cuda:%-4d %s, %s\n", i, name,
                   pare_bytes_text((double)bytes, size, sizeof size));
        json_array_append_new(
            list, json_pack("{s:s, s:I}", "name", name, "memory_bytes", (json_int_t)bytes));
    }
    return PARE_OK;
}

static void show_blas(pare_tool *tool, json_t *gpu)
{
    char path[1024];
    bool found = pare_gpu_blas(tool->ctx, path, sizeof path) == PARE_OK;
    pare_print(stdout, "cuBLAS    %s%s\n",
               found ? path : "our own kernels serve: ", found ? "" : tool->ctx->message);
    if (found) json_object_set_new(gpu, "cublas", json_string(path));
    pare_ctx_clear(tool->ctx);
}

static void show_dnn(pare_tool *tool, json_t *gpu)
{
    char text[1024];
    bool found = pare_gpu_dnn(tool->ctx, text, sizeof text) == PARE_OK;
    pare_print(stdout, "cuDNN     %s%s\n",
               found ? text : "our own kernels serve: ", found ? "" : tool->ctx->message);
    if (found) json_object_set_new(gpu, "cudnn", json_string(text));
    pare_ctx_clear(tool->ctx);
}

static void show_nccl(pare_tool *tool, json_t *gpu)
{
    char version[64];
    bool found = pare_gpu_nccl(tool->ctx, version, sizeof version) == PARE_OK;
    pare_print(stdout, "NCCL      %s%s\n",
               found ? version : "GPUs of several processes go through MPI: ",
               found ? "" : tool->ctx->message);
    if (found) json_object_set_new(gpu, "nccl", json_string(version));
    pare_ctx_clear(tool->ctx);
}

/* What the build has, what the driver offers. */
static pare_status show_gpus(pare_tool *tool)
{
    char code[128], runtime[16], driver[16];
    json_t *gpu = json_object(), *list = json_array();
    pare_gpu_facts facts;
    json_object_set_new(tool->facts, "gpu", gpu);
    json_object_set_new(gpu, "devices", list);
    if (!pare_gpu_code(code, sizeof code)) {
        pare_print(stdout, "CUDA      this build computes on the CPU only\n");
        return PARE_OK;
    }
    pare_gpu_find(&facts);
    version_text(facts.runtime, runtime, sizeof runtime);
    version_text(facts.driver, driver, sizeof driver);
    pare_print(stdout, "CUDA      %s, code for %s\n", runtime, code);
    pare_print(stdout, "driver    %s%s%s\n", facts.driver ? "for CUDA " : "none",
               facts.driver ? driver : "",
               facts.driver && !facts.count ? ": no GPU can be used" : "");
    if (facts.driver && facts.why[0]) pare_print(stdout, "          %s\n", facts.why);
    json_object_update_new(gpu, json_pack("{s:s, s:s, s:s}", "code", code, "runtime", runtime,
                                          "driver", facts.driver ? driver : "none"));
    show_blas(tool, gpu);
    show_dnn(tool, gpu);
    show_nccl(tool, gpu);
    return list_gpus(tool, &facts, list);
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
    char cpu[256], dnnl[32], hdf5[32], total[32], available[32], code[128];
    bool vnni;
    const char *isa = pare_cpu_info_isa(&vnni), *limit = getenv("DNNL_MAX_CPU_ISA");
    pare_line_value("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    dnnl_version(dnnl, sizeof dnnl);
    hdf5_version(hdf5, sizeof hdf5);
    double all = memory_of("MemTotal"), left = memory_of("MemAvailable");
    const char *say = advice(strcmp(dnnl, "absent") != 0, vnni);
    pare_print(stdout, "pare      %s\n", PARE_VERSION);
    pare_print(stdout, "cpu       %s\n", *cpu ? cpu : "unknown");
    pare_print(stdout, "cores     %d\n", pare_cpu_cores());
    pare_print(stdout, "isa       %s%s%s\n", isa, limit ? ", DNNL_MAX_CPU_ISA=" : "",
               limit ? limit : "");
    pare_print(stdout, "memory    %s, %s available\n", pare_bytes_text(all, total, sizeof total),
               pare_bytes_text(left, available, sizeof available));
    pare_print(stdout, "oneDNN    %s\n", dnnl);
    pare_print(stdout, "HDF5      %s\n", hdf5);
    pare_print(stdout, "jansson   %s\n", jansson_version_str());
    PARE_TRY(show_gpus(tool));
    pare_print(stdout, "advice    %s\n", say);
    json_object_update_new(
        tool->facts, json_pack("{s:s, s:i, s:s, s:b, s:f, s:f, s:{s:s, s:s, s:s}, s:b, s:s}", "cpu",
                               cpu, "cores", pare_cpu_cores(), "isa", isa, "vnni", vnni,
                               "memory_bytes", all, "memory_available_bytes", left, "libraries",
                               "onednn", dnnl, "hdf5", hdf5, "jansson", jansson_version_str(),
                               "cuda", pare_gpu_code(code, sizeof code) != NULL, "advice", say));
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
