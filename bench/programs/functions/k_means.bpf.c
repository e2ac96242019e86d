/* One step of k-means: which of eight centres is nearest to each point, and the sums for the next centres. */
#include "diskside.h"
DS_OUTPUT(0, 1, 192);

struct point { double x, y; };
struct centres { double x[8], y[8]; };
struct cluster { double x, y; __u64 points; };

SEC("read/k_means")
__s64 k_means(struct cluster *out, const struct point *in, __u64 in_len, const struct centres *centres,
              const struct ds_call *call)
{
    for (__u64 i = 0; i < in_len / sizeof(*in); i++) {
        int nearest = 0;
        double least = 1e300;
        for (int k = 0; k < 8; k++) {
            double dx = in[i].x - centres->x[k], dy = in[i].y - centres->y[k];
            double distance = dx * dx + dy * dy;
            if (distance < least) {
                least = distance;
                nearest = k;
            }
        }
        out[nearest].x += in[i].x;
        out[nearest].y += in[i].y;
        out[nearest].points++;
    }
    return 8 * sizeof(*out);
}
