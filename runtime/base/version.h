/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARE_RUNTIME_BASE_VERSION_H
#define PARE_RUNTIME_BASE_VERSION_H

#define PARE_VERSION "0.1.0"

#endif
