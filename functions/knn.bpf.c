/* SPDX-License-Identifier: Apache-2.0 */
/*
 * knn, knn_u32, knn_f32: the k rows nearest to a target, by squared Euclidean or Manhattan distance,
 * nearest first; of equally near ones, the first. Rows are row_len bytes of unsigned bytes, 32-bit
 * unsigned integers or 32-bit floats.
 *
 * The result has k rows; where there were fewer, the last ones have index ~0.
 */
#include "diskside.h"

DS_OUTPUT(0, 1, 16 * 1024);

#define K_MAX "1024"
#define NONE (~0ull)

enum knn_metric {
    squared,
    manhattan,
};

struct knn_args {
    __u32 row_len DS_ARG_RECORD_LEN DS_ARG_MIN("1") DS_ARG_DOC("bytes in a row");
    __u32 k DS_ARG_DEFAULT("10") DS_ARG_MIN("1") DS_ARG_MAX(K_MAX) DS_ARG_DOC("how many rows");
    enum knn_metric metric DS_ARG_DEFAULT("squared") DS_ARG_DOC("squared (Euclidean) or manhattan");
    __u8 target[] DS_ARG_DOC("the row to be near to");
};

struct knn_u32_args {
    __u32 row_len DS_ARG_RECORD_LEN DS_ARG_MIN("4") DS_ARG_DOC("bytes in a row");
    __u32 k DS_ARG_DEFAULT("10") DS_ARG_MIN("1") DS_ARG_MAX(K_MAX) DS_ARG_DOC("how many rows");
    enum knn_metric metric DS_ARG_DEFAULT("squared") DS_ARG_DOC("squared (Euclidean) or manhattan");
    __u32 target[] DS_ARG_DOC("the row to be near to");
};

struct knn_f32_args {
    __u32 row_len DS_ARG_RECORD_LEN DS_ARG_MIN("4") DS_ARG_DOC("bytes in a row");
    __u32 k DS_ARG_DEFAULT("10") DS_ARG_MIN("1") DS_ARG_MAX(K_MAX) DS_ARG_DOC("how many rows");
    enum knn_metric metric DS_ARG_DEFAULT("squared") DS_ARG_DOC("squared (Euclidean) or manhattan");
    ds_f32 target[] DS_ARG_F32 DS_ARG_DOC("the row to be near to");
};

struct knn_result {
    __u64 index;    /* of the row in the source */
    __u64 distance; /* the greatest value there is when it does not fit */
};

/* Bits of non-negative doubles are in the order of their values: one list serves all. */
struct knn_f32_result {
    __u64 index;
    ds_f64 distance DS_ARG_F64;
};

/* Puts a row into the list of the k nearest so far, which is sorted by distance and index. */
DS_INLINE void insert(struct knn_result *list, __u64 k, __u64 index, __u64 distance)
{
    struct knn_result *at = list + k - 1;

    if (at->distance < distance || (at->distance == distance && at->index <= index))
        return;
    for (; at > list; at--) {
        struct knn_result *before = at - 1;
        if (before->distance < distance || (before->distance == distance && before->index < index))
            break;
        *at = *before;
    }
    at->index = index;
    at->distance = distance;
}

DS_INLINE __u64 square_of(__s64 d) { return d * d; }

/*
 * The usual metric, 16 pairs a turn: a number that is known, which compilers take at once, with vectors where
 * they have them. So many squares of bytes fit 32 bits, which are more to a vector.
 */
DS_INLINE __u64 distance_u8(const __u8 *row, const __u8 *target, __u64 n, int metric)
{
    const __u8 *end = row + n;
    __u64 sum = 0;

    if (metric == squared) {
        for (; row + 16 <= end; row += 16, target += 16) {
            __u32 part = 0;

            for (int i = 0; i < 16; i++) {
                __s32 d = (__s32)row[i] - target[i];
                part += d * d;
            }
            sum += part;
        }
        for (; row < end; row++, target++)
            sum += square_of((__s64)*row - *target);
    } else {
        for (; row < end; row++, target++) {
            __s64 d = (__s64)*row - *target;
            sum += d < 0 ? -d : d;
        }
    }
    return sum;
}

