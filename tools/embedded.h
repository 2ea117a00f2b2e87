/* SPDX-License-Identifier: Apache-2.0 */
/* Files that the build puts into the program (embed.cmake), NUL-ended. */
#ifndef PARE_TOOLS_EMBEDDED_H
#define PARE_TOOLS_EMBEDDED_H

extern const unsigned char pare_embedded_style[];  /* report.css */
extern const unsigned char pare_embedded_script[]; /* report.js */
extern const unsigned char pare_embedded_chart[];  /* Chart.js; empty: the build had none */
#endif
