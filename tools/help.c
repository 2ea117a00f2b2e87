/* SPDX-License-Identifier: Apache-2.0 */
/* The commands in order, and what is printed from their option tables: help, tools/COMMANDS.md and
   completion. */
#include "tools/commands.h"

#include <ctype.h>
#include <string.h>

const pare_command *const pare_commands[] = {
    &pare_command_data_fashion_mnist,
    &pare_command_data_import,
    &pare_command_inspect,
    &pare_command_check,
    &pare_command_simplify,
    &pare_command_calibrate,
    &pare_command_quantize,
    &pare_command_prune,
    &pare_command_distill,
    &pare_command_run,
    &pare_command_validate,
    &pare_command_diagnose,
    &pare_command_bench,
    &pare_command_report,
    &pare_command_zoo,
    &pare_command_serve,
    &pare_command_load,
    &pare_command_scale,
    &pare_command_replay,
    &pare_command_ops,
    &pare_command_doctor,
    &pare_command_version,
    &pare_command_completion,
    NULL,
};

enum { COLUMN = 30, WIDTH = 96 };

/* Text wrapped at WIDTH; the first line begins at column `at`, the others at COLUMN. */
static void print_wrapped(FILE *file, const char *text, int at)
{
    const char *gap = "";
    while (*text) {
        size_t n = strcspn(text, " ");
        if (at + (int)n > WIDTH) {
            fprintf(file, "\n%*s", COLUMN, "");
            at = COLUMN;
            gap = "";
        }
        fprintf(file, "%s%.*s", gap, (int)n, text);
        gap = " ";
        at += (int)n + 1;
        text += n + (text[n] == ' ');
    }
    fputc('\n', file);
}

static void print_option(FILE *file, const pare_option *o)
{
    char left[96];
    int n = snprintf(left, sizeof left, "  %c%c%s--%s%s%s", o->letter ? '-' : ' ',
                     o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
                     o->value ? " " : "", o->value ? o->value : "");
    fputs(left, file);
    if (n >= COLUMN - 1) {
        fprintf(file, "\n%*s", COLUMN, "");
    } else {
        fprintf(file, "%*s", COLUMN - n, "");
    }
    print_wrapped(file, o->help, COLUMN);
}

/* A command's own row replaces the common one. */
static bool has_own(const pare_command *command, const char *name)
{
    for (const pare_option *o = command->options; o && o->name; o++)
        if (!strcmp(o->name, name)) return true;
    return false;
}

void pare_help_print(FILE *file, const pare_command *command)
{
    fprintf(file, "pare %s: %s\n\nusage: pare %s%s%s\n", command->name, command->summary,
            command->name, command->arguments[0] ? " " : "", command->arguments);
    if (command->detail) fprintf(file, "\n%s\n", command->detail);
    fprintf(file, "\n");
    for (const pare_option *o = command->options; o && o->name; o++) print_option(file, o);
    fprintf(file, "%severywhere:\n", command->options ? "\n" : "");
    for (const pare_option *o = pare_common_options; o->name; o++)
        if (!has_own(command, o->name)) print_option(file, o);
    fprintf(file, "\nexample:\n  %s\n", command->example);
}

static bool in_group(const pare_command *command, const char *group)
{
    size_t n = strlen(group);
    return !strncmp(command->name, group, n) && command->name[n] == ' ';
}

static void print_commands(FILE *file, const char *group)
{
    for (const pare_command *const *c = pare_commands; *c; c++)
        if (!group || in_group(*c, group)) fprintf(file, "  %-20s%s\n", (*c)->name, (*c)->summary);
    fprintf(file, "\n'pare COMMAND --help', or 'pare help COMMAND', shows a command's options and "
                  "an example.\n");
}

void pare_help_overview(FILE *file)
{
    fprintf(file,
            "pare makes a trained ONNX model smaller and faster, and proves what that cost.\n\n"
            "usage: pare COMMAND [OPTION...]\n\n");
    print_commands(file, NULL);
}

bool pare_help_group(FILE *file, const char *word)
{
    for (const pare_command *const *c = pare_commands; *c; c++) {
        if (!in_group(*c, word)) continue;
        fprintf(file, "usage: pare %s COMMAND [OPTION...]\n\n", word);
        print_commands(file, word);
        return true;
    }
    return false;
}

/* --- tools/COMMANDS.md --- */

/* The text of a table's cell: '|' and '<' are marks there, but for '<' within backticks. */
static void print_cell(FILE *file, const char *text, bool code)
{
    for (; *text; text++) {
        if (*text == '|')
            fputs("\\|", file);
        else if (*text == '<' && !code)
            fputs("&lt;", file);
        else
            fputc(*text, file);
    }
}

static void print_row(FILE *file, const pare_option *o)
{
    fprintf(file, "| `");
    if (o->letter) fprintf(file, "-%c, ", o->letter);
    fprintf(file, "--%s%s", o->name, o->value ? " " : "");
    if (o->value) print_cell(file, o->value, true);
    fprintf(file, "` | ");
    print_cell(file, o->help, false);
    fprintf(file, " |\n");
}

