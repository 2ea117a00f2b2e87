/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/telemetry.h"

#include "tools/cpu_info.h"
#include "tools/report/report.h"
#include "tools/table.h"
#include "tools/text.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD_MS = 100 };

/* What readings of one kind came to. */
typedef struct gauge {
    double least, most, sum;
    int count;
} gauge;

struct pare_watch {
    pare_ctx *ctx;
    const pare_device *device;
    pare_monitor *meter; /* NULL: there is none */
    gauge power, sm, memory_clock, temperature, used;
    gauge sm_active, tensor_active, dram_active, pcie_tx, pcie_rx, nvlink_tx, nvlink_rx;
    pare_telemetry last;
    uint64_t slowed;
    int readings;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stop;
    bool stopped, running;
};

static void gauge_add(gauge *g, double value)
{
    if (isnan(value)) return;
    g->least = g->count ? fmin(g->least, value) : value;
    g->most = g->count ? fmax(g->most, value) : value;
    g->sum += value;
    g->count++;
}

static void reading_add(pare_watch *w)
{
    pare_telemetry v;
    pare_monitor_read(w->meter, &v);
    gauge_add(&w->power, v.power_w);
    gauge_add(&w->sm, v.sm_mhz);
    gauge_add(&w->memory_clock, v.memory_mhz);
    gauge_add(&w->temperature, v.temperature_c);
    gauge_add(&w->used, v.memory_used);
    gauge_add(&w->sm_active, v.sm_active);
    gauge_add(&w->tensor_active, v.tensor_active);
    gauge_add(&w->dram_active, v.dram_active);
    gauge_add(&w->pcie_tx, v.pcie_tx);
    gauge_add(&w->pcie_rx, v.pcie_rx);
    gauge_add(&w->nvlink_tx, v.nvlink_tx);
    gauge_add(&w->nvlink_rx, v.nvlink_rx);
    w->slowed |= v.slowed;
    w->last = v;
    w->readings++;
}

static void *work(void *user)
{
    pare_watch *w = user;
    pthread_mutex_lock(&w->lock);
    while (!w->stopped) {
        reading_add(w);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PERIOD_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        if (!w->stopped) pthread_cond_timedwait(&w->stop, &w->lock, &until);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

pare_status pare_watch_start(pare_ctx *ctx, pare_watch **out, pare_device *device)
{
    pare_watch *w = pare_alloc(ctx, 1, sizeof *w);
    if (!w) return PARE_MEMORY;
    w->ctx = ctx;
    w->device = device;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->stop, NULL);
    pare_status st = device ? pare_monitor_open(ctx, &w->meter, device) : PARE_OK;
    if (st != PARE_OK) {
        json_decref(pare_watch_end(w));
        return st;
    }
    w->running = w->meter && !pthread_create(&w->thread, NULL, work, w);
    *out = w;
    return PARE_OK;
}

/* --- facts --- */

static json_t *real_or_null(double value) { return isnan(value) ? json_null() : json_real(value); }

static json_t *gauge_json(const gauge *g)
{
    if (!g->count) return json_null();
    return json_pack("{s:f, s:f, s:f}", "min", g->least, "mean", g->sum / g->count, "max", g->most);
}

static json_t *slowed_json(uint64_t bits)
{
    json_t *list = json_array();
#define ADD(bit, text)                                                                             \
    if (bits & (bit)) json_array_append_new(list, json_string(text));
    PARE_SLOWED(ADD)
#undef ADD
    return list;
}

static json_t *activity_json(const pare_watch *w)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "sm_active", gauge_json(&w->sm_active),
                     "tensor_active", gauge_json(&w->tensor_active), "dram_active",
                     gauge_json(&w->dram_active), "pcie_tx_bytes_per_s", gauge_json(&w->pcie_tx),
                     "pcie_rx_bytes_per_s", gauge_json(&w->pcie_rx), "nvlink_tx_bytes_per_s",
                     gauge_json(&w->nvlink_tx), "nvlink_rx_bytes_per_s", gauge_json(&w->nvlink_rx));
}

static json_t *vitals_json(const pare_watch *w)
{
    if (!w->readings) return json_null();
    json_t *vitals = json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "readings", w->readings, "power_w",
        gauge_json(&w->power), "power_limit_w", real_or_null(w->last.power_limit_w), "sm_mhz",
        gauge_json(&w->sm), "memory_mhz", gauge_json(&w->memory_clock), "temperature_c",
        gauge_json(&w->temperature), "memory_used_bytes", gauge_json(&w->used),
        "memory_total_bytes", real_or_null(w->last.memory_total), "slowed", slowed_json(w->slowed));
    json_object_update_new(vitals, activity_json(w));
    return vitals;
}

