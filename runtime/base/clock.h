/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_BASE_CLOCK_H
#define PARE_RUNTIME_BASE_CLOCK_H

/* Seconds of a clock that no one sets back; only differences mean something. */
double pare_seconds(void);
/* Waits so long, or until a signal comes. */
void pare_sleep_ms(int ms);
#endif
