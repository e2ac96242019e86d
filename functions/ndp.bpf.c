/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ndp_aggregate and ndp_filter: the near-data processing of ISP Agent's evaluation. Both read file 0 in units of a size; one
 * sums the integers that a part of each unit holds, the other finds the units that contain a pattern. Their findings go to
 * the host, or to the file that was given to be written.
 *
 * So many units are read ahead as overlap says; they are looked at in the order of the file.
 */
#include "diskside.h"

#define OVERLAP_MAX 64
#define UNIT_LEN_MAX 524288
#define PATTERN_LEN_MAX 64
/* A row of ndp_aggregate's; rows of one page are written together. */
#define ROWS 256

#define NDP_UNIT DS_ARG_DEFAULT("65536") DS_ARG_MIN("16") DS_ARG_MAX("524288") DS_ARG_DOC("bytes of a unit")
#define NDP_OVERLAP \
    DS_ARG_DEFAULT("8") DS_ARG_MIN("1") DS_ARG_MAX("64") DS_ARG_DOC("units that are read at a time; 1: one after another")

struct ndp_aggregate_args {
    __u64 unit NDP_UNIT;
    __u32 share DS_ARG_DEFAULT("100") DS_ARG_MAX("100")
        DS_ARG_DOC("percent of each unit, from its start, that is 64-bit integers");
    __u32 overlap NDP_OVERLAP;
};

struct ndp_sum {
    __u64 offset; /* of the unit */
    __u64 sum;    /* modulo 2^64 */
};

struct ndp_filter_args {
    __u64 unit NDP_UNIT;
    char pattern[PATTERN_LEN_MAX] DS_ARG_DOC("what a unit has to contain");
    __u32 overlap NDP_OVERLAP;
};

/* Units of a file that are read ahead. */
struct units {
    __u64 file_len, unit, overlap;
    __u64 begun; /* the next that is to be begun */
    char *memory;
};

DS_INLINE __s64 open_units(struct units *units, struct ds_kernel *k, __u64 unit, __u64 overlap)
{
    __s64 len;

    if (k->nfiles == 0 || k->nfiles > 2 || (k->nfiles == 2 && k->nreadonly != 1))
        return DS_FAIL(DS_EINVAL, "it takes one file to read, and perhaps one to write (--write)");
    if (unit == 0 || unit > UNIT_LEN_MAX || overlap == 0 || overlap > OVERLAP_MAX)
        return DS_FAIL(DS_EINVAL, "a unit has 1 to 524288 bytes, and 1 to 64 of them are read at a time");
    len = ds_file_len(0);
    if (len < 0)
        return len;
    units->file_len = (__u64)len;
    units->unit = unit;
    units->overlap = overlap;
    units->begun = 0;
    units->memory = ds_alloc_aligned(4096, unit * overlap);
    if (units->memory == NULL)
        return DS_FAIL(DS_ENOMEM, "there is no memory for so many units: ask for more with --heap, or for a smaller overlap");
    return 0;
}

/* Has unit number n, of which `*len` bytes are there. Units ahead of it are begun first. */
DS_INLINE char *take_unit(struct units *units, __u64 n, __s64 *len)
{
    char *slot = units->memory + n % units->overlap * units->unit;

    if (units->overlap == 1) {
        *len = ds_pread(0, slot, units->unit, n * units->unit);
        return slot;
    }
    while (units->begun < n + units->overlap && units->begun * units->unit < units->file_len) {
        char *ahead = units->memory + units->begun % units->overlap * units->unit;
        __s64 begun = ds_submit_read(0, ahead, units->unit, units->begun * units->unit, units->begun);

        /* As many are under way as may be: those go first. If all of them are writes, this one is read at once. */
        if (begun == -DS_EAGAIN && units->begun > n)
            break;
        if (begun == -DS_EAGAIN) {
            units->begun++;
            *len = ds_pread(0, slot, units->unit, n * units->unit);
            return slot;
        }
        if (begun < 0) {
            *len = begun;
            return slot;
        }
        units->begun++;
    }
    *len = ds_wait(n);
    return slot;
}

