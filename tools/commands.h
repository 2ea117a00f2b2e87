/* SPDX-License-Identifier: Apache-2.0 */
/* The commands, one per row of help.c and one or two per cmd_*.c. */
#ifndef PARE_TOOLS_COMMANDS_H
#define PARE_TOOLS_COMMANDS_H

#include "runtime/base/version.h"
#include "tools/options.h"

extern const pare_command pare_command_data_fashion_mnist, pare_command_data_import,
    pare_command_inspect, pare_command_check, pare_command_simplify, pare_command_calibrate,
    pare_command_quantize, pare_command_prune, pare_command_distill, pare_command_run,
    pare_command_validate, pare_command_diagnose, pare_command_bench, pare_command_report,
    pare_command_ops, pare_command_doctor, pare_command_version, pare_command_completion,
    pare_command_replay, pare_command_serve, pare_command_load, pare_command_scale,
    pare_command_zoo;
#endif
