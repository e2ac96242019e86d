/* Rows of 64 doubles, each times a vector. */
#include "diskside.h"

struct vector { double v[64]; };

SEC("read/matrix_vector")
__s64 matrix_vector(double *out, const struct vector *in, __u64 in_len, const struct vector *args,
                    const struct ds_call *call)
{
    __u64 rows = in_len / sizeof(*in);
    for (__u64 i = 0; i < rows; i++) {
        double sum = 0;
        for (int k = 0; k < 64; k++)
            sum += in[i].v[k] * args->v[k];
        out[i] = sum;
    }
    return rows * sizeof(*out);
}
