/* No C library: what the functions declare of it is here, what they call must not be. */
#pragma once
typedef __SIZE_TYPE__ size_t;
void *memcpy(void *to, const void *from, size_t len);
void *memmove(void *to, const void *from, size_t len);
void *memset(void *to, int value, size_t len);
int memcmp(const void *a, const void *b, size_t len);
static inline void *memchr(const void *p, int value, size_t len)
{
    for (const unsigned char *at = p, *end = at + len; at < end; at++)
        if (*at == (unsigned char)value)
            return (void *)at;
    return 0;
}
