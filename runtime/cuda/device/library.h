/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the libraries of NVIDIA that are opened at run time. They stay loaded: what they register
   with the driver, and their threads, are not made for less. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_LIBRARY_H
#define PARE_RUNTIME_CUDA_DEVICE_LIBRARY_H

#include <stdbool.h>

typedef struct pare_library_place {
    const char *name;     /* "libnccl.so.2" */
    const char *folders;  /* the caller's, ':' between them; or NULL */
    const char *variable; /* of the environment, which names folders: "PARE_NCCL" */
    const char *wheel;    /* its folder in Python's packages: "nvidia/nccl/lib" */
    bool global;          /* others look for its symbols */
} pare_library_place;

/* In the caller's folders, those of the variable, on the loader's path, in wheels of PyPI in an
   active environment, the user's or the system's packages, in toolkits; NULL where none has it. */
void *pare_library_open(const pare_library_place *place);

#endif
