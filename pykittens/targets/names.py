"""Unique names in the emitted program: the user's, if C++ accepts them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pykittens.ir.text import Names

# Words of C++ and CUDA, and names of variables that lowerings declare.
RESERVED = (
    "auto bool break case catch char class const constexpr continue default delete do double else enum explicit "
    "export extern false float for friend goto if inline int long mutable namespace new operator private protected "
    "public register return short signed sizeof static struct switch template this throw true try typedef typename "
    "union unsigned using virtual void volatile while and or not xor asm main NAN INFINITY NULL u32 u64 i64 "
    "TensorMap DEVICE UNROLL NO_UNROLL threadIdx blockIdx blockDim gridDim warpSize shared smem lane warp thread "
    "warpgroup warp_of_block rank task turn band height place section width head peer i at_row at_col "
    "inside there inverse hidden SCRATCH SCRATCH_BYTES ranked "
    "partial held first at moved chosen Found matrix_a matrix_b min max abs exp log Turn Chunk Add Max Min F16 BF16 "
    "alignas alignof and_eq bitand bitor char8_t char16_t char32_t co_await co_return co_yield compl concept "
    "const_cast consteval constinit decltype dynamic_cast noexcept not_eq nullptr or_eq reinterpret_cast requires "
    "size_t static_assert static_cast thread_local typeid typename wchar_t xor_eq "
    "std linux unix assert i386 INT_MAX INT_MIN uint4"
).split()
# Built-in functions of the compiler: a kernel is a C function and cannot have their names.
FUNCTIONS = (
    "abs acos acosh asin asinh assert atan atan2 atanh cbrt ceil clock clock64 copysign cos cosh cospi "
    "cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma "
    "fmax fmin fmod free frexp hypot ilogb isfinite isinf isnan j0 j1 jn labs ldexp lgamma llabs llrint llround log "
    "log10 log1p log2 logb lrint lround malloc max memcmp memcpy memmove memset min modf nan nearbyint nextafter "
    "norm norm3d norm4d normcdf normcdfinv pow printf rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d "
    "round rsqrt scalbln scalbn signbit sin sincos sincospi sinh sinpi sqrt tan tanh tanpi tgamma trap trunc "
    "y0 y1 yn dim3 WARP_SZ NV_IF_ELSE_TARGET"
).split()


MOST_LETTERS = 100
# Names that C++ and the headers of CUDA leave to the user.
_FREE = re.compile(r"(?!__|_[A-Z]|cuda[A-Z]|CU(DA|_|uuid))[A-Za-z_]\w*", re.ASCII)


def c_name(name: str) -> str:
    """A Python name as an identifier that C++ does not reserve by its form; `tiles[0]` is `tiles_0`."""
    made = re.sub(r"[^A-Za-z0-9_]", "_", re.sub(r"[]'\"]", "", name))[:MOST_LETTERS]
    return made if _FREE.fullmatch(made) else f"n{made}"


def kernel_name(name: str) -> str:
    """The name of a kernel as that of a C function, which C++, CUDA and PTX accept; it may still be taken.

    PTX has no name of underscores only.
    """
    made = c_name(name)
    if not made.strip("_"):
        made = f"kernel{made}"
    is_known = made in FUNCTIONS or made.removesuffix("f") in FUNCTIONS
    return f"{made}1" if is_known else made


def declared(functions: str) -> set[str]:
    """Functions, types and macros of a text of device functions."""
    return {
        name
        for pattern in (
            r"DEVICE [^(;{]*?(\w+)\(",
            r"#define (\w+)",
            r"^[A-Z_]+\((\w+)",
            r"\bstruct (?:__\w+__\(\w+\) )?(\w+)",
            r"^typedef .*?(\w+);",
        )
        for name in re.findall(pattern, functions, re.MULTILINE)
    }


def free_name(stem: str, taken: set[str], suffixes: Sequence[str] = ("",)) -> str:
    """A name that is not in `taken` with any of these suffixes; the names with suffixes are added to `taken`."""
    stem = c_name(stem)
    name, number = stem, 1
    while any(name + suffix in taken for suffix in suffixes):
        name, number = f"{stem}{number}", number + 1
    taken.update(name + suffix for suffix in suffixes)
    return name


class CNames(Names):
    """Names of values and of everything else that the program declares, distinct from its device functions."""

    def __init__(self, functions: str) -> None:
        super().__init__()
        # A variable with the name of a device function would hide the function.
        self.taken.update(RESERVED, declared(functions))

    def stem(self, name: str) -> str:
        return name and c_name(name)

    def unique(self, stem: str, suffixes: Sequence[str] = ("",)) -> str:
        """A name that is new with each of these suffixes."""
        return free_name(stem, self.taken, suffixes)
