/* SPDX-License-Identifier: Apache-2.0 */
/* Commands and options as tables. One table per command makes its parser, its --help and its part
   of the bash completion. */
#ifndef PARE_TOOLS_OPTIONS_H
#define PARE_TOOLS_OPTIONS_H

#include "runtime/base/arena.h"
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"

#include <jansson.h>
#include <stdio.h>

/* What an option takes, and the type of the field it fills. */
typedef enum pare_option_kind {
    PARE_OPTION_FLAG,   /* bool */
    PARE_OPTION_INT,    /* int64_t in [low, high] */
    PARE_OPTION_REAL,   /* double in [low, high] */
    PARE_OPTION_BYTES,  /* int64_t in [low, high], "2GB", "512MiB" */
    PARE_OPTION_TEXT,   /* const char * */
    PARE_OPTION_FILE,   /* const char *, completed by file names */
    PARE_OPTION_OUTPUT, /* the same, a file to write: none that another option or argument names */
    PARE_OPTION_FOLDER, /* const char *, completed by folders */
    PARE_OPTION_CHOICE, /* int: place of the word in `value`, "int8|fp16|bf16" */
    PARE_OPTION_LIST    /* pare_list: may be given several times */
} pare_option_kind;

typedef struct pare_list {
    const char **item;
    int count;
} pare_list;

typedef struct pare_option {
    const char *name; /* without its dashes; NULL ends a table */
    char letter;      /* of the short form, or 0 */
    pare_option_kind kind;
    const char *value; /* what is after it in the help; of CHOICE the words */
    size_t offset;     /* of its field in the command's options */
    double low, high;  /* INT, REAL, BYTES */
    const char *help;
} pare_option;

/* Rows of a table whose options are in the struct OPTIONS, which the file defines before it: name,
   what is after it in the help, field, the limits of numbers, help. */
#define PARE_OPT_ROW(letter, kind, name, value, field, low, high, help)                            \
    {                                                                                              \
        name, letter, PARE_OPTION_##kind, value, offsetof(OPTIONS, field), low, high, help         \
    }
#define PARE_OPT_FLAG(name, field, help) PARE_OPT_ROW(0, FLAG, name, NULL, field, 0, 0, help)
#define PARE_OPT_TF32                                                                              \
    PARE_OPT_FLAG("tf32", tf32,                                                                    \
                  "let a GPU round the factors of f32 products to TF32, 10 bits behind the "       \
                  "point, where its kernels can: faster, less exact")
#define PARE_OPT_INT(name, value, field, low, high, help)                                          \
    PARE_OPT_ROW(0, INT, name, value, field, low, high, help)
#define PARE_OPT_REAL(name, value, field, low, high, help)                                         \
    PARE_OPT_ROW(0, REAL, name, value, field, low, high, help)
#define PARE_OPT_BYTES(name, value, field, low, high, help)                                        \
    PARE_OPT_ROW(0, BYTES, name, value, field, low, high, help)
#define PARE_OPT_TEXT(name, value, field, help)                                                    \
    PARE_OPT_ROW(0, TEXT, name, value, field, 0, 0, help)
#define PARE_OPT_FILE(name, value, field, help)                                                    \
    PARE_OPT_ROW(0, FILE, name, value, field, 0, 0, help)
#define PARE_OPT_OUTPUT(name, value, field, help)                                                  \
    PARE_OPT_ROW(0, OUTPUT, name, value, field, 0, 0, help)
#define PARE_OPT_FOLDER(name, value, field, help)                                                  \
    PARE_OPT_ROW(0, FOLDER, name, value, field, 0, 0, help)
#define PARE_OPT_CHOICE(name, words, field, help)                                                  \
    PARE_OPT_ROW(0, CHOICE, name, words, field, 0, 0, help)
#define PARE_OPT_LIST(name, value, field, help)                                                    \
    PARE_OPT_ROW(0, LIST, name, value, field, 0, 0, help)
/* With a short form: letter and kind before. */
#define PARE_OPT_SHORT(letter, kind, name, value, field, help)                                     \
    PARE_OPT_ROW(letter, kind, name, value, field, 0, 0, help)

/* What every command's options begin with. */
typedef struct pare_common {
    pare_list given; /* names of the options on the command line, for those that exclude others */
    const char *json, *recipe;
    bool quiet, verbose, help;
    const char *device;   /* "auto", "cpu", or NULL */
    const char *gpus;     /* of commands that ranks share (PARE_OPT_GPUS), or NULL */
    int64_t memory_limit; /* of a GPU, in bytes; 0: none */
    int64_t threads;
} pare_common;

