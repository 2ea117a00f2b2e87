// SPDX-License-Identifier: Apache-2.0
// Settings from the environment, failures on demand, what is alive, messages.
#include "engine.h"
#include "simt_device.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <pthread.h>
#include <unistd.h>

simt_settings simt_set = {SIMT_FIFO, SIMT_LAZY, 1, 0, 1, 4, 9, 0, 13000, size_t(4) << 30, 50 << 20};

namespace simt
{

static uint64_t calls, fail_call;
static int fail_code;
static bool fail_sticky, failed; // it has failed once
static char fail_name[64];       // of the calls that are counted for it; "": all
static FILE *list;               // of the calls
static uint64_t generator = 88172645463325252u;
static std::map<std::string, int> &live(void)
{
    static std::map<std::string, int> *table = new std::map<std::string, int>;
    return *table;
}
static std::recursive_mutex &lock(void)
{
    static std::recursive_mutex *m = new std::recursive_mutex;
    return *m;
}

static std::map<std::string, uint64_t> &calls_of(void)
{
    static auto *table = new std::map<std::string, uint64_t>;
    return *table;
}

// xorshift64 (Marsaglia 2003)
uint32_t random_number(void)
{
    generator ^= generator << 13;
    generator ^= generator >> 7;
    generator ^= generator << 17;
    return static_cast<uint32_t>(generator >> 16);
}

void say(const char *format, ...)
{
    char text[1400];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    fprintf(stderr, "simt: %s\n", text);
}

void live_add(const char *kind, int n) { live()[kind] += n; }

// A driver does not survive a fork: a process that has used it forks no more.
static void forks(void)
{
    if (!getenv("SIMT_FORKS")) simt_fault("a process that has used CUDA forks");
}

call::call(const char *name) : guard(lock()), code(0)
{
    if (!calls++) pthread_atfork(forks, nullptr, nullptr);
    if (list) fprintf(list, "%llu %s\n", static_cast<unsigned long long>(calls), name);
    calls_of()[name]++;
    if (in_host_work()) code = cudaErrorNotPermitted;
    const uint64_t at = !*fail_name ? calls : !strcmp(fail_name, name) ? calls_of()[name] : 0;
    if (!fail_call || ((at < fail_call || (at > fail_call && !fail_sticky)) && !device_lost()))
        return;
    code = fail_code;
    failed = true;
    if (getenv("SIMT_SAY"))
        say("%s, call %llu, fails on demand", name, static_cast<unsigned long long>(calls));
}

bool device_lost(void) { return fail_sticky && failed; }

static int choice(const char *variable, const char *const names[], int count, int otherwise)
{
    const char *text = getenv(variable);
    if (!text) return otherwise;
    for (int i = 0; i < count; i++)
        if (!strcmp(text, names[i])) return i;
    say("%s=%s is not known", variable, text);
    exit(2);
}

static unsigned long long number(const char *variable, unsigned long long otherwise)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, nullptr, 0) : otherwise;
}

__attribute__((constructor)) static void read_environment(void)
{
    static const char *const schedules[] = {"fifo", "newest", "random", "warp", "reversed"};
    static const char *const streams[] = {"lazy", "eager", "shuffled", "others"};
    simt_set.schedule =
        static_cast<simt_schedule>(choice("SIMT_SCHEDULE", schedules, 5, SIMT_FIFO));
    int usual = simt_set.schedule == SIMT_RANDOM ? SIMT_SHUFFLED
                : simt_set.schedule == SIMT_WARP ? SIMT_EAGER
                                                 : SIMT_LAZY;
    simt_set.streams = static_cast<simt_streams>(choice("SIMT_STREAMS", streams, 4, usual));
    simt_set.seed = number("SIMT_SEED", 1);
    simt_set.preempt = static_cast<unsigned>(number("SIMT_PREEMPT", 0));
    simt_set.devices = static_cast<int>(number("SIMT_DEVICES", 1));
    simt_set.memory = number("SIMT_MEMORY", simt_set.memory);
    simt_set.cache = static_cast<int>(number("SIMT_CACHE", 1 << 20));
    simt_set.multiprocessors = static_cast<int>(
        number("SIMT_PROCESSORS", static_cast<unsigned>(simt_set.multiprocessors)));
    simt_set.shared = static_cast<int>(number("SIMT_SHARED", SHARED_MOST));
    simt_set.pools = number("SIMT_POOLS", 1) != 0;
    simt_set.peers = number("SIMT_PEERS", 1) != 0;
    simt_set.mixed = number("SIMT_MIXED", 0) != 0;
    simt_set.dependent = number("SIMT_DEPENDENT", 0) != 0;
    simt_set.blas = static_cast<int>(number("SIMT_BLAS_VERSION", 130100));
    simt_set.nccl = static_cast<int>(number("SIMT_NCCL_VERSION", 22703));
    simt_set.dnn = static_cast<int>(number("SIMT_DNN_VERSION", 91900));
    simt_set.driver = static_cast<int>(number("SIMT_DRIVER", 13000));
    simt_set.major = static_cast<int>(number("SIMT_ARCHITECTURE", 90) / 10);
    simt_set.minor = static_cast<int>(number("SIMT_ARCHITECTURE", 90) % 10);
    generator ^= simt_set.seed * 0x9e3779b97f4a7c15u;
    if (const char *path = getenv("SIMT_CALLS")) list = fopen(path, "we");
    if (const char *text = getenv("SIMT_FAIL")) {
        char *end;
        const char *slash = strchr(text, '/');
        if (slash)
            snprintf(fail_name, sizeof fail_name, "%.*s", static_cast<int>(slash - text), text);
        uint64_t n = strtoull(slash ? slash + 1 : text, &end, 0);
        int code = *end == ':' ? static_cast<int>(strtol(end + 1, &end, 0)) : 2;
        simt_fail_at(n, code, !strcmp(end, ":sticky"));
    }
}

// For programs that have no test to ask: what they did not release is said when they end.
__attribute__((destructor)) static void check_leaks(void)
{
    char text[400];
    if (list) fclose(list);
    list = nullptr;
    if (!getenv("SIMT_LEAKS") || !simt_live(text, sizeof text)) return;
    say("LEAK: not released: %s", text);
    fflush(nullptr);
    _exit(SIMT_STATUS_LEAKS);
}

} // namespace simt

using namespace simt;

void simt_fail_call(const char *name, uint64_t n, int code)
{
    simt_fail_at(0, code, false);
    snprintf(fail_name, sizeof fail_name, "%s", name);
    fail_call = calls_of()[name] + n;
}

void simt_fail_at(uint64_t n, int code, bool sticky)
{
    if (!n) *fail_name = 0;
    fail_call = n && code ? calls + n : 0;
    fail_code = code;
    fail_sticky = sticky;
    failed = false;
}

uint64_t simt_calls(void) { return calls; }

uint64_t simt_calls_of(const char *name)
{
    auto found = calls_of().find(name);
    return found == calls_of().end() ? 0 : found->second;
}

int simt_live(char *text, size_t size)
{
    int all = 0;
    size_t at = 0;
    if (size) *text = 0;
    for (const auto &entry : live()) {
        if (!entry.second) continue;
        all += entry.second;
        if (at < size)
            at += static_cast<size_t>(snprintf(text + at, size - at, "%s%d %s", at ? ", " : "",
                                               entry.second, entry.first.c_str()));
    }
    return all;
}

bool simt_emulated(void) { return true; }
bool simt_checks(void) { return check != nullptr; }
uint64_t simt_reports(void) { return check ? check->reports() : 0; }
