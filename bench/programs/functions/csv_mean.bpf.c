/* Mean of a column of decimal numbers in text. */
#include "diskside.h"
DS_SPLIT_LINES;

struct result { double sum; __u64 rows; };

SEC("read/csv_mean")
__s64 csv_mean(struct result *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 i = 0;
    while (i < in_len) {
        for (int column = 0; column < 3 && i < in_len && in[i] != '\n'; i++)
            if (in[i] == ',')
                column++;
        double value = 0, scale = 1;
        for (; i < in_len && in[i] >= '0' && in[i] <= '9'; i++)
            value = value * 10 + (in[i] - '0');
        if (i < in_len && in[i] == '.')
            for (i++; i < in_len && in[i] >= '0' && in[i] <= '9'; i++) {
                value = value * 10 + (in[i] - '0');
                scale *= 10;
            }
        out->sum += value / scale;
        out->rows++;
        while (i < in_len && in[i] != '\n')
            i++;
        i++;
    }
    return sizeof(*out);
}