DS_INLINE __u64 distance_u32(const __u32 *row, const __u32 *target, __u64 n, int metric)
{
    const __u32 *end = row + n;
    __u64 sum = 0, overflow = 0;

    if (metric == squared) {
        for (; row < end; row++, target++) {
            __s64 d = (__s64)*row - *target;
            __u64 square = d * d;
            sum += square;
            overflow |= sum < square;
        }
    } else {
        for (; row < end; row++, target++) {
            __s64 d = (__s64)*row - *target;
            sum += d < 0 ? -d : d;
        }
    }
    return overflow ? NONE : sum;
}

DS_INLINE __u64 distance_f32(const ds_f32 *row, const ds_f32 *target, __u64 n, int metric)
{
    const ds_f32 *end = row + n;
    ds_f64 sum = 0;

    for (; row < end; row++, target++) {
        ds_f64 d = ds_f64_sub(ds_f64_from_f32(*row), ds_f64_from_f32(*target));
        sum = ds_f64_add(sum, metric == squared ? ds_f64_mul(d, d) : ds_f64_abs(d));
    }
    return sum;
}

/* The common part of all three, around their distance. */
#define KNN(type, distance_of)                                                              \
    __u64 n = args->row_len / sizeof(type), k = args->k;                                    \
    __u64 row_len = n * sizeof(type), rows, index;                                          \
    const type *row = in, *target = args->target;                                           \
                                                                                            \
    if (n == 0 || row_len != args->row_len || call->args_len - sizeof(*args) != row_len)    \
        return DS_FAIL(DS_EINVAL, "the target is not as long as a row: row_len has to be the bytes of all its elements"); \
    if (call->in_offset % row_len != 0)                                                     \
        return DS_FAIL(DS_EINVAL,                                                           \
                       "the input does not begin with a row: --offset has to be a multiple of row_len"); \
    rows = in_len / row_len;                                                                \
    index = call->in_offset / row_len;                                                      \
    ds_memset(list, 0xff, k * sizeof(*list)); /* all NONE */                                \
    for (; rows > 0; rows--, index++, row += n)                                             \
        insert(list, k, index, distance_of(row, target, n, args->metric));                  \
    return k * sizeof(*list)

SEC("read/knn")
__s64 knn(struct knn_result *list, const __u8 *in, __u64 in_len, const struct knn_args *args,
          const struct ds_call *call)
{
    KNN(__u8, distance_u8);
}

SEC("read/knn_u32")
__s64 knn_u32(struct knn_result *list, const __u32 *in, __u64 in_len,
              const struct knn_u32_args *args, const struct ds_call *call)
{
    KNN(__u32, distance_u32);
}

SEC("read/knn_f32")
__s64 knn_f32(struct knn_f32_result *out, const ds_f32 *in, __u64 in_len,
              const struct knn_f32_args *args, const struct ds_call *call)
{
    struct knn_result *list = (struct knn_result *)out;
    KNN(ds_f32, distance_f32);
}

/* Both lists have k rows. */
DS_INLINE __s64 combine(struct knn_result *acc, __u64 acc_len, const struct knn_result *part,
                        __u64 part_len)
{
    __u64 k = part_len / sizeof(*part);

    if (acc_len == 0) {
        ds_memcpy(acc, part, part_len);
        return part_len;
    }
    if (acc_len != part_len)
        return DS_FAIL(DS_EINVAL, "results of different lengths cannot be folded");
    for (__u64 i = 0; i < k && part[i].index != NONE; i++)
        insert(acc, k, part[i].index, part[i].distance);
    return acc_len;
}

SEC("combine.unordered/knn")
__s64 knn_combine(struct knn_result *acc, __u64 acc_len, __u64 acc_cap,
                  const struct knn_result *part, __u64 part_len)
{
    return combine(acc, acc_len, part, part_len);
}

SEC("combine.unordered/knn_u32")
__s64 knn_u32_combine(struct knn_result *acc, __u64 acc_len, __u64 acc_cap,
                      const struct knn_result *part, __u64 part_len)
{
    return combine(acc, acc_len, part, part_len);
}

SEC("combine.unordered/knn_f32")
__s64 knn_f32_combine(struct knn_result *acc, __u64 acc_len, __u64 acc_cap,
                      const struct knn_result *part, __u64 part_len)
{
    return combine(acc, acc_len, part, part_len);
}
