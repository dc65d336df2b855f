// Arithmetic on the host: integers are int64 except INT64_MIN, which has no negative; floats are f32.
// A checked_ function returns true if there is no such result. A kernel uses some of these functions.
#include <string.h>

#define UNUSED __attribute__((unused))
#define CHECKED(operation, overflows) \
    UNUSED static bool checked_##operation(int64_t a, int64_t b, int64_t *result) { \
        return (overflows) || *result == INT64_MIN; \
    }
CHECKED(add, __builtin_add_overflow(a, b, result))
CHECKED(sub, __builtin_sub_overflow(a, b, result))
CHECKED(mul, __builtin_mul_overflow(a, b, result))
CHECKED(bitwise_and, (*result = a & b, false))
CHECKED(bitwise_or, (*result = a | b, false))
CHECKED(bitwise_xor, (*result = a ^ b, false))
UNUSED static bool checked_neg(int64_t a, int64_t *result) {
    *result = -a;
    return false;
}

// The largest integer not above a / b.
UNUSED static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// The smallest integer not below a / b.
UNUSED static int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0 && (a < 0) == (b < 0));
}

// a - b * floor_div(a, b): it has the sign of b.
UNUSED static int64_t floor_mod(int64_t a, int64_t b) {
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// For integers and floats; NaN if one of the operands is NaN.
#define max_nan(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
#define min_nan(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))

// The float with these bits.
UNUSED static float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
