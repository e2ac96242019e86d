/* Deepest nesting of JSON, strings left out, and how many objects and arrays there are. */
#include "diskside.h"

struct result { __u64 deepest, objects, arrays; };

SEC("read/json_depth")
__s64 json_depth(struct result *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 depth = 0;
    for (__u64 i = 0; i < in_len; i++) {
        switch (in[i]) {
        case '"':
            for (i++; i < in_len && in[i] != '"'; i++)
                if (in[i] == '\\')
                    i++;
            break;
        case '{':
            out->objects++;
            if (++depth > out->deepest)
                out->deepest = depth;
            break;
        case '[':
            out->arrays++;
            if (++depth > out->deepest)
                out->deepest = depth;
            break;
        case '}':
        case ']':
            depth--;
            break;
        }
    }
    return sizeof(*out);
}
