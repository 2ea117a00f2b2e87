/* SPDX-License-Identifier: Apache-2.0 */
/* A library with the names of cuDNN's functions, each of which gives its number in the list.
   FAKE_WITHOUT leaves out one that came with version 9. */
#define NUMBERED(symbol, number)                                                                   \
    int symbol(void);                                                                              \
    int symbol(void) { return number; }
NUMBERED(cudnnGetProperty, 100)
NUMBERED(cudnnCreate, 101)
NUMBERED(cudnnDestroy, 102)
NUMBERED(cudnnSetStream, 103)
NUMBERED(cudnnGetErrorString, 104)
#ifndef FAKE_WITHOUT
NUMBERED(cudnnGetLastErrorString, 105)
#endif
NUMBERED(cudnnBackendCreateDescriptor, 106)
NUMBERED(cudnnBackendDestroyDescriptor, 107)
NUMBERED(cudnnBackendSetAttribute, 108)
NUMBERED(cudnnBackendGetAttribute, 109)
NUMBERED(cudnnBackendFinalize, 110)
NUMBERED(cudnnBackendExecute, 111)
