"""The calls of NVRTC, and a program that makes them: a crash of the compiler ends that process, not the user's.

`nvrtc.py` imports this file, and runs it as `python -I -S compiler.py`, with a request on standard input and the reply
on standard output. Both are named parts, as `encode` writes them. The file imports nothing that starts slowly.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p

# Signatures as in nvrtc.h; a program's handle is an address.
_SIGNATURES = {
    "nvrtcVersion": (POINTER(c_int), POINTER(c_int)),
    "nvrtcGetNumSupportedArchs": (POINTER(c_int),),
    "nvrtcGetSupportedArchs": (POINTER(c_int),),
    "nvrtcGetErrorString": (c_int,),
    "nvrtcCreateProgram": (
        POINTER(c_void_p), c_char_p, c_char_p, c_int, POINTER(c_char_p), POINTER(c_char_p),
    ),
    "nvrtcDestroyProgram": (POINTER(c_void_p),),
    "nvrtcCompileProgram": (c_void_p, c_int, POINTER(c_char_p)),
    **{f"nvrtcGet{what}Size": (c_void_p, POINTER(c_size_t)) for what in ("CUBIN", "PTX", "ProgramLog")},
    **{f"nvrtcGet{what}": (c_void_p, c_char_p) for what in ("CUBIN", "PTX", "ProgramLog")},
}  # fmt: skip
SUCCESS, ERROR_COMPILATION = 0, 6
_LENGTH_BYTES = 8

Parts = dict[str, bytes]


class Failure(Exception):
    """A call of NVRTC failed; the message is NVRTC's."""


def load(path: str) -> ctypes.CDLL:
    """The library with this path or name, with its signatures set; AttributeError if it lacks a function.

    NVRTC loads its builtins by name at the first compilation, but the loader may not search the folder of the library:
    with the wheel of 13.0 it does not (cuda-pathfinder loads them in advance for this reason).
    """
    folder = os.path.dirname(path)
    if os.path.isabs(folder):
        if sys.platform == "win32":
            os.add_dll_directory(folder)
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if name.startswith("libnvrtc-builtins.so."):
                try:
                    ctypes.CDLL(os.path.join(folder, name))
                except OSError:
                    continue
    nvrtc = ctypes.CDLL(path)
    for name, arguments in _SIGNATURES.items():
        function = getattr(nvrtc, name)
        function.argtypes, function.restype = arguments, c_int
    nvrtc.nvrtcGetErrorString.restype = c_char_p
    return nvrtc


class _Place(ctypes.Structure):
    """`Dl_info` of dlfcn.h."""

    _fields_ = (
        ("file", c_char_p), ("base", c_void_p), ("symbol", c_char_p), ("address", c_void_p),
    )  # fmt: skip


def file_of(nvrtc: ctypes.CDLL, path: str) -> str:
    """The file of a library that was loaded as `path`, which may be a name that the loader looks up."""
    place = _Place()
    if os.name == "posix" and not os.path.isabs(path):
        address = ctypes.cast(nvrtc.nvrtcVersion, c_void_p)
        if ctypes.CDLL(None).dladdr(address, byref(place)) and place.file:
            path = os.fsdecode(place.file)
    return os.path.realpath(path) if os.path.isfile(path) else path


def version(nvrtc: ctypes.CDLL) -> tuple[int, int]:
    """Major and minor version."""
    major, minor = c_int(), c_int()
    _check(nvrtc, nvrtc.nvrtcVersion(byref(major), byref(minor)))
    return major.value, minor.value


def architectures(nvrtc: ctypes.CDLL) -> list[int]:
    """The numbers of the architectures that the library supports."""
    count = c_int()
    _check(nvrtc, nvrtc.nvrtcGetNumSupportedArchs(byref(count)))
    numbers = (c_int * count.value)()
    _check(nvrtc, nvrtc.nvrtcGetSupportedArchs(numbers))
    return list(numbers)


def request(source: str, name: str, options: list[str], headers: dict[str, str]) -> Parts:
    """The parts that `compile` takes; name: the file name in the log."""
    return {
        "source": source.encode(),
        "name": name.encode(),
        "options": "\0".join(options).encode(),
        "headers": encode({header: text.encode() for header, text in headers.items()}),
    }


def compile(nvrtc: ctypes.CDLL, asked: Parts) -> Parts:
    """The reply to a request: `status`, its text `error` and the `log`; after success `cubin` and `ptx`."""
    options = [option for option in asked["options"].split(b"\0") if option]
    headers = decode(asked["headers"])
    program = c_void_p()
    created = nvrtc.nvrtcCreateProgram(
        byref(program), asked["source"], asked["name"], len(headers),
        _strings(list(headers.values())), _strings([name.encode() for name in headers]),
    )  # fmt: skip
    _check(nvrtc, created)
    try:
        status: int = nvrtc.nvrtcCompileProgram(program, len(options), _strings(options))
        reply = {
            "status": str(status).encode(),
            "error": nvrtc.nvrtcGetErrorString(status),
            "log": _output(nvrtc, program, "ProgramLog").rstrip(b"\0"),
        }
        if status == SUCCESS:
            reply["cubin"] = _output(nvrtc, program, "CUBIN")
            reply["ptx"] = _output(nvrtc, program, "PTX").rstrip(b"\0")
        return reply
    finally:
        nvrtc.nvrtcDestroyProgram(byref(program))


def encode(parts: Parts) -> bytes:
    """Named parts as bytes: the length and the bytes of each name and each part."""
    pieces = []
    for name, data in parts.items():
        for piece in (name.encode(), data):
            pieces += [len(piece).to_bytes(_LENGTH_BYTES, "little"), piece]
    return b"".join(pieces)


def decode(data: bytes) -> Parts:
    """The parts that `encode` wrote; ValueError for other bytes."""
    pieces, position = [], 0
    while position < len(data):
        start = position + _LENGTH_BYTES
        position = start + int.from_bytes(data[position:start], "little")
        if position > len(data):
            raise ValueError("the last part is cut off")
        pieces.append(data[start:position])
    return {name.decode(): part for name, part in zip(pieces[::2], pieces[1::2], strict=True)}


def _check(nvrtc: ctypes.CDLL, status: int) -> None:
    if status != SUCCESS:
        text: bytes = nvrtc.nvrtcGetErrorString(status)
        raise Failure(text.decode())


def _strings(texts: list[bytes]) -> ctypes.Array[c_char_p]:
    return (c_char_p * len(texts))(*texts)


def _output(nvrtc: ctypes.CDLL, program: c_void_p, what: str) -> bytes:
    """An output of the program: "CUBIN", "PTX" or "ProgramLog"."""
    size = c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _end_with_the_parent() -> None:
    """End at Ctrl-C, which Python would handle after the compilation only, and when the parent ends."""
    if os.name == "posix":
        c_library = ctypes.CDLL(None)
        c_library.signal(2, None)  # SIGINT, SIG_DFL
        if sys.platform == "linux":
            c_library.prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL


def _main() -> None:
    _end_with_the_parent()
    # Whatever the library prints does not mix with the reply.
    reply = os.dup(1)
    os.dup2(2, 1)
    asked = decode(sys.stdin.buffer.read())
    with open(reply, "wb") as stream:
        stream.write(encode(compile(load(asked["library"].decode()), asked)))


if __name__ == "__main__":
    _main()
