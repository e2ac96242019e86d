/* SPDX-License-Identifier: Apache-2.0 */
/* lambda_sum: lambda-IO's introductory example in its plain calling form: the sum of integers. */
#include "lambda_io.h"

SEC("lambda/lambda_sum")
ssize_t compute(void *output, void *input, size_t length_i)
{
    const int *value = input;
    int sum = 0;

    for (size_t i = 0; i < length_i / sizeof(int); i++)
        sum += value[i];
    *(int *)output = sum;
    return sizeof(int);
}
