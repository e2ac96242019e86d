/* A table-driven automaton: counts C comments and string literals in source text. */
#include "diskside.h"
DS_OUTPUT(0, 1, 64);

enum { CODE, SLASH, COMMENT, STAR, STRING, ESCAPE, STATES };

SEC("read/state_machine")
__s64 state_machine(__u64 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u8 *next = ds_alloc(STATES * 256);
    if (!next)
        return -DS_ENOMEM;
    for (int c = 0; c < 256; c++) {
        next[CODE * 256 + c] = c == '/' ? SLASH : c == '"' ? STRING : CODE;
        next[SLASH * 256 + c] = c == '*' ? COMMENT : c == '/' ? SLASH : c == '"' ? STRING : CODE;
        next[COMMENT * 256 + c] = c == '*' ? STAR : COMMENT;
        next[STAR * 256 + c] = c == '/' ? CODE : c == '*' ? STAR : COMMENT;
        next[STRING * 256 + c] = c == '"' ? CODE : c == '\\' ? ESCAPE : STRING;
        next[ESCAPE * 256 + c] = STRING;
    }
    __u64 count[STATES] = {0};
    __u32 state = CODE;
    for (__u64 i = 0; i < in_len; i++) {
        state = next[state * 256 + in[i]];
        count[state]++;
    }
    for (int i = 0; i < STATES; i++)
        out[i] = count[i];
    ds_free(next);
    return STATES * sizeof(*out);
}
