/* SPDX-License-Identifier: Apache-2.0 */
/* lambda_io_sum: the same by way of lambda-IO's context, with the macros that its sources use. */
#include "lambda_io.h"

int LIO_PROG(lambda_io_sum)(struct context *ctx)
{
    char *buf_i = ctx->buf_i;
    char *buf_o = ctx->buf_o;
    int64_t size_i = ctx->size_i;
    int sum = 0;

    for_check(int64_t i = 0, i < size_i, i += sizeof(int)) {
        sum += ibuf_deref_check(int, i);
    }
    obuf_deref_check(int, 0) = sum;
    return sizeof(int);
}
