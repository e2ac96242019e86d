/* SPDX-License-Identifier: Apache-2.0 */
/* One column of a table of text, as several functions take it. */
#ifndef CSV_H
#define CSV_H

#include "diskside.h"
#include "diskside/text.h"

/* Arguments that these functions end with. The names follow all of the structure, also where it has wider members. */
#define CSV_DELIMITER DS_ARG_DEFAULT(",") DS_ARG_DOC("between the columns")
#define CSV_COLUMNS                                                                        \
    __attribute__((aligned(8))) DS_ARG_DEFAULT("") DS_ARG_COLUMN_NAMES                     \
    DS_ARG_DOC("the line with the columns' names; left out where a column goes by its name, the input's first line")
#define CSV_COLUMN DS_ARG_COLUMN DS_ARG_DOC("the column: its number from 1, or its name")

/* The remedy for a wrong name of a column. */
#define CSV_NAMES                                                                          \
    "the names of the columns, which are `columns`, as in `columns=day,cents`, or else the first line of the input; "      \
    "or give its number, from 1"
#define CSV_NO_COLUMN "`column` is not one of " CSV_NAMES
#define CSV_NO_FIELD "none of the first lines has so many columns: give another number, or what is between them as `delimiter`"

/* Without the mark that some programs begin text in UTF-8 with. */
DS_INLINE struct ds_text csv_without_mark(struct ds_text text)
{
    int marked = text.len >= 3 && text.at[0] == '\xef' && text.at[1] == '\xbb' && text.at[2] == '\xbf';

    return marked ? ds_text(text.at + 3, text.len - 3) : text;
}

/* Which column is meant, from 0; -1 for none. */
DS_INLINE __s64 csv_column_of(struct ds_text wanted, struct ds_text columns, char delimiter)
{
    struct ds_text name;
    __u64 number = 0;

    columns = csv_without_mark(columns);
    for (__s64 column = 0; columns.len > 0 && ds_next_field(&columns, delimiter, &name); column++)
        if (ds_equal(name, wanted))
            return column;
    return ds_parse_u64(wanted, &number) && number > 0 && number <= 4096 ? (__s64)number - 1 : -1;
}

/* Passes the line of names, if the request begins with it. */
DS_INLINE void csv_pass_names(struct ds_text *rest, struct ds_text columns, const struct ds_call *call)
{
    struct ds_text behind = *rest, line;

    if ((call->flags & DS_FIRST) && columns.len > 0 && ds_next_line(&behind, &line) &&
        ds_equal(csv_without_mark(line), csv_without_mark(columns)))
        *rest = behind;
}

/* The field of a line; 0 when the line has no such column. */
DS_INLINE int csv_field(struct ds_text line, __s64 wanted, char delimiter, struct ds_text *field)
{
    for (__s64 column = 0; ds_next_field(&line, delimiter, field); column++)
        if (column == wanted)
            return 1;
    return 0;
}

/* The lines that have the column. */
struct csv_lines {
    struct ds_text rest, line; /* `line` is the one whose field was given last */
    __s64 column;              /* -1: there is no such column */
    char delimiter, has_some, lacks_some; /* lines with the column, lines without it */
};

/* Of arguments of a type that has the members `column`, `delimiter` and, at its end, `columns`. */
#define CSV_LINES(in, in_len, args, type, call)                                            \
    csv_lines(ds_text(in, in_len), ds_member((args)->column, sizeof((args)->column)),      \
              ds_text((args)->columns, (call)->args_len - __builtin_offsetof(type, columns)), (args)->delimiter, call)

DS_INLINE struct csv_lines csv_lines(struct ds_text input, struct ds_text column, struct ds_text columns, char delimiter,
                                     const struct ds_call *call)
{
    struct csv_lines lines = {input, {0}, csv_column_of(column, columns, delimiter), delimiter};

    csv_pass_names(&lines.rest, columns, call);
    return lines;
}

/* The field of the next line that has one; 0 when there is none left. */
DS_INLINE int csv_next(struct csv_lines *lines, struct ds_text *field)
{
    while (ds_next_line(&lines->rest, &lines->line)) {
        if (csv_field(lines->line, lines->column, lines->delimiter, field)) {
            lines->has_some = 1;
            return 1;
        }
        lines->lacks_some |= lines->line.len > 0;
    }
    return 0;
}

/* Whether the request began with lines of which none had the column: zeros would tell nobody that it is the wrong one. */
DS_INLINE int csv_found_none(const struct csv_lines *lines, const struct ds_call *call)
{
    return (call->flags & DS_FIRST) && lines->lacks_some && !lines->has_some;
}

#endif
