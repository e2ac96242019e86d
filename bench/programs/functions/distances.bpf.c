/* The vector of 32 floats nearest to a given one. */
#include "diskside.h"

struct vector { float v[32]; };
struct nearest { __u64 at; float distance; __u32 unused; };

SEC("read/distances")
__s64 distances(struct nearest *out, const struct vector *in, __u64 in_len, const struct vector *wanted,
                const struct ds_call *call)
{
    float least = 1e30f;
    for (__u64 i = 0; i < in_len / sizeof(*in); i++) {
        float sum = 0;
        for (int k = 0; k < 32; k++) {
            float d = in[i].v[k] - wanted->v[k];
            sum += d * d;
        }
        if (sum < least) {
            least = sum;
            out->at = i;
        }
    }
    out->distance = least;
    return sizeof(*out);
}
