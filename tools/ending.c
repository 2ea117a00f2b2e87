/* SPDX-License-Identifier: Apache-2.0 */
/* The file: the status' text, a newline, the message, a newline. */
#include "tools/ending.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

void pare_ending_leave(const char *path, pare_status status, const char *message)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return;
    const char *const part[] = {pare_status_text(status), "\n", message, "\n"};
    struct iovec text[4];
    for (int i = 0; i < 4; i++) text[i] = (struct iovec){(char *)part[i], strlen(part[i])};
    (void)!writev(fd, text, 4);
    close(fd);
}

static bool find_status(const char *text, pare_status *out)
{
    static const pare_status all[] = {
#define X(code, exit_code, words) PARE_##code,
        PARE_STATUS_LIST(X)
#undef X
    };
    for (size_t i = 1; i < sizeof all / sizeof *all; i++) {
        *out = all[i];
        if (!strcmp(text, pare_status_text(all[i]))) return true;
    }
    return false;
}

pare_status pare_ending_find(pare_ctx *ctx, const char *path)
{
    char text[sizeof ctx->message + 64];
    pare_status status;
    FILE *file = fopen(path, "r");
    if (!file) return PARE_OK;
    const size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    char *message = strchr(text, '\n'), *end = message ? strchr(message + 1, '\n') : NULL;
    if (!end) return PARE_OK;
    *message++ = *end = 0;
    return find_status(text, &status) ? pare_fail(ctx, status, "%s", message) : PARE_OK;
}
