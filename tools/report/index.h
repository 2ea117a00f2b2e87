/* SPDX-License-Identifier: Apache-2.0 */
/* Models and comparisons of a report by what they are known by, so that a report over thousands of
   facts finds them without looking through all. */
#ifndef PARE_TOOLS_REPORT_INDEX_H
#define PARE_TOOLS_REPORT_INDEX_H

#include <jansson.h>

typedef struct pare_report_index {
    json_t *models;            /* in the order in which they came */
    json_t *by_hash, *by_file; /* the place of the first */
    json_t *nameless;          /* of those without a hash by file */
    json_t *comparisons;       /* by what was compared with what; borrowed by the caller */
} pare_report_index;

void pare_report_index_init(pare_report_index *index);
void pare_report_index_clear(pare_report_index *index);

/* A model that is new, or that got a hash since it was added. */
void pare_report_index_add(pare_report_index *index, json_t *model);
/* The first model of the same file content; where one of both has no hash, of the same file name.
   Borrowed, or NULL. */
json_t *pare_report_index_find(const pare_report_index *index, const json_t *like);

/* A comparison of validate's that has the same first model, data, device and version as these
   facts; borrowed, or NULL. */
json_t *pare_report_index_same(const pare_report_index *index, const json_t *facts);
/* The comparison that stands for such facts from now on. */
void pare_report_index_keep(pare_report_index *index, const json_t *facts, json_t *comparison);
#endif