static json_t *device_json(const pare_watch *w)
{
    if (!w->device) return pare_cpu_info_json();
    const char *driver = w->meter ? pare_monitor_driver(w->meter) : "";
    return json_pack("{s:s, s:s, s:o, s:o}", "name", w->device->name, "cuda", w->device->driver,
                     "driver", *driver ? json_string(driver) : json_null(), "vitals",
                     vitals_json(w));
}

json_t *pare_watch_end(pare_watch *watch)
{
    if (!watch) return NULL;
    pthread_mutex_lock(&watch->lock);
    watch->stopped = true;
    pthread_cond_signal(&watch->stop);
    pthread_mutex_unlock(&watch->lock);
    if (watch->running) pthread_join(watch->thread, NULL);
    if (watch->meter) reading_add(watch);
    json_t *json = device_json(watch);
    if (!json) (void)PARE_FAIL(watch->ctx, MEMORY, "out of memory");
    pare_monitor_close(watch->meter);
    pthread_mutex_destroy(&watch->lock);
    pthread_cond_destroy(&watch->stop);
    pare_free(watch);
    return json;
}

/* --- text --- */

const char *pare_device_text(const json_t *device, char *text, size_t size)
{
    const char *name = json_string_value(json_object_get(device, "name"));
    const char *cuda = json_string_value(json_object_get(device, "cuda"));
    const char *driver = json_string_value(json_object_get(device, "driver"));
    snprintf(text, size, "%s%s%s%s%s", name ? name : "", cuda ? ", CUDA " : "", cuda ? cuda : "",
             driver ? ", driver " : "", driver ? driver : "");
    return text;
}

/* Adds ", " and the words to a list. */
static void add(char *text, size_t size, const char *format, double value)
    __attribute__((format(printf, 3, 0)));
static void add(char *text, size_t size, const char *format, double value)
{
    size_t n = strlen(text);
    if (isnan(value)) return;
    if (n && n < size) n += (size_t)snprintf(text + n, size - n, ", ");
    if (n < size) snprintf(text + n, size - n, format, value);
}

const char *pare_telemetry_text(const json_t *device, char *text, size_t size)
{
    const json_t *v = json_object_get(device, "vitals");
    size_t i;
    json_t *why;
    *text = 0;
    if (!json_is_object(v)) return text;
    add(text, size, "%.0f W", pare_report_number(v, "power_w.mean", NAN));
    add(text, size, "limit %.0f W", pare_report_number(v, "power_limit_w", NAN));
    add(text, size, "SM %.0f MHz", pare_report_number(v, "sm_mhz.mean", NAN));
    add(text, size, "memory %.0f MHz", pare_report_number(v, "memory_mhz.mean", NAN));
    add(text, size, "%.0f C", pare_report_number(v, "temperature_c.max", NAN));
    add(text, size, "%.1f GB used", pare_report_number(v, "memory_used_bytes.max", NAN) / 1e9);
    add(text, size, "SM active %.0f %%", 100 * pare_report_number(v, "sm_active.mean", NAN));
    add(text, size, "tensor cores %.0f %%", 100 * pare_report_number(v, "tensor_active.mean", NAN));
    add(text, size, "memory %.0f %%", 100 * pare_report_number(v, "dram_active.mean", NAN));
    json_array_foreach(json_object_get(v, "slowed"), i, why)
    {
        size_t n = strlen(text);
        if (n < size)
            snprintf(text + n, size - n, "%s%s",
                     i ? ", " : "; slowed by: ", json_string_value(why));
    }
    return text;
}

/* --- the process' memory --- */

size_t pare_resident_memory(void)
{
    unsigned long all, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%lu %lu", &all, &resident) != 2) resident = 0;
    fclose(file);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Not ru_maxrss: that counts what a parent's memory was when it started this process. */
int64_t pare_peak_memory(void)
{
    char line[256];
    long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lld kB", &kib) == 1) break;
    fclose(file);
    return kib * 1024;
}

void pare_log_memory(pare_tool *tool, size_t to_come)
{
    char text[32];
    size_t peak = (size_t)pare_peak_memory(), need = pare_resident_memory() + to_come;
    if (need < peak) need = peak;
    json_object_set_new(tool->facts, "planned_memory_bytes", json_integer((json_int_t)need));
    if (!tool->common->quiet)
        pare_print(stderr, "needs about %s of memory\n",
                   pare_bytes_text((double)need, text, sizeof text));
}

void pare_log_device_memory(pare_tool *tool, size_t bytes)
{
    char text[32];
    json_object_set_new(tool->facts, "planned_device_memory_bytes",
                        json_integer((json_int_t)bytes));
    if (!tool->common->quiet)
        pare_print(stderr, "needs about %s of the memory of %s\n",
                   pare_bytes_text((double)bytes, text, sizeof text), tool->device->name);
}
