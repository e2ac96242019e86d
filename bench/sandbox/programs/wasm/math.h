/* No C library: what the functions declare of it is here, what they call must not be. */
#pragma once
typedef __SIZE_TYPE__ size_t;
