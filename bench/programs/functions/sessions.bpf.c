/* Sessions: visits of a user, until more than half an hour passes between two. */
#include "diskside.h"
DS_OUTPUT(0, 1, 64);

struct visit { __u32 user, second; };
struct result { __u64 sessions, longest_s; };

SEC("read/sessions")
__s64 sessions(struct result *out, const struct visit *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    struct last { __u32 began, seen; } *last = ds_alloc(4096 * sizeof(*last));
    if (!last)
        return -DS_ENOMEM;
    for (__u64 i = 0; i < in_len / sizeof(*in); i++) {
        struct last *user = &last[in[i].user % 4096];
        if (user->seen == 0 || in[i].second - user->seen > 1800) {
            out->sessions++;
            user->began = in[i].second;
        }
        user->seen = in[i].second;
        if (user->seen - user->began > out->longest_s)
            out->longest_s = user->seen - user->began;
    }
    ds_free(last);
    return sizeof(*out);
}
