/* SPDX-License-Identifier: Apache-2.0 */
/* What pare serve found of models that shadow others. */
#include "tools/report/page.h"
#include "tools/report/report.h"
#include "tools/table.h"

#include <math.h>

/* "99.20 [98.1, 99.7]" */
static void cell_agreement(pare_cell *cell)
{
    const double value = pare_cell_number(cell);
    if (isnan(value)) return;
    cell->sort = value;
    pare_text_add(cell->text, "%.2f [%.2f, %.2f]", value,
                  pare_report_number(cell->row, "agreement_interval.0", NAN),
                  pare_report_number(cell->row, "agreement_interval.1", NAN));
}

/* Equal outputs have no number: their error is zero. */
static void cell_sqnr(pare_cell *cell)
{
    const double same = pare_report_number(cell->row, "outputs.0.same", 0);
    if (!isnan(pare_cell_number(cell)))
        pare_cell_fixed(cell);
    else if (same > 0 && same == pare_report_number(cell->row, "outputs.0.requests", 0))
        pare_text_add(cell->text, "equal");
}

static const pare_column columns[] = {
    PARE_COLUMN("model", "model", "model", pare_cell_words, .left = true),
    PARE_COLUMN("shadow", "shadow", "shadow", pare_cell_words, .left = true),
    PARE_COLUMN("answered", "answered", "answered", pare_cell_fixed),
    PARE_COLUMN("compared", "compared", "compared", pare_cell_fixed),
    PARE_COLUMN("dropped", "dropped", "dropped", pare_cell_fixed),
    PARE_COLUMN("failed", "failed", "failed", pare_cell_fixed),
    PARE_COLUMN("agreement % [95 %]", "agreement % [95 %]", "agreement", cell_agreement),
    PARE_COLUMN("SQNR dB", "SQNR dB", "outputs.0.sqnr_db", cell_sqnr, .digits = 1),
    PARE_COLUMN("model ms", "model ms", "compute_ms.model.median", pare_cell_significant,
                .digits = 3),
    PARE_COLUMN("shadow ms", "shadow ms", "compute_ms.shadow.median", pare_cell_significant,
                .digits = 3),
    {0},
};

size_t pare_report_print_shadows(pare_arena *arena, const json_t *facts, FILE *file)
{
    pare_grid grid;
    size_t i, k;
    json_t *one, *row;
    pare_grid_table(&grid, arena, columns, 0);
    json_array_foreach((json_t *)facts, i, one)
    {
        json_array_foreach(json_object_get(one, "shadows"), k, row)
            pare_grid_row(&grid, row, NULL, NULL);
    }
    if (grid.rows) pare_table_print(&grid.table, file);
    return grid.rows;
}

void pare_parts_shadows(pare_text *t, const json_t *facts)
{
    size_t i, n = 0;
    json_t *one;
    json_array_foreach((json_t *)facts, i, one)
    {
        const json_t *shadows = json_object_get(one, "shadows");
        if (!json_array_size(shadows)) continue;
        if (!n++)
            pare_text_add(t, "<h2>Shadows</h2>\n<p class=\"soft\">Requests that one model answered "
                             "and another ran, too. SQNR is of the first output, times are medians "
                             "of the runs that the requests were in.</p>\n");
        pare_grid_html_all(t, columns, 0, "numbers", "Shadows", shadows);
    }
}