static void print_section(FILE *file, const pare_command *command)
{
    fprintf(file, "\n## pare %s\n\n%c%s.\n\n```\npare %s%s%s\n```\n", command->name,
            toupper((unsigned char)command->summary[0]), command->summary + 1, command->name,
            command->arguments[0] ? " " : "", command->arguments);
    if (command->detail) fprintf(file, "\n```\n%s\n```\n", command->detail);
    if (command->options) fprintf(file, "\n| option | meaning |\n|---|---|\n");
    for (const pare_option *o = command->options; o && o->name; o++) print_row(file, o);
    fprintf(file, "\nExample:\n\n```\n%s\n```\n", command->example);
}

void pare_help_markdown(FILE *file)
{
    fprintf(file, "# Commands\n\nThis page is the output of `pare help --markdown`. An option's "
                  "default follows its text in parentheses.\n\n");
    for (const pare_command *const *c = pare_commands; *c; c++) {
        fprintf(file, "- [`pare %s`](#pare-", (*c)->name);
        for (const char *p = (*c)->name; *p; p++) fputc(*p == ' ' ? '-' : *p, file);
        fprintf(file, "): %s\n", (*c)->summary);
    }
    fprintf(file, "\n## Options of every command\n\nA command's own row of the same name "
                  "replaces the row here.\n\n| option | meaning |\n|---|---|\n");
    for (const pare_option *o = pare_common_options; o->name; o++) print_row(file, o);
    for (const pare_command *const *c = pare_commands; *c; c++) print_section(file, *c);
}

/* Words of a choice after their option; files and folders by what the option takes. */
static void complete_value(FILE *file, const pare_option *o)
{
    if (o->kind == PARE_OPTION_FLAG) return;
    fprintf(file, "        --%s", o->name);
    if (o->letter) fprintf(file, "|-%c", o->letter);
    fprintf(file, ") ");
    if (strchr(o->value, '|')) {
        fprintf(file, "COMPREPLY=($(compgen -W '");
        for (const char *p = o->value; *p; p++) fputc(*p == '|' ? ' ' : *p, file);
        fprintf(file, "' -- \"$word\"))");
    } else if (o->kind == PARE_OPTION_FOLDER) {
        fprintf(file, "COMPREPLY=($(compgen -d -- \"$word\"))");
    } else if (o->kind == PARE_OPTION_FILE || o->kind == PARE_OPTION_OUTPUT) {
        fprintf(file, "COMPREPLY=($(compgen -f -- \"$word\"))");
    } else {
        fprintf(file, "COMPREPLY=()");
    }
    fprintf(file, "; return ;;\n");
}

static void complete_command(FILE *file, const pare_command *command)
{
    fprintf(file, "    '%s')\n      case $before in\n", command->name);
    for (const pare_option *o = command->options; o && o->name; o++) complete_value(file, o);
    for (const pare_option *o = pare_common_options; o->name; o++) complete_value(file, o);
    fprintf(file, "      esac\n      names='");
    for (const pare_option *o = command->options; o && o->name; o++)
        fprintf(file, "--%s ", o->name);
    for (const pare_option *o = pare_common_options; o->name; o++) fprintf(file, "--%s ", o->name);
    fprintf(file, "' ;;\n");
}

void pare_completion_bash(FILE *file)
{
    fprintf(file, "# bash completion for pare:  source <(pare completion bash)\n"
                  "_pare()\n{\n"
                  "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
                  "  local command=${COMP_WORDS[1]} names=\n  COMPREPLY=()\n"
                  "  if [ \"$COMP_CWORD\" = 1 ]; then\n    COMPREPLY=($(compgen -W '");
    const char *last = "";
    for (const pare_command *const *c = pare_commands; *c; c++) {
        size_t n = strcspn((*c)->name, " ");
        if (strncmp(last, (*c)->name, n) != 0 || last[n] != ' ')
            fprintf(file, "%.*s ", (int)n, (*c)->name);
        last = (*c)->name;
    }
    fprintf(file, "' -- \"$word\"))\n    return\n  fi\n");
    for (const pare_command *const *c = pare_commands; *c; c++) {
        const char *space = strchr((*c)->name, ' ');
        if (!space) continue;
        fprintf(
            file,
            "  if [ \"$command\" = '%.*s' ]; then\n    if [ \"$COMP_CWORD\" = 2 ]; then\n"
            "      COMPREPLY+=($(compgen -W '%s' -- \"$word\"))\n"
            "    elif [ \"${COMP_WORDS[2]}\" = '%s' ]; then\n      command='%s'\n    fi\n  fi\n",
            (int)(space - (*c)->name), (*c)->name, space + 1, space + 1, (*c)->name);
    }
    fprintf(file, "  case $command in\n");
    for (const pare_command *const *c = pare_commands; *c; c++) complete_command(file, *c);
    fprintf(file, "  esac\n"
                  "  case $word in\n"
                  "    -*) COMPREPLY=($(compgen -W \"$names\" -- \"$word\")) ;;\n"
                  "    *) [ -n \"${COMPREPLY[*]}\" ] || COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
                  "  esac\n}\ncomplete -o filenames -F _pare pare\n");
}
