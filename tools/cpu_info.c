/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cpu_info.h"

#include "runtime/exec/exec.h"
#include "tools/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of a line "key ... : value", NULL of another line; its end of line is cut off. */
static char *value_of(char *line, const char *key)
{
    char *colon = strchr(line, ':');
    if (strncmp(line, key, strlen(key)) != 0 || !colon) return NULL;
    colon += 1 + strspn(colon + 1, " \t");
    colon[strcspn(colon, "\n")] = 0;
    return colon;
}

void pare_line_value(const char *path, const char *key, char *text, size_t size)
{
    char line[512];
    FILE *file = fopen(path, "r");
    const char *value = NULL;
    *text = 0;
    while (!value && file && fgets(line, sizeof line, file)) value = value_of(line, key);
    if (value) snprintf(text, size, "%s", value);
    if (file) fclose(file);
}

const char *pare_cpu_info_isa(bool *vnni)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    *vnni = __builtin_cpu_supports("avx512vnni") != 0;
    if (*vnni) return "AVX-512 with VNNI";
    if (__builtin_cpu_supports("avx512bw")) return "AVX-512 without VNNI";
    if (__builtin_cpu_supports("avx2")) return "AVX2";
    return "SSE";
#else
    *vnni = false;
    return "not x86-64";
#endif
}

json_t *pare_cpu_info_json(void)
{
    char line[512], name[256] = "";
    const char *value;
    double sum = 0;
    int clocks = 0;
    bool vnni;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        if ((value = value_of(line, "cpu MHz")) && atof(value) > 0) {
            sum += atof(value);
            clocks++;
        } else if (!*name && (value = value_of(line, "model name")))
            snprintf(name, sizeof name, "%s", value);
    }
    if (file) fclose(file);
    for (char *c = name; *c; c++) /* JSON takes UTF-8 alone */
        if (*c < ' ' || *c > '~') *c = '?';
    return json_pack("{s:s, s:s, s:i, s:s, s:o}", "name", "cpu", "processor", name, "cores",
                     pare_cpu_cores(), "isa", pare_cpu_info_isa(&vnni), "mhz",
                     clocks ? json_real(sum / clocks) : json_null());
}

const char *pare_device_label(const json_t *device, char *text, size_t size)
{
    const char *name = json_string_value(json_object_get(device, "name"));
    const char *processor = json_string_value(json_object_get(device, "processor"));
    const char *isa = json_string_value(json_object_get(device, "isa"));
    if (processor && *processor && isa)
        snprintf(text, size, "%s (%s)", processor, isa);
    else
        snprintf(text, size, "%s", name ? name : "");
    return text;
}

const char *pare_cpu_info_text(const json_t *device, char *text, size_t size)
{
    const char *name = json_string_value(json_object_get(device, "name"));
    const char *processor = json_string_value(json_object_get(device, "processor"));
    const char *isa = json_string_value(json_object_get(device, "isa"));
    const int cores = (int)json_integer_value(json_object_get(device, "cores"));
    const double mhz = pare_report_number(device, "mhz", NAN);
    snprintf(text, size, "%s", name ? name : "");
    if (!processor || !isa) return text;
    snprintf(text, size, "%s, %d core%s, %s", *processor ? processor : "cpu", cores,
             cores == 1 ? "" : "s", isa);
    const size_t n = strlen(text);
    if (!isnan(mhz) && n < size) snprintf(text + n, size - n, ", %.0f MHz", mhz);
    return text;
}
