"""Runs a program as on a kernel without Landlock and seccomp: `old_kernel.py PROGRAM ARGUMENTS...`. x86-64 only."""

import ctypes
import errno
import os
import struct
import sys

SET_NO_NEW_PRIVS, SET_SECCOMP, FILTER = 38, 22, 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
# seccomp, landlock_create_ruleset, landlock_add_rule, landlock_restrict_self
CALLS = [317, 444, 445, 446]


def program():
    steps = [struct.pack("HBBI", LOAD_WORD, 0, 0, 0)]
    for place, call in enumerate(CALLS):
        steps.append(struct.pack("HBBI", JUMP_IF_EQUAL, len(CALLS) - place, 0, call))
    steps += [struct.pack("HBBI", RETURN, 0, 0, ALLOW), struct.pack("HBBI", RETURN, 0, 0, REFUSE)]
    return b"".join(steps), len(steps)


def main():
    libc = ctypes.CDLL(None, use_errno=True)
    code, count = program()
    buffer = ctypes.create_string_buffer(code)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", count, ctypes.addressof(buffer)))
    if libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(SET_SECCOMP, FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
