/* Shared by the test objects; independent of the shipped header on purpose. */
typedef unsigned char u8;
typedef signed char s8;
typedef unsigned short u16;
typedef short s16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;
#define SEC(name) __attribute__((section(name), used))
#define NOINLINE __attribute__((noinline))
