/* SPDX-License-Identifier: Apache-2.0 */
/* Functions compiled for several instruction sets, of which one is chosen when the program starts.
   Where the compiler cannot, or a sanitizer would stumble over it, there is one plain function.

   PARE_CLONES        gains from wider vectors; without contraction all give the same bits
   PARE_CLONES_FMA    fused multiply-add among them; as the code states where one is, all give
                      the same bits
   PARE_CLONES_SUMS   the compiler may contract, too: sums of floats that no one compares across
                      instruction sets */
#ifndef PARE_RUNTIME_BASE_CLONES_H
#define PARE_RUNTIME_BASE_CLONES_H

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) &&                        \
    !defined(__SANITIZE_ADDRESS__)
#define PARE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PARE_CLONES
#endif

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) &&                        \
    !defined(__SANITIZE_ADDRESS__) && __GNUC__ >= 12
#define PARE_CLONES_FMA                                                                            \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define PARE_CLONES_SUMS PARE_CLONES_FMA __attribute__((optimize("O3,fp-contract=fast")))
#else
#define PARE_CLONES_FMA
#define PARE_CLONES_SUMS
#endif

#endif