SEC("kernel/ndp_aggregate")
__s64 ndp_aggregate(struct ds_kernel *k, const struct ndp_aggregate_args *args, struct ndp_sum *result)
{
    struct units units;
    __u64 count = 0, written = 0;
    __s64 failed = open_units(&units, k, args->unit, args->overlap);
    struct ndp_sum *rows = result;

    if (failed < 0)
        return failed;
    if (args->share > 100)
        return DS_FAIL(DS_EINVAL, "a share is 0 to 100 percent");
    if (k->nfiles == 2) {
        rows = ds_alloc_aligned(4096, ROWS * sizeof(*rows));
        if (rows == NULL)
            return DS_FAIL(DS_ENOMEM, "there is no memory for the rows");
    } else if (units.file_len / units.unit + 1 > k->result_cap / sizeof(*rows)) {
        return DS_FAIL(DS_ENOSPC, "the result has no room for a row for each unit: ask for more with --result, or for larger units");
    }
    for (__u64 n = 0; n * units.unit < units.file_len; n++) {
        __s64 len;
        const char *unit = take_unit(&units, n, &len);

        if (len < 0)
            return len;
        rows[count].offset = n * units.unit;
        rows[count].sum = ds_sum_u64((const __u64 *)unit, (__u64)len * args->share / 100 / 8);
        count++;
        if (k->nfiles == 2 && count == ROWS) {
            failed = ds_pwrite(1, rows, count * sizeof(*rows), written);
            if (failed < 0)
                return failed;
            written += count * sizeof(*rows);
            count = 0;
        }
    }
    if (k->nfiles == 1)
        return (__s64)(count * sizeof(*rows));
    failed = ds_pwrite(1, rows, count * sizeof(*rows), written);
    return failed < 0 ? failed : ds_sync(1);
}

SEC("kernel/ndp_filter")
__s64 ndp_filter(struct ds_kernel *k, const struct ndp_filter_args *args, char *result)
{
    struct units units;
    __u64 pattern_len = 0, found = 0;
    /* The writes that were begun and not waited for: their cookies are these numbers and WRITES. */
    __u64 first = 1ull << 63, next = first;
    __s64 failed = open_units(&units, k, args->unit, args->overlap);

    if (failed < 0)
        return failed;
    while (pattern_len < PATTERN_LEN_MAX && args->pattern[pattern_len] != 0)
        pattern_len++;
    if (pattern_len == 0)
        return DS_FAIL(DS_EINVAL, "there is no pattern: --arg pattern=TEXT");
    for (__u64 n = 0; n * units.unit < units.file_len; n++) {
        __s64 len;
        const char *unit = take_unit(&units, n, &len);

        if (len < 0)
            return len;
        if (ds_find(unit, (__u64)len, args->pattern, pattern_len) < 0)
            continue;
        if (k->nfiles == 1) {
            if ((__u64)len > k->result_cap - found)
                return DS_FAIL(DS_ENOSPC, "the result has no room for all units that match: ask for more with --result");
            ds_memcpy(result + found, unit, (__u64)len);
        } else {
            failed = ds_submit_write(1, unit, (__u64)len, found, next);
            while (failed == -DS_EAGAIN && first < next) {
                failed = ds_wait(first++);
                if (failed >= 0)
                    failed = ds_submit_write(1, unit, (__u64)len, found, next);
            }
            /* All that are under way are reads. */
            if (failed == -DS_EAGAIN)
                failed = ds_pwrite(1, unit, (__u64)len, found);
            else
                next++;
            if (failed < 0)
                return failed;
        }
        found += (__u64)len;
    }
    if (k->nfiles == 1)
        return (__s64)found;
    while (first < next) {
        failed = ds_wait(first++);
        if (failed < 0)
            return failed;
    }
    return ds_sync(1);
}