typedef struct pare_tool pare_tool;

typedef struct pare_command {
    const char *name;      /* "bench", "data import" */
    const char *arguments; /* "MODEL OTHER..." */
    int min, max;          /* how many; max -1: no limit */
    const char *summary;
    const char *detail;  /* more lines for --help, or NULL */
    const char *example; /* whole command lines */
    const pare_option *options;
    size_t size;          /* of its options, which begin with pare_common */
    bool ranks;           /* several processes can share its work */
    const void *defaults; /* of that size, or NULL: zeros */
    /* Options that exclude each other, and what is missing: run begins with it. It opens nothing.
       NULL: this command has none */
    pare_status (*check)(pare_tool *tool, const void *options);
    pare_status (*run)(pare_tool *tool, const void *options);
} pare_command;

/* One running command. */
struct pare_tool {
    pare_ctx *ctx;
    const pare_command *command;
    const pare_common *common;
    const char **arg;
    int arg_count;
    pare_arena arena;    /* ends with the command */
    json_t *facts;       /* what --json writes */
    pare_comm *comm;     /* the processes that share the work; NULL: this one alone */
    bool found;          /* a failure is the command's result, which its facts hold */
    pare_device *device; /* of --device, once pare_tool_open_device was called; NULL: the CPU */
    bool device_chosen;
};

/* Does this process print and write? Of several, rank 0 does. */
static inline bool pare_tool_leads(const pare_tool *tool)
{
    return pare_comm_rank(tool->comm) == 0;
}

/* Opens the device that --device names, at the first call; later ones do nothing. Data sets are
   opened before: they are read in a child of this process, and a process that has used CUDA does
   not fork. */
PARE_NODISCARD pare_status pare_tool_open_device(pare_tool *tool);
/* --tf32, of a device that is open and before plans; the facts say so. A warning says that the CPU
   has none. */
void pare_tool_allow_tf32(pare_tool *tool);
/* The same of --cudnn. PARE_UNSUPPORTED where the library is not there; processes that have others
   are a failure of all. */
PARE_NODISCARD pare_status pare_tool_allow_cudnn(pare_tool *tool);

/* The commands in the order of their use, NULL-ended (commands.c). */
extern const pare_command *const pare_commands[];

/* The rows every command has. */
extern const pare_option pare_common_options[];

/* The command that words[0] or words[0] words[1] name; *used says how many words. PARE_USAGE with
   the nearest name. */
PARE_NODISCARD pare_status pare_command_find(pare_ctx *ctx, const pare_command **out,
                                             char *const *words, int count, int *used);

/* Fills options (command->size bytes, with the defaults first) and the arguments that are no
   options; both lists live in the arena. PARE_USAGE with a message and the nearest name. With
   --help nothing else is demanded. */
PARE_NODISCARD pare_status pare_options_parse(pare_arena *arena, const pare_command *command,
                                              void *options, pare_list *arguments,
                                              char *const *words, int count);

/* The row of an option's word: "--name", "--name=value", "-n", "-nvalue"; *value is what is
   after it in the word, or NULL. NULL where the command has no such option. */
const pare_option *pare_option_find(const pare_command *command, const char *word,
                                    const char **value);

/* Puts a value into the row's field. what: begins the message of one that does not fit. */
PARE_NODISCARD pare_status pare_option_set(pare_arena *arena, const char *what,
                                           const pare_option *row, void *options, const char *text);

/* A size with its unit, "2GB" or "512MiB", in bytes; NAN where it is none. */
double pare_bytes_parse(const char *text);
/* "256MiB", "400kB": the shortest size with a unit that pare_bytes_parse reads as so many bytes
   (0 to 2^53), decimal of two as short; into text (at least 32 bytes), which is returned. */
const char *pare_bytes_exact(int64_t bytes, char *text, size_t size);

void pare_help_print(FILE *file, const pare_command *command);
void pare_help_overview(FILE *file);
/* All commands with their options as one Markdown page: tools/COMMANDS.md. */
void pare_help_markdown(FILE *file);
/* The commands that begin with this word ("data"); prints nothing and is false without any. */
bool pare_help_group(FILE *file, const char *word);
void pare_completion_bash(FILE *file);

/* The candidate nearest to a word by edit distance, NULL where none is near. */
const char *pare_nearest(const char *word, const char *const *candidates, int count);
#endif
